"""Decoding pictures from anywhere, with limits that are checked before the pixels are unpacked."""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ink2tex.errors import ImageError

#: Files larger than this are not opened.
MAX_BYTES: Final = 256 * 2**20
#: Pictures with more pixels than this are not decoded: 64 million are a quarter of a gigabyte in memory.
MAX_PIXELS: Final = 64_000_000
#: JPEG can be decoded at a half, a quarter or an eighth of its size, so larger ones are welcome.
MAX_JPEG_PIXELS: Final = 160_000_000
#: The longest side that any picture may have.
MAX_SIDE: Final = 32_000
#: Transparent pictures are put on black instead of white when their ink is at least this light.
_LIGHT_INK: Final = 160

Source = str | Path | bytes | bytearray | memoryview | BinaryIO | Image.Image | np.ndarray


def read_picture(source: Source, name: str | None = None) -> np.ndarray:
    """The pixels of a picture, upright: (H, W) or (H, W, 3) uint8, grey or RGB.

    `source` is a path, the bytes of a file, an open file, a Pillow image or an array. Pictures are turned as
    their EXIF orientation says, 16 bits are reduced to 8, transparent parts become white (black if the ink is
    light), of several frames the first counts. JPEGs beyond `MAX_PIXELS` are read at a fraction of their size.
    `name` stands for the picture in error messages. Raises `ImageError` for whatever is not a picture or too
    large, before any large memory is taken.
    """
    if isinstance(source, np.ndarray):
        return _from_array(source, name or "the array")
    if isinstance(source, Image.Image):
        _check_size(source.width, source.height, MAX_PIXELS, name or "the picture")
        return _guarded(source, name or "the picture")
    if isinstance(source, str | Path):
        label = name or str(source)
        data = _read_file(Path(source), label)
    elif isinstance(source, bytes | bytearray | memoryview):
        label = name or "the picture"
        data = bytes(source)
    else:
        label = name or str(getattr(source, "name", "the picture"))
        data = source.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ImageError(f"{label}: the file is larger than {MAX_BYTES // 2**20} MB; give a smaller picture")
    if not data:
        raise ImageError(f"{label}: the file is empty; give a picture such as a PNG or a JPEG")
    return _decode(data, label)


def _read_file(path: Path, name: str) -> bytes:
    try:
        if path.is_dir():
            raise ImageError(f"{name}: is a folder; give a picture file")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ImageError(f"{name}: cannot be opened ({error.strerror or error}); check the path") from None


def _decode(data: bytes, name: str) -> np.ndarray:
    if _is_heif(data):
        _register_heif(name)
    with warnings.catch_warnings():
        # Pillow warns of large pictures; the limits here are stricter.
        warnings.simplefilter("ignore")
        try:
            picture = Image.open(io.BytesIO(data))
        except Image.DecompressionBombError:
            raise ImageError(f"{name}: the picture has far too many pixels; give a smaller one") from None
        except UnidentifiedImageError:
            raise ImageError(
                f"{name}: this is not a picture that can be read; give a PNG, JPEG, BMP, WebP, TIFF or GIF"
            ) from None
        except Exception as error:  # decoders raise whatever they like on broken headers
            raise _broken(name, error) from None
        with picture:
            jpeg = picture.format in ("JPEG", "MPO")
            _check_size(picture.width, picture.height, MAX_JPEG_PIXELS if jpeg else MAX_PIXELS, name)
            if jpeg and picture.width * picture.height > MAX_PIXELS:
                picture.draft(None, (picture.width // 2, picture.height // 2))
            return _guarded(picture, name)


def _check_size(width: int, height: int, most: int, name: str) -> None:
    if width < 1 or height < 1:
        raise ImageError(f"{name}: the picture has no pixels; give another one")
    if width * height > most or max(width, height) > MAX_SIDE:
        raise ImageError(
            f"{name}: {width} × {height} pixels are too many; crop it to the expression or make it smaller"
        )


def _guarded(picture: Image.Image, name: str) -> np.ndarray:
    """`_pixels`, with whatever a decoder raises on broken data turned into an `ImageError`."""
    try:
        return _pixels(picture)
    except ImageError:
        raise
    except Image.DecompressionBombError:
        raise ImageError(f"{name}: the picture has far too many pixels; give a smaller one") from None
    except Exception as error:
        raise _broken(name, error) from None


def _broken(name: str, error: Exception) -> ImageError:
    return ImageError(f"{name}: the picture is damaged or cut off ({error}); save or download it again")


def _pixels(picture: Image.Image) -> np.ndarray:
    picture.load()
    with contextlib.suppress(Exception):  # a broken EXIF block leaves the picture as it lies
        picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith(("I", "F")):
        return _to_8_bit(np.asarray(picture))
    if picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        return _flatten(np.asarray(picture.convert("RGBA")))
    if picture.mode in ("1", "L"):
        return np.array(picture.convert("L"))
    return np.array(picture.convert("RGB"))


def _from_array(array: np.ndarray, name: str) -> np.ndarray:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (2, 3, 4)):
        raise ImageError(
            f"{name}: an array of shape {array.shape} is no picture; give (height, width) or (height, width, 3)"
        )
    _check_size(array.shape[1], array.shape[0], MAX_PIXELS, name)
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * np.uint8(255)
    elif array.dtype.kind not in "iuf":
        raise ImageError(f"{name}: an array of {array.dtype} is no picture; give numbers from 0 to 255")
    if array.ndim == 3 and array.shape[2] in (2, 4):
        array = array if array.dtype == np.uint8 else _to_8_bit(array)
        return _flatten(array if array.shape[2] == 4 else array[:, :, [0, 0, 0, 1]])
    return array if array.dtype == np.uint8 else _to_8_bit(array)


def _to_8_bit(array: np.ndarray) -> np.ndarray:
    """Numbers of any kind as uint8: from 0 to 1, from 0 to 255, or (16 bit) from 0 to the largest."""
    numbers = np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    top = float(numbers.max())
    if array.dtype.kind == "f" and top <= 1:
        factor = 255.0
    elif top <= 255:
        factor = 1.0
    else:
        # Cameras and scanners fill 16 bits to different degrees; the ink is found relative to the paper anyway.
        factor = 255.0 / top
    return np.clip(numbers * factor + 0.5, 0, 255).astype(np.uint8)


def _flatten(rgba: np.ndarray) -> np.ndarray:
    """(H, W, 4) on a background: white, or black if what is opaque is light."""
    alpha = rgba[:, :, 3]
    if int(alpha.min()) == 255:
        return np.ascontiguousarray(rgba[:, :, :3])
    weight = alpha.astype(np.float32)[:, :, None] / 255  # (H, W, 1)
    colour = rgba[:, :, :3].astype(np.float32)
    covered = float(weight.sum())
    lightness = float((colour * weight).sum()) / (3 * covered) if covered else 0.0
    # Light ink on nothing, not a light page with transparent borders.
    paper = 0.0 if lightness >= _LIGHT_INK and covered < 0.5 * alpha.size else 255.0
    return (colour * weight + paper * (1 - weight) + 0.5).astype(np.uint8)


def _is_heif(data: bytes) -> bool:
    return data[4:8] == b"ftyp" and data[8:12] in (b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"heim", b"heis")


def _register_heif(name: str) -> None:
    try:
        heif = importlib.import_module("pillow_heif")
    except ImportError:
        raise ImageError(
            f"{name}: HEIC pictures need a decoder; install ink2tex[heic] or save the picture as JPEG"
        ) from None
    heif.register_heif_opener()

"""Whatever a caller has, as the bitmap that the network reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from ink2tex.errors import ImageError, Ink2TexError
from ink2tex.image import Prepared, prepare, read_picture
from ink2tex.ink import Ink, ink_from_points, read_inkml
from ink2tex.raster import official_scale, place_strokes, rasterise, scale_strokes

if TYPE_CHECKING:
    from PIL.Image import Image

    from ink2tex.image.reading import Source

    #: A path, the bytes of a file, a Pillow image, an array of pixels, ink, or strokes: (N, 2) arrays of x and y.
    Input: TypeAlias = str | os.PathLike[str] | bytes | Image | np.ndarray | Ink | Sequence[np.ndarray]
else:
    Input = Any


def to_bitmap(source: Input, name: str | None = None) -> Prepared:
    """The official bitmap of an input, and the way back from places on it. `name` stands for it in errors."""
    if isinstance(source, Prepared):
        return source
    if isinstance(source, Ink):
        return draw(source)
    if isinstance(source, str | os.PathLike):
        path = source = Path(source)
        name = name or str(source)
        if path.suffix.lower() == ".inkml":
            return draw(read_inkml(path, name=name))
    elif isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
        if looks_like_xml(data):
            return draw(read_inkml(data, name=name))
        source = data
    elif isinstance(source, list | tuple):
        return draw(ink_from_points(source, uid=name or ""))
    picture = read_picture(cast("Source", source), name)
    try:
        return prepare(picture)
    except ImageError as error:
        raise _named(error, name) from None


def draw(ink: Ink) -> Prepared:
    """Ink as an official bitmap."""
    scale = official_scale(ink.strokes)
    strokes = scale_strokes(ink.strokes, scale)
    placed, _ = place_strokes(strokes)
    first = next(stroke for stroke in strokes if len(stroke))
    shift = placed[0][0].astype(np.float64) - first[0]
    matrix = np.array([[1 / scale, 0.0, -shift[0] / scale], [0.0, 1 / scale, -shift[1] / scale]])
    return Prepared(rasterise(strokes), (), scale, matrix)


def looks_like_xml(data: bytes) -> bool:
    """Whether bytes begin as an XML file does."""
    return data[:64].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")


def _named(error: Ink2TexError, name: str | None) -> Ink2TexError:
    """The same error, beginning with the name of the input."""
    text = str(error)
    return error if name is None or text.startswith(name) else ImageError(f"{name}: {text}")

"""Pickled pictures as ABM and CAN publish them (`{uid: uint8 array}`), read without running anything.

Unpickling can call any function that the file names. Here the file may only name what pickled numpy arrays
need, and each of these names stands for a small object of our own that just collects the pieces. Arrays are then
built from checked pieces; numpy's own unpickling is never reached.
"""

from __future__ import annotations

import math
import mmap
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from ink2tex.errors import DataError

MAX_PICKLE_BYTES: Final = 4 * 2**30

#: Element types of pictures; byte order does not matter to them.
_DTYPES: Final = {code: np.dtype(code) for code in ("u1", "b1")}


class _Refused(Exception):  # noqa: N818
    """The file asks for something that no pickle of pictures needs."""


class _DType:
    """Pieces of a dtype."""

    __slots__ = ("code",)

    def __init__(self, code: object, *_: object) -> None:
        self.code = _text(code).lstrip("|<>=").replace("uint8", "u1").replace("bool", "b1")

    def __setstate__(self, state: object) -> None:
        """Byte order, alignment and the like: nothing that one-byte elements have."""


class _Array:
    """Pieces of an array, put together by `build`."""

    __slots__ = ("dtype", "fortran", "raw", "shape")

    def __init__(self) -> None:
        self.shape: object = ()
        self.dtype: object = None
        self.fortran = False
        self.raw: object = b""

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise _Refused("the state of an array is not what numpy writes")
        self.shape, self.dtype, fortran, self.raw = state[-4:]
        self.fortran = bool(fortran)

    def build(self) -> np.ndarray:
        code = self.dtype.code if isinstance(self.dtype, _DType) else str(self.dtype)
        if code not in _DTYPES:
            raise ValueError(f"has elements of the type {code!r}, not uint8")
        shape, raw = self.shape, self.raw
        if not (isinstance(shape, tuple) and all(isinstance(n, int) and n >= 0 for n in shape)):
            raise ValueError(f"has the shape {shape!r}")
        if isinstance(raw, str):  # a string of Python 2
            raw = raw.encode("latin-1")
        if not isinstance(raw, bytes | bytearray) or len(raw) != math.prod(shape):
            raise ValueError(f"does not hold the bytes of its shape {shape}")
        array = np.frombuffer(bytes(raw), _DTYPES[code])
        return array.reshape(shape, order="F" if self.fortran else "C")


class _Stand:
    """Stands for a global that a pickle may name: can be called, and nothing else be done with it."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call

    def __call__(self, *args: object) -> object:
        return self._call(*args)

    def __setstate__(self, state: object) -> None:
        raise _Refused("a pickle may not change the state of a global")


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(raw: object, dtype: object, shape: object, order: object = "C", *_: object) -> _Array:
    array = _Array()
    array.__setstate__((shape, dtype, order == "F", raw))
    return array


def _encode(text: object, encoding: object = "latin1", *_: object) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise _Refused("bytes are written as latin-1 text")
    return text.encode("latin-1")


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, str):
        return value
    raise _Refused(f"expected text, found {type(value).__name__}")


_NUMPY: Final = {
    ("multiarray", "_reconstruct"): _Stand(_reconstruct),
    ("numeric", "_frombuffer"): _Stand(_from_buffer),
}
_GLOBALS: Final = {
    ("numpy", "ndarray"): _Stand(_reconstruct),
    ("numpy", "dtype"): _Stand(_DType),
    ("_codecs", "encode"): _Stand(_encode),
    # Old and new names of the same numpy modules.
    **{(f"numpy.{core}.{module}", name): s for core in ("core", "_core") for (module, name), s in _NUMPY.items()},
}


# The unpickler written in Python, not the one in C: that one allocates whatever size a file claims.
class _PictureUnpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _GLOBALS[module, name]
        except KeyError:
            raise _Refused(f"it asks for {module}.{name}") from None

    def persistent_load(self, pid: object) -> Any:
        raise _Refused("it refers to objects outside of the file")


def read_picture_pickle(path: str | Path) -> dict[str, np.ndarray]:
    """The pictures of a pickled dictionary by uid: (H, W) uint8 each.

    Arrays of shape (H, W), (1, H, W) and (H, W, 1) are understood, also of Python 2 and of any protocol. Whatever
    else the file holds makes it a `DataError`, which names the global if the file asks for one.
    """
    path = Path(path)
    try:
        if not 0 < path.stat().st_size <= MAX_PICKLE_BYTES:
            raise DataError(f"{path}: is empty or larger than {MAX_PICKLE_BYTES >> 30} GB")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            loaded = _PictureUnpickler(data, encoding="latin1").load()
    except _Refused as error:
        raise DataError(
            f"{path}: not a pickle of pictures ({error}); only dictionaries of uint8 arrays are read"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can make the unpickler fail in any way
        raise DataError(f"{path}: not a complete pickle ({type(error).__name__}: {error}); fetch it again") from None
    if not isinstance(loaded, dict) or not loaded:
        raise DataError(f"{path}: holds no dictionary of pictures by name but {type(loaded).__name__}")
    return dict(_entry(path, key, value) for key, value in loaded.items())


def _entry(path: Path, key: object, value: object) -> tuple[str, np.ndarray]:
    try:
        uid = _text(key)
    except _Refused:
        raise DataError(f"{path}: names its pictures by {key!r}, which is no text") from None
    if not isinstance(value, _Array):
        raise DataError(f"{path}: {uid} is a {type(value).__name__}, not an array")
    try:
        picture = value.build()
    except ValueError as error:
        raise DataError(f"{path}: {uid} {error}") from None
    if picture.ndim == 3 and 1 in (picture.shape[0], picture.shape[2]):
        picture = picture.reshape(picture.shape[1:] if picture.shape[0] == 1 else picture.shape[:2])
    if picture.ndim != 2 or not picture.size:
        raise DataError(f"{path}: {uid} has the shape {picture.shape}, not (H, W) or (1, H, W)")
    return uid, picture.view(np.uint8) * np.uint8(255) if picture.dtype == np.bool_ else picture

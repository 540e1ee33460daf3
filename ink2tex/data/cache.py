"""Parsed samples in one compact file, so that a set is read from its archive only once.

The file is a plain npz of numbers and text (no pickle). Its name is a digest of everything that the samples were
made from: the files, the captions, the options and the code that reads them. It is written under another name
first and then renamed; a file that cannot be read is treated as if it were not there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from ink2tex.data.sample import Sample

log = logging.getLogger(__name__)

_UNREADABLE: Final = (OSError, ValueError, KeyError, EOFError, IndexError, zipfile.BadZipFile, zlib.error)


@cache
def _code_digest() -> bytes:
    """Digest of the modules that make samples, so that no sample outlives a change of them."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for pattern in ("ink.py", "raster.py", "latex/*.py", "data/*.py"):
        for file in sorted(package.glob(pattern)):
            digest.update(file.read_bytes())
    return digest.digest()


def digest_of(paths: Iterable[Path], *options: object) -> str:
    """The key of the samples made from these files and folders with these options."""
    digest = hashlib.sha256(_code_digest())
    digest.update(repr(options).encode())
    for path in paths:
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in files:
            name = file.relative_to(path).as_posix() if path.is_dir() else file.name
            with file.open("rb") as data:
                digest.update(name.encode("utf-8", "surrogateescape") + b"\0")
                digest.update(hashlib.file_digest(data, "sha256").digest())
    return digest.hexdigest()[:32]


def _ragged(rows: Iterable[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different length as (all values, lengths)."""
    listed = [np.asarray(row, dtype=np.int32) for row in rows]
    flat = np.concatenate(listed) if listed else np.zeros(0, np.int32)
    return flat, np.array([len(row) for row in listed], dtype=np.int32)


def _text(lines: Iterable[str]) -> np.ndarray:
    return np.frombuffer("\n".join(lines).encode(), dtype=np.uint8)


def save(path: Path, samples: Sequence[Sample], places: Sequence[str]) -> None:
    """Write samples and where each label stands; failing to (a full or read-only disk) is logged, not raised."""
    strokes = [s.strokes or () for s in samples]
    every = [stroke for group in strokes for stroke in group]
    alignments = [s.token_strokes for s in samples]
    indices, counts = _ragged(row for a in alignments if a is not None for row in a)
    arrays = {
        "uids": _text(s.uid for s in samples),
        "tokens": _text(" ".join(s.tokens) for s in samples),
        "places": _text(places),
        "points": np.concatenate(every) if every else np.zeros((0, 2), np.float32),
        "stroke_lengths": np.array([len(stroke) for stroke in every], np.int32),
        "stroke_counts": np.array([len(group) for group in strokes], np.int32),
        "aligned": np.array([a is not None for a in alignments], bool),
        "align_indices": indices,
        "align_counts": counts,
        "shapes": np.array([(0, 0) if s.image is None else s.image.shape for s in samples], np.int32).reshape(-1, 2),
        "pixels": np.concatenate([np.zeros(0, np.uint8), *(s.image.ravel() for s in samples if s.image is not None)]),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        log.warning("%s: the parsed samples could not be kept (%s)", path, error)


def load(path: Path) -> tuple[list[Sample], list[str]] | None:
    """The samples and places of a file that `save` wrote; None if there is none or it is damaged."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return _unpack(arrays)
    except _UNREADABLE as error:
        log.warning("%s: damaged, reading the set anew (%s)", path, error)
        return None


def _unpack(arrays: dict[str, np.ndarray]) -> tuple[list[Sample], list[str]]:
    uids, labels, places = (arrays[n].tobytes().decode().split("\n") for n in ("uids", "tokens", "places"))
    stroke_counts, aligned, shapes = arrays["stroke_counts"], arrays["aligned"], arrays["shapes"]
    every = np.split(arrays["points"], np.cumsum(arrays["stroke_lengths"])[:-1])
    rows = np.split(arrays["align_indices"], np.cumsum(arrays["align_counts"])[:-1])
    pixels = arrays["pixels"]
    samples = []
    stroke = row = pixel = 0
    for i, (uid, label) in enumerate(zip(uids, labels, strict=True)):
        tokens = tuple(label.split())
        count, (height, width) = int(stroke_counts[i]), shapes[i].tolist()
        size = height * width
        token_strokes = None
        if aligned[i]:
            token_strokes = tuple(tuple(r.tolist()) for r in rows[row : row + len(tokens)])
            row += len(tokens)
        samples.append(
            Sample(
                uid,
                tokens,
                strokes=None if size else tuple(every[stroke : stroke + count]),
                image=pixels[pixel : pixel + size].reshape(height, width) if size else None,
                token_strokes=token_strokes,
            )
        )
        stroke, pixel = stroke + count, pixel + size
    if stroke != len(arrays["stroke_lengths"]) or pixel != len(pixels) or len(places) != len(samples):
        raise ValueError("the parts do not fit each other")
    return samples, places

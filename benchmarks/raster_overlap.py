"""How well the rasteriser reproduces the official CROHME 2014 images from their ink.

    python benchmarks/raster_overlap.py [folder with test2014_inkml.tar.xz and test2014_images.tar.xz]

Prints the mean overlap (intersection over union of ink pixels) at the scale that `official_scale` predicts and
at the true scale (found from the size of each official image), how many images are identical, the error of the
predicted scale, and the time per image.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from ink2tex.ink import read_inkml
from ink2tex.raster import OFFICIAL, brush, official_scale, rasterise, scale_strokes

ROOT = Path(__file__).resolve().parent.parent


def crohme() -> Path:
    """Where the CROHME archives are: `INK2TEX_CROHME`, or beside the repository."""
    return Path(os.environ.get("INK2TEX_CROHME") or ROOT.parent / "shared" / "crohme")


def pairs(folder: Path) -> Iterator[tuple[str, tuple[np.ndarray, ...], np.ndarray]]:
    """(uid, strokes in ink units, official bitmap) of the 2014 test set."""
    with tarfile.open(folder / "test2014_images.tar.xz") as archive:
        images = {
            Path(member.name).stem.removesuffix("_0"): data.read()
            for member in archive
            if member.name.endswith(".bmp") and (data := archive.extractfile(member))
        }
    with tarfile.open(folder / "test2014_inkml.tar.xz") as archive:
        for member in archive:
            uid = Path(member.name).stem
            if uid in images and (data := archive.extractfile(member)):
                image = np.asarray(Image.open(io.BytesIO(images[uid])).convert("L"))
                yield uid, read_inkml(data.read(), member.name).strokes, image


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of the ink of two bitmaps, laid over each other at the top left corner."""
    shape = tuple(max(sizes) for sizes in zip(a.shape, b.shape, strict=True))
    padded = [np.pad(x > 0, [(0, n - m) for n, m in zip(shape, x.shape, strict=True)]) for x in (a, b)]
    return float((padded[0] & padded[1]).sum() / max(1, (padded[0] | padded[1]).sum()))


def true_scale(strokes: Sequence[np.ndarray], shape: tuple[int, int]) -> float:
    """The scale that fits the ink into an official bitmap of this shape, from its longer side (± half a pixel)."""
    left, top, right, bottom = OFFICIAL.margins
    side = len(brush(OFFICIAL.thickness))
    extent = np.ptp(np.concatenate(strokes), axis=0)
    pixels = np.array([shape[1] - left - right - side, shape[0] - top - bottom - side])
    longer = int(extent.argmax())
    return float(pixels[longer] / extent[longer])


def main(folder: Path, limit: int | None = None) -> dict[str, float]:
    """Compare the first `limit` pairs and return the figures."""
    predicted, true, ratio, seconds = [], [], [], []
    for _, strokes, image in islice(pairs(folder), limit):
        scale, measured = official_scale(strokes), true_scale(strokes, image.shape)
        scaled = scale_strokes(strokes, scale)
        begin = time.perf_counter()
        bitmap = rasterise(scaled)
        seconds.append(time.perf_counter() - begin)
        predicted.append(overlap(bitmap, image))
        true.append(overlap(rasterise(scale_strokes(strokes, measured)), image))
        ratio.append(scale / measured)
    return {
        "images": len(predicted),
        "IoU, predicted scale: mean": float(np.mean(predicted)),
        "IoU, predicted scale: lowest": float(np.min(predicted)),
        "identical images": float(np.mean(np.array(predicted) == 1)),
        "IoU, scale from the image size: mean": float(np.mean(true)),
        "predicted / measured scale: median": float(np.median(ratio)),
        "predicted / measured scale: coefficient of variation": float(np.std(ratio) / np.mean(ratio)),
        "predicted / measured scale: largest difference": float(np.abs(np.array(ratio) - 1).max()),
        "ms per image: mean": 1e3 * float(np.mean(seconds)),
        "ms per image: 99 %": 1e3 * float(np.quantile(seconds, 0.99)),
    }


if __name__ == "__main__":
    for name, value in main(Path(sys.argv[1]) if len(sys.argv) > 1 else crohme()).items():
        print(f"{name:56s} {value:.4f}")

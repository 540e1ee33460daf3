"""Whether a picture of the same ink stays the same for the network, however it was taken.

    python benchmarks/invariance.py [--set 2014|2013] [--limit N] [--model CHECKPOINT|FOLDER|default]

Every expression is drawn as the official bitmap and in other ways (smaller, larger, inverted, on a page, as a
JPEG, on grey paper under a lamp, on squared and ruled paper, with other pens); `prepare` turns each picture into
a bitmap again. Printed for each way, against the official bitmap:

- size: the median of the ratio of sizes, and how many are within 10 % and within 25 %;
- width: the mean width of strokes (ink pixels for each pixel of the skeleton; 3 would be the official pen);
- near: the part of the ink of either that lies within 2 px of the other's, both laid over each other;
- open: how many have as many parts and holes as the official bitmap: thick pens fill loops and close gaps;
- with a model: ExpRate, the word error rate, the part read exactly as the official bitmap is read, and ExpRate of those
  that are open, and of their official bitmaps;
- the time of `prepare`.

The size of symbols is calibrated on drawings of the 2013 set; other settings of `ink2tex.image` were set by hand on
such drawings and on photos, none on the 2014 set.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
from reader import load_reader

from ink2tex.data.photograph import jpeg, on_page, on_paper, resized, style_at
from ink2tex.data.readers import read_samples
from ink2tex.data.sample import Sample
from ink2tex.errors import ImageError
from ink2tex.image import prepare
from ink2tex.image.thinning import thin
from ink2tex.metrics import score
from ink2tex.raster import rasterise

ROOT = Path(__file__).resolve().parent.parent
SETS = {"2013": "test2013_inkml.tar.xz", "2014": "test2014_inkml.tar.xz"}

Way = Callable[[Sample, np.random.Generator], np.ndarray]


def drawn(sample: Sample, scale: float = 1.0, thickness: float = 3.0, antialias: bool = False) -> np.ndarray:
    assert sample.strokes is not None
    strokes = [stroke * np.float32(scale) for stroke in sample.strokes]
    return rasterise(strokes, style_at(scale, thickness, antialias))


def half(sample: Sample, rng: np.random.Generator) -> np.ndarray:
    return resized(drawn(sample), 0.5)


def with_rules(sample: Sample, rng: np.random.Generator, squared: bool) -> np.ndarray:
    """Ink at twice the size on a page with printed rules, a little turned."""
    ink = cv2.copyMakeBorder(drawn(sample, 2.0), 60, 60, 80, 80, cv2.BORDER_CONSTANT, value=0)
    side = max(ink.shape) + 200
    rules = np.zeros((side, side), np.float32)
    pitch = int(rng.integers(60, 110) if not squared else rng.integers(40, 70))
    rules[int(rng.integers(pitch)) :: pitch] = 1
    if squared:
        rules[:, int(rng.integers(pitch)) :: pitch] = 1
    rules = cv2.dilate(rules, np.ones((2, 2), np.uint8))
    turn = cv2.getRotationMatrix2D((side / 2, side / 2), float(rng.uniform(-1.5, 1.5)), 1.0)
    rules = cv2.warpAffine(rules, turn, (side, side))[100 : 100 + ink.shape[0], 100 : 100 + ink.shape[1]]
    return on_paper(ink, rng, rules * np.float32(rng.uniform(0.2, 0.5)))


def in_red(sample: Sample, rng: np.random.Generator) -> np.ndarray:
    """Red ink on cream paper, with the chroma of a JPEG."""
    cover = (cv2.GaussianBlur(drawn(sample, 1.5), (0, 0), 0.8).astype(np.float32) / 255)[:, :, None]
    paper, pen = np.array([235, 230, 205], np.float32), np.array([200, 60, 70], np.float32)
    picture = paper * (1 - cover) + pen * cover + rng.normal(0, 4, (*cover.shape[:2], 3))
    return jpeg(np.clip(picture, 0, 255).astype(np.uint8), 70)


WAYS: dict[str, Way] = {
    "official": lambda sample, rng: drawn(sample),
    "0.5x": half,
    "2x": lambda sample, rng: drawn(sample, 2.0),
    "3x": lambda sample, rng: drawn(sample, 3.0),
    "inverted": lambda sample, rng: 255 - drawn(sample),
    "page": lambda sample, rng: on_page(drawn(sample), tuple(rng.integers(100, 400, 4).tolist())),
    "JPEG 40": lambda sample, rng: jpeg(255 - drawn(sample), 40),
    "grey, gradient": lambda sample, rng: on_paper(drawn(sample), rng),
    "strokes 2x": lambda sample, rng: drawn(sample, thickness=6.0),
    "strokes 0.6x": lambda sample, rng: drawn(sample, thickness=1.8, antialias=True),
    "ruled": lambda sample, rng: with_rules(sample, rng, squared=False),
    "squared": lambda sample, rng: with_rules(sample, rng, squared=True),
    "red pen": in_red,
}


def ink_box(bitmap: np.ndarray) -> np.ndarray:
    rows, columns = np.flatnonzero(bitmap.any(axis=1)), np.flatnonzero(bitmap.any(axis=0))
    return bitmap[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def near(a: np.ndarray, b: np.ndarray, reach: int = 2) -> float:
    """How much of the ink of two bitmaps lies close to the other's: the harmonic mean of both parts."""
    a, b = ink_box(a), ink_box(b)
    a = (cv2.resize(a, (b.shape[1], b.shape[0]), interpolation=cv2.INTER_AREA) > 127).astype(np.uint8)
    b = (b > 127).astype(np.uint8)
    brush = np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)
    one = (a & cv2.dilate(b, brush)).sum() / max(1, a.sum())
    other = (b & cv2.dilate(a, brush)).sum() / max(1, b.sum())
    return 2 * one * other / max(one + other, 1e-9)


def size_ratio(bitmap: np.ndarray, official: np.ndarray) -> float:
    """By the longer side of the ink, without the pen itself."""
    axis = int(np.argmax(official.shape))
    return (ink_box(bitmap).shape[axis] - 3 + 1e-3) / max(1, ink_box(official).shape[axis] - 3)


def stroke_width(bitmap: np.ndarray) -> float:
    return float((bitmap > 127).sum() / max(1, int(thin(bitmap).sum())))


def parts_and_holes(bitmap: np.ndarray) -> tuple[int, int]:
    """How many connected parts the ink has, and how many parts of the ground it encloses."""
    ink = np.pad((bitmap > 127).astype(np.uint8), 1)
    return cv2.connectedComponents(ink, connectivity=8)[0] - 1, cv2.connectedComponents(1 - ink, connectivity=4)[0] - 2


def measure(name: str, samples: Sequence[Sample]) -> tuple[list[np.ndarray], np.ndarray, str]:
    """The bitmaps of all samples after one way, which of them are open, and the line of numbers about them."""
    bitmaps, ratios, widths, nears, seconds = [], [], [], [], []
    kept = np.zeros(len(samples), bool)
    failed = 0
    for index, sample in enumerate(samples):
        picture = WAYS[name](sample, np.random.default_rng(index))
        start = time.perf_counter()
        try:
            bitmap = prepare(picture).bitmap
        except ImageError:
            failed += 1
            bitmap = np.zeros((32, 32), np.uint8)
        seconds.append(time.perf_counter() - start)
        bitmaps.append(bitmap)
        if bitmap.any():
            official = drawn(sample)
            ratios.append(size_ratio(bitmap, official))
            widths.append(stroke_width(bitmap))
            nears.append(near(bitmap, official))
            kept[index] = parts_and_holes(bitmap) == parts_and_holes(official)
    off = np.abs(np.log(np.maximum(ratios, 1e-3)))
    line = (
        f"{name:15s} size {np.median(ratios):5.2f}  ±10 % {np.mean(off < np.log(1.1)):6.1%}  ±25 % "
        f"{np.mean(off < np.log(1.25)):6.1%}  width {np.mean(widths):4.2f}  near {np.mean(nears):5.3f}  "
        f"(< 0.9: {np.mean(np.array(nears) < 0.9):5.1%})  "
        f"open {np.mean(kept):6.1%}  {1000 * np.median(seconds):6.2f} ms"
    )
    return bitmaps, kept, line + (f"  {failed} without ink" if failed else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=sorted(SETS), default="2014", help="which test set to draw")
    parser.add_argument("--data", type=Path, help="folder or archive with InkML, instead of --set")
    parser.add_argument("--limit", type=int, help="only so many expressions, spread over the set")
    parser.add_argument("--ways", nargs="*", help="only these ways")
    parser.add_argument("--model", help="checkpoint, folder of exported weights, or 'default'")
    arguments = parser.parse_args()
    folder = Path(os.environ.get("INK2TEX_CROHME") or ROOT.parent / "shared" / "crohme")
    source = arguments.data or folder / SETS[arguments.set]
    captions = folder / "test2014_caption.txt" if arguments.set == "2014" and not arguments.data else None
    samples = read_samples(source, captions, align=False)
    if arguments.limit and arguments.limit < len(samples):
        chosen = np.linspace(0, len(samples) - 1, arguments.limit).astype(int)
        samples = [samples[index] for index in chosen]
    reader = load_reader(arguments.model)
    print(f"{len(samples)} expressions of {source}")
    truths = {sample.uid: list(sample.tokens) for sample in samples}
    first: list[list[str]] = []
    for name in arguments.ways or WAYS:
        bitmaps, kept, line = measure(name, samples)
        if reader:
            read = reader(bitmaps)
            first = first or read
            report = score({sample.uid: tokens for sample, tokens in zip(samples, read, strict=True)}, truths)
            same = np.mean([a == b for a, b in zip(read, first, strict=True)])
            line += f"  ExpRate {report.exprate:5.2f}  WER {report.wer:5.2f}  same {same:6.2%}"
            if kept.any():
                right, officially = (
                    100 * np.mean([a == truths[s.uid] for a, s, o in zip(some, samples, kept, strict=True) if o])
                    for some in (read, first)
                )
                line += f"  open: {right:5.2f} (official {officially:5.2f})"
        print(line, flush=True)


if __name__ == "__main__":
    main()

"""How much ink lies on each pixel of a picture, whatever the light, the paper and the pen.

The picture is compared with the paper around each pixel: what is left is 0 for paper and near 1 for black ink,
for dark ink on light paper as for chalk on a board. The paper under the ink is found by a closing (the brightest
of the surroundings, followed by the darkest of that): it follows the edge of a shadow or of the page exactly
and swallows whatever is thicker than a pen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import cv2
import numpy as np

from ink2tex.errors import ImageError
from ink2tex.image.rules import NO_RULES, Rules, find_rules, without_rules

#: Long side of the small copy on which polarity and a first guess of the paper are found.
_SMALL: Final = 640
#: Contrast below which nothing is ink, and the multiple of the noise that ink has to exceed.
_LEAST_INK: Final = 0.07
_OVER_NOISE: Final = 5.0
#: Ink that exceeds the noise so many times needs no smoothing.
_CLEAR: Final = 10.0
#: A pixel belongs to a stroke if it is this part as dark as ink; a stroke has a pixel as dark as the second.
_LOW, _HIGH = 0.3, 0.5
#: Edges of strokes lie where the darkness is this part of that in the middle of the strokes around; a faint stroke
#: beside a dark one is still darker than its surroundings, and the hollow of a loop is lighter.
_EDGE, _RIDGE, _HOLLOW = 0.5, 0.38, 0.65
_HOLLOW_DEPTH: Final = 0.08
#: The paper ends where its brightness falls to this part within the width of a stroke.
_BRINK: Final = 0.7


class NoInkError(ImageError):
    """A picture without anything written on it."""

    def __init__(self) -> None:
        super().__init__("there is no ink on this picture; give one with an expression written on it")


@dataclass(frozen=True, eq=False)
class InkMap:
    """Where ink lies on a picture of the same size."""

    #: (H, W) float32, 0 for paper to 1 for black.
    strength: np.ndarray
    #: (H, W) uint8, 255 where there is ink.
    mask: np.ndarray
    #: How dark the ink is, and the standard deviation of the paper.
    level: float
    noise: float
    #: Printed rules that were taken away.
    rules: Rules = NO_RULES
    #: (H, W) bool: where the paper ends or a shadow begins; None if that was not looked for.
    brinks: np.ndarray | None = None


def is_light_on_dark(picture: np.ndarray) -> bool:
    """Whether the writing is lighter than what it is written on."""
    grey = grey_of(_shrink_to(picture, _SMALL))
    rest = grey.astype(np.float32) - _surroundings(grey)
    spread = 3 * 1.48 * float(np.median(np.abs(rest)))
    light = float((np.maximum(rest - spread, 0) ** 2).sum())
    dark = float((np.maximum(-rest - spread, 0) ** 2).sum())
    return light > dark


def rough_ink(picture: np.ndarray) -> InkMap:
    """Dark ink on `picture` (uint8), compared with the median of wide surroundings, and the rules under it.

    Good enough to measure the ink.
    """
    paper = np.stack([_surroundings(channel) for channel in _channels(_shrink_to(picture, _SMALL))], axis=-1)
    ink = _found(_strength(picture, paper), None, (0.0, 1.0, 2.0, 4.0))
    pen = stroke_width_of(ink.mask)
    rules = find_rules(ink.strength, ink.level, ink.noise, pen)
    return ink if not rules else _without(rules, ink, pen, None)


def fine_ink(picture: np.ndarray, stroke_width: float, rules: Rules = NO_RULES) -> InkMap:
    """Dark ink on `picture` (uint8), written with strokes of about `stroke_width` px, perhaps on ruled paper."""
    scale = min(1.0, 2.5 / stroke_width)
    small = _resize(picture, scale)
    reach = 2 * round(3.5 * max(1.0, stroke_width * scale)) + 1
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach, reach))
    small = cv2.medianBlur(small, 3) if min(small.shape[:2]) > 2 and stroke_width * scale > 2 else small
    paper = cv2.morphologyEx(small, cv2.MORPH_CLOSE, kernel, borderType=cv2.BORDER_REPLICATE)
    paper = cv2.GaussianBlur(paper, (0, 0), max(1.0, reach / 10), borderType=cv2.BORDER_REPLICATE)
    ink = _found(_strength(picture, paper), stroke_width, (0.0, 0.25 * stroke_width, 0.4 * stroke_width))
    if rules:
        ink = _without(rules, ink, stroke_width, stroke_width)
    square = np.ones((2 * round(stroke_width * scale) + 1,) * 2, np.uint8)
    bright, dim = (grey_of(way(paper, square)).astype(np.float32) for way in (cv2.dilate, cv2.erode))
    if not (brinks := (dim < _BRINK * bright).astype(np.uint8)).any():
        return ink
    size = (picture.shape[1], picture.shape[0])
    return replace(ink, brinks=cv2.resize(brinks, size, interpolation=cv2.INTER_NEAREST) > 0)


def grey_of(picture: np.ndarray) -> np.ndarray:
    return picture if picture.ndim == 2 else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)


def stroke_width_of(mask: np.ndarray) -> float:
    """The typical width in pixels of the strokes of a mask (uint8, 0 or 255); thicker blobs do not matter."""
    distance = cv2.distanceTransform(mask, cv2.DIST_L2, 5)
    ridge = np.sort(distance[(distance >= cv2.dilate(distance, np.ones((3, 3), np.uint8))) & (mask > 0)])
    if not len(ridge):
        return 1.0
    share = np.cumsum(ridge)  # a ridge pixel stands for the ink on both sides: specks hardly count
    return max(1.0, 2 * float(ridge[np.searchsorted(share, 0.4 * share[-1])]) - 0.6)


def _found(strength: np.ndarray, stroke_width: float | None, blurs: Sequence[float]) -> InkMap:
    """The ink on a map of darkness, smoothed no more than it takes to stand out of the noise."""
    ink = None
    for blur in blurs:
        smooth = cv2.GaussianBlur(strength, (0, 0), blur) if blur else strength
        sample = smooth[:: max(1, smooth.shape[0] // 512), :: max(1, smooth.shape[1] // 512)]
        middle = float(np.median(sample))
        try:
            better = _threshold(smooth - middle, _noise(sample - middle), stroke_width)
        except NoInkError:
            continue
        if ink is None or better.level * ink.noise > ink.level * better.noise:
            ink = better
        if ink.level >= _CLEAR * ink.noise:
            break
    if ink is None:
        raise NoInkError
    return ink


def _without(rules: Rules, ink: InkMap, pen: float, stroke_width: float | None) -> InkMap:
    strength = without_rules(ink.strength, rules, ink.level, ink.noise, pen)
    return replace(_threshold(strength, ink.noise, stroke_width), rules=rules)


def _noise(strength: np.ndarray) -> float:
    """The standard deviation of what is around 0, ink left out."""
    size = np.abs(strength)
    # The median alone would say 0 for grey levels that mostly agree.
    usual = strength[size <= max(4 * 1.48 * float(np.median(size)), 0.03)]
    return float(usual.std())


def _threshold(strength: np.ndarray, noise: float, stroke_width: float | None) -> InkMap:
    """Ink by how dark it is, on its own and against its surroundings if the width of strokes is known."""
    least = max(_LEAST_INK, _OVER_NOISE * noise)
    inked = strength[strength > least]
    if inked.size == 0:
        raise NoInkError
    level = float(np.quantile(inked, 0.95))
    low = max(_LOW * level, min(least, 0.6 * level))
    candidates = strength > low
    if stroke_width is not None:
        reach = 2 * round(stroke_width / 2) + 1
        peak = cv2.dilate(strength, np.ones((reach, reach), np.uint8))
        peak = cv2.blur(peak, (reach, reach))
        np.minimum(peak, level, out=peak)
        around = cv2.blur(strength, (reach + 2, reach + 2))
        part = np.where(strength > around, np.float32(_RIDGE), np.float32(_EDGE))
        part[strength < around - _HOLLOW_DEPTH * level] = _HOLLOW
        candidates &= strength > part * peak
    mask = _connected_to(candidates.astype(np.uint8), strength > max(_HIGH * level, low))
    return InkMap(strength, mask, level, noise)


def _connected_to(candidates: np.ndarray, sure: np.ndarray) -> np.ndarray:
    """The connected parts of `candidates` that hold a `sure` pixel, as 255."""
    count, labels = cv2.connectedComponents(candidates, connectivity=8)
    keep = np.zeros(count, dtype=np.uint8)
    keep[labels[sure]] = 255
    keep[0] = 0
    return keep[labels]


def _strength(picture: np.ndarray, paper: np.ndarray) -> np.ndarray:
    """(H, W) float32: how much darker than the paper, along the colour in which ink and paper differ most."""
    height, width = picture.shape[:2]
    if picture.ndim == 2:
        return _darkness(picture, paper.reshape(paper.shape[:2]), (width, height))
    parts = [_darkness(picture[..., c], paper[..., c], (width, height)) for c in range(3)]
    step = max(1, int((height * width / 250_000) ** 0.5))
    sample = np.stack([part[::step, ::step].ravel() for part in parts], axis=1)  # (n, 3)
    total = sample.sum(axis=1)
    strong = sample[total >= np.quantile(total, 0.99)]
    direction = np.maximum(strong.mean(axis=0), 0)
    if not direction.any():
        direction = np.ones(3, np.float32)
    # Black ink weighs the channels alike; red ink looks at green and blue.
    weights = direction / float(direction.sum())
    return (weights[0] * parts[0] + weights[1] * parts[1] + weights[2] * parts[2]).astype(np.float32)


def _darkness(channel: np.ndarray, paper: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """1 − channel / paper, with the paper brought to the channel's size; negative where lighter than the paper."""
    large = cv2.resize(paper.astype(np.float32), size, interpolation=cv2.INTER_LINEAR)
    np.maximum(large, 8.0, out=large)  # in the dark, noise is no ink
    return np.subtract(1.0, cv2.divide(channel.astype(np.float32), large))


def _channels(picture: np.ndarray) -> list[np.ndarray]:
    return [picture] if picture.ndim == 2 else [np.ascontiguousarray(picture[..., c]) for c in range(picture.shape[2])]


def _surroundings(channel: np.ndarray) -> np.ndarray:
    """The median of a window of about a third of the shorter side (at least 15 px)."""
    reach = min(max(15, min(channel.shape) // 3) // 2, min(channel.shape) - 1)
    if reach < 1:
        return channel.astype(np.float32)
    # Beyond the edge the light goes on as it came: reflected at the value of the edge.
    wide = np.pad(channel.astype(np.int16), reach, mode="reflect", reflect_type="odd").clip(0, 255).astype(np.uint8)
    return cv2.medianBlur(wide, 2 * reach + 1)[reach:-reach, reach:-reach].astype(np.float32)


def _shrink_to(picture: np.ndarray, side: int) -> np.ndarray:
    return _resize(picture, min(1.0, side / max(picture.shape[:2])))


def _resize(picture: np.ndarray, scale: float) -> np.ndarray:
    if scale == 1.0:
        return picture
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)

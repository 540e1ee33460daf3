"""What is ink but not writing, and what there is to say about the writing.

A mask of ink falls into connected parts. Specks, dust far from everything, edges of the page and rests of rules
are told apart by size, darkness and place; dots, points and signs near the writing stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import cv2
import numpy as np

from ink2tex.image.paper import InkMap, NoInkError, stroke_width_of
from ink2tex.raster import FLAT

#: Parts smaller than this in every direction, in widths of a stroke, are dots or specks.
_DOT: Final = 2.5
#: Something has to be as long as this, or there are only specks.
_LEAST_WRITING: Final = 2.0
#: Dots further than this from everything else, in heights of a symbol, are dust.
_DUST: Final = 1.2
#: A few parts so far from the rest, in heights, that hold so little of the ink do not belong to it.
_STRAY: Final = 2.5
_STRAY_INK: Final = 0.03
#: Parts at the edge of the picture that are so much fainter than the rest are paper, not writing.
_FAINT: Final = 0.7
#: On ruled paper, short pieces that are nowhere darker than this are left of rules.
_REST_OF_RULE: Final = 0.75
#: A part that lies on the end of the paper for this part of its area is that end.
_ON_BRINK: Final = 0.6
#: Strokes are nowhere thicker than this many times their usual width; at the edge, what is thicker is no stroke.
_THICK: Final = 4.0
#: With more parts than this a picture is noise or a page rather than an expression; only the largest are kept.
_MOST_PARTS: Final = 1500
#: Nor is an expression so many symbols high.
_MOST_HEIGHTS: Final = 14

SEVERAL_LINES: Final = "the picture seems to hold several lines of writing; crop it to one expression"
VERY_FAINT: Final = "the writing is very faint"
AT_THE_EDGE: Final = "the writing touches the edge of the picture and may be cut off"


@dataclass(frozen=True, eq=False)
class Parts:
    """The connected parts of a mask, one row for each."""

    #: (n, 4) float64: left, top, right, bottom; right and bottom are exclusive.
    boxes: np.ndarray
    #: (n,) pixels of ink.
    areas: np.ndarray

    @classmethod
    def of(cls, mask: np.ndarray) -> Parts:
        return _numbered(mask)[0]

    @property
    def sizes(self) -> np.ndarray:
        """(n, 2) width and height."""
        return self.boxes[:, 2:] - self.boxes[:, :2]

    def chosen(self, which: np.ndarray) -> Parts:
        return Parts(self.boxes[which], self.areas[which])


@dataclass(frozen=True, eq=False)
class Writing:
    """The writing on a picture, without the rest."""

    #: (H, W) uint8, 255 where there is writing.
    mask: np.ndarray
    parts: Parts
    #: Width of strokes and mean height of symbols in pixels.
    stroke_width: float
    height: float
    warnings: tuple[str, ...] = ()


def clean(ink: InkMap) -> Writing:
    """The writing among the ink; raises `NoInkError` if nothing is left."""
    width = stroke_width_of(ink.mask)
    parts, labels = _numbered(ink.mask)
    longest = parts.sizes.max(axis=1)
    keep = (parts.areas >= 0.35 * width**2) & (longest >= 0.7 * width)
    keep &= ~_of_the_edge(parts, labels, ink, width)
    if ink.rules:
        keep &= ~_of_rules(parts, labels, ink, width)
    if ink.brinks is not None:
        on_brink = np.bincount(labels[ink.brinks], minlength=len(keep) + 1)[1:]
        keep &= on_brink < _ON_BRINK * parts.areas
    if not keep.any():
        raise NoInkError
    indices = np.flatnonzero(keep)
    if len(indices) > _MOST_PARTS:
        indices = indices[np.argsort(parts.areas[indices])[-_MOST_PARTS:]]
    indices = indices[_near_the_rest(parts.chosen(indices), width)]
    keep[:] = False
    keep[indices] = True
    if longest[keep].max() < _LEAST_WRITING * width:
        raise NoInkError
    mask = np.where(np.append(False, keep), 255, 0).astype(np.uint8)[labels]
    writing = Writing(mask, parts.chosen(keep), width, height_of(parts.chosen(keep), width))
    return replace(writing, warnings=_warnings(writing, ink))


def height_of(parts: Parts, stroke_width: float) -> float:
    """The mean height of what is neither flat nor a dot, between the middles of strokes."""
    heights = parts.sizes[:, 1] - stroke_width
    tall = heights[heights > FLAT * heights.max()] if len(heights) else heights
    return max(float(tall.mean()) if len(tall) else 0.0, stroke_width)


def _numbered(mask: np.ndarray) -> tuple[Parts, np.ndarray]:
    """The parts of a mask, and a picture (H, W) int32 with the number of each part, counted from 1."""
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    boxes = stats[1:, :4].astype(np.float64)
    boxes[:, 2:] += boxes[:, :2]
    return Parts(boxes, stats[1:, 4]), labels


def _of_the_edge(parts: Parts, labels: np.ndarray, ink: InkMap, width: float) -> np.ndarray:
    """(n,) bool: parts at the edge of the picture that are no strokes, such as the table under the page."""
    height, across = labels.shape
    boxes, sizes = parts.boxes, parts.sizes
    at_side = (boxes[:, 0] <= 1) | (boxes[:, 2] >= across - 1)
    at_top = (boxes[:, 1] <= 1) | (boxes[:, 3] >= height - 1)
    at_edge = at_side | at_top
    if not at_edge.any():
        return at_edge
    inked = ink.mask > 0
    where = labels[inked] - 1
    strength = np.bincount(where, ink.strength[inked], len(at_edge)) / np.maximum(parts.areas, 1)
    usual = float(np.median(ink.strength[inked]))
    distance = cv2.distanceTransform(ink.mask, cv2.DIST_L2, 3)
    thick = np.bincount(labels[distance > 0.5 * _THICK * width] - 1, minlength=len(at_edge)) > 0
    # A straight line along a whole side of the picture; brackets at the edge are shorter or bent.
    thin = 2.5 * width
    along = (at_side & (sizes[:, 1] > 0.9 * height) & (sizes[:, 0] < thin)) | (
        at_top & (sizes[:, 0] > 0.9 * across) & (sizes[:, 1] < thin)
    )
    little = parts.areas < 0.3 * parts.areas.sum()
    return at_edge & ((strength < _FAINT * usual) | thick | along) & (little | thick)


def _of_rules(parts: Parts, labels: np.ndarray, ink: InkMap, width: float) -> np.ndarray:
    """(n,) bool: short pieces, nowhere as dark as ink, that are left of rules."""
    inked = ink.mask > 0
    peak = np.zeros(len(parts.areas) + 1, dtype=np.float32)
    np.maximum.at(peak, labels[inked], ink.strength[inked])
    return (peak[1:] < _REST_OF_RULE * ink.level) & (parts.sizes.max(axis=1) < 8 * width)


def _gaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n, m) distances between boxes: the longer of the two gaps, 0 if they overlap."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    return np.maximum(low - high, 0).max(axis=2)


def _near_the_rest(parts: Parts, width: float) -> np.ndarray:
    """(n,) bool: everything but dust and strays."""
    small = parts.sizes.max(axis=1) < _DOT * width
    if small.all():
        return np.ones(len(small), dtype=bool)
    height = height_of(parts.chosen(~small), width)
    gaps = _gaps(parts.boxes, parts.boxes)
    # Dots near writing, and dots near those: an ellipsis is a chain.
    near = ~small
    while True:
        more = near | (gaps[:, near].min(axis=1) <= _DUST * height)
        if (more == near).all():
            break
        near = more
    group = _groups(gaps <= _STRAY * height)
    ink = np.bincount(group[near], parts.areas[near], len(small))
    main = ink[group] >= _STRAY_INK * ink.max()
    return near & main


def _groups(linked: np.ndarray) -> np.ndarray:
    """(n,) the number of the group of each, from (n, n) bool links."""
    group = np.full(len(linked), -1)
    for first in range(len(linked)):
        if group[first] >= 0:
            continue
        members = np.zeros(len(linked), dtype=bool)
        members[first] = True
        while True:
            more = linked[members].any(axis=0) | members
            if (more == members).all():
                break
            members = more
        group[members] = first
    return group


def _warnings(writing: Writing, ink: InkMap) -> tuple[str, ...]:
    warnings = []
    if has_several_lines(writing.parts, writing.stroke_width, writing.height):
        warnings.append(SEVERAL_LINES)
    if ink.level < 0.16 or ink.level < 8 * ink.noise:
        warnings.append(VERY_FAINT)
    boxes = writing.parts.boxes
    if boxes[:, :2].min() <= 0 or boxes[:, 2].max() >= ink.mask.shape[1] or boxes[:, 3].max() >= ink.mask.shape[0]:
        warnings.append(AT_THE_EDGE)
    return tuple(warnings)


def has_several_lines(parts: Parts, width: float, height: float) -> bool:
    """Whether symbols stand in rows with white between them and no fraction bar there, or fill a page."""
    sizes = parts.sizes
    if float(parts.boxes[:, 3].max() - parts.boxes[:, 1].min()) > _MOST_HEIGHTS * height:
        return True
    tall = parts.chosen(sizes[:, 1] >= 0.5 * height)
    order = np.argsort(tall.boxes[:, 1])
    rows: list[list[int]] = []
    bottom = -np.inf
    for index in order.tolist():
        if tall.boxes[index, 1] > bottom + 0.4 * height:
            rows.append([])
        rows[-1].append(index)
        bottom = max(bottom, tall.boxes[index, 3])
    bars = parts.chosen((sizes[:, 0] > 3 * np.maximum(sizes[:, 1], width)) & (sizes[:, 0] > height))
    for upper, lower in pairwise(rows):
        if min(len(upper), len(lower)) < 3:
            continue
        a, b = tall.boxes[upper], tall.boxes[lower]
        low, high = a[:, 3].max(), b[:, 1].min()
        narrow = min(np.ptp(a[:, [0, 2]]), np.ptp(b[:, [0, 2]]))
        between = (bars.boxes[:, 1] > low - 0.5 * height) & (bars.boxes[:, 3] < high + 0.5 * height)
        if not (between & (bars.sizes[:, 0] > 0.6 * narrow)).any():
            return True
    return False

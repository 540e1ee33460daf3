"""Strokes to lines of one pixel, so that every pen can be redrawn as the one of the training ink."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np

#: Weights of the eight neighbours, clockwise from the one above: a neighbourhood is a number from 0 to 255.
_CODE = np.array([[128, 1, 2], [64, 0, 4], [32, 16, 8]], dtype=np.float32)
#: Half of the neighbours as (dy, dx): each pair of neighbouring pixels is met once.
_FORWARD = ((0, 1), (1, 0), (1, 1), (1, -1))


@lru_cache(maxsize=1)
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """For both halves of a round (Guo and Hall, 1989): 1 where a pixel with these neighbours goes.

    Unlike the better known rule of Zhang and Suen, it does not eat up slanting lines from their ends.
    """
    tables = np.zeros((2, 256), dtype=np.uint8)
    for code in range(256):
        n, ne, e, se, s, sw, w, nw = (bool(code >> bit & 1) for bit in range(8))
        crossings = (not n and (ne or e)) + (not e and (se or s)) + (not s and (sw or w)) + (not w and (nw or n))
        pairs = min((nw or n) + (ne or e) + (se or s) + (sw or w), (n or ne) + (e or se) + (s or sw) + (w or nw))
        if crossings == 1 and 2 <= pairs <= 3:
            tables[0, code] = not ((n or ne or not se) and e)
            tables[1, code] = not ((s or sw or not nw) and w)
    return tables[0], tables[1]


def thin(mask: np.ndarray) -> np.ndarray:
    """The skeleton of a mask (uint8, anything but 0 is ink): (H, W) uint8 of 0 and 1."""
    ink = cv2.copyMakeBorder((mask > 0).astype(np.uint8), 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    tables = _tables()
    while True:
        gone = 0
        for table in tables:
            codes = cv2.filter2D(ink, cv2.CV_8U, _CODE, borderType=cv2.BORDER_CONSTANT)
            goes = cv2.bitwise_and(cv2.LUT(codes, table), ink)
            gone += cv2.countNonZero(goes)
            ink = cv2.subtract(ink, goes).astype(np.uint8, copy=False)
        if not gone:
            return _with_dots(np.ascontiguousarray(ink[1:-1, 1:-1]), mask)


def _with_dots(skeleton: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A pixel for each part of the mask that thinning has wiped out, as it does with squares of four pixels."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats((mask > 0).astype(np.uint8), connectivity=8)
    left = np.bincount(labels[skeleton == 1], minlength=count)
    for part in np.flatnonzero(left[1:] == 0) + 1:
        x, y, width, height = stats[part, :4]
        inside = np.argwhere(labels[y : y + height, x : x + width] == part)
        row, column = inside[np.abs(inside - inside.mean(axis=0)).sum(axis=1).argmin()]
        skeleton[y + row, x + column] = 1
    return skeleton


def links(skeleton: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of neighbouring skeleton pixels, (n, 2, 2) int32 of (x, y), and the pixels without any, (m, 2).

    Diagonal pairs that already are neighbours around a corner are left out: staircases stay thin.
    """
    padded = cv2.copyMakeBorder(skeleton, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    height, width = skeleton.shape

    def shifted(dy: int, dx: int) -> np.ndarray:
        return padded[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    pairs = []
    for dy, dx in _FORWARD:
        both = skeleton & shifted(dy, dx)
        if dy and dx:
            both = both & ~(shifted(dy, 0) | shifted(0, dx)) & 1
        y, x = np.nonzero(both)
        pairs.append(np.stack([np.stack([x, y], 1), np.stack([x + dx, y + dy], 1)], 1))
    crowd = cv2.filter2D(padded, cv2.CV_8U, np.ones((3, 3), np.float32), borderType=cv2.BORDER_CONSTANT)[1:-1, 1:-1]
    y, x = np.nonzero((skeleton == 1) & (crowd == 1))
    return np.concatenate(pairs).astype(np.int32), np.stack([x, y], 1).astype(np.int32)


def prune(skeleton: np.ndarray, length: int) -> np.ndarray:
    """`skeleton` without branches of up to `length` pixels that hang on a longer line.

    Ends are worn off `length` times, and what still ends afterwards grows back along the old line. A line that
    is worn off altogether was no branch and stays.
    """
    if length < 1:
        return skeleton
    ones = np.ones((3, 3), np.float32)
    square = np.ones((3, 3), np.uint8)

    def ends(lines: np.ndarray) -> np.ndarray:
        crowd = cv2.filter2D(lines, cv2.CV_8U, ones, borderType=cv2.BORDER_CONSTANT)
        return ((crowd <= 2) & (lines == 1)).astype(np.uint8)

    worn = skeleton.copy()
    for _ in range(length):
        worn -= ends(worn)
    tips = ends(worn)
    for _ in range(length):
        tips = cv2.dilate(tips, square) & skeleton
    count, labels = cv2.connectedComponents(skeleton, connectivity=8)
    left = np.zeros(count, dtype=bool)
    left[labels[worn == 1]] = True
    left[0] = True
    return worn | tips | (skeleton & ~left[labels]).astype(np.uint8)

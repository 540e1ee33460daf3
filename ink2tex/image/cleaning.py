"""What is ink but not writing: specks, borders, rules."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from ink2tex.image.paper import InkMap, NoInkError, stroke_width_of


@dataclass(frozen=True, eq=False)
class Cleaned:
    """Writing only."""

    #: (H, W) uint8, 255 where there is writing.
    mask: np.ndarray
    stroke_width: float
    warnings: tuple[str, ...] = ()


def parts_of(mask: np.ndarray) -> np.ndarray:
    """Boxes of the connected parts of a mask: (n, 5) x, y, width, height, area."""
    return cv2.connectedComponentsWithStats(mask, connectivity=8)[2][1:]


def clean(ink: InkMap) -> Cleaned:
    """The writing among the ink."""
    width = stroke_width_of(ink.mask)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(ink.mask, connectivity=8)
    keep = np.ones(count, dtype=bool)
    keep[0] = False
    longest = stats[:, 2:4].max(axis=1)
    keep &= (stats[:, 4] >= 0.35 * width**2) & (longest >= 0.7 * width)
    if not keep.any():
        raise NoInkError
    mask = np.where(keep, 255, 0).astype(np.uint8)[labels]
    return Cleaned(mask, width)

"""Strokes to bitmaps: the one rasteriser, for training ink, for the canvas and for InkML files alike.

It draws in the style of the offline CROHME images that every published result uses. How those were made was
found by comparing the 986 pictures of the 2014 test set with their ink: 971 of them come out pixel for pixel,
and nearly so the rest (`benchmarks/raster_overlap.py`):

1. The ink is scaled so that its strokes are 28 px high on average, leaving out those that are no higher than a
   tenth of the highest (bars, dots). The average of ink in whole numbers is rounded down (`official_scale`).
2. Scaled points are rounded down to pixels, *before* the ink is moved to its place (`place_strokes`), joined
   by Bresenham's lines in the variant of Pillow, and every pixel of these lines is a square of 3 × 3 white
   pixels on black.
3. The ink box has a margin of 12 px on the left and top, 11 px on the right and bottom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import cv2
import numpy as np
from PIL import Image, ImageDraw

from ink2tex.errors import InkError

#: The mean height, in pixels, that the official images give to strokes.
STROKE_HEIGHT: Final = 28.0
#: Strokes no higher than this part of the highest are bars and dots: they do not tell the size of the writing.
FLAT: Final = 0.1
#: The mean height counts as at least this part of the median stroke size (the longer side). Every expression of
#: CROHME is above it; a lone minus or fraction bar, which has hardly any height, is kept from being blown up.
LEAST_HEIGHT: Final = 0.25
#: `official_scale` keeps the ink within this many pixels (the largest CROHME expression is 2,000 px wide), and
#: within so many for each stroke and one more (the most spacious has 128): for ink that is hardly more than dots.
MAX_EXTENT: Final = 3000.0
MAX_EXTENT_PER_STROKE: Final = 130.0
#: `rasterise` refuses to draw bitmaps with more pixels than this.
MAX_PIXELS: Final = 40_000_000
#: Sub-pixels per pixel and axis of anti-aliased drawing.
_SUPERSAMPLE: Final = 4


@dataclass(frozen=True)
class RasterStyle:
    """How strokes look; the default is the official look."""

    #: Side of the brush in pixels, at least 1. Brushes come in steps of a half (see `brush`).
    thickness: float = 3.0
    #: Free pixels around the ink: left, top, right, bottom.
    margins: tuple[int, int, int, int] = (12, 12, 11, 11)
    #: Grey edges instead of hard ones.
    antialias: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.thickness) and 1 <= self.thickness <= 64):
            raise ValueError(f"thickness lies between 1 and 64 px, not {self.thickness}")
        if len(self.margins) != 4 or min(self.margins) < 0:
            raise ValueError(f"margins are four numbers (left, top, right, bottom) of 0 or more: {self.margins}")


OFFICIAL: Final = RasterStyle()


def official_scale(strokes: Sequence[np.ndarray]) -> float:
    """The factor from ink units to pixels of the official images.

    Always finite and positive, and never so large that the ink would be more than `MAX_EXTENT` px wide or high.
    Ink without any extent (a single dot) keeps its size.
    """
    if not strokes:
        return 1.0
    points = np.concatenate(strokes)
    # Float64: the sizes of far-away or very large ink neither vanish nor overflow.
    sizes = np.array([np.ptp(stroke, axis=0) for stroke in strokes], dtype=np.float64)  # (S, 2) width, height
    extent = float(np.ptp(points.astype(np.float64), axis=0).max())
    if not (math.isfinite(extent) and extent > 0):
        return 1.0
    heights = sizes[:, 1]
    tall = heights[heights > FLAT * heights.max()]
    height = float(tall.mean()) if len(tall) else 0.0
    if height >= 1 and np.array_equal(points, np.floor(points)):
        height = math.floor(height)
    longer = sizes.max(axis=1)
    height = max(height, LEAST_HEIGHT * float(np.median(longer))) or LEAST_HEIGHT * float(longer.max())
    largest = min(MAX_EXTENT, MAX_EXTENT_PER_STROKE * (len(strokes) + 1)) / extent
    return min(STROKE_HEIGHT / height, largest) if height > 0 else largest


def scale_strokes(strokes: Sequence[np.ndarray], scale: float) -> tuple[np.ndarray, ...]:
    """`strokes` times `scale`, in float32 (as the official images were computed: rounding matters there)."""
    factor = np.float32(scale)
    return tuple(np.asarray(stroke, dtype=np.float32) * factor for stroke in strokes)


def transform_strokes(
    strokes: Sequence[np.ndarray],
    scale: float = 1.0,
    aspect: float = 1.0,
    shear: float = 0.0,
    rotation: float = 0.0,
) -> tuple[np.ndarray, ...]:
    """`strokes` under a linear map: made `scale` times larger and `aspect` times wider for their height (the
    area stays), slanted to the right by `shear` px per px of height, then turned by `rotation` degrees
    counter-clockwise.

    The origin stays where it is; where ink lies does not matter to `rasterise`.
    """
    wide = math.sqrt(aspect)
    stretched = np.array([[scale * wide, -shear * scale / wide], [0.0, scale / wide]])
    turn = math.radians(rotation)
    cos, sin = math.cos(turn), math.sin(turn)
    # y points down, so this is counter-clockwise for the eye.
    matrix = (np.array([[cos, sin], [-sin, cos]]) @ stretched).T.astype(np.float32)
    return tuple(np.asarray(stroke, dtype=np.float32) @ matrix for stroke in strokes)


@lru_cache(maxsize=64)
def _brush(halves: int) -> np.ndarray:
    side = (halves + 1) // 2
    shape = np.ones((side, side), dtype=np.uint8)
    if halves % 2:
        if side > 2:
            shape[:: side - 1, :: side - 1] = 0  # the four corners
        else:
            shape[0, 0] = 0  # of 2 × 2 only one, and not the pixel of the pen itself
    shape.setflags(write=False)
    return shape


def brush(thickness: float) -> np.ndarray:
    """The square of white pixels that the pen leaves, (side, side) uint8.

    Whole thicknesses are full squares; between two of them stands the larger square without its corners. So
    edges stay hard at every thickness, and the amount of ink grows with each half step.
    """
    return _brush(max(2, math.floor(2 * thickness + 0.5)))


def place_strokes(
    strokes: Sequence[np.ndarray], style: RasterStyle = OFFICIAL
) -> tuple[tuple[np.ndarray, ...], tuple[int, int]]:
    """`strokes` (in pixels, anywhere) moved to where `rasterise` draws them, and the bitmap's height and width.

    They move by whole pixels; a placed point lies in the pixel of its coordinates rounded down.
    """
    if not any(len(stroke) for stroke in strokes):
        raise InkError("there is no ink to draw: give at least one stroke with one point")
    points = np.concatenate(strokes)
    low, high = points.min(axis=0), points.max(axis=0)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise InkError("the ink has points that are not finite numbers and cannot be drawn")
    left, top, right, bottom = style.margins
    side = len(brush(style.thickness))
    reach = (side - 1) // 2  # how far the brush extends to the left of its pixel, and upwards
    shift = np.array([left + reach, top + reach], dtype=np.float64) - np.floor(low.astype(np.float64))
    # The sum in float64, or ink far from the origin would lose its fractions.
    placed = tuple((stroke + shift).astype(np.float32) for stroke in strokes if len(stroke))
    far = np.floor((high + shift).astype(np.float32)).astype(np.int64)
    width, height = (int(v) for v in far + side - reach + (right, bottom))
    if width * height > MAX_PIXELS:
        raise InkError(
            f"the ink would make a bitmap of {width} × {height} pixels, more than {MAX_PIXELS:,}; "
            "scale it down first (official_scale gives the usual size)"
        )
    return placed, (height, width)


def rasterise(strokes: Sequence[np.ndarray], style: RasterStyle = OFFICIAL) -> np.ndarray:
    """The bitmap of `strokes` (in pixels): (H, W) uint8, white ink 255 on black 0.

    `place_strokes` tells where on the bitmap each point comes to lie.
    """
    placed, shape = place_strokes(strokes, style)
    if style.antialias:
        size = (shape[0] * _SUPERSAMPLE, shape[1] * _SUPERSAMPLE)
        fine = _paint([stroke * _SUPERSAMPLE for stroke in placed], size, style.thickness * _SUPERSAMPLE)
        return cv2.resize(fine, (shape[1], shape[0]), interpolation=cv2.INTER_AREA)
    return _paint(placed, shape, style.thickness)


def _paint(placed: Sequence[np.ndarray], shape: tuple[int, int], thickness: float) -> np.ndarray:
    canvas = Image.new("L", (shape[1], shape[0]))
    draw = ImageDraw.Draw(canvas)
    for stroke in placed:
        # Pillow cuts the fractions off, which rounds down: placed points are not negative.
        points = stroke.ravel().tolist()
        draw.line(points if len(stroke) > 1 else points * 2, fill=255)
    return cv2.dilate(np.asarray(canvas), brush(thickness))


def stroke_cells(
    strokes: Sequence[np.ndarray],
    cell: float,
    shape: tuple[int, int],
    offset: tuple[float, float] = (0.0, 0.0),
) -> np.ndarray:
    """The cells of a grid that the pen passes through: (n, 2) int64 rows and columns, sorted, each once.

    `strokes` are in bitmap coordinates (from `place_strokes`), `offset` (x, y) is added to them; the grid has a
    pitch of `cell` px and `shape` (rows, columns). What lies outside of it is left out.
    """
    rows, columns = shape
    pieces = [stroke[:1] for stroke in strokes if len(stroke)]
    starts = [stroke[:-1] for stroke in strokes if len(stroke) > 1]
    if starts:
        start = np.concatenate(starts).astype(np.float64)  # (M, 2)
        step = np.concatenate([np.diff(stroke, axis=0) for stroke in strokes if len(stroke) > 1])  # (M, 2)
        # At most an eighth of a cell apart: a segment cannot cross more than a corner unseen.
        counts = np.ceil(np.abs(step).max(axis=1) * (8 / cell)).astype(np.int64).clip(min=1)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        part = (np.arange(len(first)) - first + 1) / np.repeat(counts, counts)
        pieces.append(np.repeat(start, counts, axis=0) + np.repeat(step, counts, axis=0) * part[:, None])
    if not pieces:
        return np.zeros((0, 2), dtype=np.int64)
    where = np.floor((np.concatenate(pieces) + offset) / cell).astype(np.int64)
    column, row = where[:, 0], where[:, 1]
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    flat = np.unique(row[inside] * columns + column[inside])
    return np.stack(np.divmod(flat, columns), axis=1) if columns else np.zeros((0, 2), dtype=np.int64)

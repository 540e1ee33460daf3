"""From a picture to the bitmap that the network was trained on.

1. A picture that already is an official bitmap stays as it is.
2. Ink is separated from paper (`ink2tex.image.paper`), at a resolution where strokes are about `PEN` px wide.
3. Rules, specks and what belongs to the table under the page are dropped (`ink2tex.image.cleaning`).
4. The strokes are thinned to lines (`ink2tex.image.thinning`), scaled to the official size, which is told from
   the sizes of connected parts as `official_scale` tells it from strokes, and drawn with the official brush.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from ink2tex.image.cleaning import clean, parts_of
from ink2tex.image.paper import NoInkError, fine_ink, is_light_on_dark, rough_ink, stroke_width_of
from ink2tex.image.thinning import links, prune, thin
from ink2tex.raster import OFFICIAL, STROKE_HEIGHT, brush, official_scale

#: Width of strokes, in pixels, at which pictures are analysed: fine enough for loops, coarse enough for noise.
PEN: Final = 5.0
#: Connected parts are somewhat higher than the strokes they consist of: the median over the 2013 set.
_PART_HEIGHT: Final = 29.3
#: Bitmaps never get larger than this, in pixels of either side.
_MAX_SIDE: Final = 3000


@dataclass(frozen=True)
class PrepareSettings:
    """How pictures are prepared; the defaults were chosen on drawings of the 2013 set."""

    #: Larger pictures are shrunk to this many pixels before the ink is looked for.
    working_pixels: int = 3_000_000
    #: Whether official bitmaps are recognised and left alone.
    keep_official: bool = True


DEFAULT: Final = PrepareSettings()


@dataclass(frozen=True, eq=False)
class Prepared:
    """The bitmap for the network and where it comes from."""

    #: (H, W) uint8, white ink 255 on black 0, official margins and size.
    bitmap: np.ndarray
    #: Things about the picture that a person should know, each a short sentence.
    warnings: tuple[str, ...]
    #: Bitmap pixels per picture pixel.
    scale: float
    #: (2, 3) affine map from bitmap to picture coordinates.
    matrix: np.ndarray

    def to_source(self, x: float, y: float) -> tuple[float, float]:
        """The place on the picture of a place on the bitmap."""
        u, v = self.matrix @ (x, y, 1.0)
        return float(u), float(v)


def prepare(picture: np.ndarray, settings: PrepareSettings = DEFAULT) -> Prepared:
    """The ink of a picture (from `read_picture`) as an official bitmap.

    Raises `ImageError` if there is no ink.
    """
    if settings.keep_official and is_official(picture):
        return Prepared(picture, (), 1.0, np.eye(2, 3))
    height, width = picture.shape[:2]
    if min(height, width) < 3:
        raise NoInkError
    working = _resized(picture, min(1.0, math.sqrt(settings.working_pixels / (height * width))))
    if is_light_on_dark(working):
        working = 255 - working
    pen = stroke_width_of(rough_ink(working).mask)
    most = math.sqrt(settings.working_pixels / (working.shape[0] * working.shape[1]))
    working = _resized(working, min(PEN / pen, most))
    scale = working.shape[1] / width  # analysed pixels per picture pixel
    ink = fine_ink(working, max(pen * min(PEN / pen, most), 1.0))
    cleaned = clean(ink)
    drawing = _redraw(cleaned.mask, cleaned.stroke_width)
    left, top = drawing.origin
    factor = drawing.scale
    # Bitmap pixel centres lie at whole numbers in both.
    step = 1 / (factor * scale)
    matrix = np.array(
        [[step, 0.0, left / scale - OFFICIAL.margins[0] * step], [0.0, step, top / scale - OFFICIAL.margins[1] * step]]
    )
    return Prepared(drawing.bitmap, cleaned.warnings, factor * scale, matrix)


def is_official(picture: np.ndarray) -> bool:
    """Whether a picture is drawn exactly as the official bitmaps are: white on black, 3 × 3 brush, margins."""
    if picture.ndim != 2:
        return False
    left, top, right, bottom = OFFICIAL.margins
    height, width = picture.shape
    if height < top + bottom + 3 or width < left + right + 3 or height * width > _MAX_SIDE**2:
        return False
    inside = picture[top : height - bottom, left : width - right]
    ink = cv2.countNonZero(inside)
    if not ink or cv2.countNonZero(picture) != ink or np.count_nonzero(picture == 255) != ink:
        return False
    if not (inside[0].any() and inside[-1].any() and inside[:, 0].any() and inside[:, -1].any()):
        return False
    # What a square brush has drawn, an opening with it leaves as it is; little of it holds a larger square.
    square = brush(OFFICIAL.thickness)
    if not np.array_equal(cv2.morphologyEx(picture, cv2.MORPH_OPEN, square), picture):
        return False
    return cv2.countNonZero(cv2.erode(picture, np.ones((5, 5), np.uint8))) < 0.05 * ink


@dataclass(frozen=True, eq=False)
class _Drawing:
    bitmap: np.ndarray
    #: Where the ink begins on the mask (x, y), and bitmap pixels per mask pixel.
    origin: tuple[float, float]
    scale: float


def _redraw(mask: np.ndarray, stroke_width: float) -> _Drawing:
    """The strokes of a mask (uint8) with the official pen at the official size."""
    boxes = parts_of(mask)
    lows = boxes[:, :2].astype(np.float64)  # (n, 2) x, y
    sizes = np.maximum(boxes[:, 2:4] - stroke_width, 0.0)
    strokes = [np.stack([low, low + size]) + 0.25 for low, size in zip(lows, sizes, strict=True)]
    scale = official_scale(strokes) * (_PART_HEIGHT / STROKE_HEIGHT)
    scale = min(scale, _MAX_SIDE / max(mask.shape))
    skeleton = prune(thin(mask), round(0.6 * stroke_width))
    pairs, dots = links(skeleton)
    rows, columns = np.flatnonzero(skeleton.any(axis=1)), np.flatnonzero(skeleton.any(axis=0))
    x, y = int(columns[0]), int(rows[0])
    left, top, right, bottom = OFFICIAL.margins
    side = len(brush(OFFICIAL.thickness))
    reach = side // 2
    place = np.array([left + reach, top + reach])
    high = np.floor((np.array([columns[-1] - x, rows[-1] - y]) + 0.5) * scale).astype(int)
    width, height = high + place + 1 + reach + (right, bottom)
    canvas = np.zeros((height, width), dtype=np.uint8)
    lines = np.floor((pairs - (x, y) + 0.5) * scale).astype(np.int32) + place
    cv2.polylines(canvas, list(lines.astype(np.int32)), False, 255)
    points = np.floor((dots - (x, y) + 0.5) * scale).astype(np.int32) + place
    canvas[points[:, 1], points[:, 0]] = 255
    bitmap = cv2.dilate(canvas, brush(OFFICIAL.thickness))
    return _Drawing(bitmap, (x - reach / scale, y - reach / scale), scale)


def _resized(picture: np.ndarray, scale: float) -> np.ndarray:
    height, width = picture.shape[:2]
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    if size == (width, height):
        return picture
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)

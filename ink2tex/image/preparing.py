"""From a picture to the bitmap that the network was trained on.

1. A picture that already is an official bitmap stays as it is.
2. Ink is separated from paper (`ink2tex.image.paper`), at a resolution where strokes are about `PEN` px wide.
3. Rules, specks and what belongs to the table under the page are dropped (`ink2tex.image.cleaning`).
4. Ink that turns out to be drawn as the official bitmaps are, only on another ground (dark on light, with other
   margins, after a JPEG file), becomes that bitmap again.
5. Otherwise the ink is scaled to the official size, which is told from the sizes of connected parts as
   `official_scale` tells it from strokes. Strokes whose pen then is far from the official one are thinned to lines
   (`ink2tex.image.thinning`) and drawn with the official brush, or, if it is a thick one, worn down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from ink2tex.image.cleaning import Parts, Writing, clean, height_of
from ink2tex.image.drawing import chain, open_parts, redraw, size_of, straighten
from ink2tex.image.paper import NoInkError, fine_ink, is_light_on_dark, rough_ink, stroke_width_of
from ink2tex.raster import OFFICIAL, brush

#: Width of strokes, in pixels, at which pictures are analysed: fine enough for loops, coarse enough for noise.
PEN: Final = 5.0
#: Larger pictures are no official bitmaps.
_MAX_OFFICIAL_PIXELS: Final = 4_000_000
#: In every official bitmap fewer squares of 4 × 4 than this fit into the ink, for each of its pixels; a pen of
#: 4 px has more.
_LARGER_SQUARES: Final = 0.185
#: The factors to the official size that are found in official bitmaps, with some to spare.
_OFFICIAL_SIZES: Final = (0.5, 1.8)
#: The same for nearly all of them: elsewhere a pen of 3 px alone does not prove that the size is the official one.
_USUAL_SIZES: Final = (0.68, 1.25)
#: Strokes on a picture may measure this much more or less than the official pen, and lose this part of their ink to
#: an opening with it, and still come from that pen.
_ABOUT_OFFICIAL: Final = 0.8
_FRAYED: Final = 0.05
#: Thick pens leave narrow gaps: strokes wider than `PEN` are analysed with symbols this high, if their width then
#: stays below `_WIDEST_PEN`, and never larger than they are.
_ANALYSED_HEIGHT: Final = 45.0
_WIDEST_PEN: Final = 8.0


@dataclass(frozen=True)
class PrepareSettings:
    """How pictures are prepared."""

    #: Larger pictures are shrunk to this many pixels to find out where the ink is.
    rough_pixels: int = 2_000_000
    #: The part with the ink is brought to the resolution of analysis, but never beyond this many pixels.
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
    #: (2, 3) affine map from bitmap to picture coordinates; the first pixel covers 0 to 1 in both.
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
    # A smaller copy tells the polarity, the width of strokes, where they are and whether the paper is ruled.
    small = _resized(picture, min(1.0, math.sqrt(settings.rough_pixels / (height * width))))
    light = is_light_on_dark(small)
    rough = rough_ink(255 - small if light else small)
    shrunk = small.shape[1] / width
    pen = stroke_width_of(rough.mask) / shrunk
    x, y, right, bottom = (0, 0, width, height) if rough.rules else _box(rough.mask, shrunk, 15 * pen, picture)
    working = picture[y:bottom, x:right]
    if settings.keep_official and not rough.rules:
        official = _officially_drawn(255 - working if light else working, pen)
        if official is not None:
            return _cut_out(official, x, y)
    fine = min(1.0, _WIDEST_PEN / pen, _ANALYSED_HEIGHT * shrunk / height_of(*open_parts(rough.mask, pen * shrunk)))
    most = math.sqrt(settings.working_pixels / (working.shape[0] * working.shape[1]))
    zoom = min(max(PEN / pen, fine), most)
    working = _resized(working, zoom)
    rules = rough.rules.scaled(working.shape[:2], zoom / shrunk)
    writing = clean(fine_ink(255 - working if light else working, max(pen * zoom, 1.0), rules))
    mask, turned = straighten(writing.mask, writing.parts, writing.height)
    drawing = redraw(mask, writing.stroke_width, 1 / zoom)
    there = np.array([[1 / zoom, 0.0, x], [0.0, 1 / zoom, y]])
    return Prepared(drawing.bitmap, writing.warnings, drawing.scale * zoom, chain(there, turned, drawing.back))


def is_official(picture: np.ndarray) -> bool:
    """Whether a picture is drawn exactly as the official bitmaps are: white on black, 3 × 3 brush, margins."""
    if picture.ndim != 2:
        return False
    left, top, right, bottom = OFFICIAL.margins
    height, width = picture.shape
    if height < top + bottom + 3 or width < left + right + 3 or height * width > _MAX_OFFICIAL_PIXELS:
        return False
    inside = picture[top : height - bottom, left : width - right]
    ink = cv2.countNonZero(inside)
    if not ink or cv2.countNonZero(picture) != ink or np.count_nonzero(picture == 255) != ink:
        return False
    if not (inside[0].any() and inside[-1].any() and inside[:, 0].any() and inside[:, -1].any()):
        return False
    return _has_official_pen(picture, 0.0, _OFFICIAL_SIZES)


def _has_official_pen(mask: np.ndarray, frayed: float, sizes: tuple[float, float]) -> bool:
    """Whether all of the ink but the part `frayed` is drawn with the official brush, at a size within `sizes`."""
    ink = cv2.countNonZero(mask)
    # What a square brush has drawn, an opening with it leaves as it is; little of it holds a larger square.
    if cv2.countNonZero(cv2.morphologyEx(mask, cv2.MORPH_OPEN, brush(OFFICIAL.thickness))) < (1 - frayed) * ink:
        return False
    if cv2.countNonZero(cv2.erode(mask, np.ones((4, 4), np.uint8))) > _LARGER_SQUARES * ink:
        return False
    low, high = sizes
    return low < size_of(Parts.of(mask), OFFICIAL.thickness) < high


def _officially_drawn(picture: np.ndarray, pen: float) -> Writing | None:
    """The dark writing on a picture, if its strokes of about `pen` px are those of the official bitmaps."""
    if abs(pen - OFFICIAL.thickness) > _ABOUT_OFFICIAL or picture.shape[0] * picture.shape[1] > _MAX_OFFICIAL_PIXELS:
        return None
    try:
        writing = clean(fine_ink(picture, pen))
    except NoInkError:
        return None
    return writing if _has_official_pen(writing.mask, _FRAYED, _USUAL_SIZES) else None


def _cut_out(writing: Writing, x: int, y: int) -> Prepared:
    """The writing as it is with official margins, from the part of the picture that starts at `x`, `y`."""
    left, top, right, bottom = OFFICIAL.margins
    x0, y0 = (int(v) for v in writing.parts.boxes[:, :2].min(axis=0))
    x1, y1 = (int(v) for v in writing.parts.boxes[:, 2:].max(axis=0))
    bitmap = np.pad(writing.mask[y0:y1, x0:x1], ((top, bottom), (left, right)))
    matrix = np.array([[1.0, 0.0, x + x0 - left], [0.0, 1.0, y + y0 - top]])
    return Prepared(bitmap, writing.warnings, 1.0, matrix)


def _box(mask: np.ndarray, scale: float, margin: float, picture: np.ndarray) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the part of `picture` that holds the ink and `margin` px around it.

    `mask` is `scale` times as large as the picture.
    """
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    height, width = picture.shape[:2]
    return (
        max(0, int(columns[0] / scale - margin)),
        max(0, int(rows[0] / scale - margin)),
        min(width, int((columns[-1] + 1) / scale + margin) + 1),
        min(height, int((rows[-1] + 1) / scale + margin) + 1),
    )


def _resized(picture: np.ndarray, scale: float) -> np.ndarray:
    height, width = picture.shape[:2]
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    if size == (width, height):
        return picture
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)

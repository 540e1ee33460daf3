"""Redrawing a mask of strokes with about the official pen, upright and at the official size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from ink2tex.image.cleaning import Parts
from ink2tex.image.thinning import links, prune, thin
from ink2tex.raster import MAX_EXTENT, OFFICIAL, STROKE_HEIGHT, brush, official_scale

#: Connected parts are somewhat higher than the strokes they consist of: the median over drawings of the 2013 set.
_PART_HEIGHT: Final = 30.4
#: Parts that are so many times wider than high are bars and do not tell the size.
_BAR: Final = 3.0
#: Bitmaps get no larger than this, whatever the picture; the largest of the 2014 set has 0.4 million.
_MAX_PIXELS: Final = 1_200_000
#: Sizes are told with some doubt: pictures whose size seems right within these factors are not resampled. Symbols
#: that thick pens have joined seem larger than they are, and making them smaller would close more of their gaps.
_SIZE_DOUBT: Final = (0.82, 1.22)
_THICK_SIZE_DOUBT: Final = (0.65, 1.65)
#: Ink of the official bitmaps for each pixel of the length of their strokes, as it is found in pictures of them that
#: are half to three times as large (a little above 3: strokes have ends, and a square pen is wider across its corners).
_OFFICIAL_INK: Final = 3.6
#: Strokes that have so many times as much at the official size are not redrawn: what thinning makes of them is further
#: from how they were drawn than another pen is.
_OWN_PEN: Final = (0.6, 1.7)
#: The width of strokes that one pen has drawn varies by less than this part.
_EVEN: Final = 0.225
#: How far the sizes that symbols and pen tell are apart (standard deviations of the logarithm of their ratio): for
#: enlarged official bitmaps, and for drawings by any pen.
_APART: Final = 0.12
_APART_BY_CHANCE: Final = 0.36
#: Lines of writing that rise or fall by less than this, in degrees, are left alone.
_LEAST_SLOPE: Final = 6.0
_MOST_SLOPE: Final = 40.0
#: A slope is believed on writing that is this many symbols long and, once straightened, this flat.
_LONG: Final = 5.0
_FLAT: Final = 0.3
_FEWEST: Final = 5
#: The same for writing without any bar.
_LEAST_SLOPE_ALONE: Final = 10.0
_FEWEST_ALONE: Final = 10
#: What is this much thicker than a stroke is a blob.
_BLOB: Final = 1.4
#: Pens that are thicker than this at the official size are worn down to it and no further: where their strokes run
#: into each other, a thin line could only guess how.
_THICK: Final = 4.0
#: The same where the picture keeps its size, as ink for each pixel of the length of strokes: nothing is redrawn there,
#: and the network has met such pens in training. Chosen on drawings of the 2013 set with pens of 6 and 7 px.
_WORN: Final = 6.0
#: But this part of their width stays at least: pens that are thicker still read better thick than torn.
_LEFT: Final = 0.72
#: Strokes that have run together have more ink for their length than their pen gives them: at most so much for each
#: pixel of width is believed (a square pen, drawn in all directions, has 1.27).
_MOST_INK: Final = 1.35
#: The part of their width that tells the symbols of thick pens apart.
_OPEN: Final = 0.5
#: From pixel centres, as OpenCV counts, to pixel edges, and back.
_HALF: Final = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
_HALF_BACK: Final = np.array([[1.0, 0.0, -0.5], [0.0, 1.0, -0.5]])


@dataclass(frozen=True, eq=False)
class Drawing:
    """A redrawn mask."""

    #: (H, W) uint8, white on black.
    bitmap: np.ndarray
    #: Bitmap pixels per mask pixel.
    scale: float
    #: (2, 3) affine map from bitmap to mask coordinates.
    back: np.ndarray


def chain(*maps: np.ndarray) -> np.ndarray:
    """The affine map (2, 3) that applies `maps` from the last to the first."""
    whole = np.eye(3)
    for affine in maps:
        whole = whole @ np.vstack([affine, (0.0, 0.0, 1.0)])
    return whole[:2]


def redraw(mask: np.ndarray, stroke_width: float, natural: float) -> Drawing:
    """The strokes of a mask (uint8) with about the official pen at the official size.

    If that is about the size of the picture, which is `natural` times the mask's, it is the picture's.
    """
    largest = min(MAX_EXTENT / max(mask.shape), math.sqrt(_MAX_PIXELS / mask.size))
    skeleton = thin(mask)
    thick = stroke_width * natural > _THICK
    ink = _ink_of_length(mask, skeleton)
    by_pen = _size_by_pen(mask, skeleton, ink)
    # Not of worn strokes, unless a pen is thick: those of photos are uneven, and what is torn apart would seem small.
    plain = _by_pen_too(size_of(Parts.of(mask), stroke_width), by_pen)
    found = _by_pen_too(size_of(*open_parts(mask, stroke_width)), by_pen) if thick else plain
    low, high = _THICK_SIZE_DOUBT if thick else _SIZE_DOUBT
    if low < found / natural < high and natural <= largest:
        if thick:
            # The middle of a stroke tells its width to two pixels only, which is too rough to wear it down by.
            width = min(ink, _MOST_INK * stroke_width)
            return _scaled(_worn_down(mask, width, max(_WORN / natural, _LEFT * width)), natural)
        scale = natural
    else:
        scale = min(plain, largest)
    if _OWN_PEN[0] < ink * scale / _OFFICIAL_INK < _OWN_PEN[1]:
        return _scaled(mask, scale)
    return _with_official_pen(mask, skeleton, stroke_width, scale)


def _ink_of_length(mask: np.ndarray, skeleton: np.ndarray) -> float:
    """The ink of a mask for each pixel of the length of its strokes; infinite without any length."""
    pairs, _ = links(skeleton)
    length = float(np.hypot(*(pairs[:, 0] - pairs[:, 1]).T).sum())
    return cv2.countNonZero(mask) / length if length else math.inf


def _size_by_pen(mask: np.ndarray, skeleton: np.ndarray, ink: float) -> float | None:
    """The factor that makes the pen that has drawn a mask, `ink` px for each of length, the official one.

    None if it was no even pen.
    """
    half = cv2.distanceTransform(mask, cv2.DIST_L2, 5)[skeleton > 0]
    even = ink < math.inf and half.std() <= _EVEN * half.mean()
    return _OFFICIAL_INK / ink if even else None


def _by_pen_too(size: float, by_pen: float | None) -> float:
    """`size`, which the symbols tell, moved towards the one that the pen tells.

    The pen of an enlarged or reduced official bitmap tells its size better than the symbols do; that of any other
    drawing tells nothing. How far to move is the probability of the former, as likely as not to begin with.
    """
    if by_pen is None:
        return size
    apart = math.log(by_pen / size)
    # Beyond one in e^50 it is none, and the exponential of more might overflow.
    odds = _APART / _APART_BY_CHANCE * math.exp(min(50.0, 0.5 * apart**2 * (_APART**-2 - _APART_BY_CHANCE**-2)))
    return size * math.exp(apart / (1 + odds))


def _with_official_pen(mask: np.ndarray, skeleton: np.ndarray, stroke_width: float, scale: float) -> Drawing:
    """The middles of the strokes of a mask, `scale` times as large, with the official pen, and what is thicker."""
    skeleton = prune(skeleton, round(0.3 * stroke_width))
    pairs, dots = links(skeleton)  # (n, 2, 2), (m, 2)
    rows, columns = np.flatnonzero(skeleton.any(axis=1)), np.flatnonzero(skeleton.any(axis=0))
    corner = np.array([columns[0], rows[0]])
    left, top, right, bottom = OFFICIAL.margins
    pen = brush(OFFICIAL.thickness)
    reach = len(pen) // 2
    place = np.array([left + reach, top + reach])

    def scaled(points: np.ndarray) -> np.ndarray:
        return (np.floor((points - corner + 0.5) * scale) + place).astype(np.int32)

    width, height = scaled(np.array([columns[-1], rows[-1]])) + np.array([1 + reach + right, 1 + reach + bottom])
    canvas = np.zeros((height, width), dtype=np.uint8)
    cv2.polylines(canvas, list(scaled(pairs)), False, 255)
    x, y = scaled(dots).T
    canvas[y, x] = 255
    bitmap = cv2.dilate(canvas, pen)
    step = 1 / scale
    back = np.array([[step, 0.0, corner[0] - place[0] * step], [0.0, step, corner[1] - place[1] * step]])
    if stroke_width > _THICK * step:
        blobs: np.ndarray | None = _worn(mask, stroke_width, _THICK * step)
    else:
        blobs = _blobs(mask, stroke_width, OFFICIAL.thickness * step)
    if blobs is not None:
        small = _warped(blobs, back, (height, width))
        inside = np.s_[top : height - bottom, left : width - right]
        bitmap[inside][small[inside] > 0] = 255
    return Drawing(bitmap.astype(np.uint8, copy=False), scale, back)


def _scaled(mask: np.ndarray, scale: float) -> Drawing:
    """The ink of a mask as it is, `scale` times as large, with official margins."""
    left, top, right, bottom = OFFICIAL.margins
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    height, width = (max(1, round((ends[-1] + 1 - ends[0]) * scale)) for ends in (rows, columns))
    step = 1 / scale
    back = np.array([[step, 0.0, columns[0] - left * step], [0.0, step, rows[0] - top * step]])
    bitmap = _warped(mask, back, (top + height + bottom, left + width + right))
    rows, columns = np.flatnonzero(bitmap.any(axis=1)), np.flatnonzero(bitmap.any(axis=0))
    if not len(rows):  # so little that nothing is left of it
        return Drawing(bitmap, scale, back)
    # Ends of strokes that cover less than half of a pixel are gone; the margins follow.
    inside = bitmap[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    back[:, 2] += (columns[0] - left) * step, (rows[0] - top) * step
    return Drawing(np.pad(inside, ((top, bottom), (left, right))), scale, back)


def _warped(mask: np.ndarray, back: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """`mask` (0 and 255) on a bitmap of `shape`, whose places `back` (2, 3) maps to the mask's."""
    there = chain(_HALF_BACK, back, _HALF)  # OpenCV counts from pixel centres
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return np.where(cv2.warpAffine(mask, there, shape[::-1], flags=flags) > 127, 255, 0).astype(np.uint8)


def _blobs(mask: np.ndarray, stroke_width: float, pen: float) -> np.ndarray | None:
    """What is clearly thicker than a stroke (filled loops), as far as a pen of `pen` px would have left of it.

    Thinning alone would turn a filled 9 into a bent line.
    """
    size = 2 * round(_BLOB * stroke_width / 2) + 1
    thick = cv2.morphologyEx(mask, cv2.MORPH_OPEN, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size)))
    if not thick.any():
        return None
    return cv2.bitwise_and(_worn(mask, stroke_width, pen), thick)


def _worn(mask: np.ndarray, stroke_width: float, pen: float) -> np.ndarray:
    """What a pen of `pen` px would have left where one of `stroke_width` px has drawn `mask`."""
    # Distances are those of centres: a pixel at the edge is 1 away, and its own middle half a pixel inside.
    distance = cv2.distanceTransform(mask, cv2.DIST_L2, 5)
    return np.where(distance - 0.5 > (stroke_width - pen) / 2, 255, 0).astype(np.uint8)


def _worn_down(mask: np.ndarray, stroke_width: float, pen: float) -> np.ndarray:
    """`_worn`, but parts that would wear off altogether, those of a finer pen, stay as they are."""
    if stroke_width <= pen:
        return mask
    worn = _worn(mask, stroke_width, pen)
    count, labels = cv2.connectedComponents(mask, connectivity=8)
    left = np.zeros(count, dtype=bool)
    left[labels[worn > 0]] = True
    left[0] = True
    return np.where(left[labels], worn, 255).astype(np.uint8)


def open_parts(mask: np.ndarray, stroke_width: float) -> tuple[Parts, float]:
    """The parts of a mask where thick strokes have run into each other, and the width that is left of strokes.

    Worn to half their width, most of them come apart again.
    """
    pen = _OPEN * stroke_width
    return Parts.of(_worn_down(mask, stroke_width, pen)), pen


def size_of(parts: Parts, stroke_width: float) -> float:
    """The factor that brings the parts of a mask to the official size, as if each were a stroke."""
    sizes = np.maximum(parts.sizes - stroke_width, 0.0)  # (n, 2) between the middles of strokes
    # Bars on photos are rarely level enough to count as flat by their height.
    standing = sizes[:, 0] <= _BAR * np.maximum(sizes[:, 1], stroke_width)
    chosen = standing if standing.any() else ~standing
    # A quarter of a pixel off the whole numbers, whose mean would be rounded down.
    lows = parts.boxes[chosen, :2] + 0.25
    strokes = [np.stack([low, low + size]) for low, size in zip(lows, sizes[chosen], strict=True)]
    return official_scale(strokes) * (_PART_HEIGHT / STROKE_HEIGHT)


def straighten(mask: np.ndarray, parts: Parts, height: float) -> tuple[np.ndarray, np.ndarray]:
    """`mask` with a sloping line of writing made level, and the map (2, 3) from the result to `mask`.

    It is turned back only if its bars and equals signs slope as well: a line of symbols also climbs when it ends
    in an exponent or a fraction.
    """
    slope = _slope(parts, height)
    if slope is None:
        return mask, np.eye(2, 3)
    bars = _bar_slope(mask, height)
    if bars is not None:
        believed = abs(bars - slope) < 0.5 * abs(slope)
    else:
        believed = abs(slope) > math.radians(_LEAST_SLOPE_ALONE) and len(parts.areas) >= _FEWEST_ALONE
    if not believed:
        return mask, np.eye(2, 3)
    cos, sin = math.cos(slope), math.sin(slope)
    forth = np.array([[cos, sin], [-sin, cos]])
    rows, columns = mask.shape
    corners = np.array([[0, 0], [columns, 0], [0, rows], [columns, rows]]) @ forth.T
    low, high = corners.min(axis=0), corners.max(axis=0)
    affine = np.concatenate([forth, -low[:, None]], axis=1)  # mask to result, both from pixel edges
    size = (math.ceil(high[0] - low[0]), math.ceil(high[1] - low[1]))
    straight = cv2.warpAffine(mask, chain(_HALF_BACK, affine, _HALF), size, flags=cv2.INTER_LINEAR)
    return np.where(straight > 127, 255, 0).astype(np.uint8), cv2.invertAffineTransform(affine)


def _slope(parts: Parts, height: float) -> float | None:
    """The angle (radians, positive downwards) of a line of writing; None if it is level or no line."""
    tall = parts.boxes[parts.sizes[:, 1] > 0.3 * height]
    if not _FEWEST <= len(tall) <= 300:
        return None
    x, y = (tall[:, 0] + tall[:, 2]) / 2, (tall[:, 1] + tall[:, 3]) / 2
    dx, dy = x[:, None] - x, y[:, None] - y
    apart = dx > 1.5 * height
    if np.ptp(x) < _LONG * height or not apart.any():
        return None
    slope = float(np.median(dy[apart] / dx[apart]))
    angle = math.atan(slope)
    rest = y - slope * x
    spread = float(np.median(np.abs(rest - np.median(rest))))
    before = float(np.median(np.abs(y - np.median(y))))
    if not math.radians(_LEAST_SLOPE) < abs(angle) < math.radians(_MOST_SLOPE):
        return None
    return angle if spread < _FLAT * height and spread < 0.5 * before else None


def _bar_slope(mask: np.ndarray, height: float) -> float | None:
    """The angle (radians, positive downwards) of bars and equals signs, the long ones first; None without any."""
    angles, lengths = [], []
    for outline in cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[0]:
        points = outline.reshape(-1, 2).astype(np.float32)
        length = float(np.ptp(points, axis=0).max())
        if len(points) < 5 or length < 0.5 * height:
            continue
        _, sides, _ = cv2.minAreaRect(points)
        if max(sides) < 3.5 * min(sides):
            continue
        vx, vy, _, _ = (float(v) for v in cv2.fitLine(points, cv2.DIST_L2, 0, 0.01, 0.01).ravel())
        angle = math.atan2(vy, vx) if vx >= 0 else math.atan2(-vy, -vx)
        if abs(angle) < math.pi / 4:
            angles.append(angle)
            lengths.append(length)
    if not angles:
        return None
    order = np.argsort(angles)
    share = np.cumsum(np.array(lengths)[order])
    return angles[int(order[np.searchsorted(share, share[-1] / 2)])]

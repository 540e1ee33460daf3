"""Ink as it comes back from a picture.

Whatever a person sends is not the bitmap that the official rasteriser would have drawn: it was written with another
pen, at another size, blurred, compressed, lit from one side, and `prepare` has found the strokes in it again. The
shapes are nearly the same, but not to the pixel, and the size is an estimate. Here ink takes that way, for training
and for measuring what is lost on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from ink2tex.errors import ImageError
from ink2tex.image import prepare
from ink2tex.raster import OFFICIAL, RasterStyle, place_strokes, rasterise

#: Ranges of what is photographed: the size on the official one, and the pen on the official one at that size. Sizes
#: are drawn by their logarithm, pens evenly: thick ones, whose loops and gaps are filled, take the most to learn.
ZOOM = (0.5, 2.0)
PEN = (0.6, 2.2)
#: Pictures are not drawn larger than this many pixels.
MOST_PIXELS = 400_000


def style_at(scale: float, thickness: float = OFFICIAL.thickness, antialias: bool = False) -> RasterStyle:
    """The style that draws ink `scale` times as large as the official bitmap, its margins included.

    `thickness` is that of the official size.
    """
    left, top, right, bottom = (round(margin * scale) for margin in OFFICIAL.margins)
    return RasterStyle(max(1.0, thickness * scale), (left, top, right, bottom), antialias)


def resized(picture: np.ndarray, scale: float) -> np.ndarray:
    """A picture made smaller as a camera does it: each pixel sees an area."""
    return cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)


def on_page(ink: np.ndarray, margins: tuple[int, int, int, int]) -> np.ndarray:
    """The ink (white on black) as black ink on a white page with `margins` (left, top, right, bottom) more room."""
    left, top, right, bottom = margins
    return 255 - np.pad(ink, ((top, bottom), (left, right)))


def jpeg(picture: np.ndarray, quality: int) -> np.ndarray:
    """A picture after a JPEG file."""
    _, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    found = cv2.imdecode(data, cv2.IMREAD_UNCHANGED)
    assert found is not None
    return found


def light(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """(H, W) float32 from about 90 to about 210, brighter towards one side."""
    turn = rng.uniform(0, 2 * np.pi)
    down = np.linspace(0, np.sin(turn), shape[0], dtype=np.float32)[:, None]
    across = np.linspace(0, np.cos(turn), shape[1], dtype=np.float32)
    slope = down + across
    return 90 + 120 * (slope - slope.min()) / max(float(np.ptp(slope)), 1e-6)


def on_paper(ink: np.ndarray, rng: np.random.Generator, rules: np.ndarray | None = None) -> np.ndarray:
    """The ink (white on black) in dark grey on lit, slightly noisy grey paper, with `rules` (H, W) from 0 to 1."""
    paper = light(ink.shape, rng)
    if rules is not None:
        paper = paper * (1 - rules)
    cover = cv2.GaussianBlur(ink, (0, 0), 0.6).astype(np.float32) / 255
    picture = paper * (1 - 0.75 * cover) + 3 * rng.standard_normal(ink.shape, dtype=np.float32)
    return np.clip(picture, 0, 255).astype(np.uint8)


def photographed(
    strokes: Sequence[np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, tuple[np.ndarray, ...]] | None:
    """A bitmap prepared from some picture of `strokes` (official pixels), and the strokes where they lie on it.

    None if nothing could be found on the picture.
    """
    zoom, pen = float(np.exp(rng.uniform(*np.log(ZOOM)))), float(rng.uniform(*PEN))
    height, width = place_strokes(strokes)[1]
    zoom = min(zoom, (MOST_PIXELS / (height * width)) ** 0.5)
    # Cameras make small pictures of large ones; a pen of less than a pixel could not be drawn otherwise.
    drawn = max(zoom, 1.0)
    style = style_at(drawn, OFFICIAL.thickness * pen, antialias=bool(rng.random() < 0.5))
    scaled = [stroke * np.float32(drawn) for stroke in strokes if len(stroke)]
    picture = rasterise(scaled, style)
    placed = place_strokes(scaled, style)[0]
    if zoom < drawn:
        before = picture.shape
        picture = resized(picture, zoom)
        shrunk = np.array([picture.shape[1] / before[1], picture.shape[0] / before[0]], np.float32)
        placed = tuple(stroke * shrunk for stroke in placed)
    picture = _developed(picture, rng)
    try:
        prepared = prepare(picture)
    except ImageError:
        return None
    back = cv2.invertAffineTransform(prepared.matrix).astype(np.float32)
    return prepared.bitmap, tuple(stroke @ back[:, :2].T + back[:, 2] for stroke in placed)


def _developed(ink: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ink (white on black) as some picture of the same size."""
    kind = int(rng.integers(4))
    if kind == 0:
        return ink
    if kind == 1:
        return 255 - ink
    if kind == 2:
        return jpeg(255 - ink, int(rng.integers(30, 95)))
    return on_paper(ink, rng)

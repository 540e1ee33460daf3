"""From a picture to the bitmap that the network was trained on."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from ink2tex.errors import ImageError
from ink2tex.raster import OFFICIAL


@dataclass(frozen=True)
class PrepareSettings:
    """How pictures are prepared; the defaults were chosen on drawings of the 2013 set."""

    #: Larger pictures are shrunk to this many pixels before the ink is looked for.
    working_pixels: int = 4_000_000


DEFAULT = PrepareSettings()


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
    grey = picture if picture.ndim == 2 else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    if float(np.median(grey)) > 127:
        grey = 255 - grey
    if int(grey.max()) - int(grey.min()) < 16:
        raise ImageError("there is no ink on this picture; give one with an expression on it")
    _, mask = cv2.threshold(grey, 0, 255, cv2.THRESH_OTSU)
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    y, x = int(rows[0]), int(columns[0])
    mask = mask[y : rows[-1] + 1, x : columns[-1] + 1]
    distance = cv2.distanceTransform(mask, cv2.DIST_L2, 3)
    width = 4 * float(distance[mask > 0].mean())
    scale = min(3.0 / max(width, 0.5), 2000 / max(mask.shape))
    left, top, right, bottom = OFFICIAL.margins
    size = (max(1, round(mask.shape[1] * scale)), max(1, round(mask.shape[0] * scale)))
    small = cv2.resize(mask, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    small = np.where(small > 127, 255, 0).astype(np.uint8)
    bitmap = cv2.copyMakeBorder(small, top, bottom, left, right, cv2.BORDER_CONSTANT, value=0)
    matrix = np.array([[1 / scale, 0, x - left / scale], [0, 1 / scale, y - top / scale]])
    return Prepared(bitmap, (), scale, matrix)

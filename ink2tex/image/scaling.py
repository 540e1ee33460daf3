"""The size at which a network reads official bitmaps (white ink 255 on black 0)."""

from __future__ import annotations

import cv2
import numpy as np


def scale_bitmap(bitmap: np.ndarray, scale: float) -> np.ndarray:
    """An official bitmap (H, W) uint8 at the size that a network with `input_scale` reads.

    Training, evaluation and recognition all shrink with this one function: areas are averaged, so thin strokes
    turn grey instead of breaking.
    """
    if scale == 1.0:
        return bitmap
    height, width = (max(1, round(side * scale)) for side in bitmap.shape)
    way = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    return cv2.resize(bitmap, (width, height), interpolation=way)

"""What recognising needs from a network, whichever library runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from ink2tex.runtime.bundle import DecodeDefaults
from ink2tex.runtime.calibration import Calibration
from ink2tex.search import Stepper
from ink2tex.vocabulary import Direction, Vocabulary

#: Pixels of the network's bitmap per feature cell, in height and width.
CELL = 16


class Encoded(Protocol):
    """A batch of pictures behind the encoder."""

    def stepper(self, direction: Direction, threads: int = 1) -> Stepper:
        """A decoder over this batch, whose steps may use `threads` cores; each call gives one of its own."""


class Backend(Protocol):
    """A network that was loaded; using it changes nothing, so that threads can share it."""

    vocabulary: Vocabulary
    directions: tuple[Direction, ...]
    input_scale: float
    decode: DecodeDefaults
    calibration: Mapping[str, Calibration]
    #: Numbers that a decoder holds for each feature cell of each hypothesis: what a batch is measured by.
    width: int
    #: Whether `threads` below is heeded, so that several threads with a core each do not take more than they have.
    concurrent: bool

    def encode(self, bitmaps: Sequence[np.ndarray], threads: int = 1) -> Encoded:
        """Encode bitmaps (H, W) uint8 at the network's scale, white on black, on `threads` cores; sizes may differ."""


def cells(bitmap: np.ndarray) -> tuple[int, int]:
    """Rows and columns of the features of a bitmap."""
    return -(-bitmap.shape[0] // CELL), -(-bitmap.shape[1] // CELL)

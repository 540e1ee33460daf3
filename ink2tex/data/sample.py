"""One training or test expression, whatever it was read from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Sample:
    """An expression with its label, as ink or as a bitmap (exactly one of the two).

    Strokes are in pixels of the official bitmaps already (see `ink2tex.raster`), so that ink of different
    writers and devices can be mixed and drawn without further scaling.
    """

    uid: str
    tokens: tuple[str, ...]
    #: Each stroke is (N, 2) float32, x to the right and y down; None if the sample is a bitmap.
    strokes: tuple[np.ndarray, ...] | None = None
    #: (H, W) uint8, white ink 255 on black 0; None if the sample is ink.
    image: np.ndarray | None = None
    #: For each token the strokes that wrote it; empty for tokens without ink of their own (`{`, `^`, …) and for
    #: tokens that could not be matched. None when nothing is known.
    token_strokes: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if (self.strokes is None) == (self.image is None):
            raise ValueError(f"{self.uid}: a sample is either ink or a bitmap")
        if self.token_strokes is not None and len(self.token_strokes) != len(self.tokens):
            raise ValueError(f"{self.uid}: {len(self.tokens)} tokens, {len(self.token_strokes)} alignments")

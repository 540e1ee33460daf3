"""What recognising answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from ink2tex.image import Prepared
from ink2tex.latex.inked import ink_classes
from ink2tex.latex.pretty import pretty, to_mathml

#: A token was read where at least this part of its highest attention lies.
_READ_HERE: Final = 0.3


class Box(NamedTuple):
    """A rectangle on the input, in its own units (pixels of a picture, ink units of strokes)."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Alternative:
    """Another reading."""

    tokens: tuple[str, ...]
    probability: float

    @property
    def latex(self) -> str:
        """Tidy LaTeX."""
        return pretty(self.tokens)

    def to_dict(self) -> dict[str, Any]:
        """In types that JSON knows."""
        return {"latex": self.latex, "tokens": list(self.tokens), "probability": _rounded(self.probability)}


@dataclass(frozen=True)
class Timing:
    """Seconds; encoding and search of a batch are shared equally among its inputs."""

    prepare: float
    encode: float
    search: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.prepare + self.encode + self.search


@dataclass(frozen=True)
class Result:
    """One expression that was read."""

    #: CROHME label tokens; joined by spaces they are valid LaTeX.
    tokens: tuple[str, ...]
    #: The probability that all tokens are right.
    confidence: float
    #: The network's probability of each token.
    token_probabilities: tuple[float, ...]
    #: Other readings, most probable first.
    alternatives: tuple[Alternative, ...]
    #: Where on the input each token was read; None for tokens without ink (`{`, `^`, …).
    boxes: tuple[Box | None, ...]
    timing: Timing
    #: Things about the input that a person should know.
    warnings: tuple[str, ...] = ()

    @cached_property
    def latex(self) -> str:
        r"""Tidy LaTeX, such as `\frac{1}{2}x^{2}`."""
        return pretty(self.tokens)

    @cached_property
    def mathml(self) -> str:
        """Presentation MathML."""
        return to_mathml(self.latex)

    def to_dict(self) -> dict[str, Any]:
        """Everything in types that JSON knows."""
        return {
            "latex": self.latex,
            "tokens": list(self.tokens),
            "confidence": _rounded(self.confidence),
            "token_probabilities": [_rounded(p) for p in self.token_probabilities],
            "alternatives": [alternative.to_dict() for alternative in self.alternatives],
            "boxes": [None if box is None else [round(v, 1) for v in box] for box in self.boxes],
            "seconds": round(self.timing.total, 4),
            "warnings": list(self.warnings),
        }


def token_boxes(
    tokens: Sequence[str], attention: np.ndarray, prepared: Prepared, cell: float
) -> tuple[Box | None, ...]:
    """Where each token was read: the ink in the cells that its attention (T, h, w) lay on.

    cell: pixels of the bitmap per cell.
    """
    low, high = _ink_in_cells(prepared.bitmap, cell, attention.shape[1:])
    inked = np.isfinite(low[..., 0])  # (h, w)
    boxes: list[Box | None] = []
    for leaves_ink, where in zip(ink_classes(tokens), attention, strict=True):
        seen = np.where(inked, where, 0)
        if leaves_ink is None or not seen.max(initial=0) > 0:
            boxes.append(None)
            continue
        read = inked & (seen >= _READ_HERE * seen.max())
        corners = [prepared.to_source(*low[read].min(axis=0)), prepared.to_source(*high[read].max(axis=0) + 1)]
        (x0, y0), (x1, y1) = corners
        boxes.append(Box(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)))
    return tuple(boxes)


def _ink_in_cells(bitmap: np.ndarray, cell: float, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """First and last (x, y) of the ink in each cell, (h, w, 2); infinite where there is none."""
    rows, columns = shape
    y, x = np.nonzero(bitmap)
    flat = np.minimum(y // cell, rows - 1).astype(int) * columns + np.minimum(x // cell, columns - 1).astype(int)
    low, high = np.full((rows * columns, 2), np.inf), np.full((rows * columns, 2), -np.inf)
    for axis, values in enumerate((x, y)):
        np.minimum.at(low[:, axis], flat, values)
        np.maximum.at(high[:, axis], flat, values)
    return low.reshape(rows, columns, 2), high.reshape(rows, columns, 2)


def _rounded(probability: float) -> float:
    return round(probability, 6)

"""Where the tokens of a label stand on the page, roughly: enough to tell two equal letters apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ink2tex.latex.inked import closing_bracket

_SCRIPT = 0.6  # size of a script relative to its base
#: Operators whose scripts stand below and above.
_STACKED = frozenset([r"\sum", r"\lim", r"\limits"])
_WIDE = frozenset([r"\sin", r"\cos", r"\tan", r"\log", r"\lim", r"\ldots", r"\cdots"])
_NARROW = frozenset([".", ",", "'", r"\prime", "!", "|", "1", "i", "l", r"\cdot"])


@dataclass
class _Box:
    """A laid out part: (x, y, width) of its tokens relative to its left end and axis, and how far it reaches."""

    width: float = 0.0
    above: float = 0.5
    below: float = 0.5
    places: dict[int, tuple[float, float, float]] = field(default_factory=dict)

    def add(self, other: _Box, x: float, y: float, scale: float = 1.0) -> None:
        """Set `other` down with its left end at x and its axis at y (positive is down)."""
        for token, (dx, dy, width) in other.places.items():
            self.places[token] = (x + scale * dx, y + scale * dy, scale * width)
        self.width = max(self.width, x + scale * other.width)
        self.above = max(self.above, scale * other.above - y)
        self.below = max(self.below, scale * other.below + y)


def layout(tokens: Sequence[str]) -> np.ndarray:
    """(T, 3) x and y of the centre of each token and its width, in letters, y down; zeros for tokens without ink.

    Never fails: whatever does not follow the normal form is set like an ordinary symbol.
    """
    box, _ = _row(tokens, 0, len(tokens))
    places = np.zeros((len(tokens), 3))
    for token, place in box.places.items():
        places[token] = place
    return places


def _row(tokens: Sequence[str], start: int, end: int) -> tuple[_Box, int]:
    """The tokens from `start` to `end`, one behind the other."""
    row = _Box()
    i = start
    while i < end:
        atom, i = _atom(tokens, i, end)
        row.add(atom, row.width, 0.0)
    return row, i


def _atom(tokens: Sequence[str], i: int, end: int) -> tuple[_Box, int]:
    """The symbol at `i` with everything that belongs to it, and where the next one begins."""
    token = tokens[i]
    box = _Box()
    if token == r"\frac":
        above, i_above = _group(tokens, i + 1, end)
        below, i_below = _group(tokens, i_above, end)
        width = max(above.width, below.width, 1.0)
        box.add(above, (width - above.width) / 2, -above.below - 0.2)
        box.add(below, (width - below.width) / 2, below.above + 0.2)
        box.places[i] = (width / 2, 0.0, width)
        after = i_below
    elif token == r"\sqrt":
        after = i + 1
        x = 0.7
        if after < end and tokens[after] == "[" and (close := closing_bracket(tokens, after)) is not None:
            index, _ = _row(tokens, after + 1, close)
            box.add(index, 0.0, -0.4, _SCRIPT)
            x = max(x, _SCRIPT * index.width)
            after = close + 1
        body, after = _group(tokens, after, end)
        box.add(body, x, 0.0)
        box.places[i] = (box.width / 2, 0.0, box.width)
    elif token in ("_", "^", "{", "}", r"\limits"):
        box, after = (_Box(), i) if token in ("_", "^") else (_Box(), i + 1)
    else:
        box.width = 2.2 if token in _WIDE else 0.6 if token in _NARROW else 1.0
        box.places[i] = (box.width / 2, 0.0, box.width)
        after = i + 1
    stacked = token in _STACKED
    if after < end and tokens[after] == r"\limits":
        stacked = True
        after += 1
    x, above_base, below_base = box.width, box.above, box.below
    while after < end and tokens[after] in ("_", "^"):
        down = tokens[after] == "_"
        script, after = _group(tokens, after + 1, end)
        if stacked:
            left = (x - _SCRIPT * script.width) / 2
            y = below_base + _SCRIPT * script.above if down else -above_base - _SCRIPT * script.below
            box.add(script, left, y, _SCRIPT)
        else:
            y = below_base - 0.1 if down else -above_base + 0.1
            box.add(script, x, y, _SCRIPT)
    return box, after


def _group(tokens: Sequence[str], i: int, end: int) -> tuple[_Box, int]:
    """The group in braces that begins at `i`, or the one token there."""
    if i >= end:
        return _Box(), i
    if tokens[i] != "{":
        return _atom(tokens, i, min(i + 1, end))
    depth = 0
    for close in range(i, end):
        depth += (tokens[close] == "{") - (tokens[close] == "}")
        if not depth:
            return _row(tokens, i + 1, close)[0], close + 1
    return _row(tokens, i + 1, end)

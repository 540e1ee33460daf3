"""Expressions with made-up ink, for tests of what moves ink about."""

from __future__ import annotations

import zlib

import numpy as np

from ink2tex.data.sample import Sample
from ink2tex.data.spans import Role, Row, parse

_SMALL = {Role.SUB: 0.6, Role.SUP: 0.6, Role.DEGREE: 0.5}


def drawn(label: str, hand: int = 0) -> Sample:
    """`label` written neatly: each symbol one stroke (`=` and `+` two) that fills its box."""
    tokens = tuple(label.split())
    tree = parse(tokens)
    assert tree is not None, label
    boxes: dict[int, tuple[float, float, float, float]] = {}
    _row(tokens, tree, 0.0, 0.0, 1.0, boxes)
    strokes: list[np.ndarray] = []
    numbers: list[tuple[int, ...]] = [()] * len(tokens)
    for t in sorted(boxes):
        count = 2 if tokens[t] in "=+" else 1
        numbers[t] = tuple(range(len(strokes), len(strokes) + count))
        rng = np.random.default_rng((zlib.crc32(tokens[t].encode()), hand))
        for _ in range(count):
            left, top, right, bottom = boxes[t]
            unit = rng.random((12, 2))
            unit = (unit - unit.min(axis=0)) / np.ptp(unit, axis=0)
            strokes.append((unit * (right - left, bottom - top) + (left, top)).astype(np.float32))
    return Sample(f"drawn-{label}-{hand}", tokens, tuple(strokes), None, tuple(numbers))


def _row(tokens: tuple[str, ...], row: Row, x: float, y: float, size: float, boxes: dict) -> tuple[float, float, float]:
    """Lay a row out from `x` on about the axis `y`; its right end, its top and its bottom."""
    top, bottom = y, y
    for item in row.items:
        token = tokens[item.head]
        parts = {part.role: part for part in item.parts}
        if token == "\\frac":
            inner: dict = {}
            ends = []
            for role in (Role.NUMERATOR, Role.DENOMINATOR):
                right, t, b = _row(tokens, parts[role], x + 3, 0.0, size, inner)
                move = y - 5 - b if role is Role.NUMERATOR else y + 5 - t
                part = parts[role]
                for k in [k for k in inner if part.start <= k < part.stop]:
                    le, to, ri, bo = inner[k]
                    boxes[k] = (le, to + move, ri, bo + move)
                ends.append(right)
                top, bottom = min(top, t + move), max(bottom, b + move)
            boxes[item.head] = (x, y - 0.5, max(ends) + 3, y + 0.5)
        elif token == "\\sqrt":
            left = x + 12
            if Role.DEGREE in parts:
                left = _row(tokens, parts[Role.DEGREE], x, y - 12, 0.5 * size, boxes)[0] + 12
            right, t, b = _row(tokens, parts[Role.RADICAND], left, y, size, boxes)
            boxes[item.head] = (left - 12, t - 4, right + 2, b + 2)
        else:
            wide, high = (18.0, 8.0) if token in ("-", "=") else (14.0, 28.0)
            boxes[item.head] = (x, y - 0.5 * size * high, x + size * wide, y + 0.5 * size * high)
        right, up, down = boxes[item.head][2], boxes[item.head][1], boxes[item.head][3]
        top, bottom = min(top, up), max(bottom, down)
        end = right
        for role, line in ((Role.SUB, down), (Role.SUP, up)):
            if role in parts:
                r, t, b = _row(tokens, parts[role], right + 2, line, _SMALL[role] * size, boxes)
                end, top, bottom = max(end, r), min(top, t), max(bottom, b)
        x = end + 6 * size
    return end, top, bottom


LABELS = (
    "x",
    "x + 1 2 = y",
    "x ^ { 2 } + y _ { n } ^ { 2 } = z ^ { n }",
    "\\frac { a + b } { c - 2 } - 1",
    "f ( x ) = \\frac { x ^ { 2 } } { 2 }",
    "\\sqrt { b ^ { 2 } - 4 a c }",
    "\\sqrt [ 3 ] { x } = 8",
    "\\sum _ { n = 0 } ^ { m } a _ { n }",
    "\\lim _ { n \\rightarrow \\infty } \\frac { 1 } { n } = 0",
    "\\int \\limits _ { 0 } ^ { 1 } x d x",
    "[ a , b ] \\leq \\{ c + \\sin \\theta \\}",
    "A \\times ( B + C ) ^ { 2 }",
)
SAMPLES = tuple(drawn(label, hand) for label in LABELS for hand in range(3))

"""Ink as symbols in boxes, so that structure is edited on a handful of boxes and points are moved only once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ink2tex.data.sample import Sample
from ink2tex.data.spans import Role, Row, Step, fences, inked, parse

#: left, top, right, bottom; the box of no ink is such that a union ignores it.
Box = np.ndarray
NO_INK = np.array([np.inf, np.inf, -np.inf, -np.inf])
_FLAT = 1e-3  # px; an extent below this cannot be scaled


def union(boxes: np.ndarray) -> Box:  # (N, 4) -> (4,)
    """The box around all `boxes`."""
    box = np.empty(4)
    boxes[:, :2].min(axis=0, out=box[:2])
    boxes[:, 2:].max(axis=0, out=box[2:])
    return box


class Glyph:
    """The strokes of one symbol as they were written; immutable, shared between expressions."""

    __slots__ = ("box", "lengths", "points")

    def __init__(self, strokes: Iterable[np.ndarray]) -> None:
        parts = tuple(strokes)
        #: All strokes one behind the other.
        self.points: np.ndarray = parts[0] if len(parts) == 1 else np.concatenate(parts)  # (P, 2)
        self.lengths: tuple[int, ...] = tuple(len(part) for part in parts)
        self.box: Box = np.concatenate([self.points.min(axis=0), self.points.max(axis=0)]).astype(np.float64)

    @property
    def width(self) -> float:
        return float(self.box[2] - self.box[0])

    @property
    def height(self) -> float:
        return float(self.box[3] - self.box[1])

    @property
    def size(self) -> float:
        """The longer side: says how large a symbol is written, for tall and for flat symbols alike."""
        return max(self.width, self.height, 1.0)

    def strokes(self) -> list[np.ndarray]:
        """The single strokes."""
        return split(self.points, self.lengths)

    def with_points(self, points: np.ndarray) -> Glyph:
        """The same strokes with other coordinates."""
        return Glyph(split(points, self.lengths))


def split(points: np.ndarray, lengths: Iterable[int]) -> list[np.ndarray]:
    """Consecutive runs of `points`, as views."""
    runs, at = [], 0
    for length in lengths:
        runs.append(points[at : at + length])
        at += length
    return runs


def fit(glyphs: Sequence[Glyph], boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (G, 4) -> (G, 2), (G, 2)
    """Scale and shift per glyph that bring it from its own box into the wanted one."""
    own = np.array([glyph.box for glyph in glyphs])
    extent = own[:, 2:] - own[:, :2]
    flat = extent < _FLAT
    scale = np.where(flat, 1.0, (boxes[:, 2:] - boxes[:, :2]) / np.where(flat, 1.0, extent))
    shift = 0.5 * (boxes[:, :2] + boxes[:, 2:]) - scale * 0.5 * (own[:, :2] + own[:, 2:])
    return scale, shift


@dataclass(frozen=True, eq=False, slots=True)
class Placed:
    """A label, the glyph of each inked token, and the box that the glyph is to fill."""

    tokens: tuple[str, ...]
    glyphs: tuple[Glyph | None, ...]
    boxes: np.ndarray  # (T, 4), NO_INK for tokens without ink
    tree: Row

    @classmethod
    def of(cls, sample: Sample) -> Placed | None:
        """`sample` as glyphs in their own boxes; None unless every inked token and every stroke is matched."""
        tree = parse(sample.tokens)
        if tree is None or sample.strokes is None or sample.token_strokes is None:
            return None
        used = [i for strokes in sample.token_strokes for i in strokes]
        if sorted(used) != list(range(len(sample.strokes))):
            return None
        if {t for t, strokes in enumerate(sample.token_strokes) if strokes} != set(inked(tree)):
            return None
        if any(len(stroke) == 0 or not np.isfinite(stroke).all() for stroke in sample.strokes):
            return None
        glyphs = tuple(Glyph(sample.strokes[i] for i in s) if s else None for s in sample.token_strokes)
        boxes = np.array([NO_INK if glyph is None else glyph.box for glyph in glyphs])
        return cls(sample.tokens, glyphs, boxes, tree)

    @classmethod
    def build(cls, tokens: tuple[str, ...], glyphs: tuple[Glyph | None, ...], boxes: np.ndarray) -> Placed:
        """A new expression of parts that are known to fit together."""
        tree = parse(tokens)
        if tree is None:
            raise ValueError(f"not a label: {' '.join(tokens)}")
        return cls(tokens, glyphs, boxes, tree)

    @property
    def box(self) -> Box:
        return union(self.boxes)

    def cut(self, start: int, stop: int) -> Placed:
        """The tokens of a span as an expression of its own, where they stand."""
        return Placed.build(self.tokens[start:stop], self.glyphs[start:stop], self.boxes[start:stop])

    def moved(self, scale: float, dx: float, dy: float) -> Placed:
        """Scaled about the origin, then shifted."""
        boxes = self.boxes * scale + np.array([dx, dy, dx, dy])
        return Placed(self.tokens, self.glyphs, boxes, self.tree)

    def strokes(self) -> tuple[tuple[np.ndarray, ...], tuple[tuple[int, ...], ...]]:
        """The ink, and for each token its strokes."""
        glyphs = [glyph for glyph in self.glyphs if glyph is not None]
        scale, shift = fit(glyphs, self.boxes[np.isfinite(self.boxes[:, 0])])
        strokes: list[np.ndarray] = []
        for glyph, a, b in zip(glyphs, scale, shift, strict=True):
            strokes += split((glyph.points * a + b).astype(np.float32), glyph.lengths)
        return tuple(strokes), self.token_strokes()

    def token_strokes(self) -> tuple[tuple[int, ...], ...]:
        """For each token its strokes, numbered in the order of the tokens."""
        numbers: list[tuple[int, ...]] = []
        at = 0
        for glyph in self.glyphs:
            count = 0 if glyph is None else len(glyph.lengths)
            numbers.append(tuple(range(at, at + count)))
            at += count
        return tuple(numbers)


class Layout:
    """The boxes and glyphs of one expression while it is being edited.

    Indices are those of the expression before the edit. A replacement stands as one box in the place of its
    first token until `splice` puts its tokens in.
    """

    def __init__(self, placed: Placed) -> None:
        self.placed = placed
        self.before = placed.boxes
        self.boxes = placed.boxes.copy()
        self.glyphs = list(placed.glyphs)
        self.tokens = list(placed.tokens)

    def result(self) -> Placed:
        """The expression after `relabel`s."""
        return Placed(tuple(self.tokens), tuple(self.glyphs), self.boxes, self.placed.tree)

    def relabel(self, index: int, token: str, glyph: Glyph, box: Box, path: tuple[Step, ...]) -> None:
        """Write another symbol for the token at `index` (the head of the item that `path` begins with)."""
        row, k, _ = path[0]
        old = self.boxes[index].copy()
        self.before = self.boxes.copy()
        self.tokens[index], self.glyphs[index], self.boxes[index] = token, glyph, box
        for part in row.items[k].parts:
            beside = _is_beside(self.before[part.start : part.stop], old)
            self._shift(part.start, part.stop, (box[2] - old[2]) * (1.0 if beside else 0.5), 0.0)
        self.settle(path)

    def splice(self, piece: Placed, path: tuple[Step, ...]) -> Placed:
        """Put `piece` (in the wanted size, on the wanted line) in the place of the items `path` begins with."""
        row, first, last = path[0]
        start, stop = row.items[first].start, row.items[last].stop
        box = piece.box
        self.boxes[start:stop] = NO_INK
        self.boxes[start] = box
        self.settle(path)
        dx, dy = self.boxes[start, :2] - box[:2]
        boxes = np.concatenate([self.boxes[:start], piece.moved(1.0, dx, dy).boxes, self.boxes[stop:]])
        glyphs = (*self.glyphs[:start], *piece.glyphs, *self.glyphs[stop:])
        tokens = (*self.tokens[:start], *piece.tokens, *self.tokens[stop:])
        return Placed.build(tokens, glyphs, boxes)

    def settle(self, path: tuple[Step, ...]) -> None:
        """Make room for changed items: what is to the right moves, bars, roots and brackets around them grow."""
        for (row, first, last), up in zip(path, (*path[1:], None), strict=True):
            start, stop = row.items[first].start, row.items[last].stop
            old = union(self.before[start:stop])
            self._shift(start, stop, old[0] - union(self.boxes[start:stop])[0], 0.0)
            change = union(self.boxes[start:stop]) - old
            if np.abs(change).max() < 1e-6:
                return
            self._shift(stop, row.stop, change[2], 0.0)
            self._grow_fences(row, first, last, change[1], change[3])
            if up is not None:
                self._fit_part(up[0].items[up[1]].head, up[0].items[up[1]].parts, row)

    def _shift(self, start: int, stop: int, dx: float, dy: float) -> None:
        self.boxes[start:stop, 0::2] += dx
        self.boxes[start:stop, 1::2] += dy

    def _grow_fences(self, row: Row, first: int, last: int, up: float, down: float) -> None:
        if abs(up) < 1.0 and abs(down) < 1.0:
            return
        for pair in fences(self.tokens, row.items) or ():
            if not (pair[0] < first and last < pair[1]):
                continue
            for item in (row.items[pair[0]], row.items[pair[1]]):
                _, top, _, bottom = self.boxes[item.head]
                if bottom + down - top - up < 0.5 * (bottom - top):
                    continue
                self.boxes[item.head, 1] += up
                self.boxes[item.head, 3] += down
                for part in item.parts:
                    self._shift(part.start, part.stop, 0.0, up if part.role is Role.SUP else down)

    def _fit_part(self, head: int, parts: tuple[Row, ...], row: Row) -> None:
        """Fit a part that has changed back to the item it belongs to, and the item to the part."""
        old = union(self.before[row.start : row.stop])
        new = union(self.boxes[row.start : row.stop])
        change = new - old
        match row.role:
            case Role.NUMERATOR | Role.DENOMINATOR:
                edge = 3 if row.role is Role.NUMERATOR else 1
                self._shift(row.start, row.stop, 0.0, -change[edge])
                self._widen_bar(head, parts[:2])
            case Role.RADICAND:
                self._widen_root(head, old[0], change)
            case Role.DEGREE:
                self._shift(row.start, row.stop, -change[2], -change[3])
            case Role.SUP | Role.SUB:
                middle = 0.0
                if not _is_beside(self.before[row.start : row.stop], self.before[head]):
                    middle = -0.5 * (change[0] + change[2])
                self._shift(row.start, row.stop, middle, -change[3 if row.role is Role.SUP else 1])
            case _:
                pass

    def _widen_bar(self, head: int, parts: tuple[Row, ...]) -> None:
        bar, was = self.boxes[head], self.before[head]
        old = [union(self.before[part.start : part.stop]) for part in parts]
        new = [union(self.boxes[part.start : part.stop]) for part in parts]
        slack = (was[2] - was[0]) - max(box[2] - box[0] for box in old)
        width = max(box[2] - box[0] for box in new)
        bar[2] = bar[0] + width + max(slack, -0.1 * width)
        for part, a, b in zip(parts, old, new, strict=True):
            off_centre = np.clip((a[0] + a[2]) - (was[0] + was[2]), -slack, slack) if slack > 0 else 0.0
            self._shift(part.start, part.stop, 0.5 * ((bar[0] + bar[2]) + off_centre - (b[0] + b[2])), 0.0)

    def _widen_root(self, head: int, knee: float, change: np.ndarray) -> None:
        """Lengthen the bar of a root over its radicand; the hook on the left of `knee` keeps its form."""
        glyph = self.glyphs[head]
        assert glyph is not None
        box = self.boxes[head]
        wide = np.array([box[0], box[1] + change[1], max(box[2] + change[2], knee + 4.0), box[3] + change[3]])
        if wide[3] - wide[1] < 0.4 * (box[3] - box[1]):
            wide[1::2] = box[1::2]
        self.glyphs[head] = stretched(glyph, box, knee, wide[2])
        self.boxes[head] = wide


def stretched(glyph: Glyph, box: Box, knee: float, right: float) -> Glyph:
    """`glyph` drawn into `box`, with what is right of `knee` stretched so that it ends at `right`."""
    scale, shift = fit([glyph], box[None])
    points = (glyph.points * scale + shift).astype(np.float32)
    x = points[:, 0]
    reach = box[2] - knee
    if reach > 1.0:
        points[:, 0] = np.where(x > knee, knee + (x - knee) * ((right - knee) / reach), x)
    else:
        points[:, 0] = box[0] + (x - box[0]) * ((right - box[0]) / max(box[2] - box[0], 1.0))
    return glyph.with_points(points)


def _is_beside(part: np.ndarray, head: Box) -> bool:
    """Whether a script is written beside its symbol (x²) rather than over or under it (limits of a sum)."""
    box = union(part)
    return bool(0.5 * (box[0] + box[2]) > head[2])

"""New expressions from the parts of others: cut out, put in, join, wrap, prime.

Each change takes an expression and returns a new one, or None if it found nothing suitable: the caller then
keeps what it has. Labels stay in label form, and all ink belongs to a token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ink2tex.data.placed import NO_INK, Box, Glyph, Layout, Placed, stretched, union
from ink2tex.data.spans import Item, Role, Row, Step, fences, rows
from ink2tex.data.symbols import NAMES, OPERATORS, RELATIONS, SymbolBank, words
from ink2tex.vocabulary import Vocabulary

_SIGNS: Final = frozenset({"+", "-", "\\pm"})
#: What no expression begins with, and what none ends with.
_NOT_FIRST: Final = words(r"\times \div \cdot ! ' \prime , . / ) ] \}") | frozenset(RELATIONS)
_NOT_LAST: Final = (
    words(r"\sin \cos \tan \log \lim \sum \int \forall \exists / ( [ \{ , .")
    | frozenset(RELATIONS)
    | frozenset(OPERATORS)
)
#: How many tokens may come into a row, where room is short.
_ROOM: Final = {Role.SUB: 4, Role.SUP: 8, Role.DEGREE: 1, Role.NUMERATOR: 16, Role.DENOMINATOR: 16, Role.RADICAND: 16}
#: Limits of the size of a row relative to the row that its item stands in.
_RELATIVE: Final = {Role.SUB: (0.45, 0.85), Role.SUP: (0.45, 0.85), Role.DEGREE: (0.35, 0.7)}
_TRIES: Final = 4


@dataclass(frozen=True)
class Limits:
    """What a new expression must not exceed (pixels: official ones)."""

    tokens: int
    width: float
    height: float


class Recombiner:
    """Changes of structure, with parts taken from a set of expressions."""

    def __init__(
        self, expressions: Sequence[Placed], bank: SymbolBank, limits: Limits, vocabulary: Vocabulary | None = None
    ) -> None:
        self._bank = bank
        self._limits = limits
        self._rows: defaultdict[Role, defaultdict[tuple[str, ...], list[tuple[Placed, Row]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._roots: list[tuple[Glyph, Box]] = []
        by_label: defaultdict[tuple[str, ...], list[Placed]] = defaultdict(list)
        for placed in expressions:
            by_label[placed.tokens].append(placed)
            for row, path in rows(placed.tree):
                self._rows[row.role][placed.tokens[row.start : row.stop]].append((placed, row))
                if row.role is Role.RADICAND:
                    parent, k, _ = path[0]
                    glyph = placed.glyphs[parent.items[k].head]
                    assert glyph is not None
                    self._roots.append((glyph, union(placed.boxes[row.start : row.stop])))

        #: Drawn from by label, so that what many people have copied does not come up all the time.
        self._by_label = list(by_label.values())
        #: The training data has primes in two expressions only, if often copied.
        self._primes = self._rows[Role.SUP][("\\prime",)]
        #: Scripts are drawn by the root of how often they are written.
        self._scripts: dict[Role, tuple[list[list[tuple[Placed, Row]]], np.ndarray]] = {}
        for role in _RELATIVE:
            alike = list(self._rows[role].values())
            if alike:
                self._scripts[role] = alike, np.cumsum(np.sqrt([len(found) for found in alike]))

        def known(*tokens: str) -> bool:
            return vocabulary is None or all(token in vocabulary for token in ("{", "}", *tokens))

        self._digits = [token for token in "0123456789" if token in bank]
        self._letters = sorted(token for token in NAMES if token in bank)
        self._joints = [token for token in ("+", "-", "=", ",") if token in bank]
        #: Each as often as it stands here; training data has fewer indices and more roots than others.
        self._forms = [
            form
            for form, times, possible in (
                (self._fraction, 2, "\\frac" in bank and known("\\frac")),
                (self._root, 1, bool(self._roots) and known("\\sqrt")),
                (self._parentheses, 2, bool(bank.pairs)),
                (self._power, 2, Role.SUP in self._scripts and known("^")),
                (self._index, 4, Role.SUB in self._scripts and known("_")),
                (self._dotted, 4, bool(self._digits and self._letters) and "." in bank),
            )
            if possible
            for _ in range(times)
        ]

    # The changes.

    def cut(self, placed: Placed, rng: np.random.Generator) -> Placed | None:
        """A part of the expression by itself."""
        if len(placed.tokens) < 2:
            return None
        for _ in range(_TRIES):
            part = self._part(placed, rng, len(placed.tokens) - 1)
            # Most parts are single symbols, of which there are enough.
            if part is not None and (len(part.tokens) > 2 or rng.random() < 0.1):
                return self._finish(part, placed)
        return None

    def replace(self, placed: Placed, rng: np.random.Generator) -> Placed | None:
        """The expression with a part of it replaced by a part of another."""
        for _ in range(_TRIES):
            path = _pick(placed, rng)
            row, first, last = path[0]
            start, stop = row.items[first].start, row.items[last].stop
            if stop - start == len(placed.tokens) or not _is_operand(placed.tokens, path[0]):
                continue
            room = min(self._limits.tokens - len(placed.tokens) + stop - start, _ROOM.get(row.role, 24))
            piece = self._piece(row.role, room, rng)
            if piece is None or (first > 0 and piece.tokens[0] in _SIGNS):
                continue
            if row.role is not Role.SUB and _has_relation(piece.tokens, piece.tree.items):
                continue
            if piece.tokens == placed.tokens[start:stop]:
                continue
            size, axis = self._measure(placed, path)
            piece = self._set(piece, size, union(placed.boxes[start:stop])[0], axis)
            return self._finish(Layout(placed).splice(piece, path), placed)
        return None

    def join(self, placed: Placed, rng: np.random.Generator) -> Placed | None:
        """The expression and another, with an operator or a relation between them."""
        other = self._piece(Role.EXPRESSION, self._limits.tokens - len(placed.tokens) - 1, rng)
        if other is None or not self._joints:
            return None
        size, axis = self._bank.metrics.measure(placed, placed.tree)
        parts = [placed, self._set(other, size, 0.0, axis)]
        if rng.random() < 0.5:
            parts.reverse()
        if parts[1].tokens[0] not in _SIGNS:
            joint = self._joints[int(rng.integers(len(self._joints)))]
            if joint != "," and rng.random() < 0.4:
                joint = self._bank.other(joint, rng) or joint
            parts.insert(1, self._symbol(joint, size, axis, rng))
        return self._finish(_beside(parts, size * rng.uniform(4.0, 14.0, len(parts) - 1)), placed)

    def wrap(self, placed: Placed, rng: np.random.Generator) -> Placed | None:
        """The expression with some of it put into a fraction, a root, brackets, or given a script."""
        if not self._forms:
            return None
        for _ in range(_TRIES):
            form = self._forms[int(rng.integers(len(self._forms)))]
            # Scripts mostly belong to letters, and points to numbers or letters.
            letter = form in (self._power, self._index) and rng.random() < 0.8
            pick = _pick_letter if letter else _pick
            if form == self._dotted:
                pick = _pick_number if rng.random() < 0.5 else _pick_letter
            path = pick(placed, rng)
            row, first, last = path[0]
            start, stop = row.items[first].start, row.items[last].stop
            room = self._limits.tokens - len(placed.tokens) - 8
            if room < 1 or (row.role in _ROOM and stop - start > 6):
                continue
            if row.role in (Role.SUB, Role.DEGREE) or not _is_operand(placed.tokens, path[0]):
                continue
            if row.role is Role.SUP:
                room = min(room, 3)
            size, axis = self._measure(placed, path)
            wrapped = form(placed.cut(start, stop), size, axis, room, rng)
            if wrapped is None:
                continue
            return self._finish(_put(placed, path, wrapped), placed)
        return None

    def prime(self, placed: Placed, rng: np.random.Generator) -> Placed | None:
        """The expression with a letter primed, once or wherever it stands without a script."""
        left = [placed.tokens[path[0][0].items[path[0][1]].head] for path in _bare_letters(placed)]
        if not left or not self._primes:
            return None
        name = left[int(rng.integers(len(left)))]
        new = placed
        for _ in range(left.count(name) if rng.random() < 0.5 else 1):
            if len(new.tokens) + 4 > self._limits.tokens:
                break
            paths = _bare_letters(new, frozenset({name}))
            path = paths[int(rng.integers(len(paths)))]
            row, k, _ = path[0]
            size, _ = self._measure(new, path)
            letter = new.cut(row.items[k].start, row.items[k].stop)
            source, script = self._primes[int(rng.integers(len(self._primes)))]
            mark = source.cut(script.start, script.stop)
            new = _put(new, path, self._attached(Role.SUP, letter, mark, size, rng))
        return self._finish(new, placed)

    # What can be put around an expression: all take it where it stands, with size and axis of its row.

    def _fraction(self, inner: Placed, size: float, axis: float, room: int, rng: np.random.Generator) -> Placed | None:
        other = self._piece(Role.DENOMINATOR, min(room, _ROOM[Role.DENOMINATOR]), rng)
        if other is None or _has_relation(other.tokens, other.tree.items):
            return None
        size *= rng.uniform(0.8, 1.0)
        parts = [self._set(part, size * rng.uniform(0.9, 1.1), 0.0, 0.0) for part in (inner, other)]
        if rng.random() < 0.5:
            parts.reverse()
        boxes = [part.box for part in parts]
        widths = [box[2] - box[0] for box in boxes]
        width = max(widths) * rng.uniform(1.02, 1.25) + 4.0
        gaps = size * rng.uniform(3.0, 9.0, 2)
        glyph = self._bank.glyph("\\frac", rng)
        thick = min(0.5 * glyph.height * min(width / max(glyph.width, 1.0), 1.0), 3.0)
        bar = np.array([0.0, axis - thick, width, axis + thick])
        upper, lower = (
            part.moved(1.0, 0.5 * (width - w) + 0.1 * (width - w) * rng.uniform(-1.0, 1.0) - box[0], dy)
            for part, box, w, dy in zip(
                parts, boxes, widths, (bar[1] - gaps[0] - boxes[0][3], bar[3] + gaps[1] - boxes[1][1]), strict=True
            )
        )
        return _assemble(("\\frac", glyph, bar), "{", upper, "}", "{", lower, "}")

    def _root(self, inner: Placed, size: float, axis: float, room: int, rng: np.random.Generator) -> Placed | None:
        glyph, was = self._roots[int(rng.integers(len(self._roots)))]
        box, sign = inner.box, glyph.box
        scale = float(np.clip((box[3] - box[1]) / max(was[3] - was[1], 8.0), 0.6, 1.6))
        hook = float(np.clip(scale * (was[0] - sign[0]), 8.0, 0.8 * (box[3] - box[1]) + 8.0))
        reach = max(scale * (sign[2] - was[0]), 4.0)
        top = box[1] - float(np.clip(scale * (was[1] - sign[1]), 4.0 * size, 12.0 * size))
        bottom = box[3] + float(np.clip(scale * (sign[3] - was[3]), -3.0, 8.0 * size))
        right = box[2] + float(np.clip(sign[2] - was[2], -3.0, 10.0))
        drawn = stretched(glyph, np.array([box[0] - hook, top, box[0] + reach, bottom]), box[0], right)
        return _assemble(("\\sqrt", drawn, drawn.box), "{", inner, "}")

    def _parentheses(
        self, inner: Placed, size: float, axis: float, room: int, rng: np.random.Generator
    ) -> Placed | None:
        if _is_fenced(inner):
            return None
        box = inner.box
        half = 0.5 * max((box[3] - box[1]) * rng.uniform(1.05, 1.3), 24.0 * size)
        middle = 0.5 * (box[1] + box[3])
        ends = [
            _single(token, *self._bank.bracket(token, size, middle - half, middle + half, rng))
            for token in self._bank.pair(rng)
        ]
        return _beside([ends[0], inner, ends[1]], size * rng.uniform(1.0, 6.0, 2))

    def _power(self, inner: Placed, size: float, axis: float, room: int, rng: np.random.Generator) -> Placed | None:
        return self._script(Role.SUP, inner, size, axis, room, rng)

    def _index(self, inner: Placed, size: float, axis: float, room: int, rng: np.random.Generator) -> Placed | None:
        return self._script(Role.SUB, inner, size, axis, room, rng)

    def _script(
        self, role: Role, inner: Placed, size: float, axis: float, room: int, rng: np.random.Generator
    ) -> Placed | None:
        base: Placed | None = inner
        is_name = len(inner.tokens) == 1 and inner.tokens[0] in NAMES
        if role is Role.SUB and not is_name:
            return None
        is_number = all(token.isdigit() for token in inner.tokens)
        if not is_name and not is_number and not (_is_fenced(inner) and not inner.tree.items[-1].parts):
            if not self._bank.pairs:
                return None
            base = self._parentheses(inner, size, axis, room, rng)
        script = self._piece(role, min(room, _ROOM[role]), rng)
        if script is None or base is None:
            return None
        return self._attached(role, base, script, size, rng)

    def _attached(self, role: Role, base: Placed, script: Placed, size: float, rng: np.random.Generator) -> Placed:
        """`base`, written in the given size, with a script."""
        end = base.boxes[-1]
        script = self._set(script, size * rng.uniform(0.55, 0.8), end[2] + size * rng.uniform(1.0, 5.0), 0.0)
        overlap = rng.uniform(0.15, 0.4) * min(end[3] - end[1], 28.0 * size)
        box = script.box
        if role is Role.SUP:
            script = script.moved(1.0, 0.0, end[1] + overlap - box[3])
        else:
            script = script.moved(1.0, 0.0, end[3] - overlap - box[1])
        return _assemble(base, "^" if role is Role.SUP else "_", "{", script, "}")

    def _dotted(self, inner: Placed, size: float, axis: float, room: int, rng: np.random.Generator) -> Placed | None:
        """A number and some decimals, or a product whose dot stands on the line, which is no `\\cdot`."""
        if all(token.isdigit() for token in inner.tokens):
            new = [
                self._digits[int(rng.integers(len(self._digits)))] for _ in range(min(room, int(rng.integers(1, 4))))
            ]
        else:
            new = [self._letters[int(rng.integers(len(self._letters)))]]
        parts = [inner, *(self._symbol(token, size, axis, rng) for token in (".", *new))]
        return _beside(parts, size * rng.uniform(1.0, 6.0, len(parts) - 1))

    # Parts.

    def _piece(self, role: Role, room: int, rng: np.random.Generator) -> Placed | None:
        """A part of any expression with at most `room` tokens; scripts mostly come from scripts."""
        if room < 1 or not self._by_label:
            return None
        for _ in range(_TRIES):
            if role in self._scripts and rng.random() < 0.9:
                scripts, cumulative = self._scripts[role]
                found = scripts[int(np.searchsorted(cumulative, rng.uniform(0.0, cumulative[-1]), side="right"))]
                placed, row = found[int(rng.integers(len(found)))]
                if row.stop - row.start <= room:
                    return placed.cut(row.start, row.stop)
                continue
            alike = self._by_label[int(rng.integers(len(self._by_label)))]
            placed = alike[int(rng.integers(len(alike)))]
            if len(placed.tokens) <= room and rng.random() < 0.3 and _is_sound(placed.tokens, placed.tree.items):
                return placed
            part = self._part(placed, rng, room)
            if part is not None:
                return part
        return None

    def _part(self, placed: Placed, rng: np.random.Generator, at_most: int) -> Placed | None:
        """A row of the expression, or some items of one, that can stand alone."""
        row, first, last = _pick(placed, rng)[0]
        start, stop = row.items[first].start, row.items[last].stop
        if stop - start > at_most:
            return None
        return placed.cut(start, stop) if _is_sound(placed.tokens, row.items[first : last + 1]) else None

    def _measure(self, placed: Placed, path: tuple[Step, ...]) -> tuple[float, float]:
        """Size and axis of a row, the size kept to what is possible in the row around it."""
        row = path[0][0]
        size, axis = self._bank.metrics.measure(placed, row)
        if len(path) > 1:
            low, high = _RELATIVE.get(row.role, (0.7, 1.1))
            around = self._bank.metrics.measure(placed, path[1][0])[0]
            size = min(max(size, low * around), high * around)
        return size, axis

    def _set(self, piece: Placed, size: float, left: float, axis: float) -> Placed:
        """`piece` in another size, beginning at `left`, on another line."""
        own, line = self._bank.metrics.measure(piece, piece.tree)
        scale = size / own
        return piece.moved(scale, left - scale * piece.box[0], axis - scale * line)

    def _symbol(self, token: str, size: float, axis: float, rng: np.random.Generator) -> Placed:
        glyph = self._bank.glyph(token, rng)
        return _single(token, glyph, self._bank.box_at(token, glyph, size, 0.0, axis, rng))

    def _finish(self, new: Placed | None, old: Placed) -> Placed | None:
        """`new` with symbols as high on average as those of `old`, unless it is too large."""
        if new is None or len(new.tokens) > self._limits.tokens:
            return None
        scale = float(np.clip(_symbol_height(old) / max(_symbol_height(new), 1.0), 0.6, 1.8))
        box = scale * new.box
        if box[2] - box[0] > self._limits.width or box[3] - box[1] > self._limits.height:
            return None
        return new.moved(scale, 0.0, 0.0)


def _symbol_height(placed: Placed) -> float:
    inked = placed.boxes[np.isfinite(placed.boxes[:, 0])]
    return float((inked[:, 3] - inked[:, 1]).mean())


def _pick(placed: Placed, rng: np.random.Generator) -> tuple[Step, ...]:
    """Some items of any row, and the way up from there."""
    found = list(rows(placed.tree))
    # Most rows are scripts of one symbol; the outermost row has more to offer.
    k = 0 if rng.random() < 0.35 else int(rng.integers(len(found)))
    row, path = found[k]
    count = len(row.items)
    if count == 1 or (k > 0 and rng.random() < 0.5):
        return ((row, 0, count - 1), *path)
    pairs = fences(placed.tokens, row.items)
    for _ in range(_TRIES):
        first, last = sorted(int(i) for i in rng.integers(count, size=2))
        if _splits_number(placed.tokens, row, first) or _splits_number(placed.tokens, row, last + 1):
            continue
        if pairs is not None and all((first <= i <= last) == (first <= j <= last) for i, j in pairs):
            return ((row, first, last), *path)
    return ((row, 0, count - 1), *path)


def _bare_letters(placed: Placed, names: frozenset[str] = NAMES) -> list[tuple[Step, ...]]:
    """All letters that have no script yet, each with the way up from there."""
    return [
        ((row, k, k), *path)
        for row, path in rows(placed.tree)
        for k, item in enumerate(row.items)
        if not item.parts and placed.tokens[item.head] in names
    ]


def _put(placed: Placed, path: tuple[Step, ...], new: Placed) -> Placed:
    """The expression with the items at `path` replaced by `new`, which begins where they do."""
    row, first, last = path[0]
    left = union(placed.boxes[row.items[first].start : row.items[last].stop])[0]
    return Layout(placed).splice(new.moved(1.0, left - new.box[0], 0.0), path)


def _pick_letter(placed: Placed, rng: np.random.Generator) -> tuple[Step, ...]:
    """Any letter that has no script yet, or if there is none, anything."""
    found = _bare_letters(placed)
    return found[int(rng.integers(len(found)))] if found else _pick(placed, rng)


def _pick_number(placed: Placed, rng: np.random.Generator) -> tuple[Step, ...]:
    """Any whole number, or if there is none, anything."""
    found = []
    for row, path in rows(placed.tree):
        heads = [placed.tokens[item.head] for item in row.items]
        for first in range(len(heads)):
            last = first
            while last + 1 < len(heads) and heads[last + 1].isdigit() and not row.items[last].parts:
                last += 1
            whole = (
                heads[first].isdigit() and not row.items[last].parts and not _splits_number(placed.tokens, row, first)
            )
            if whole and "." not in (heads[first - 1 : first] + heads[last + 1 : last + 2]):
                found.append(((row, first, last), *path))
    return found[int(rng.integers(len(found)))] if found else _pick(placed, rng)


def _splits_number(tokens: Sequence[str], row: Row, at: int) -> bool:
    """Whether the items before and from `at` on are digits of the same number."""
    if not 0 < at < len(row.items):
        return False
    return tokens[row.items[at - 1].head].isdigit() and tokens[row.items[at].head].isdigit()


def _single(token: str, glyph: Glyph, box: Box) -> Placed:
    return Placed.build((token,), (glyph,), box[None])


def _beside(parts: Sequence[Placed], gaps: np.ndarray) -> Placed:
    """Expressions in a row, moved so that the given gaps are between them."""
    placed = [parts[0]]
    for part, gap in zip(parts[1:], gaps, strict=True):
        placed.append(part.moved(1.0, placed[-1].box[2] + gap - part.box[0], 0.0))
    return _assemble(*placed)


def _assemble(*parts: Placed | str | tuple[str, Glyph, Box]) -> Placed:
    """One expression of expressions, marks without ink, and the heads of forms."""
    tokens: list[str] = []
    glyphs: list[Glyph | None] = []
    boxes: list[np.ndarray] = []
    for part in parts:
        if isinstance(part, str):
            tokens.append(part)
            glyphs.append(None)
            boxes.append(NO_INK[None])
        elif isinstance(part, tuple):
            tokens.append(part[0])
            glyphs.append(part[1])
            boxes.append(part[2][None])
        else:
            tokens += part.tokens
            glyphs += part.glyphs
            boxes.append(part.boxes)
    return Placed.build(tuple(tokens), tuple(glyphs), np.concatenate(boxes))


def _is_sound(tokens: Sequence[str], items: Sequence[Item]) -> bool:
    """Whether items could be an expression by themselves: brackets in pairs, no operator left over at the ends."""
    first, last = tokens[items[0].head], tokens[items[-1].head]
    if first in _NOT_FIRST or last in _NOT_LAST:
        return False
    return fences(tokens, items) is not None


def _is_operand(tokens: Sequence[str], step: Step) -> bool:
    """Whether items are something to calculate with, which another such thing may replace."""
    row, first, last = step
    items = row.items[first : last + 1]
    if (first > 0 and tokens[items[0].head] in _SIGNS) or _has_relation(tokens, items):
        return False
    return _is_sound(tokens, items)


def _is_fenced(placed: Placed) -> bool:
    """Whether one pair of brackets is around all of it."""
    return (0, len(placed.tree.items) - 1) in (fences(placed.tokens, placed.tree.items) or ())


def _has_relation(tokens: Sequence[str], items: Sequence[Item]) -> bool:
    return any(tokens[item.head] in RELATIONS or tokens[item.head] == "\\rightarrow" for item in items)

"""Symbols as people write them: a bank of instances, their usual sizes, and exchanging one for another."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from ink2tex.data.placed import Box, Glyph, Layout, Placed
from ink2tex.data.spans import Item, Role, Row, fences, rows

_LETTERS: Final = r"""
    a b c d e f g h i j k l m n o p q r s t u v w x y z \alpha \beta \gamma \theta \lambda \mu \pi \sigma \phi
    A B C E F G H I L M N P R S T V X Y \Delta
"""
OPERATORS: Final = tuple(r"+ - \times \pm \div \cdot".split())
RELATIONS: Final = tuple(r"= \leq \geq < > \neq \in".split())
#: Letters name something: all occurrences in an expression change together.
NAMES: Final = frozenset(_LETTERS.split())
#: Symbols that may stand for each other without changing what kind of expression it is.
CLASSES: Final[tuple[tuple[str, ...], ...]] = (
    tuple("0123456789"),
    tuple(_LETTERS.split()),
    OPERATORS,
    RELATIONS,
    ("\\sin", "\\cos", "\\tan", "\\log"),
    ("\\ldots", "\\cdots"),
)
#: Hardly told from 0 and 1 without their context, so they are never put into another one.
_UNCLEAR: Final = frozenset({"o", "l"})
#: Capitals that are told from their small letters by their size alone, or nearly so: training needs to see both. An x
#: is so much more frequent than an X, and is written like one so often, that it is not turned into more of them.
_TWINS: Final = dict(zip("cmpsvyCMPSVXY", "CMPSVYcmpsvxy", strict=True))
_TWIN_SHARE: Final = 0.15
#: Pairs that may be written for each other, each with its share. Expressions for training are mostly round ones.
PAIRS: Final = {("(", ")"): 3.0, ("[", "]"): 2.0, ("|", "|"): 1.5, ("\\{", "\\}"): 1.0}
#: Groups whose table fits into memory at once, however large the set.
_BLOCK: Final = 8192
_OPENING: Final = frozenset((*OPERATORS, *RELATIONS, "\\rightarrow", "(", "[", "\\{", ","))


def words(text: str) -> frozenset[str]:
    """The words of a text; lists of symbols read best this way."""
    return frozenset(text.split())


#: Their extent follows what they belong to, so it says nothing about the size of the writing.
_ELASTIC: Final = words(r"( ) [ ] \{ \} | \frac \sqrt \int \sum - . , ' \prime \cdot \ldots \cdots /")
_SMALL_OR_FLAT: Final = words(r"- = . , ' \prime \cdot \ldots \cdots \rightarrow < > \sim")


def is_sign(tokens: Sequence[str], items: Sequence[Item], k: int) -> bool:
    """Whether there is no operand before item `k` that an operator there could take."""
    return k == 0 or tokens[items[k - 1].head] in _OPENING


def middle(values: Iterable[float]) -> float:
    """The (upper) median; for a few numbers much quicker than numpy's."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


class Metrics:
    """How large a symbol usually is, and how far above or below the axis of its line its centre is.

    Both are measured on the outermost rows of all expressions, in comparison with the other symbols of a row: whoever
    writes large writes all of it large, and a row of capitals alone says nothing about capitals.
    """

    def __init__(self, expressions: Iterable[Placed]) -> None:
        names: dict[str, int] = {}
        token, row, size, centre = [], [], [], []
        for n, placed in enumerate(expressions):
            for item in placed.tree.items:
                glyph = placed.glyphs[item.head]
                assert glyph is not None
                token.append(names.setdefault(placed.tokens[item.head], len(names)))
                row.append(n)
                size.append(glyph.size)
                centre.append(0.5 * (glyph.box[1] + glyph.box[3]))
        tokens, rows_, sizes, centres = (np.array(v) for v in (token, row, size, centre))
        self._size: dict[str, float] = {}
        self._offset: dict[str, float] = {}
        if not names:
            return
        steady = np.array([name not in _ELASTIC for name in names])[tokens]
        count = int(rows_[-1]) + 1
        larger = np.exp(_own_part(tokens[steady], rows_[steady], np.log(np.maximum(sizes[steady], 1.0)), len(names)))
        scale = _medians(rows_[steady], sizes[steady] / larger[tokens[steady]], count)
        scale /= np.median(scale)
        usual = _medians(tokens, sizes / scale[rows_], len(names))
        offset = _own_part(tokens, rows_, centres / scale[rows_], len(names))
        self._size = {name: float(usual[i]) for name, i in names.items()}
        self._offset = {name: float(offset[i]) for name, i in names.items()}

    def size(self, token: str) -> float:
        """The usual longer side in official pixels, in an outermost row."""
        return self._size.get(token, 28.0)

    def offset(self, token: str) -> float:
        """How far below the axis of the row the centre of the symbol usually is, in pixels at size 1."""
        return self._offset.get(token, 0.0)

    def measure(self, placed: Placed, row: Row) -> tuple[float, float]:
        """Size of the writing in a row (1 is usual for an outermost row) and the height of its axis."""
        heads = [(placed.tokens[item.head], placed.boxes[item.head]) for item in row.items]
        ratios = [
            max(box[2] - box[0], box[3] - box[1]) / self.size(token) for token, box in heads if token not in _ELASTIC
        ]
        if ratios:
            size = middle(ratios)
        else:
            inner = [part for item in row.items for part in item.parts]
            small = {Role.SUB, Role.SUP, Role.DEGREE}
            sizes = [self.measure(placed, p)[0] / (0.7 if p.role in small else 0.9) for p in inner]
            sizes += [] if inner else [(b[3] - b[1]) / self.size(t) for t, b in heads if t in "()[]|"]
            size = middle(sizes) if sizes else 0.8
        size = min(max(size, 0.3), 2.5)
        return size, middle(0.5 * (box[1] + box[3]) - size * self.offset(token) for token, box in heads)


def _medians(groups: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """The median of the values of each group, 1 where a group has none."""
    order = np.lexsort((values, groups))
    sizes = np.bincount(groups, minlength=count)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    result = np.ones(count)
    some = sizes > 0
    result[some] = values[order[(first + sizes // 2)[some]]]
    return result


def _own_part(kinds: np.ndarray, groups: np.ndarray, values: np.ndarray, count: int, rounds: int = 6) -> np.ndarray:
    """Values as the sum of a part of their kind and one of their group (ascending): the former, (count,), its median 0.

    Least squares with the level of each group eliminated; values far off count less with every round.
    """
    found: np.ndarray = np.zeros(count)
    if not len(values):
        return found
    groups = np.unique(groups, return_inverse=True)[1]
    weights = np.ones(len(values))
    for _ in range(rounds):
        total = np.bincount(groups, weights)  # (G,)
        level = np.bincount(groups, weights * values) / total
        matrix: np.ndarray = np.diag(np.bincount(kinds, weights, count))
        right: np.ndarray = np.bincount(kinds, weights * values, count)
        for first in range(0, len(total), _BLOCK):
            part = slice(*np.searchsorted(groups, (first, first + _BLOCK)))
            share = np.zeros((min(_BLOCK, len(total) - first), count))
            np.add.at(share, (groups[part] - first, kinds[part]), weights[part])
            matrix -= share.T @ (share / total[first : first + _BLOCK, None])
            right -= share.T @ level[first : first + _BLOCK]
        found = np.linalg.lstsq(matrix, right, rcond=1e-9)[0]
        rest = values - found[kinds]
        rest -= (np.bincount(groups, weights * rest) / total)[groups]
        weights = 1.0 / np.maximum(1.0, np.abs(rest) / (1.5 * np.median(np.abs(rest)) + 1e-9))
    found -= np.median(found[kinds])
    return found


def _typical(glyphs: list[Glyph], unusual: float = 0.02) -> list[Glyph]:
    """Without the narrowest, the widest and those with an unusual number of strokes: often they are mistakes."""
    if len(glyphs) < 20:
        return glyphs
    slim = np.log([(glyph.width + 3.0) / (glyph.height + 3.0) for glyph in glyphs])
    low, high = np.quantile(slim, [unusual, 1.0 - unusual])
    strokes = Counter(len(glyph.lengths) for glyph in glyphs)
    usual = {count for count, times in strokes.items() if times >= unusual * len(glyphs)}
    return [g for g, s in zip(glyphs, slim, strict=True) if low <= s <= high and len(g.lengths) in usual]


def _drawn(cumulative: np.ndarray, rng: np.random.Generator) -> int:
    """An index, by the running sum of the shares."""
    return min(int(np.searchsorted(cumulative, rng.random())), len(cumulative) - 1)


class SymbolBank:
    """Every instance of every symbol, with the usual measures of each."""

    def __init__(self, expressions: Iterable[Placed]) -> None:
        expressions = list(expressions)
        self.metrics = Metrics(expressions)
        found: defaultdict[str, list[Glyph]] = defaultdict(list)
        for placed in expressions:
            for token, glyph in zip(placed.tokens, placed.glyphs, strict=True):
                if glyph is not None:
                    found[token].append(glyph)
        self._glyphs = {token: _typical(glyphs) for token, glyphs in found.items()}
        self._others: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
        for members in CLASSES:
            known = tuple(token for token in members if token in self._glyphs)
            for token in known:
                others = tuple(other for other in known if other != token and other not in _UNCLEAR)
                if others:
                    # Some letters are 200 times as frequent as others in the training data, but not in what people
                    # write: all alike. Of the rest, rare ones come up somewhat more often than they are written.
                    counts = np.array([len(self._glyphs[other]) for other in others])
                    weights = np.ones(len(others)) if token in NAMES else np.sqrt(counts)
                    self._others[token] = others, np.cumsum(weights / weights.sum())
        self.pairs = [pair for pair in PAIRS if all(token in self._glyphs for token in pair)]
        shares = np.array([PAIRS[pair] for pair in self.pairs])
        self._pair_shares = np.cumsum(shares / max(shares.sum(), 1.0))

    def __contains__(self, token: str) -> bool:
        return token in self._glyphs

    def glyph(self, token: str, rng: np.random.Generator) -> Glyph:
        """Any instance of `token`."""
        glyphs = self._glyphs[token]
        return glyphs[int(rng.integers(len(glyphs)))]

    def other(self, token: str, rng: np.random.Generator) -> str | None:
        """Another symbol of the class of `token`, the rarer ones and its own twin more often than they occur."""
        if token not in self._others:
            return None
        if _TWINS.get(token) in self._glyphs and rng.random() < _TWIN_SHARE:
            return _TWINS[token]
        others, cumulative = self._others[token]
        return others[_drawn(cumulative, rng)]

    def pair(self, rng: np.random.Generator) -> tuple[str, str]:
        """A pair of brackets, of those that have been written."""
        return self.pairs[_drawn(self._pair_shares, rng)]

    def bracket(
        self, token: str, size: float, top: float, bottom: float, rng: np.random.Generator
    ) -> tuple[Glyph, Box]:
        """One bracket about as high as from `top` to `bottom`, beginning at 0, in writing of the given size."""
        glyph = self.glyph(token, rng)
        tall = (bottom - top) * rng.uniform(0.93, 1.07)
        wide = glyph.width * float(np.clip(np.sqrt(size * tall / max(glyph.height, 4.0)), 0.4, 2.0))
        middle = 0.5 * (top + bottom)
        return glyph, np.array([0.0, middle - 0.5 * tall, wide, middle + 0.5 * tall])

    def swap(self, placed: Placed, probability: float, rng: np.random.Generator) -> Placed:
        """Let other hands write some of the symbols: same tokens, nearly the same boxes."""
        glyphs, boxes = list(placed.glyphs), placed.boxes.copy()
        draws = rng.random(len(glyphs))
        for k, (token, glyph) in enumerate(zip(placed.tokens, glyphs, strict=True)):
            if glyph is None or draws[k] >= probability or token == "\\sqrt" or token not in self:
                continue
            other = self.glyph(token, rng)
            box = fitted(token, other, boxes[k])
            if box is not None:
                glyphs[k], boxes[k] = other, box
        return Placed(placed.tokens, tuple(glyphs), boxes, placed.tree)

    def substitute(self, placed: Placed, probability: float, rng: np.random.Generator) -> Placed:
        """Write other symbols of the same class: a different expression of the same form.

        Letters are renamed, so that all x of an expression become t; brackets change in pairs, digits and operators
        one by one.
        """
        layout: Layout | None = None
        # The d of an integral is no name.
        renamed: dict[str, str | None] = {"d": None} if "\\int" in placed.tokens else {}
        for row, path in rows(placed.tree):
            for k, item in enumerate(row.items):
                token = placed.tokens[item.head]
                if token not in self._others or (token in OPERATORS and is_sign(placed.tokens, row.items, k)):
                    continue
                if token in NAMES:
                    if token not in renamed:
                        renamed[token] = self.other(token, rng) if rng.random() < probability else None
                    new = renamed[token]
                else:
                    # Operators and relations are varied enough.
                    share = probability * (1.0 if token.isdigit() else 0.3)
                    new = self.other(token, rng) if rng.random() < share else None
                if new is None:
                    continue
                layout = layout or Layout(placed)
                glyph = self.glyph(new, rng)
                box = self.box_for(new, glyph, token, layout.boxes[item.head], rng)
                layout.relabel(item.head, new, glyph, box, ((row, k, k), *path))
            for ends in fences(placed.tokens, row.items) or ():
                old = tuple(placed.tokens[row.items[k].head] for k in ends)
                if old not in self.pairs or rng.random() >= probability or (pair := self.pair(rng)) == old:
                    continue
                layout = layout or Layout(placed)
                size = self.metrics.measure(placed, row)[0]
                for token, k in zip(pair, ends, strict=True):
                    left, top, _, bottom = layout.boxes[row.items[k].head]
                    glyph, box = self.bracket(token, size, top, bottom, rng)
                    box[0::2] += left
                    layout.relabel(row.items[k].head, token, glyph, box, ((row, k, k), *path))
        return layout.result() if layout else placed

    def box_for(self, new: str, glyph: Glyph, old: str, box: Box, rng: np.random.Generator) -> Box:
        """Where `new` belongs if it is written in the place of `old`, which fills `box`."""
        metrics = self.metrics
        ratio = max(box[2] - box[0], box[3] - box[1]) / metrics.size(old)
        if old in _SMALL_OR_FLAT or new in _SMALL_OR_FLAT:
            ratio = max(ratio, 0.4)
        axis = 0.5 * (box[1] + box[3]) - ratio * metrics.offset(old)
        return self.box_at(new, glyph, ratio, box[0], axis, rng)

    def box_at(self, token: str, glyph: Glyph, size: float, left: float, axis: float, rng: np.random.Generator) -> Box:
        """The box of `token` beginning at `left` in a row of the given size and axis."""
        scale = size * self.metrics.size(token) / glyph.size * np.exp(0.12 * np.clip(rng.normal(), -2.0, 2.0))
        width, height = glyph.width * scale, glyph.height * scale
        top = axis + size * self.metrics.offset(token) - 0.5 * height
        return np.array([left, top, left + width, top + height])


def fitted(token: str, glyph: Glyph, box: Box) -> Box | None:
    """The box that `glyph` should fill in the place of the same symbol in `box`; None if it is too unlike."""
    width, height = float(box[2] - box[0]), float(box[3] - box[1])
    if token == "\\frac":
        sx = width / max(glyph.width, 1.0)
        sy = min(sx, 1.0)
    else:
        scale = max(width, height, 1.0) / glyph.size
        if not 0.3 < scale < 3.0:
            return None
        sx = sy = scale
        if token not in _SMALL_OR_FLAT:
            # Most of the way to the same height, so that it stands on the same line; some to the same width.
            sy *= (max(height, 2.0) / max(scale * glyph.height, 2.0)) ** 0.8
            sx *= (max(width, 2.0) / max(scale * glyph.width, 2.0)) ** 0.4
            if not 0.6 < sx / sy < 1.67 or sx * glyph.width > 1.3 * width + 4.0:
                return None
    half = 0.5 * np.array([sx * glyph.width, sy * glyph.height])
    centre = 0.5 * (box[:2] + box[2:])
    return np.concatenate([centre - half, centre + half])

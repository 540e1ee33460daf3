"""New expressions from parts: labels stay labels, and ink stays where its label says."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from drawn import SAMPLES, drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from ink2tex.data.placed import Placed, union
from ink2tex.data.recombine import Limits, Recombiner
from ink2tex.data.spans import FENCES, Role, rows
from ink2tex.data.symbols import SymbolBank

PLACED = [placed for placed in map(Placed.of, SAMPLES) if placed is not None]
LIMITS = Limits(tokens=40, width=600.0, height=200.0)
MAKER = Recombiner(PLACED, SymbolBank(PLACED), LIMITS)
PRIMED = Placed.of(drawn("x ^ { \\prime } = y"))
assert PRIMED is not None
#: Writes primes as well, of which it has seen one.
PRIMER = Recombiner([*PLACED, PRIMED], SymbolBank([*PLACED, PRIMED]), LIMITS)
CHANGES = {"cut": MAKER.cut, "replace": MAKER.replace, "join": MAKER.join, "wrap": MAKER.wrap, "prime": PRIMER.prime}
seeds = st.integers(0, 2**32 - 1)
indices = st.integers(0, len(PLACED) - 1)
names = st.sampled_from(sorted(CHANGES))


def is_part(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    return any(whole[i : i + len(part)] == part for i in range(len(whole) - len(part) + 1))


def check_places(placed: Placed) -> None:
    """Items from left to right, numerators over and denominators under their bar, radicands under their root."""

    def box(start: int, stop: int) -> np.ndarray:
        return union(placed.boxes[start:stop])

    for row, path in rows(placed.tree):
        inner = box(row.start, row.stop)
        assert np.isfinite(inner).all()
        heads = [placed.boxes[item.head] for item in row.items]
        for a, b in itertools.pairwise(heads):
            assert a[2] < b[0] + 1.0
        if not path:
            continue
        head = placed.boxes[path[0][0].items[path[0][1]].head]
        match row.role:
            case Role.NUMERATOR:
                assert inner[3] <= head[1] + 0.1
            case Role.DENOMINATOR:
                assert inner[1] >= head[3] - 0.1
            case Role.RADICAND:
                assert (head[0] < inner[0]) & (head[1] < inner[1]) & (inner[2] < head[2] + 6.0)
            case Role.SUP:
                assert inner[1] < head[1]
            case Role.SUB:
                assert inner[3] > head[3]
        if row.role in (Role.NUMERATOR, Role.DENOMINATOR):
            assert head[0] - 1.0 <= inner[0] < inner[2] <= head[2] + 1.0


@given(names, indices, seeds)
@settings(max_examples=600, deadline=None)
def test_every_change_keeps_ink_and_label_together(name: str, index: int, seed: int) -> None:
    placed = PLACED[index]
    before = placed.boxes.copy()
    new = CHANGES[name](placed, np.random.default_rng(seed))
    np.testing.assert_array_equal(placed.boxes, before)
    if new is None:
        return
    assert len(new.tokens) == len(new.glyphs) == len(new.boxes) <= LIMITS.tokens
    assert [glyph is not None for glyph in new.glyphs] == np.isfinite(new.boxes[:, 0]).tolist()
    assert (new.box[2:] - new.box[:2] <= (LIMITS.width, LIMITS.height)).all()
    check_places(new)


def results(change: Callable, count: int = 300) -> list[tuple[Placed, Placed]]:
    """Pairs of old and new."""
    pairs = []
    for seed in range(count):
        placed = PLACED[seed % len(PLACED)]
        new = change(placed, np.random.default_rng(seed))
        if new is not None:
            pairs.append((placed, new))
    assert len(pairs) > count // 4
    return pairs


def test_a_cut_is_a_part_and_as_high_as_the_whole() -> None:
    for old, new in results(MAKER.cut):
        assert len(new.tokens) < len(old.tokens)
        assert is_part(new.tokens, old.tokens)
        inked = [p.boxes[np.isfinite(p.boxes[:, 0])] for p in (old, new)]
        heights = [float((boxes[:, 3] - boxes[:, 1]).mean()) for boxes in inked]
        assert heights[1] == pytest.approx(heights[0], rel=0.7)


def test_a_join_holds_the_expression_and_more() -> None:
    for old, new in results(MAKER.join):
        assert len(new.tokens) > len(old.tokens)
        assert is_part(old.tokens, new.tokens)


def test_a_replacement_changes_a_part() -> None:
    pairs = results(MAKER.replace)
    assert all(old.tokens != new.tokens for old, new in pairs)
    assert (
        sum(old.tokens[0] == new.tokens[0] or old.tokens[-1] == new.tokens[-1] for old, new in pairs) > len(pairs) // 2
    )


def test_wrapping_adds_every_form() -> None:
    added: set[str] = set()
    for old, new in results(MAKER.wrap):
        assert len(new.tokens) > len(old.tokens)
        added |= {token for token in set(new.tokens) if new.tokens.count(token) > old.tokens.count(token)}
    assert {"\\frac", "\\sqrt", "^", "_", *FENCES} <= added


def test_a_letter_gets_a_prime_once_or_everywhere() -> None:
    mark = "^ { \\prime }"
    primed: list[tuple[int, int]] = []  # how often a letter has one, and how often it might
    for old, new in results(PRIMER.prime):
        written = " ".join(new.tokens)
        assert written.replace(f" {mark}", "") == " ".join(old.tokens)
        letters = [part.split()[-1] for part in written.split(mark)[:-1]]
        assert len(set(letters)) == 1
        bare = [k for k, token in enumerate(old.tokens) if token == letters[0] and old.tokens[k + 1 : k + 2] != ("^",)]
        primed.append((len(letters), len(bare)))
    assert {(1, 1), (1, 2), (2, 2)} <= set(primed)


def test_no_operator_is_left_over() -> None:
    for change in CHANGES.values():
        for _, new in results(change):
            for row, _ in rows(new.tree):
                assert new.tokens[row.items[-1].head] not in ("+", "=", "\\times", "\\leq")
                assert new.tokens[row.items[0].head] not in ("=", "\\times", "\\leq")


def test_without_material_nothing_happens() -> None:
    empty = Recombiner([], SymbolBank([]), LIMITS)
    for change in (empty.replace, empty.join, empty.wrap, empty.prime, MAKER.prime):
        assert change(PLACED[5], np.random.default_rng(0)) is None

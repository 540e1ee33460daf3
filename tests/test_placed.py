"""Boxes of symbols, and making room among them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from drawn import SAMPLES, drawn

from ink2tex.data.placed import Layout, Placed
from ink2tex.data.sample import Sample
from ink2tex.data.spans import Role, Step, rows


def placed(label: str) -> Placed:
    result = Placed.of(drawn(label))
    assert result is not None
    return result


def path_to(expression: Placed, role: Role) -> tuple[Step, ...]:
    """The whole of the first row of a role, and the way up."""
    row, path = next((row, path) for row, path in rows(expression.tree) if row.role is role)
    return ((row, 0, len(row.items) - 1), *path)


def box(expression: Placed, token: str) -> np.ndarray:
    return expression.boxes[expression.tokens.index(token)]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.uid)
def test_nothing_done_is_the_same_ink(sample: Sample) -> None:
    expression = Placed.of(sample)
    assert expression is not None
    strokes, token_strokes = expression.strokes()
    assert token_strokes == sample.token_strokes
    for a, b in zip(strokes, sample.strokes or (), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_incomplete_ink_is_refused() -> None:
    sample = drawn("x + 1")
    assert sample.strokes is not None
    assert sample.token_strokes is not None
    stray = (*sample.strokes, sample.strokes[0])
    assert Placed.of(dataclasses.replace(sample, strokes=stray)) is None
    assert Placed.of(dataclasses.replace(sample, token_strokes=None)) is None
    shared = ((0,), (0, 1, 2), (3,))
    assert Placed.of(dataclasses.replace(sample, token_strokes=shared)) is None
    missing = ((), *sample.token_strokes[1:])
    assert Placed.of(dataclasses.replace(sample, token_strokes=missing)) is None


def test_a_wider_numerator_widens_its_bar_and_moves_what_follows() -> None:
    old = placed("\\frac { a } { b } + 1")
    piece = placed("x y z").moved(1.0, 0.0, 0.0)
    new = Layout(old).splice(piece, path_to(old, Role.NUMERATOR))
    assert " ".join(new.tokens) == "\\frac { x y z } { b } + 1"
    wider = (piece.box[2] - piece.box[0]) - (box(old, "a")[2] - box(old, "a")[0])
    np.testing.assert_allclose(box(new, "\\frac") - box(old, "\\frac"), [0, 0, wider, 0], atol=1e-6)
    np.testing.assert_allclose(box(new, "+") - box(old, "+"), [wider, 0, wider, 0], atol=1e-6)
    np.testing.assert_allclose(box(new, "b") - box(old, "b"), [wider / 2, 0, wider / 2, 0], atol=1e-6)
    assert box(new, "x")[3] == pytest.approx(box(old, "a")[3])  # still as far above the bar


def test_a_higher_radicand_raises_its_root_and_its_hook_keeps_its_width() -> None:
    old = placed("\\sqrt { a } = 1")
    piece = placed("\\frac { a } { b }")
    new = Layout(old).splice(piece, path_to(old, Role.RADICAND))
    inner = new.cut(2, new.tokens.index("=") - 1).box
    before, after = box(old, "\\sqrt"), box(new, "\\sqrt")
    assert inner[0] - after[0] == pytest.approx(box(old, "a")[0] - before[0])
    assert inner[1] - after[1] == pytest.approx(box(old, "a")[1] - before[1])
    assert after[2] - inner[2] == pytest.approx(before[2] - box(old, "a")[2])
    assert box(new, "=")[0] - after[2] == pytest.approx(box(old, "=")[0] - before[2])


def test_brackets_grow_and_take_their_exponent_along() -> None:
    old = placed("( a ) ^ { n }")
    row = old.tree
    new = Layout(old).splice(placed("\\frac { x } { y }"), ((row, 1, 1),))
    grown = box(new, "(") - box(old, "(")
    assert grown[1] < -10
    assert grown[3] > 10
    assert box(new, "n")[1] - box(old, "n")[1] == pytest.approx(grown[1])


def test_the_old_expression_stays_as_it_was() -> None:
    old = placed("\\frac { a } { b } + 1")
    boxes = old.boxes.copy()
    Layout(old).splice(placed("x y z"), path_to(old, Role.NUMERATOR))
    np.testing.assert_array_equal(old.boxes, boxes)

"""Labels as spans."""

from __future__ import annotations

import pytest

from ink2tex.data.spans import Role, fences, inked, parse, rows


def words(label: str, start: int, stop: int) -> str:
    return " ".join(label.split()[start:stop])


def test_parts_of_each_form() -> None:
    label = "\\sqrt [ 3 ] { x _ { i } ^ { 2 } } + \\frac { 1 } { \\sum \\limits _ { n } n }"
    tree = parse(label.split())
    assert tree is not None
    found = [(row.role, words(label, row.start, row.stop)) for row, _ in rows(tree)]
    assert found == [
        (Role.EXPRESSION, label),
        (Role.DEGREE, "3"),
        (Role.RADICAND, "x _ { i } ^ { 2 }"),
        (Role.SUB, "i"),
        (Role.SUP, "2"),
        (Role.NUMERATOR, "1"),
        (Role.DENOMINATOR, "\\sum \\limits _ { n } n"),
        (Role.SUB, "n"),
    ]
    tokens = label.split()
    assert [tokens[i] for i in inked(tree)] == ["\\sqrt", "3", "x", "i", "2", "+", "\\frac", "1", "\\sum", "n", "n"]


def test_the_way_up_names_the_items_around_a_row() -> None:
    label = "1 + \\frac { a ^ { n } } { 2 }"
    tree = parse(label.split())
    assert tree is not None
    (path,) = [path for row, path in rows(tree) if words(label, row.start, row.stop) == "n"]
    spans = [words(label, row.items[first].start, row.items[last].stop) for row, first, last in path]
    assert spans == ["a ^ { n }", "\\frac { a ^ { n } } { 2 }"]


@pytest.mark.parametrize(
    "label",
    ["", "^ { 2 }", "x ^ 2", "x ^ { }", "x ^ { 2", "x }", "\\frac { 1 }", "x ^ { 2 } _ { i }", "\\int \\limits x"],
)
def test_other_forms_are_refused(label: str) -> None:
    assert parse(label.split()) is None


@pytest.mark.parametrize(
    ("label", "pairs"),
    [("( a + [ b ] )", [(3, 5), (0, 6)]), ("| a | + 1", [(0, 2)]), ("( a ]", None), ("a )", None), ("| a", None)],
)
def test_brackets_in_pairs(label: str, pairs: list[tuple[int, int]] | None) -> None:
    tree = parse(label.split())
    assert tree is not None
    assert fences(label.split(), tree.items) == pairs

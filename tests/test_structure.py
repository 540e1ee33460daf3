"""Canonical trees: equal for spellings of one thing, different otherwise."""

from __future__ import annotations

import pytest

from ink2tex.latex.structure import canonical


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x _ { 1 } ^ { 2 }", "x ^ { 2 } _ { 1 }"),
        (r"\int \limits _ { a } ^ { b } x", r"\int ^ { b } _ { a } x"),
        ("x ^ { 2 }", "x ^ 2"),
        ("{ x } ^ { 2 }", "x ^ { { 2 } }"),
        ("{ x + { y } }", "x + y"),
        (r"\frac { 1 } { 2 }", r"\frac 1 2"),
        (r"\sqrt [ { 3 } ] { x }", r"\sqrt [ 3 ] x"),
        ("[ 0 , 1 )", "[ 0 , 1 )"),
    ],
)
def test_same(one: str, other: str) -> None:
    assert canonical(one.split()) == canonical(other.split())
    assert hash(canonical(one.split())) == hash(canonical(other.split()))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x ^ { 2 }", "x _ { 2 }"),
        ("{ a b } ^ { 2 }", "a b ^ { 2 }"),
        ("{ x ^ { 2 } } ^ { 3 }", "x ^ { 2 } { } ^ { 3 }"),
        (r"\frac { 1 } { 2 }", r"\frac { 2 } { 1 }"),
        (r"\sqrt [ 3 ] { x }", r"\sqrt { x }"),
        ("x y", "y x"),
        ("x _ { 1 } ^ { 2 } y", "x _ { 1 } y ^ { 2 }"),
        ("x", "X"),
    ],
)
def test_different(one: str, other: str) -> None:
    assert canonical(one.split()) != canonical(other.split())


@pytest.mark.parametrize(
    "broken", ["x ^", "{ x", "x }", "x ^ { 1 } ^ { 2 }", r"\frac { 1 }", r"\limits", r"\sqrt [ 3", "x ^ ^ 2", "^ }"]
)
def test_what_does_not_parse_equals_only_itself(broken: str) -> None:
    tokens = broken.split()
    assert canonical(tokens) == canonical(list(tokens)) == ("unparsable", *tokens)
    assert canonical(tokens) != canonical([*tokens, "x"])


def test_deep_nesting_is_no_crash() -> None:
    deep = ["{"] * 20_000 + ["x"] + ["}"] * 20_000
    assert canonical(deep)

"""Tidy LaTeX: what it looks like, and that it reads back as the same tokens."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from test_grammar import expressions, labels_of_crohme

from ink2tex.errors import Ink2TexError, LatexError
from ink2tex.ink import parse_xml
from ink2tex.latex import normalise, tokenise
from ink2tex.latex.pretty import pretty, to_mathml


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (r"\frac { 1 } { 2 } x ^ { 2 }", r"\frac{1}{2}x^{2}"),
        (r"\sin x", r"\sin x"),
        (r"\sin ( 2 x )", r"\sin(2x)"),
        (r"\sin ^ { 2 } \alpha x", r"\sin^{2} \alpha x"),
        ("a _ { n }", "a_{n}"),
        (r"a \leq b", r"a \leq b"),
        ("- x + ( - 1 ) = - y", "-x + (-1) = -y"),
        (r"\sum _ { n = - 1 } ^ { \infty } ( a _ { i , j } )", r"\sum_{n=-1}^{\infty} (a_{i,j})"),
        (r"\lim _ { x \rightarrow 0 } x", r"\lim_{x \rightarrow 0} x"),
        (r"\int \limits _ { 0 } ^ { 1 } x d x", r"\int\limits_{0}^{1} xdx"),
        (r"x ^ { \frac { n + 1 } { 2 } } + 1", r"x^{\frac{n+1}{2}} + 1"),
        (r"\int - x", r"\int -x"),
        ("f ( x , y ) = 1 , 0 0 0", "f(x, y) = 1,000"),
        (r"\sqrt [ 3 ] { x }", r"\sqrt[3]{x}"),
        (r"\{ 1 , \ldots , n \}", r"\{1, \ldots, n\}"),
        ("n ! + f ^ { ' }", "n! + f^{'}"),
    ],
)
def test_examples(label: str, expected: str) -> None:
    assert pretty(label.split()) == expected
    assert tokenise(expected) == label.split()


@given(expressions(depth=2))
def test_reads_back_as_the_same_tokens(tokens: list[str]) -> None:
    assert tokenise(pretty(tokens)) == tokens


def test_labels_of_crohme_read_back() -> None:
    for uid, tokens in labels_of_crohme().items():
        written = pretty(tokens)
        assert tokenise(written) == tokens, uid
        assert normalise(written) == normalise(" ".join(tokens)), uid


def test_mathml() -> None:
    pytest.importorskip("latex2mathml")
    mathml = to_mathml(r"\frac{1}{2}x^{2}")
    assert mathml.startswith("<math")
    assert "<mfrac>" in mathml
    assert "<msup>" in mathml


def test_latex_that_is_no_mathml() -> None:
    pytest.importorskip("latex2mathml")
    with pytest.raises(LatexError, match="MathML"):
        to_mathml("x^{1}^{2}")


@pytest.mark.parametrize(
    "latex",
    [
        r"\text{<script>alert(1)</script>}",  # latex2mathml does not escape text
        r"\text{<a}",
        r"\text{<mi onclick='alert(1)'>x</mi>}",
        r"\href{javascript:alert(1)}{x}",
        r"\text{&bomb;}",
        "x\x00",
        "x\ud800",
        "{" * 900 + "x" + "}" * 900,
        "",
    ],
)
def test_nothing_but_mathematics_becomes_mathml(latex: str) -> None:
    pytest.importorskip("latex2mathml")
    with pytest.raises(LatexError, match="cannot be written as MathML") as caught:
        to_mathml(latex)
    assert len(str(caught.value)) < 250


def test_relations_are_escaped_in_mathml() -> None:
    pytest.importorskip("latex2mathml")
    assert [element.text for element in parse_xml(to_mathml("a < b"), "MathML").iter("mo")] == ["<"]


def test_mathml_without_its_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", None)
    with pytest.raises(Ink2TexError, match="latex2mathml"):
        to_mathml("x")

"""Which strokes wrote which token."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ink2tex.data.alignment import align, alignment_rate, common_subsequence
from ink2tex.data.audit import Audit
from ink2tex.data.layout import layout
from ink2tex.ink import Ink, Symbol
from ink2tex.latex.inked import ink_classes


def toks(label: str) -> list[str]:
    return label.split()


def page(
    *symbols: tuple[str, float, float, float] | tuple[str, float, float, float, str], mathml: str | None = None
) -> Ink:
    """Ink of (label, x, y, width[, ref]): one stroke for each, centred there."""
    strokes = []
    for _, x, y, width, *_ in symbols:
        strokes.append(np.array([[x - width / 2, y], [x + width / 2, y]], np.float32))
    marks = [Symbol(s[0], (i,), s[4] if len(s) == 5 else None) for i, s in enumerate(symbols)]
    return Ink(tuple(strokes), symbols=tuple(marks), mathml=mathml and f"<math>{mathml}</math>")


def aligned(label: str, ink: Ink) -> list[str]:
    """The tokens that have strokes, as `token:strokes`."""
    tokens = label.split()
    return [
        f"{token}:{','.join(map(str, strokes))}"
        for token, strokes in zip(tokens, align(tokens, ink), strict=True)
        if strokes
    ]


def test_mathml_names_the_symbols_not_the_order_of_writing() -> None:
    mathml = '<msup><mi xml:id="a">x</mi><mi xml:id="b">x</mi></msup><mi xml:id="c">x</mi>'
    # Written from right to left.
    ink = page(("x", 2.5, 0, 1, "c"), ("x", 1.4, -0.6, 0.6, "b"), ("x", 0, 0, 1, "a"), mathml=mathml)
    assert aligned("x ^ { x } x", ink) == ["x:2", "x:1", "x:0"]


def test_fraction_is_its_bar() -> None:
    mathml = '<mo xml:id="m">-</mo><mfrac xml:id="f"><mn xml:id="n">1</mn><mn xml:id="d">2</mn></mfrac>'
    ink = page(("2", 3, 1, 1, "d"), ("-", 3, 0, 2, "f"), ("1", 3, -1, 0.3, "n"), ("-", 1, 0, 1, "m"), mathml=mathml)
    assert aligned(r"- \frac { 1 } { 2 }", ink) == ["-:3", r"\frac:1", "1:2", "2:0"]


def test_wrong_ids_are_put_right() -> None:
    # As in formulaire021-equation074: the ids of the minus and of the bar are exchanged.
    mathml = '<mo xml:id="m">-</mo><mfrac xml:id="f"><mn xml:id="n">1</mn><mn xml:id="d">2</mn></mfrac>'
    ink = page(("-", 3, 0, 2, "m"), ("-", 1, 0, 0.5, "f"), ("1", 3, -1, 0.3, "n"), ("2", 3, 1, 1, "d"), mathml=mathml)
    assert aligned(r"- \frac { 1 } { 2 }", ink) == ["-:1", r"\frac:0", "1:2", "2:3"]


def test_index_of_a_root_whichever_child_it_is() -> None:
    # As in MfrDB2272: the index is the first child of <mroot>.
    mathml = '<mroot xml:id="r"><mn xml:id="i">5</mn><mrow><mn xml:id="a">5</mn><mn xml:id="b">5</mn></mrow></mroot>'
    root = (r"\sqrt", 1.5, 0, 3, "r")
    ink = page(root, ("5", 1.2, 0, 0.8, "a"), ("5", 2.2, 0, 0.8, "b"), ("5", 0.2, -0.4, 0.4, "i"), mathml=mathml)
    assert aligned(r"\sqrt [ 5 ] { 5 5 }", ink) == [r"\sqrt:0", "5:3", "5:1", "5:2"]


def test_places_decide_without_mathml() -> None:
    ink = page(("1", 8, 2, 0.3), ("1", 8, 0, 0.3), ("-", 8, 1, 2), ("-", 4, 1, 1), ("1", 2, 1, 0.3), ("=", 6, 1, 1))
    assert aligned(r"1 - = \frac { 1 } { 1 }", ink) == ["1:4", "-:3", "=:5", r"\frac:2", "1:1", "1:0"]


def test_symbols_outside_the_mathml_are_found_by_place() -> None:
    mathml = '<mi xml:id="a">x</mi><mo xml:id="p">+</mo>'
    ink = page(("x", 4, 0, 1), ("+", 2, 0, 1, "p"), ("x", 0, 0, 1, "a"), mathml=mathml)
    assert aligned("x + x", ink) == ["x:2", "+:1", "x:0"]


def test_names_that_segmentations_use() -> None:
    assert aligned("a < b", page(("a", 0, 0, 1), (r"\lt", 1, 0, 1), ("b", 2, 0, 1))) == ["a:0", "<:1", "b:2"]
    dots = page(("a", 0, 0, 1), (".", 1, 0, 0.1), (".", 1.5, 0, 0.1), (".", 2, 0, 0.1))
    assert aligned(r"a \ldots", dots) == ["a:0", r"\ldots:1,2,3"]
    assert aligned(r"\tan x", page(("t", 0, 0, 1), ("g", 1, 0, 1), ("x", 2, 0, 1))) == [r"\tan:0,1", "x:2"]


def test_nothing_to_align() -> None:
    stroke = np.zeros((1, 2), np.float32)
    assert align(["x", "{"], Ink((stroke,))) == ((), ())
    assert align([], page(("x", 0, 0, 1))) == ()
    assert align(["y"], page(("x", 0, 0, 1), mathml="<mtable/>")) == ((),)
    assert align(["x"], Ink((stroke,), symbols=(Symbol("x", (0,)),), mathml="<broken")) == ((0,),)


tokens_strategy = st.lists(st.sampled_from(toks(r"{ } _ ^ [ ] \sqrt \frac \limits \int x - 1")), max_size=12)


@given(
    tokens_strategy,
    st.lists(st.tuples(st.sampled_from(["x", "-", "1", r"\sqrt"]), st.floats(-9, 9), st.floats(-9, 9)), max_size=6),
)
def test_every_symbol_is_used_once_whatever_the_label(
    tokens: list[str], symbols: list[tuple[str, float, float]]
) -> None:
    result = align(tokens, page(*[(label, x, y, 1.0) for label, x, y in symbols]))
    assert len(result) == len(tokens)
    used = [i for strokes in result for i in strokes]
    assert len(used) == len(set(used))
    for token, class_, strokes in zip(tokens, ink_classes(tokens), result, strict=True):
        assert all(symbols[i][0] == class_ for i in strokes), token
    # As many as there can be.
    classes = [c for c in ink_classes(tokens) if c]
    names = [label for label, _, _ in symbols]
    assert len(used) == sum(min(classes.count(c), names.count(c)) for c in set(names))


def test_common_subsequence() -> None:
    assert common_subsequence("abcd", "xbxd") == [(1, 1), (3, 3)]
    assert common_subsequence("", "a") == []


def test_layout_follows_the_structure() -> None:
    tokens = toks(r"a \frac { b } { c } d _ { e } ^ { f } \sum _ { g }")
    x, y, _ = layout(tokens).T
    at = {token: i for i, token in enumerate(tokens)}
    assert x[at["a"]] < x[at[r"\frac"]] < x[at["d"]] < x[at["e"]] == x[at["f"]] < x[at[r"\sum"]]
    assert y[at["b"]] < y[at[r"\frac"]] == y[at["a"]] < y[at["c"]]
    assert y[at["f"]] < y[at["d"]] < y[at["e"]]
    assert x[at["g"]] == pytest.approx(x[at[r"\sum"]])
    assert y[at["g"]] > y[at[r"\sum"]]


def test_training_tokens_have_their_strokes(train_audit: Audit) -> None:
    # 85,794 without `{ } ^ _ \limits`, less the 278 brackets around the indices of roots.
    assert train_audit.inked == 85_516
    assert train_audit.alignment_rate >= 0.9998


def test_alignment_hardly_needs_the_mathml(train_inks: list[Ink], train_captions: dict[str, list[str]]) -> None:
    differing = inked = 0
    for ink in train_inks[::10]:
        tokens = train_captions[ink.uid]
        classes = ink_classes(tokens)
        with_ids, without = align(tokens, ink), align(tokens, replace(ink, mathml=None))
        inked += sum(c is not None for c in classes)
        differing += sum(a != b for a, b in zip(with_ids, without, strict=True))
    assert inked > 8000
    assert differing / inked < 0.001


def test_bars_stand_between_what_they_divide(train_inks: list[Ink], train_captions: dict[str, list[str]]) -> None:
    """Geometry as a check from outside: the ink of a numerator is above its bar, that of a denominator below."""
    bars = wrong = 0
    for ink in train_inks[::3]:
        tokens = train_captions[ink.uid]
        strokes = align(tokens, ink)
        for i, token in enumerate(tokens):
            if token != r"\frac" or not strokes[i]:
                continue
            parts = []
            j = i + 1
            for _ in range(2):
                depth, start = 0, j
                while True:
                    depth += (tokens[j] == "{") - (tokens[j] == "}")
                    j += 1
                    if not depth:
                        break
                parts.append(_middle(ink, [s for k in range(start, j) for s in strokes[k]]))
            bars += 1
            wrong += not parts[0] < _middle(ink, strokes[i]) < parts[1]
    assert bars > 1000
    assert wrong / bars < 0.005


def _middle(ink: Ink, strokes: list[int] | tuple[int, ...]) -> float:
    y = np.concatenate([ink.strokes[i][:, 1] for i in strokes])
    return float(y.min() + y.max()) / 2


def test_alignment_rate_counts() -> None:
    ink = page(("x", 0, 0, 1))
    assert alignment_rate([(toks("x ^ { 2 }"), ink), (["x"], ink)]) == (2, 3)

r"""The grammar of labels: it accepts every label there is, and nothing that LaTeX would refuse.

`plain_accepts` is a second, independent reading of the same rules (recursive descent over whole strings); the
automata of both directions are held against it on valid, broken and random strings.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ink2tex.errors import DataError
from ink2tex.latex.grammar import OPERATORS, Grammar, grammar_for, token_class
from ink2tex.vocabulary import EOS, SOS, Direction, Vocabulary

VOCABULARY = Vocabulary()
BOTH = tuple(Direction)
ATOMS = ["x", "1", "+", "(", ")", r"\alpha", r"\prime", "|", r"\{"]
#: Few symbols, each role of the grammar among them: random strings then meet its rules often.
SMALL = Vocabulary(["x", r"\sum", "{", "}", "[", "]", "_", "^", "'", r"\limits", r"\sqrt", r"\frac", "<eol>"])


def labels_of_crohme() -> dict[str, list[str]]:
    """Every published label, or skip."""
    default = Path(__file__).parent.parent.parent / "shared" / "crohme"
    folder = Path(os.environ.get("INK2TEX_CROHME", default))
    labels = {}
    for name in ("train_caption.txt", "test2014_caption.txt"):
        if not (folder / name).is_file():
            pytest.skip(f"no {name} in {folder}; set INK2TEX_CROHME to the folder of the CROHME data")
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            uid, *tokens = line.split()
            labels[uid] = tokens
    return labels


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2, index: bool = False) -> list[str]:
    """Valid labels, built item by item; within an index no bracket stands outside of braces."""
    tokens: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kinds = ["atom", "operator"] if depth == 0 else ["atom", "operator", "frac", "sqrt", "root"]
        kind = draw(st.sampled_from(kinds))
        if kind == "atom":
            tokens.append(draw(st.sampled_from(ATOMS if index else [*ATOMS, "[", "]"])))
        elif kind == "operator":
            tokens.append(draw(st.sampled_from(sorted(OPERATORS & set(VOCABULARY.symbols)))))
        elif kind == "frac":
            tokens += [r"\frac", *draw(groups(depth - 1)), *draw(groups(depth - 1))]
        else:
            tokens.append(r"\sqrt")
            if kind == "root" and not index:
                tokens += ["[", *draw(expressions(depth - 1, index=True)), "]"]
            tokens += draw(groups(depth - 1))
        if depth == 0:
            continue
        scripts = draw(st.sampled_from(["", "_", "^", "_^", "^_"]))
        if scripts and kind == "operator" and draw(st.booleans()):
            tokens.append(r"\limits")
        for mark in scripts:
            tokens += [mark, *draw(groups(depth - 1))]
    return tokens


@st.composite
def groups(draw: st.DrawFn, depth: int) -> list[str]:
    inner = draw(expressions(depth))
    primes = ["'"] * draw(st.sampled_from([0, 0, 0, 1, 2]))
    if primes and draw(st.booleans()):
        inner = []
    return ["{", *primes, *inner, "}"]


def plain_accepts(tokens: list[str]) -> bool:
    """The rules once more, for whole strings."""

    class BrokenError(Exception):
        pass

    at = 0

    def peek() -> str:
        return tokens[at] if at < len(tokens) else "end"

    def expect(token: str) -> None:
        nonlocal at
        if peek() != token:
            raise BrokenError
        at += 1

    def sequence(closing: str) -> None:
        nonlocal at
        start, primes = at, False
        while closing == "}" and peek() == "'":
            expect("'")
            primes = True
        if primes and peek() == "_":
            script()
        while peek() != closing:
            item(closing)
        if at == start:
            raise BrokenError
        at += closing != "end"

    def group() -> None:
        expect("{")
        sequence("}")

    def script() -> str:
        mark = peek()
        expect(mark)
        group()
        return mark

    def item(closing: str) -> None:
        token = peek()
        kind = token_class(token)
        if kind in ("{", "}", "_", "^", "'", r"\limits", "never") or token == "end":
            raise BrokenError
        if token in "[]" and closing == "]":
            raise BrokenError
        expect(token)
        if kind == r"\sqrt" and peek() == "[":
            if closing == "]":
                raise BrokenError
            expect("[")
            sequence("]")
        for _ in range({r"\sqrt": 1, "command2": 2}.get(kind, 0)):
            group()
        if peek() == r"\limits":
            expect(r"\limits")
            if kind != "operator" or peek() not in ("_", "^"):
                raise BrokenError
        seen = [script() for _ in range(2) if peek() in ("_", "^")]
        if len(set(seen)) < len(seen):
            raise BrokenError

    try:
        sequence("end")
    except BrokenError:
        return False
    return True


def test_accepts_every_published_label() -> None:
    for uid, tokens in labels_of_crohme().items():
        for direction in BOTH:
            assert grammar_for(VOCABULARY, direction).accepts(tokens), uid


@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize(
    "label",
    [
        "x",
        "x _ { a } ^ { b }",
        "x ^ { b } _ { a }",
        r"\frac { 1 } { 2 } ^ { n }",
        r"\sqrt [ 3 ] { x }",
        r"\sqrt { x } _ { 1 }",
        r"\int \limits _ { 0 } ^ { 1 } x",
        "[ 0 , 1 )",
        "] 0 , 1 [",
        "f ^ { ' }",
        "f ^ { ' ' }",
        r"\sqrt [ x _ { [ } ] { y }",
        r"\frac { \frac { 1 } { 2 } } { \sqrt { x } }",
    ],
)
def test_valid(direction: Direction, label: str) -> None:
    assert plain_accepts(label.split())
    assert grammar_for(VOCABULARY, direction).accepts(label.split())


@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize(
    "label",
    [
        "",
        "{ x }",
        "x ^ { }",
        "x ^ 2",
        "x ^ { a } ^ { b }",
        "x _ { a } ^ { b } _ { c }",
        "^ { 2 }",
        "x ^ { _ { 2 } }",
        "x ^ { a",
        "x }",
        r"\frac { 1 }",
        r"\frac { 1 } 2",
        r"\frac { 1 } { 2 } { 3 }",
        r"\sqrt x",
        r"\sqrt [ ] { x }",
        r"\sqrt [ 3 ]",
        r"\sqrt [ \sqrt [ 3 ] { x } ] { y }",
        r"\sqrt [ [ ] { x }",
        r"x \limits _ { 1 }",
        r"\sum \limits",
        r"\sum \limits x",
        r"\sum _ { 1 } \limits ^ { 2 }",
        r"\sum \limits \limits _ { 1 }",
        "f '",
        "' x",
        "f ^ { x ' }",
        "f ^ { ' ^ { 2 } }",
        "x <eol>",
        "x <eos>",
        "<sos> x",
        "x unknown",
    ],
)
def test_invalid(direction: Direction, label: str) -> None:
    assert not grammar_for(VOCABULARY, direction).accepts(label.split())


@given(expressions(depth=2))
def test_every_prefix_and_suffix_of_a_valid_label_is_allowed(tokens: list[str]) -> None:
    assert plain_accepts(tokens)
    for direction in BOTH:
        grammar = grammar_for(VOCABULARY, direction)
        state = grammar.start
        written = direction.order(VOCABULARY.encode(tokens))
        for done, token in enumerate(written):
            left = len(written) - done
            assert grammar.min_to_finish(state) <= left
            # The exact rest must fit into its exact length.
            assert grammar.allowed(state, left)[token]
            state = grammar.advance(state, token)
        assert grammar.allowed(state, 0)[direction.end]
        assert grammar.min_to_finish(state) == 0


@settings(max_examples=500)
@given(st.lists(st.sampled_from(SMALL.symbols), max_size=14))
def test_random_strings_are_judged_alike(tokens: list[str]) -> None:
    for direction in BOTH:
        assert grammar_for(SMALL, direction).accepts(tokens) == plain_accepts(tokens)


@given(expressions(depth=2), st.data())
def test_damaged_labels_are_judged_alike(tokens: list[str], data: st.DataObject) -> None:
    tokens = list(tokens)
    at = data.draw(st.integers(0, len(tokens) - 1))
    damage = data.draw(st.sampled_from(["drop", "double", "swap", "other"]))
    if damage == "drop":
        del tokens[at]
    elif damage == "double":
        tokens.insert(at, tokens[at])
    elif damage == "swap":
        tokens[at], tokens[at - 1] = tokens[at - 1], tokens[at]
    else:
        tokens[at] = data.draw(st.sampled_from(SMALL.symbols))
    for direction in BOTH:
        assert grammar_for(VOCABULARY, direction).accepts(tokens) == plain_accepts(tokens)


@settings(max_examples=300)
@given(st.sampled_from(BOTH), st.integers(1, 20), st.randoms(use_true_random=False))
def test_random_walks_end_in_time_and_are_valid(direction: Direction, limit: int, random: object) -> None:
    grammar = grammar_for(SMALL, direction)
    state, written = grammar.start, []
    while True:
        choices = np.flatnonzero(grammar.allowed(state, limit - len(written))).tolist()
        assert choices, "a walk must never be stuck"
        token = random.choice(choices)  # type: ignore[attr-defined]
        if token == direction.end:
            break
        written.append(token)
        state = grammar.advance(state, token)
    assert len(written) <= limit
    assert plain_accepts(SMALL.decode(direction.order(written)))


@pytest.mark.parametrize("direction", BOTH)
def test_min_to_finish_is_the_shortest_way(direction: Direction) -> None:
    """Breadth first from every state of a few tokens: the number is reached, and not sooner."""
    grammar = grammar_for(SMALL, direction)
    layer = {grammar.start}
    for _ in range(4):
        layer = {
            grammar.advance(state, int(token))
            for state in layer
            for token in np.flatnonzero(grammar.allowed(state))
            if token != direction.end
        }
    for state in layer:
        frontier, steps = {state}, 0
        while not any(grammar.allowed(s)[direction.end] for s in frontier):
            frontier = {
                grammar.advance(s, int(token)) for s in frontier for token in np.flatnonzero(grammar.allowed(s))
            }
            steps += 1
            closest = min(s.finish for s in frontier)
            frontier = {s for s in frontier if s.finish <= closest + 1}
        assert steps == grammar.min_to_finish(state)


@pytest.mark.parametrize("direction", BOTH)
def test_marks_are_never_emitted(direction: Direction) -> None:
    grammar = grammar_for(VOCABULARY, direction)
    allowed = grammar.allowed(grammar.start)
    assert not allowed[[SOS, EOS, VOCABULARY.id("<eol>")]].any()
    after = grammar.allowed(grammar.advance(grammar.start, VOCABULARY.id("x")))
    assert after[direction.end]
    assert not after[direction.start]
    with pytest.raises(ValueError, match="may not come"):
        grammar.advance(grammar.start, direction.end)


@pytest.mark.parametrize("direction", BOTH)
def test_masks_of_many_are_those_of_each(direction: Direction) -> None:
    grammar = grammar_for(VOCABULARY, direction)
    states = [grammar.start, grammar.advance(grammar.start, VOCABULARY.id("x"))]
    masks = grammar.masks(states, [0, 3])
    assert not masks[0].any()  # no room for even one token
    assert (masks[1] == grammar.allowed(states[1], 3)).all()


def test_a_vocabulary_without_braces_still_has_a_grammar() -> None:
    for direction in BOTH:
        grammar = Grammar(Vocabulary(["x", "^", r"\frac"]), direction)
        assert grammar.accepts(["x", "x"])
        assert not grammar.allowed(grammar.start)[grammar.vocabulary.id(r"\frac")]
    with pytest.raises(DataError, match="no token"):
        Grammar(Vocabulary(["^", "{", "}"]), Direction.L2R)

"""Search against brute force, and what it promises: valid strings, in time, in left-to-right order.

`Table` is a decoder made of random numbers: the log-probabilities of the next token follow from the image and the
whole prefix, so that a mistake in reordering states cannot go unnoticed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ink2tex.latex.grammar import grammar_for
from ink2tex.search import Hypothesis, Judge, LengthLimit, SearchOptions, joint_search, ranked, rescore, search
from ink2tex.vocabulary import EOS, SOS, Direction, Vocabulary

BOTH = tuple(Direction)
TINY = Vocabulary(["x", "y"])
SMALL = Vocabulary(["x", r"\sum", "{", "}", "[", "]", "_", "^", r"\limits", r"\sqrt", r"\frac", "<eol>"])
SETTINGS = settings(max_examples=60, deadline=None)


class Table:
    """A random decoder; its state is the image and the prefix of each hypothesis."""

    def __init__(self, direction: Direction, vocabulary: Vocabulary, seed: int, spread: float = 2.0) -> None:
        self._direction, self.size, self.seed, self.spread = direction, len(vocabulary), seed, spread
        self.calls = 0
        self.widths: list[int] = []

    @property
    def direction(self) -> Direction:
        return self._direction

    def start(self, rows: np.ndarray) -> list[tuple[int, ...]]:
        return [(int(row),) for row in rows]

    def advance(self, state: list[tuple[int, ...]], tokens: np.ndarray) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        assert len(state) == len(tokens)
        self.calls += 1
        self.widths.append(len(tokens))
        after = [(*prefix, int(token)) for prefix, token in zip(state, tokens, strict=True)]
        return np.stack([self.row(prefix) for prefix in after]), after

    def reorder(self, state: list[tuple[int, ...]], rows: np.ndarray) -> list[tuple[int, ...]]:
        return [state[row] for row in rows]

    def attention(self, state: list[tuple[int, ...]]) -> np.ndarray:
        """The length of the prefix and the last token, as a picture of 1 x 2."""
        return np.array([[[len(prefix) - 2, prefix[-1]]] for prefix in state], dtype=np.float32)

    def row(self, prefix: tuple[int, ...]) -> np.ndarray:
        return _row((self.seed, *prefix), self.size, self.spread)


@lru_cache(maxsize=100_000)
def _row(key: tuple[int, ...], size: int, spread: float) -> np.ndarray:
    logits = np.random.default_rng(key).normal(scale=spread, size=size)
    return (logits - np.log(np.exp(logits).sum())).astype(np.float32)


def logprobs_of(table: Table, image: int, tokens: Sequence[int]) -> list[float]:
    """Of the tokens (left to right) and the end mark, written one by one."""
    direction = table.direction
    written = [*direction.order(tokens), direction.end]
    prefix: tuple[int, ...] = (image, direction.start)
    found = []
    for token in written:
        found.append(float(table.row(prefix)[token]))
        prefix = (*prefix, token)
    return [*direction.order(found[:-1]), found[-1]]


def plain_greedy(table: Table, image: int, limit: int, vocabulary: Vocabulary, grammar: bool) -> list[int]:
    """One hypothesis, one token after the other."""
    direction = table.direction
    rules = grammar_for(vocabulary, direction)
    state, written = rules.start, []
    while True:
        logp = table.row((image, direction.start, *written)).copy()
        if grammar:
            logp[~rules.allowed(state, limit - len(written))] = -np.inf
        else:
            logp[direction.start] = -np.inf
            if len(written) == limit:
                return direction.order(written)
        token = int(logp.argmax())
        if token == direction.end:
            return direction.order(written)
        written.append(token)
        if grammar:
            state = rules.advance(state, token)


@SETTINGS
@given(st.sampled_from(BOTH), st.integers(0, 10**6), st.booleans())
def test_a_beam_of_one_is_greedy(direction: Direction, seed: int, grammar: bool) -> None:
    table = Table(direction, SMALL, seed)
    limits = np.array([9, 1, 5, 14])
    found = search(table, SMALL, limits, SearchOptions(beam=1, grammar=grammar))
    for image, (best,) in enumerate(found):
        assert list(best.tokens) == plain_greedy(table, image, int(limits[image]), SMALL, grammar)


@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_an_exhaustive_beam_finds_the_best_of_all(direction: Direction, alpha: float) -> None:
    limits = np.array([3, 2, 1])
    options = SearchOptions(beam=64, nbest=3, alpha=alpha, grammar=False, patience=math.inf, spread=math.inf)
    for seed in range(20):
        table = Table(direction, TINY, seed)
        found = search(table, TINY, limits, options)
        for image, limit in enumerate(limits.tolist()):
            # The mark that starts a sequence is never written; the other symbols may be in any order.
            strings = [s for n in range(limit + 1) for s in itertools.product((2, 3), repeat=n)]
            scores = {s: sum(logprobs_of(table, image, s)) / (len(s) + 1) ** alpha for s in strings}
            best = sorted(strings, key=lambda s: -scores[s])[: options.nbest]
            assert [h.tokens for h in found[image]] == best
            assert [h.score for h in found[image]] == pytest.approx([scores[s] for s in best], rel=1e-5)


@SETTINGS
@given(
    st.sampled_from(BOTH),
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.lists(st.integers(1, 16), min_size=1, max_size=4),
)
def test_with_the_grammar_nothing_invalid_comes_out(
    direction: Direction, seed: int, beam: int, limits: list[int]
) -> None:
    found = search(Table(direction, SMALL, seed), SMALL, np.array(limits), SearchOptions(beam=beam, nbest=beam))
    assert len(found) == len(limits)
    for hypotheses, limit in zip(found, limits, strict=True):
        assert hypotheses, "every image has an answer"
        for hypothesis in hypotheses:
            assert len(hypothesis.tokens) <= limit
            for each in BOTH:
                assert grammar_for(SMALL, each).accepts(SMALL.decode(hypothesis.tokens))


@SETTINGS
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_both_directions_together(seed: int, beam: int) -> None:
    l2r, r2l = Table(Direction.L2R, SMALL, seed), Table(Direction.R2L, SMALL, seed + 1)
    options = SearchOptions(beam=beam, nbest=beam, r2l_weight=0.25)
    limits = np.array([7, 12])
    single = [search(table, SMALL, limits, options) for table in (l2r, r2l)]
    for image, hypotheses in enumerate(joint_search(l2r, r2l, SMALL, limits, options)):
        pool = {h.tokens for found in single for h in found[image]}
        expected = {
            tokens: (0.75 * sum(logprobs_of(l2r, image, tokens)) + 0.25 * sum(logprobs_of(r2l, image, tokens)))
            / (len(tokens) + 1)
            for tokens in pool
        }
        best = sorted(expected.values(), reverse=True)[: options.nbest]
        assert [h.score for h in hypotheses] == pytest.approx(best, rel=1e-4)
        assert len({h.tokens for h in hypotheses}) == len(hypotheses)
        for hypothesis in hypotheses:
            assert hypothesis.score == pytest.approx(expected[hypothesis.tokens], rel=1e-4)
            assert hypothesis.logprob / (len(hypothesis.tokens) + 1) == pytest.approx(hypothesis.score, rel=1e-4)
            assert grammar_for(SMALL, Direction.L2R).accepts(SMALL.decode(hypothesis.tokens))


@SETTINGS
@given(st.integers(0, 10**6))
def test_judges_that_found_nothing_themselves_have_their_say(seed: int) -> None:
    tables = [Table(Direction.L2R, SMALL, seed + i) for i in range(3)]
    options = SearchOptions(beam=4, nbest=4, alpha=0.5)
    rows = np.array([3, 1])
    found = search(tables[0], SMALL, np.array([6, 9]), options, rows)
    weights = (0.5, 0.2, 0.3)
    judges = [Judge(tables[0], weights[0], found), *map(Judge, tables[1:], weights[1:])]
    for image, own, hypotheses in zip(rows.tolist(), found, ranked(judges, 2, options, rows), strict=True):
        expected = {
            h.tokens: sum(w * sum(logprobs_of(t, image, h.tokens)) for w, t in zip(weights, tables, strict=True))
            / (len(h.tokens) + 1) ** 0.5
            for h in own
        }
        assert [h.tokens for h in hypotheses] == sorted(expected, key=lambda tokens: -expected[tokens])
        assert [h.score for h in hypotheses] == pytest.approx(sorted(expected.values(), reverse=True), rel=1e-4)


@pytest.mark.parametrize("direction", BOTH)
def test_rescoring_agrees_with_the_search_and_with_one_by_one(direction: Direction) -> None:
    table = Table(direction, SMALL, 5)
    rows = np.array([2, 0, 1])
    found = search(table, SMALL, np.array([8, 3, 11]), SearchOptions(beam=4, nbest=4), rows)
    flat = [(int(row), h) for row, hypotheses in zip(rows, found, strict=True) for h in hypotheses]
    again = rescore(table, np.array([row for row, _ in flat]), [h.tokens for _, h in flat])
    for (row, hypothesis), logprobs in zip(flat, again, strict=True):
        assert logprobs == pytest.approx(logprobs_of(table, row, hypothesis.tokens), abs=1e-5)
        assert logprobs[:-1] == pytest.approx(hypothesis.logprobs, abs=1e-5)
        assert logprobs[-1] == pytest.approx(hypothesis.end_logprob, abs=1e-5)
        assert hypothesis.score == pytest.approx(hypothesis.logprob / (len(hypothesis.tokens) + 1), rel=1e-4)


def test_rescoring_nothing_and_the_empty_sequence() -> None:
    table = Table(Direction.R2L, SMALL, 0)
    assert rescore(table, np.array([], dtype=int), []) == []
    (only_end,) = rescore(table, np.array([3]), [()])
    assert only_end == pytest.approx(logprobs_of(table, 3, ()))


@pytest.mark.parametrize("direction", BOTH)
def test_attention_belongs_to_its_token(direction: Direction) -> None:
    options = SearchOptions(beam=3, nbest=3, keep_attention=True)
    for hypotheses in search(Table(direction, SMALL, 1), SMALL, np.array([9, 9]), options):
        for hypothesis in hypotheses:
            assert hypothesis.attention is not None
            written = direction.order(hypothesis.tokens)
            maps = direction.order(hypothesis.attention[:, 0].astype(int).tolist())
            # The step that chose token t saw t tokens after the start mark, and was fed the one before.
            before = [direction.start, *written[:-1]]
            assert maps == [[step, token] for step, token in enumerate(before)]


def test_attention_is_not_asked_for_without_need() -> None:
    class Blind(Table):
        def attention(self, state: list[tuple[int, ...]]) -> np.ndarray:
            raise AssertionError("nobody asked")

    (hypotheses,) = search(Blind(Direction.L2R, SMALL, 1), SMALL, np.array([5]))
    assert hypotheses[0].attention is None


class Certain(Table):
    """A decoder that is sure of one sequence for each image."""

    def __init__(self, direction: Direction, vocabulary: Vocabulary, answers: list[list[int]]) -> None:
        super().__init__(direction, vocabulary, 0)
        self.answers = answers

    def row(self, prefix: tuple[int, ...]) -> np.ndarray:
        image, _, *written = prefix
        wanted = [*self.direction.order(self.answers[image]), self.direction.end]
        logp = np.full(self.size, -20.0, dtype=np.float32)
        logp[wanted[len(written)] if written == wanted[: len(written)] else self.direction.end] = -1e-6
        return logp


@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize("beam", [1, 4])
def test_finished_images_leave_the_batch(direction: Direction, beam: int) -> None:
    answers = [[2], [2, 3, 2], [3] * 6]
    table = Certain(direction, TINY, answers)
    found = search(table, TINY, np.array([50, 50, 50]), SearchOptions(beam=beam, patience=math.inf))
    assert [list(h[0].tokens) for h in found] == answers
    assert table.calls == 7  # as many as the longest answer needs, with its end mark
    assert table.widths == [3, 3, 2, 2, 1, 1, 1]  # whatever the beam: there is no doubt


@SETTINGS
@given(st.sampled_from(BOTH), st.integers(0, 10**6), st.integers(2, 6))
def test_nothing_below_the_best_is_followed_without_a_spread(direction: Direction, seed: int, beam: int) -> None:
    table, limits = Table(direction, SMALL, seed), np.array([9, 3, 5])
    greedy = search(table, SMALL, limits, SearchOptions(beam=1))
    found = search(table, SMALL, limits, SearchOptions(beam=beam, nbest=beam, spread=0.0))
    assert [[h.tokens for h in some] for some in found] == [[h.tokens for h in some] for some in greedy]


@SETTINGS
@given(st.sampled_from(BOTH), st.integers(0, 10**6), st.integers(2, 6), st.floats(0, 20))
def test_a_spread_leaves_what_is_close_and_what_was_promised(
    direction: Direction, seed: int, beam: int, spread: float
) -> None:
    table, limits = Table(direction, SMALL, seed), np.array([9, 3, 5])
    endless = SearchOptions(beam=beam, nbest=beam, spread=math.inf, patience=math.inf)
    wide = search(table, SMALL, limits, endless)
    narrow = search(table, SMALL, limits, replace(endless, spread=spread))
    promised = search(table, SMALL, limits, replace(endless, spread=spread, assured=beam))
    assert [len(some) for some in promised] == [len(some) for some in wide]
    for all_of_them, some in zip(wide, narrow, strict=True):
        best = max(h.logprob for h in some)
        assert all(h.logprob >= best - spread - 1e-4 for h in some)
        # What a narrow beam finds, it scores as the wide one does.
        scores = {h.tokens: h.score for h in all_of_them}
        assert all(h.score == pytest.approx(scores[h.tokens]) for h in some if h.tokens in scores)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("direction", BOTH)
def test_a_decoder_that_overflowed_still_gives_valid_strings(direction: Direction, value: float) -> None:
    class Broken(Table):
        def row(self, prefix: tuple[int, ...]) -> np.ndarray:
            return np.full(self.size, value, dtype=np.float32)

    for hypotheses in search(Broken(direction, SMALL, 0), SMALL, np.array([6, 2]), SearchOptions(beam=2)):
        assert grammar_for(SMALL, Direction.L2R).accepts(SMALL.decode(hypotheses[0].tokens))
        assert math.isfinite(hypotheses[0].score)


def test_without_the_grammar_marks_do_not_come_out_and_the_limit_holds() -> None:
    for direction, seed in itertools.product(BOTH, range(30)):
        for hypotheses in search(
            Table(direction, TINY, seed), TINY, np.array([4, 1]), SearchOptions(beam=3, nbest=3, grammar=False)
        ):
            for hypothesis in hypotheses:
                assert len(hypothesis.tokens) <= 4
                assert not {SOS, EOS} & set(hypothesis.tokens)


def test_a_batch_gives_what_each_image_gives_alone() -> None:
    table, limits = Table(Direction.R2L, SMALL, 11), np.array([12, 4, 9, 1])
    options = SearchOptions(beam=3, nbest=3)
    together = search(table, SMALL, limits, options)
    for row in range(4):
        (alone,) = search(table, SMALL, limits[row : row + 1], options, rows=np.array([row]))
        assert [h.tokens for h in alone] == [h.tokens for h in together[row]]
        assert [h.score for h in alone] == [h.score for h in together[row]]


def test_no_images() -> None:
    assert search(Table(Direction.L2R, SMALL, 0), SMALL, np.array([], dtype=int)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"beam": 0},
        {"nbest": 2},
        {"beam": 3, "nbest": 0},
        {"alpha": -1.0},
        {"alpha": math.nan},
        {"patience": 0.5},
        {"patience": math.nan},
        {"spread": -1.0},
        {"spread": math.nan},
        {"beam": 2, "assured": 3},
        {"assured": 0},
        {"r2l_weight": 1.5},
    ],
)
def test_options_that_contradict_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="is"):
        SearchOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("limits", [np.array([0]), np.array([3, 3])])
def test_limits_must_fit(limits: np.ndarray) -> None:
    with pytest.raises(ValueError, match="limit"):
        search(Table(Direction.L2R, SMALL, 0), SMALL, limits, rows=np.array([0]))


def test_the_limit_grows_with_the_image() -> None:
    limit = LengthLimit()
    assert limit(30, 30) < limit(94, 256) < limit(200, 1800) == limit.most
    assert isinstance(limit(1, 1), int)
    assert limit(1, 1) >= 1


def test_hypothesis_logprob_counts_the_end_mark() -> None:
    hypothesis = Hypothesis((2, 3), np.array([-1.0, -2.0], dtype=np.float32), -0.5, -1.0)
    assert hypothesis.logprob == pytest.approx(-3.5)

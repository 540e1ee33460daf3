"""Finding the best sequence under a decoder: greedy and beam search, the grammar, and both directions together.

The network is behind `Stepper`, so that torch and ONNX Runtime share this one search; here is numpy only. All
hypotheses of all images go through the decoder in one call at each step. Finished hypotheses leave the batch,
and so do images whose answer cannot change any more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from ink2tex.latex.grammar import GrammarState, grammar_for
from ink2tex.vocabulary import Direction, Vocabulary

#: Whatever a stepper keeps between two steps; only the stepper looks inside.
State: TypeAlias = Any

#: Least log-probability of a token: a decoder that overflowed (NaN, -inf) still lets the search finish.
_FLOOR: Final = np.float32(-1e4)


#: Where beams end by default, in log-probability below the best.
SPREAD: Final = 4.0


class Stepper(Protocol):
    """One decoder over an already encoded batch of images."""

    @property
    def direction(self) -> Direction:
        """The order in which this decoder writes."""

    def start(self, rows: np.ndarray) -> State:
        """Begin one hypothesis for each of `rows`, which are indices (N,) of images in the batch."""

    def advance(self, state: State, tokens: np.ndarray) -> tuple[np.ndarray, State]:
        """Feed the last token (N,) of each hypothesis; log-probabilities (N, K) of the next, and the new state.

        The first tokens are the start mark of the direction.
        """

    def reorder(self, state: State, rows: np.ndarray) -> State:
        """The state of hypotheses `rows` (M,): any may be left out, or taken several times."""

    def attention(self, state: State) -> np.ndarray:
        """Where the step that made `state` looked: (N, H, W). Only called when attention is to be kept."""


@dataclass(frozen=True)
class SearchOptions:
    """How to search. Conflicting settings are refused when this is built.

    A hypothesis of n tokens is ranked by its log-probability (with the end mark) divided by (n + 1)^alpha.
    """

    #: Hypotheses kept for each image; 1 is greedy search.
    beam: int = 1
    #: Hypotheses returned for each image, best first.
    nbest: int = 1
    #: 0 ranks by probability (and favours short answers), 1 by the mean over the tokens.
    alpha: float = 1.0
    #: Only write LaTeX that parses.
    grammar: bool = True
    #: An image is done after `patience * beam` finished hypotheses; infinity searches until nothing can improve.
    patience: float = 1.0
    #: Hypotheses whose log-probability is this far below that of the best of their image are given up: a beam is for
    #: what is in doubt, and most of an expression is not.
    spread: float = SPREAD
    #: So many answers there are for each image, however far below the best.
    assured: int = 1
    #: Return where the decoder looked for each token.
    keep_attention: bool = False
    #: Weight of the right-to-left branch when both are ranked together.
    r2l_weight: float = 0.5

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"beam is {self.beam}; a search needs at least one hypothesis")
        if not 1 <= self.nbest <= self.beam:
            raise ValueError(f"nbest is {self.nbest}; a beam of {self.beam} gives 1 to {self.beam} answers")
        if not (math.isfinite(self.alpha) and self.alpha >= 0):
            raise ValueError(f"alpha is {self.alpha}; the exponent of the length is 0 or more")
        if not self.spread >= 0:
            raise ValueError(f"spread is {self.spread}; a distance below the best hypothesis is 0 or more")
        if not 1 <= self.assured <= self.beam:
            raise ValueError(f"assured is {self.assured}; a beam of {self.beam} can promise 1 to {self.beam} answers")
        if not self.patience >= 1:
            raise ValueError(f"patience is {self.patience}; below 1 a search stops before its beam is full")
        if not 0 <= self.r2l_weight <= 1:
            raise ValueError(f"r2l_weight is {self.r2l_weight}; it is a share between 0 and 1")

    def rank(self, logprob: Any, length: Any) -> Any:
        """The score of hypotheses of `length` tokens; numbers or arrays."""
        return logprob / (length + 1) ** self.alpha


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One finished answer; everything in left-to-right order, whatever direction found it."""

    tokens: tuple[int, ...]
    #: (T,) log-probability of each token.
    logprobs: np.ndarray
    #: Log-probability of ending here.
    end_logprob: float
    #: What hypotheses are ranked by.
    score: float
    #: (T, H, W) where the decoder looked for each token, if it was to be kept.
    attention: np.ndarray | None = None

    @property
    def logprob(self) -> float:
        """Log-probability of the whole, the end mark included."""
        return float(self.logprobs.sum()) + self.end_logprob


@dataclass(frozen=True)
class LengthLimit:
    """How many tokens an image can hold at most, by its size in pixels of the official bitmaps.

    Only there to stop a decoder that repeats itself; generous enough that no label is cut.
    """

    least: int = 24
    per_pixel: float = 1 / 250
    most: int = 300

    def __call__(self, height: int, width: int) -> int:
        """The limit for a bitmap of this size."""
        return min(self.most, self.least + int(height * width * self.per_pixel))


def search(
    stepper: Stepper,
    vocabulary: Vocabulary,
    limits: np.ndarray,
    options: SearchOptions | None = None,
    rows: np.ndarray | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each image, best first; greedy with a beam of 1.

    limits: (B,) the most tokens of each image, marks not counted; what is unfinished there is ended, and with
        the grammar it is closed properly in time.
    rows: (B,) the images of the encoded batch to read; all `len(limits)` of them when left out.
    """
    options = options or SearchOptions()
    limits = np.asarray(limits, dtype=np.int64)
    rows = np.arange(len(limits)) if rows is None else np.asarray(rows)
    if len(rows) != len(limits):
        raise ValueError(f"{len(rows)} images but {len(limits)} limits")
    if len(limits) == 0:
        return []
    if limits.min() < 1:
        raise ValueError("the limit of an image is one token at least")
    return _Beams(stepper, vocabulary, limits, options, rows).run()


class _Beams:
    """One batched beam search; `run` walks the steps.

    Live hypotheses are rows of flat arrays, grouped by image; `image` says whose they are. The past of a
    hypothesis is a chain of (parent row, token, log-probability) through the steps, followed only when it ends.
    """

    def __init__(
        self,
        stepper: Stepper,
        vocabulary: Vocabulary,
        limits: np.ndarray,
        options: SearchOptions,
        rows: np.ndarray,
    ) -> None:
        self.stepper, self.options, self.limits = stepper, options, limits
        self.start, self.end = stepper.direction.start, stepper.direction.end
        self.grammar = grammar_for(vocabulary, stepper.direction) if options.grammar else None
        self.state = stepper.start(rows)
        self.image = np.arange(len(rows))  # (N,)
        self.total = np.zeros(len(rows))  # (N,) log-probability so far
        self.last = np.full(len(rows), self.start)  # (N,)
        self.syntax: list[GrammarState] = [self.grammar.start] * len(rows) if self.grammar else []
        self.parents: list[np.ndarray] = []
        self.tokens: list[np.ndarray] = []
        self.logprobs: list[np.ndarray] = []
        self.attentions: list[np.ndarray] = []
        self.finished: list[list[Hypothesis]] = [[] for _ in rows]
        self.some_finished = False
        self.top = np.full(len(rows), -np.inf)  # (B,) the largest log-probability of a finished hypothesis
        self.endings = np.zeros(len(rows), dtype=np.int64)  # (B,) how many are finished

    def run(self) -> list[list[Hypothesis]]:
        step = 0
        while len(self.image):
            self._step(step)
            step += 1
        nbest = self.options.nbest
        return [sorted(done, key=lambda h: -h.score)[:nbest] for done in self.finished]

    def _step(self, length: int) -> None:
        """Write the token at position `length` of every live hypothesis."""
        raw, state = self.stepper.advance(self.state, self.last)
        logp = np.fmin(np.fmax(raw, _FLOOR), np.float32(0))  # (N, K); fmax turns NaN into the floor
        if self.options.keep_attention:
            self.attentions.append(self.stepper.attention(state))
        self._mask(logp, length)
        parent, token, total = self._best(self.total[:, None] + logp)
        if self.options.beam > 1 and self.options.spread < math.inf:
            hopeful = self._hopeful(self.image[parent], total)
            parent, token, total = parent[hopeful], token[hopeful], total[hopeful]
        gain = logp[parent, token]
        ends = token == self.end
        if self.some_finished or ends.any():
            self.some_finished = True
            for i in np.flatnonzero(ends):
                self._finish(int(parent[i]), float(gain[i]), float(total[i]), length)
            keep = ~ends
            keep[keep] = self._open(self.image[parent[keep]], total[keep])
            parent, token, gain, total = parent[keep], token[keep], gain[keep], total[keep]
        self.parents.append(parent)
        self.tokens.append(token)
        self.logprobs.append(gain)
        self.image, self.total, self.last = self.image[parent], total, token
        if self.grammar:
            advance, syntax = self.grammar.advance, self.syntax
            self.syntax = [advance(syntax[p], t) for p, t in zip(parent.tolist(), token.tolist(), strict=True)]
        if len(parent):
            same = len(parent) == len(raw) and bool((parent == np.arange(len(parent))).all())
            self.state = state if same else self.stepper.reorder(state, parent)

    def _mask(self, logp: np.ndarray, length: int) -> None:
        """Forbid, in place, what may not come next."""
        budget = self.limits[self.image] - length  # (N,) tokens still to spend
        if self.grammar:
            logp[~self.grammar.masks(self.syntax, budget.tolist())] = -np.inf
            return
        logp[:, self.start] = -np.inf
        spent = budget <= 0
        if spent.any():
            only_end = np.full(logp.shape[1], -np.inf, dtype=logp.dtype)
            only_end[self.end] = 0
            logp[spent] += only_end

    def _best(self, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The `beam` best continuations of each image among totals (N, K): parent rows, tokens, totals.

        Ordered by image, then best first.
        """
        n, k = totals.shape
        beam = self.options.beam
        if beam == 1:
            parent, token = np.arange(n), totals.argmax(axis=1)
            return parent, token, totals[parent, token]
        first = self._firsts()
        count = len(first)
        most = n if count == 1 else int(np.diff(first, append=n).max())  # hypotheses of an image
        if most * count == n:  # all images have as many: no copy
            flat = totals.reshape(count, most * k)
        else:
            which = np.searchsorted(first, np.arange(n), "right") - 1  # (N,) image among the live ones
            table = np.full((count, most, k), -np.inf, dtype=totals.dtype)
            table[which, np.arange(n) - first[which]] = totals
            flat = table.reshape(count, most * k)
        if beam < flat.shape[1]:
            top = np.argpartition(flat, flat.shape[1] - beam, axis=1)[:, -beam:]
            top.sort(axis=1)  # of equals, the first comes first
        else:
            top = np.arange(flat.shape[1])[None].repeat(count, 0)
        rows = np.arange(count)[:, None]
        top = top[rows, np.argsort(-flat[rows, top], axis=1, kind="stable")]
        value = flat[rows, top]
        parent, token = np.divmod(top, k)
        parent += first[:, None]
        if value.min() > -np.inf:
            return parent.ravel(), token.ravel(), value.ravel()
        real = value > -np.inf
        return parent[real], token[real], value[real]

    def _hopeful(self, image: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Which continuations of `image` (M,), sorted as `_best` does, are not too far below the best: (M,) bool."""
        first = np.searchsorted(image, image)  # (M,) the best of the image comes first
        best = np.maximum(total[first], self.top[image])
        promised = np.arange(len(image)) - first < self.options.assured - self.endings[image]
        hopeful: np.ndarray = (total >= best - self.options.spread) | promised
        return hopeful

    def _firsts(self) -> np.ndarray:
        """The first row of each live image."""
        if len(self.limits) == 1:
            return np.zeros(1, dtype=np.int64)
        return np.concatenate(([0], np.flatnonzero(self.image[1:] != self.image[:-1]) + 1))

    def _finish(self, row: int, end_logprob: float, total: float, length: int) -> None:
        """The hypothesis of `row` ends here, after `length` tokens: follow its chain back."""
        image = int(self.image[row])
        self.top[image] = max(self.top[image], total)
        self.endings[image] += 1
        tokens, logprobs, attention = [], [], []
        for t in range(length - 1, -1, -1):
            tokens.append(int(self.tokens[t][row]))
            logprobs.append(self.logprobs[t][row])
            row = int(self.parents[t][row])
            if self.options.keep_attention:
                attention.append(self.attentions[t][row])
        if self.stepper.direction is Direction.L2R:  # the chain was followed from its end
            tokens, logprobs, attention = tokens[::-1], logprobs[::-1], attention[::-1]
        self.finished[image].append(
            Hypothesis(
                tokens=tuple(tokens),
                logprobs=np.array(logprobs, dtype=np.float32),
                end_logprob=end_logprob,
                score=float(self.options.rank(total, length)),
                attention=self._stack(attention) if self.options.keep_attention else None,
            )
        )

    def _stack(self, maps: list[np.ndarray]) -> np.ndarray:
        """(T, H, W), also for an answer without tokens."""
        return np.stack(maps) if maps else np.zeros((0, *self.attentions[0].shape[1:]), dtype=np.float32)

    def _open(self, image: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Which hypotheses of `image` (M,) may still change the answer of their image: (M,) bool.

        A hypothesis can only lose probability, and the division by its length helps it most at the limit.
        """
        bound = self.options.rank(total, self.limits[image])
        needed = np.full(len(self.limits), -np.inf)
        enough = self.options.patience * self.options.beam
        for i in np.unique(image).tolist():
            done = self.finished[i]
            if len(done) >= enough:
                needed[i] = np.inf
            elif len(done) >= self.options.nbest:
                needed[i] = sorted((h.score for h in done), reverse=True)[self.options.nbest - 1]
        result: np.ndarray = bound > needed[image]
        return result


def rescore(stepper: Stepper, rows: np.ndarray, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Log-probabilities of given sequences (ids, left to right, no marks) under a decoder.

    rows: (N,) the image of each sequence. Answers for each (T + 1,): its tokens left to right, then the end mark.
    """
    if not len(sequences):
        return []
    rows = np.asarray(rows)
    direction = stepper.direction
    lengths = np.array([len(sequence) for sequence in sequences])
    order = np.argsort(-lengths, kind="stable")  # longest first: the live ones are always the first rows
    written = np.full((len(sequences), int(lengths.max()) + 1), direction.end)
    for i, j in enumerate(order.tolist()):
        written[i, : lengths[j]] = direction.order(sequences[j])
    found = np.zeros(written.shape, dtype=np.float32)
    last = np.full(len(sequences), direction.start)
    state = stepper.start(rows[order])
    lengths = lengths[order]
    for step in range(written.shape[1]):
        live = int((lengths >= step).sum())
        if live < len(last):
            state, last = stepper.reorder(state, np.arange(live)), last[:live]
        raw, state = stepper.advance(state, last)
        last = written[:live, step]
        found[:live, step] = np.fmin(np.fmax(raw[np.arange(live), last], _FLOOR), 0)
    answers: list[np.ndarray] = [found[0]] * len(sequences)
    for i, j in enumerate(order.tolist()):
        tokens = found[i, : lengths[i]]
        answers[j] = np.append(tokens if direction is Direction.L2R else tokens[::-1], found[i, lengths[i]])
    return answers


@dataclass(frozen=True, eq=False)
class Judge:
    """A decoder that has a say in the ranking of answers."""

    stepper: Stepper
    #: Its share of the say; those of all judges sum to one.
    weight: float
    #: What it found itself in each image, if it searched at all: this it need not read again.
    found: Sequence[Sequence[Hypothesis]] = ()


def ranked(
    judges: Sequence[Judge], images: int, options: SearchOptions, rows: np.ndarray | None = None
) -> list[list[Hypothesis]]:
    """Rank what any of the judges found by what all of them think of it, best first.

    Each distinct sequence is scored by the judges that did not find it. Its log-probabilities become the weighted
    mean over all of them and its score follows; attention is that of the first judge who found it.
    """
    rows = np.arange(images) if rows is None else np.asarray(rows)
    own = [[{h.tokens: h for h in judge.found[i]} if judge.found else {} for i in range(images)] for judge in judges]
    answers: list[dict[tuple[int, ...], Hypothesis]] = [{} for _ in range(images)]
    for found in reversed(own):
        for answer, mine in zip(answers, found, strict=True):
            answer.update(mine)
    means: list[dict[tuple[int, ...], np.ndarray]] = [  # (T + 1,) of each sequence
        {tokens: np.zeros(len(tokens) + 1) for tokens in answer} for answer in answers
    ]
    for judge, found in zip(judges, own, strict=True):
        wanted = []
        for i, answer in enumerate(answers):
            for tokens in answer:
                if (known := found[i].get(tokens)) is None:
                    wanted.append((i, tokens))
                else:
                    means[i][tokens] += judge.weight * np.append(known.logprobs, known.end_logprob)
        logprobs = rescore(judge.stepper, rows[[i for i, _ in wanted]], [tokens for _, tokens in wanted])
        for (i, tokens), values in zip(wanted, logprobs, strict=True):
            means[i][tokens] += judge.weight * values
    return [
        sorted(
            (
                replace(
                    hypothesis,
                    logprobs=mean[tokens][:-1],
                    end_logprob=float(mean[tokens][-1]),
                    score=float(options.rank(mean[tokens].sum(), len(tokens))),
                )
                for tokens, hypothesis in answer.items()
            ),
            key=lambda h: -h.score,
        )[: options.nbest]
        for answer, mean in zip(answers, means, strict=True)
    ]


def joint_search(
    l2r: Stepper,
    r2l: Stepper,
    vocabulary: Vocabulary,
    limits: np.ndarray,
    options: SearchOptions | None = None,
    rows: np.ndarray | None = None,
) -> list[list[Hypothesis]]:
    """`search` in both directions, everything in the two beams ranked by both (`ranked`)."""
    options = options or SearchOptions()
    wide = replace(options, nbest=options.beam)
    shares = (1 - options.r2l_weight, options.r2l_weight)
    judges = [
        Judge(stepper, share, search(stepper, vocabulary, limits, wide, rows))
        for stepper, share in zip((l2r, r2l), shares, strict=True)
    ]
    return ranked(judges, len(judges[0].found), options, rows)

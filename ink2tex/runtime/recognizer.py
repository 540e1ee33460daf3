"""`Recognizer`: a preprocessor, a network, a search; inputs in, `Result`s out."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

import numpy as np

from ink2tex.errors import CheckpointError, Ink2TexError
from ink2tex.image import Prepared, scale_bitmap
from ink2tex.runtime.backend import CELL, Backend, cells
from ink2tex.runtime.bundle import MANIFEST
from ink2tex.runtime.calibration import confidence
from ink2tex.runtime.inputs import Input, to_bitmap
from ink2tex.runtime.result import Alternative, Result, Timing, token_boxes
from ink2tex.search import Hypothesis, Judge, LengthLimit, SearchOptions, ranked, search
from ink2tex.vocabulary import Direction, Vocabulary

Answer = TypeVar("Answer")
Mode = Literal["l2r", "r2l", "joint"]
MODES: Final = ("l2r", "r2l", "joint")

#: The weights that come with the package.
DEFAULT_MODEL: Final = Path(__file__).parents[1] / "weights"

#: Inputs of `recognize_many` that are looked at together, to put similar sizes into one batch.
_WINDOW: Final = 64
#: Numbers in the largest array of a step (hypotheses × cells × attention width): more does not fit a core's cache,
#: and a batch is slower then than its parts.
_STEP_SIZE: Final = 300_000


#: The sizes at which a picture is looked at, as multiples of the usual one: answers are found at the first.
VIEWS: Final = (1.0, 1 / 1.2, 1.1)
#: So many answers, if not more are wanted, are judged at the other sizes.
_DOUBTED: Final = 5


@dataclass(frozen=True)
class Decode:
    """How to read: the branches, the search, and at how many sizes answers are judged."""

    mode: Mode
    search: SearchOptions
    views: int = 1

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"decode is {self.mode!r}; it is one of {', '.join(MODES)}")
        if not 1 <= self.views <= len(VIEWS):
            raise ValueError(f"views is {self.views}; a picture is looked at 1 to {len(VIEWS)} times")

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The branches that have a say."""
        return (Direction.L2R, Direction.R2L) if self.mode == "joint" else (Direction(self.mode),)

    @property
    def shares(self) -> tuple[float, ...]:
        """How much say each of them has."""
        weight = self.search.r2l_weight
        return (1 - weight, weight) if self.mode == "joint" else (1.0,)


class Recognizer:
    """Reads handwritten mathematics. Threads may share one: nothing in it changes while it works."""

    def __init__(
        self,
        backend: Backend,
        threads: int = 1,
        *,
        decode: Mode | None = None,
        beam: int | None = None,
        nbest: int | None = None,
        grammar: bool = True,
        views: int | None = None,
    ) -> None:
        self.backend = backend
        self.decode = self._decode(decode, beam, nbest, grammar, views)
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "ink2tex") if threads > 1 else None

    def _decode(
        self, mode: Mode | None, beam: int | None, nbest: int | None, grammar: bool, views: int | None
    ) -> Decode:
        """What the caller wants, then what the model suggests, then both branches and a beam of 5."""
        suggested = self.backend.decode
        both = len(self.backend.directions) > 1
        mode = mode or cast("Mode | None", suggested.mode) or ("joint" if both else self.backend.directions[0].value)
        wanted = (Direction.L2R, Direction.R2L) if mode == "joint" else (mode,)
        have = {direction.value for direction in self.backend.directions}
        if missing := {Direction(direction).value for direction in wanted if mode in MODES} - have:
            raise CheckpointError(
                f"this model writes {' and '.join(sorted(have))} only; decoding {mode!r} needs {missing.pop()} too"
            )
        beam = beam or max(suggested.beam or 5, nbest or 1)
        assured = nbest or 1
        nbest = nbest or min(5, beam)
        options = SearchOptions(beam, nbest, suggested.alpha, grammar, assured=assured, keep_attention=True)
        # The number of views that a model suggests belongs to the mode that it suggests.
        return Decode(mode, options, views or (suggested.views if mode == suggested.mode else 1))

    def recognize(self, source: Input, name: str | None = None) -> Result:
        """Read one input: a path, the bytes of a file, a Pillow image, an array, strokes or ink.

        Raises an `Ink2TexError` for what is no picture, or one without ink.
        """
        (result,) = self._recognize([prepare_input(source, name)], self._threads)
        return result

    def recognize_many(self, sources: Iterable[Input]) -> Iterator[Result]:
        """Read any number of inputs, lazily and in their order; similar sizes are read together."""
        for answer in self.try_many(sources):
            if isinstance(answer, Ink2TexError):
                raise answer
            yield answer

    def try_many(self, sources: Iterable[Input | Ready]) -> Iterator[Result | Ink2TexError]:
        """`recognize_many` where a bad input is answered with its error; inputs may be prepared already."""
        left = iter(sources)
        each = self._pool.map if self._pool else map
        while window := list(each(_attempt, list(islice(left, _WINDOW)))):
            answers: list[Result | Ink2TexError | None] = [p if isinstance(p, Ink2TexError) else None for p in window]
            good = [(i, p) for i, p in enumerate(window) if not isinstance(p, Ink2TexError)]
            for i, result in self._side_by_side(self._recognize, good):
                answers[i] = result
            yield from cast("list[Result | Ink2TexError]", answers)

    def explain(self, source: Input, name: str | None = None) -> Explanation:
        """Read one input with each branch by itself, and tell where it looked for each token."""
        prepared = to_bitmap(source, name)
        batch = self._encode([prepared.bitmap], self._threads)
        options = replace(self.decode.search, nbest=1)
        found = {
            direction: self._search(batch, Decode(direction.value, options), self._threads)[0][0]
            for direction in self.backend.directions
        }
        return Explanation(prepared, CELL / self.backend.input_scale, self.backend.vocabulary, found)

    def read(self, bitmaps: Sequence[np.ndarray], decode: Decode | None = None) -> list[list[Hypothesis]]:
        """The best hypotheses of official bitmaps (H, W) that are read together; no more than that."""
        return self._read(bitmaps, decode or self.decode, self._threads)

    def read_all(
        self, bitmaps: Sequence[np.ndarray], decode: Decode | None = None
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """`read` for many bitmaps, in batches of similar size: (position, hypotheses) in no particular order."""
        how = decode or self.decode
        indexed = [(i, Ready(Prepared(bitmap, (), 1.0, np.eye(2, 3)))) for i, bitmap in enumerate(bitmaps)]

        def work(ready: Sequence[Ready], threads: int) -> list[list[Hypothesis]]:
            return self._read([r.prepared.bitmap for r in ready], how, threads)

        yield from self._side_by_side(work, indexed, how)

    def _side_by_side(
        self,
        work: Callable[[Sequence[Ready], int], Sequence[Answer]],
        items: Sequence[tuple[int, Ready]],
        decode: Decode | None = None,
    ) -> Iterator[tuple[int, Answer]]:
        """`work` on batches of the items: (index, answer) in no particular order.

        One batch has all cores. Several are worked on at the same time, with one core each: nothing has to be shared
        out at every small step then, and no core waits for another.
        """
        batches = list(self._batches(items, (decode or self.decode).search.beam))
        if self._pool is None or len(batches) == 1 or not self.backend.concurrent:
            for batch in batches:
                yield from zip((i for i, _ in batch), work([r for _, r in batch], self._threads), strict=True)
            return
        # The largest first, or the last one would be worked on alone for long.
        waiting = {self._pool.submit(work, [r for _, r in batch], 1): batch for batch in reversed(batches)}
        try:
            for done in as_completed(waiting):
                yield from zip((i for i, _ in waiting[done]), done.result(), strict=True)
        finally:
            for future in waiting:  # whoever asked may have lost interest
                future.cancel()

    def _batches(self, items: Sequence[tuple[int, Ready]], beam: int) -> Iterator[list[tuple[int, Ready]]]:
        """Items of similar size together, as many as a step can hold, the smallest first."""
        scale = self.backend.input_scale

        def grid(item: tuple[int, Ready]) -> tuple[int, int]:
            height, width = item[1].prepared.bitmap.shape
            return math.ceil(height * scale / CELL), math.ceil(width * scale / CELL)

        batch: list[tuple[int, Ready]] = []
        rows = columns = 0
        for item in sorted(items, key=lambda item: (grid(item)[1], grid(item)[0])):
            h, w = max(rows, grid(item)[0]), max(columns, grid(item)[1])
            if batch and (len(batch) + 1) * h * w * beam * self.backend.width > _STEP_SIZE:
                yield batch
                batch, (h, w) = [], grid(item)
            batch.append(item)
            rows, columns = h, w
        if batch:
            yield batch

    def _recognize(self, ready: Sequence[Ready], threads: int) -> list[Result]:
        start = time.perf_counter()
        encoded = self._encode([r.prepared.bitmap for r in ready], threads, self.decode.views)
        middle = time.perf_counter()
        found = self._search(encoded, self.decode, threads)
        end = time.perf_counter()
        return [
            self._result(
                r, hypotheses, size, Timing(r.seconds, (middle - start) / len(ready), (end - middle) / len(ready))
            )
            for r, hypotheses, size in zip(ready, found, encoded.sizes, strict=True)
        ]

    def _read(self, bitmaps: Sequence[np.ndarray], decode: Decode, threads: int) -> list[list[Hypothesis]]:
        return self._search(self._encode(bitmaps, threads, decode.views), decode, threads)

    def _encode(self, bitmaps: Sequence[np.ndarray], threads: int, views: int = 1) -> _EncodedBatch:
        """Official bitmaps as the branches read them, at `views` sizes."""
        scale = self.backend.input_scale
        sized = [[scale_bitmap(bitmap, scale * view) for bitmap in bitmaps] for view in VIEWS[:views]]
        return _EncodedBatch(
            [self.backend.encode(some, threads) for some in sized], [cells(b) for b in sized[0]], self._limits(sized[0])
        )

    def _limits(self, bitmaps: Sequence[np.ndarray]) -> np.ndarray:
        limit, scale = LengthLimit(), self.backend.input_scale
        return np.array([limit(int(h / scale), int(w / scale)) for h, w in (b.shape for b in bitmaps)])

    def _search(self, batch: _EncodedBatch, decode: Decode, threads: int) -> list[list[Hypothesis]]:
        words, limits, options = self.backend.vocabulary, batch.limits, decode.search
        directions, views = decode.directions, batch.encoded
        each = max(1, threads // len(directions))
        pool = self._pool if threads > 1 else None  # with one thread this may be the pool's own
        steppers = [[view.stepper(direction, each) for direction in directions] for view in views]
        if len(directions) * len(views) == 1:
            return search(steppers[0][0], words, limits, options)
        wide = replace(options, nbest=options.beam)
        first, *others = steppers[0]
        # The branches know nothing of each other, so they search at the same time.
        waiting = [pool.submit(search, s, words, limits, wide) for s in others] if pool else []
        found = [search(first, words, limits, wide)]
        found += [w.result() for w in waiting] if pool else [search(s, words, limits, wide) for s in others]
        judges = [Judge(s, share, own) for s, share, own in zip(steppers[0], decode.shares, found, strict=True)]
        if len(views) == 1:
            return ranked(judges, len(limits), options)
        # Only what is good at the first size is judged at the others.
        best = ranked(judges, len(limits), replace(options, nbest=max(options.nbest, min(_DOUBTED, options.beam))))
        judges = [Judge(first, 1 / len(views), best)]
        judges += [
            Judge(s, share / len(views)) for view in steppers[1:] for s, share in zip(view, decode.shares, strict=True)
        ]
        return ranked(judges, len(limits), options)

    def _result(self, ready: Ready, hypotheses: Sequence[Hypothesis], size: tuple[int, int], timing: Timing) -> Result:
        best, words = hypotheses[0], self.backend.vocabulary
        tokens = tuple(words.decode(best.tokens))
        sure = confidence(self.backend.calibration.get(self.decode.mode), best.logprob)
        assert best.attention is not None
        attention = best.attention[:, : size[0], : size[1]]
        return Result(
            tokens=tokens,
            confidence=sure,
            token_probabilities=tuple(float(p) for p in np.exp(best.logprobs)),
            alternatives=tuple(
                Alternative(tuple(words.decode(other.tokens)), probability)
                for other, probability in zip(hypotheses[1:], _shares(hypotheses, sure), strict=True)
            ),
            boxes=token_boxes(tokens, attention, ready.prepared, CELL / self.backend.input_scale),
            timing=timing,
            warnings=ready.prepared.warnings,
        )


@dataclass(frozen=True, eq=False)
class Ready:
    """An input that is ready to be read."""

    prepared: Prepared
    #: What preparing took.
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Explanation:
    """Where the branches looked."""

    prepared: Prepared
    #: Pixels of the official bitmap per cell of the attention.
    cell: float
    vocabulary: Vocabulary
    #: The best answer of each branch, with its attention; tokens from left to right.
    answers: Mapping[Direction, Hypothesis]


@dataclass(frozen=True, eq=False)
class _EncodedBatch:
    encoded: Sequence[Any]  # of each view
    sizes: Sequence[tuple[int, int]]  # rows and columns of each picture's features
    limits: np.ndarray  # (B,) most tokens


def prepare_input(source: Input, name: str | None = None) -> Ready:
    """The bitmap of any input; `name` stands for it in errors."""
    start = time.perf_counter()
    prepared = to_bitmap(source, name)
    return Ready(prepared, time.perf_counter() - start)


def _attempt(source: Input | Ready) -> Ready | Ink2TexError:
    try:
        return source if isinstance(source, Ready) else prepare_input(source)
    except Ink2TexError as error:
        return error


def _shares(hypotheses: Sequence[Hypothesis], sure: float) -> list[float]:
    """Probabilities of all but the best: in proportion to it, and together no more than what is left."""
    best = hypotheses[0].logprob
    shares = [sure * math.exp(min(0.0, other.logprob - best)) for other in hypotheses[1:]]
    total = sum(shares)
    return [share * min(1.0, (1 - sure) / total) for share in shares] if total > 0 else shares


def load(
    model: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    *,
    decode: Mode | None = None,
    beam: int | None = None,
    nbest: int | None = None,
    grammar: bool = True,
    views: int | None = None,
) -> Recognizer:
    """A recogniser with the weights of the package, of a model folder (`ink2tex export`), or of a checkpoint.

    threads: cores to use; all of them when left out.
    decode, beam, nbest: `l2r`, `r2l` or `joint`, the hypotheses of the search, and the answers it gives; the
        model knows what suits it. Without `nbest` there are up to 5 answers, as far as there is any doubt.
    grammar: only write LaTeX that parses.
    views: at how many sizes (1 to 3) the answers are judged; more is slower, and may be right more often.
    """
    path = DEFAULT_MODEL if model is None else Path(model)
    threads = threads or available_cores()
    if model is None and not (path / MANIFEST).is_file():
        raise CheckpointError(
            "this installation has no weights of its own; train a network with 'ink2tex train', write it with "
            "'ink2tex export CHECKPOINT -o model/' and give that folder"
        )
    return Recognizer(
        _backend(path, threads), threads, decode=decode, beam=beam, nbest=nbest, grammar=grammar, views=views
    )


def _backend(path: Path, threads: int) -> Backend:
    if path.is_dir():
        from ink2tex.runtime.onnx_backend import OnnxBackend

        return OnnxBackend(path, threads)
    if path.suffix == ".safetensors" or path.is_file():
        try:
            from ink2tex.model.backend import TorchBackend
        except ImportError as error:
            raise CheckpointError(
                f"{path}: a checkpoint needs torch ({error}); install the extra 'train', or export it to a model folder"
            ) from None
        return TorchBackend(path)
    raise CheckpointError(f"{path}: there is no such model; give a folder of 'ink2tex export' or a .safetensors file")


def available_cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1

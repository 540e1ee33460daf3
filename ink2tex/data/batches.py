"""Batches by shape, as a pure function of seed, epoch and position.

An epoch is planned as a whole: every sample is augmented (ink only, nothing is drawn yet), put into a bucket of
similar height and width, and each bucket is cut into batches of similar length. A step takes one batch for each
process, all from neighbouring buckets, so that processes that wait for each other have equal work. Nothing
depends on what was drawn before: an epoch and a position in it are all that a resumed run has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ink2tex.data.augment import Augmenter, AugmentSettings
from ink2tex.data.photograph import photographed
from ink2tex.data.sample import Sample
from ink2tex.errors import RecipeError
from ink2tex.image import scale_bitmap
from ink2tex.raster import OFFICIAL, RasterStyle, place_strokes, rasterise, stroke_cells
from ink2tex.vocabulary import Vocabulary

#: Pixels of the picture per feature cell, in height and width.
CELL = 16


@dataclass(frozen=True)
class BatchSettings:
    """How samples are gathered."""

    #: Most images of a batch, of one process.
    size: int = 16
    #: Most pixels of a batch, padding included: large images come in smaller batches. 0 for no limit.
    pixels: int = 0
    #: Each bucket's height and width is at most this much larger than the last one's.
    ratio: float = 1.2
    #: Samples with more pixels or tokens than this are left out (of training only); 0 for no limit.
    max_pixels: int = 0
    max_tokens: int = 0
    #: Small images first: in the first epochs, only the given share of the samples, smallest first.
    small_first: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise RecipeError("'size' of a batch is at least 1")
        if not 1.01 <= self.ratio <= 4:
            raise RecipeError("'ratio' of neighbouring buckets lies between 1.01 and 4")
        if any(not 0 < share <= 1 for share in self.small_first):
            raise RecipeError("'small_first' lists shares between 0 and 1, one for each of the first epochs")


@dataclass(frozen=True, eq=False)
class Batch:
    """Arrays of one step of one process; B images of at most T tokens on H × W pixels."""

    uids: tuple[str, ...]
    images: np.ndarray  # (B, H, W) uint8, white ink on black, padded with 0
    sizes: np.ndarray  # (B, 2) height and width of each image without padding
    tokens: np.ndarray  # (B, T) int64 ids in left-to-right order, padded with 0
    lengths: np.ndarray  # (B,) tokens of each
    cells: np.ndarray  # (B, T, ⌈H/16⌉, ⌈W/16⌉) bool: where the strokes of each token run
    #: The share of the step's tokens (end marks included) that this batch has; the rest is with other processes.
    share: float = 1.0


@dataclass(frozen=True, eq=False)
class _Planned:
    """A sample as it will be drawn: augmented ink, or a bitmap, and its size on the network's scale."""

    sample: Sample
    style: RasterStyle
    height: int
    width: int
    #: (H, W) uint8 of ink that was drawn already; the strokes lie on it as they are.
    bitmap: np.ndarray | None = None


#: Gives a process's part of the planned samples to the others, and returns everybody's, by process.
Exchange = Callable[[list[_Planned | None]], Sequence[list[_Planned | None]]]


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps of an epoch: for each step, the samples of each process."""

    steps: list[list[list[_Planned]]] = field(default_factory=list)
    shapes: list[tuple[int, int]] = field(default_factory=list)  # height and width of each step

    def __len__(self) -> int:
        return len(self.steps)


class BatchMaker:
    """Plans epochs over `samples` and draws their batches."""

    def __init__(
        self,
        samples: Sequence[Sample],
        vocabulary: Vocabulary,
        settings: BatchSettings,
        augment: AugmentSettings | None = None,
        input_scale: float = 1.0,
        seed: int = 0,
        processes: int = 1,
    ) -> None:
        self.samples = samples
        self.vocabulary = vocabulary
        self.settings = settings
        self.input_scale = input_scale
        self.seed = seed
        self.processes = processes
        self._augmenter = Augmenter(samples, augment or AugmentSettings(), vocabulary)
        areas = [self._planned(sample, RasterStyle()) for sample in samples] if settings.small_first else []
        self._by_area = np.argsort([p.height * p.width for p in areas], kind="stable")

    def plan(self, epoch: int, process: int = 0, exchange: Exchange | None = None) -> Plan:
        """Every step of an epoch. The same epoch always has the same plan.

        Processes that plan at the same time may share the work: each augments its part of the samples, and
        `exchange` tells it of the others'.
        """
        rng = np.random.default_rng((self.seed, epoch))
        indices: np.ndarray = np.arange(len(self.samples))
        if epoch < len(self.settings.small_first):
            indices = np.sort(self._by_area[: max(1, round(self.settings.small_first[epoch] * len(indices)))])
        if exchange is None:
            items = [self._augmented(epoch, int(index)) for index in indices]
        else:
            items = [None] * len(indices)
            mine = [self._augmented(epoch, int(index)) for index in indices[process :: self.processes]]
            for other, part in enumerate(exchange(mine)):
                items[other :: self.processes] = part
        return self._gather([item for item in items if item is not None], rng)

    def _augmented(self, epoch: int, index: int) -> _Planned | None:
        """A sample as this epoch shows it, if it is to be trained on."""
        rng = np.random.default_rng((self.seed, epoch, index))
        sample, thickness = self._augmenter(index, rng)
        item = self._photographed(sample, rng) or self._planned(sample, RasterStyle(thickness=thickness))
        return item if self._fits(item) else None

    def draw(self, plan: Plan, step: int, process: int = 0) -> Batch:
        """Rasterise the samples of one step of one process."""
        tokens = [sum(len(item.sample.tokens) + 1 for item in part) for part in plan.steps[step]]
        batch = draw_batch(plan.steps[step][process], plan.shapes[step], self.vocabulary, self.input_scale)
        return replace(batch, share=tokens[process] / sum(tokens))

    def _planned(self, sample: Sample, style: RasterStyle, bitmap: np.ndarray | None = None) -> _Planned:
        drawn = bitmap if bitmap is not None else sample.image
        shape = drawn.shape if drawn is not None else place_strokes(sample.strokes or (), style)[1]
        height, width = (max(1, round(side * self.input_scale)) for side in shape)
        return _Planned(sample, style, height, width, bitmap)

    def _photographed(self, sample: Sample, rng: np.random.Generator) -> _Planned | None:
        """The share of the samples that is drawn as a picture; only then is its size known."""
        share = self._augmenter.settings.photograph
        if not share or sample.strokes is None or rng.random() >= share:
            return None
        found = photographed(sample.strokes, rng)
        if found is None:
            return None
        bitmap, strokes = found
        return self._planned(replace(sample, strokes=strokes), OFFICIAL, bitmap)

    def _fits(self, item: _Planned) -> bool:
        pixels, tokens = self.settings.max_pixels, self.settings.max_tokens
        return (not pixels or item.height * item.width <= pixels) and (not tokens or len(item.sample.tokens) <= tokens)

    def _room(self, height: int, width: int) -> int:
        """Images of this size that go into one batch."""
        pixels = self.settings.pixels
        return min(self.settings.size, max(1, pixels // (height * width))) if pixels else self.settings.size

    def _gather(self, planned: list[_Planned], rng: np.random.Generator) -> Plan:
        ladder = _ladder(max((max(p.height, p.width) for p in planned), default=CELL), self.settings.ratio)
        buckets: dict[tuple[int, int], list[_Planned]] = {}
        for i in rng.permutation(len(planned)):  # so that equal lengths meet in another order each epoch
            item = planned[i]
            key = (_rung(ladder, item.height), _rung(ladder, item.width))
            buckets.setdefault(key, []).append(item)
        steps: list[list[list[_Planned]]] = []
        shapes: list[tuple[int, int]] = []
        left: list[_Planned] = []
        for height, width in sorted(buckets):
            # What did not fill a step in a smaller bucket joins the next one that holds it.
            bucket = buckets[height, width] + [p for p in left if p.height <= height and p.width <= width]
            left = [p for p in left if p.height > height or p.width > width]
            bucket.sort(key=lambda p: len(p.sample.tokens))
            room = self._room(height, width) * self.processes
            whole = len(bucket) // room * room
            skip = int(rng.integers(len(bucket) - whole + 1))  # leave out short or long ones by chance
            left += bucket[:skip] + bucket[skip + whole :]
            for start in range(skip, skip + whole, room):
                steps.append(_deal(bucket[start : start + room], self.processes))
                shapes.append((height, width))
        left.sort(key=lambda p: (p.width, p.height))
        while left:
            room = self.processes
            for count in range(self.processes, len(left) + 1):
                height, width = (_rung(ladder, max(getattr(p, s) for p in left[:count])) for s in ("height", "width"))
                if count > self._room(height, width) * self.processes:
                    break
                room = count
            part, left = left[:room], left[room:]
            part += part[: max(0, self.processes - len(part))]  # every process has work in every step
            steps.append(_deal(part, self.processes))
            shapes.append((_rung(ladder, max(p.height for p in part)), _rung(ladder, max(p.width for p in part))))
        order = rng.permutation(len(steps))
        return Plan([steps[i] for i in order], [shapes[i] for i in order])


def draw_batch(items: Sequence[_Planned], shape: tuple[int, int], vocabulary: Vocabulary, input_scale: float) -> Batch:
    """Draw planned samples onto one padded array."""
    height, width = shape
    longest = max(len(p.sample.tokens) for p in items)
    images = np.zeros((len(items), height, width), np.uint8)
    sizes = np.zeros((len(items), 2), np.int64)
    tokens = np.zeros((len(items), longest), np.int64)
    lengths = np.array([len(p.sample.tokens) for p in items], np.int64)
    cells = np.zeros((len(items), longest, -(-height // CELL), -(-width // CELL)), bool)
    for i, item in enumerate(items):
        sample = item.sample
        bitmap = item.bitmap if item.bitmap is not None else sample.image
        if bitmap is None:
            bitmap = rasterise(sample.strokes or (), item.style)
        bitmap = scale_bitmap(bitmap, input_scale)
        images[i, : bitmap.shape[0], : bitmap.shape[1]] = bitmap
        sizes[i] = bitmap.shape
        tokens[i, : lengths[i]] = vocabulary.encode(sample.tokens, sample.uid)
        if sample.strokes is not None and sample.token_strokes is not None:
            _mark(cells[i], item, input_scale)
    return Batch(tuple(p.sample.uid for p in items), images, sizes, tokens, lengths, cells)


def _mark(cells: np.ndarray, item: _Planned, input_scale: float) -> None:
    """Set the cells (T, h, w) that each token's strokes pass through."""
    sample = item.sample
    assert sample.strokes is not None
    assert sample.token_strokes is not None
    placed = sample.strokes if item.bitmap is not None else place_strokes(sample.strokes, item.style)[0]
    for t, indices in enumerate(sample.token_strokes):
        if indices:
            where = stroke_cells([placed[s] for s in indices], CELL / input_scale, cells.shape[1:])
            cells[t, where[:, 0], where[:, 1]] = True


def evaluation_batches(
    samples: Sequence[Sample], vocabulary: Vocabulary, settings: BatchSettings, input_scale: float
) -> Iterator[Batch]:
    """Every sample once, in batches of similar size, as drawn without augmentation and without its label."""
    bare = [Sample(sample.uid, (), sample.strokes, sample.image) for sample in samples]
    maker = BatchMaker(bare, vocabulary, settings, None, input_scale)
    plan = maker.plan(0)
    for step in range(len(plan)):
        yield maker.draw(plan, step)


def _ladder(largest: int, ratio: float) -> list[int]:
    """Multiples of the cell size, each at most `ratio` (or one cell) above the last, until `largest` fits."""
    rungs = [2 * CELL]
    while rungs[-1] < largest:
        rungs.append(max(rungs[-1] + CELL, int(rungs[-1] * ratio) // CELL * CELL))
    return rungs


def _rung(ladder: Sequence[int], size: int) -> int:
    return next(rung for rung in ladder if rung >= size)


def _deal(items: list[_Planned], hands: int) -> list[list[_Planned]]:
    """Split into `hands` parts of equal count and similar total length."""
    return [items[hand::hands] for hand in range(hands)]

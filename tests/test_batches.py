"""Batches: what they hold, how little padding they carry, and that nothing but the position decides them."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from drawn import SAMPLES, drawn

from ink2tex.data.augment import AugmentSettings
from ink2tex.data.batches import CELL, BatchMaker, BatchSettings, Plan, evaluation_batches
from ink2tex.data.readers import read_samples
from ink2tex.data.sample import Sample
from ink2tex.image import scale_bitmap
from ink2tex.raster import rasterise
from ink2tex.vocabulary import UnknownTokenError, Vocabulary

WORDS = Vocabulary()


def uids(plan: Plan) -> list[str]:
    return [item.sample.uid for step in plan.steps for part in step for item in part]


def wasted(plan: Plan) -> float:
    """Share of the pixels that is padding."""
    used = sum(item.height * item.width for step in plan.steps for part in step for item in part)
    steps = zip(plan.steps, plan.shapes, strict=True)
    return 1 - used / sum(h * w * sum(len(part) for part in step) for step, (h, w) in steps)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_every_sample_comes_once_an_epoch(processes: int) -> None:
    maker = BatchMaker(SAMPLES, WORDS, BatchSettings(size=4), seed=3, processes=processes)
    plan = maker.plan(0)
    counts = Counter(uids(plan))
    assert set(counts) == {sample.uid for sample in SAMPLES}
    # Only what fills up the last step for all processes may come again.
    assert sum(counts.values()) - len(SAMPLES) < processes
    assert all(len(step) == processes and all(1 <= len(part) <= 4 for part in step) for step in plan.steps)


def test_plans_and_drawings_depend_on_seed_and_epoch_alone() -> None:
    augment = AugmentSettings(scale=(0.8, 1.2), rotation=3.0, swap=0.5, thickness=(2.0, 4.0), photograph=0.3)

    def maker(seed: int = 5) -> BatchMaker:
        return BatchMaker(SAMPLES, WORDS, BatchSettings(size=4), augment, 0.8, seed)

    first, second = maker(), maker()
    first.plan(0)  # an earlier epoch leaves no trace
    one, two = first.plan(7), second.plan(7)
    assert uids(one) == uids(two)
    for step in range(len(one)):
        a, b = first.draw(one, step), second.draw(two, step)
        np.testing.assert_array_equal(a.images, b.images)
        np.testing.assert_array_equal(a.cells, b.cells)
    assert uids(first.plan(8)) != uids(one)
    assert uids(maker(6).plan(7)) != uids(one)


@pytest.mark.parametrize("small_first", [(), (0.6,)])
def test_processes_that_share_the_planning_plan_what_each_would_alone(small_first: tuple[float, ...]) -> None:
    augment = AugmentSettings(scale=(0.8, 1.2), swap=0.5, photograph=0.3)
    processes = 3
    settings = BatchSettings(size=2, max_tokens=8, small_first=small_first)
    makers = [BatchMaker(SAMPLES, WORDS, settings, augment, 0.8, 5, processes) for _ in range(processes)]
    given: dict[int, list] = {}
    everybody = Barrier(processes, timeout=60)

    def planned(process: int) -> Plan:
        def exchange(mine: list) -> list[list]:
            given[process] = mine
            everybody.wait()
            return [given[other] for other in range(processes)]

        return makers[process].plan(0, process, exchange)

    with ThreadPoolExecutor(processes) as pool:
        together = list(pool.map(planned, range(processes)))
    assert sum(map(len, given.values())) <= len(SAMPLES)  # nothing was done twice
    alone = makers[0].plan(0)
    assert uids(alone)
    for plan in together:
        assert uids(plan) == uids(alone)
        for step in range(len(alone)):
            for process in range(processes):
                ours, theirs = makers[0].draw(plan, step, process), makers[0].draw(alone, step, process)
                np.testing.assert_array_equal(ours.images, theirs.images)
                np.testing.assert_array_equal(ours.tokens, theirs.tokens)


def test_a_batch_holds_the_drawings_their_labels_and_where_each_token_is() -> None:
    samples = [drawn("x + 1"), drawn(r"\frac { a } { b } = 2")]
    (batch,) = evaluation_free_batches(samples)
    for i, uid in enumerate(batch.uids):
        sample = next(s for s in samples if s.uid == uid)
        assert sample.strokes is not None
        assert sample.token_strokes is not None
        bitmap = rasterise(sample.strokes)
        height, width = batch.sizes[i]
        np.testing.assert_array_equal(batch.images[i, :height, :width], bitmap)
        assert batch.images[i].sum() == bitmap.sum(dtype=np.int64)  # nothing on the padding
        assert WORDS.decode(batch.tokens[i, : batch.lengths[i]]) == list(sample.tokens)
        for t, strokes in enumerate(sample.token_strokes):
            assert batch.cells[i, t].any() == bool(strokes)
        # Together the tokens cover every inked cell, but for what the pen's thickness adds.
        ys, xs = np.nonzero(bitmap)
        inked = np.zeros(batch.cells.shape[2:], bool)
        inked[ys // CELL, xs // CELL] = True
        marked = batch.cells[i].any(0)
        assert (marked <= inked).all()
        assert marked.sum() >= 0.6 * inked.sum()
        # `x` of "x + 1" is at the left, `1` at the right.
        if sample.tokens == ("x", "+", "1"):
            columns = [np.nonzero(batch.cells[i, t])[1].mean() for t in (0, 1, 2)]
            assert columns == sorted(columns)
            assert columns[0] < columns[2]


def evaluation_free_batches(samples: list[Sample]) -> list:  # type: ignore[type-arg]
    maker = BatchMaker(samples, WORDS, BatchSettings(size=8, ratio=4.0))
    plan = maker.plan(0)
    return [maker.draw(plan, step) for step in range(len(plan))]


def test_evaluation_reads_every_sample_even_with_a_label_it_does_not_know() -> None:
    samples = [*SAMPLES, Sample("odd", ("\\nosuch",), SAMPLES[0].strokes)]
    seen = [uid for batch in evaluation_batches(samples, WORDS, BatchSettings(size=5), 0.5) for uid in batch.uids]
    assert sorted(seen) == sorted(sample.uid for sample in samples)
    maker = BatchMaker(samples, WORDS, BatchSettings(size=99, ratio=4.0))
    with pytest.raises(UnknownTokenError, match="odd"):
        maker.draw(maker.plan(0), 0)


def test_bitmaps_are_scaled_like_those_of_recognition() -> None:
    image = rasterise(SAMPLES[0].strokes or ())
    (batch,) = evaluation_batches([Sample("i", (), None, image)], WORDS, BatchSettings(), 0.8)
    expected = scale_bitmap(image, 0.8)
    np.testing.assert_array_equal(batch.images[0, : expected.shape[0], : expected.shape[1]], expected)


def test_small_images_come_first() -> None:
    maker = BatchMaker(SAMPLES, WORDS, BatchSettings(size=4, small_first=(0.25, 0.5)))
    first, second, third = (set(uids(maker.plan(epoch))) for epoch in (0, 1, 2))
    assert first < second < third
    assert len(first) == round(len(SAMPLES) / 4)
    areas = {s.uid: rasterise(s.strokes or ()).size for s in SAMPLES}
    assert max(areas[uid] for uid in first) <= min(areas[uid] for uid in third - first)


def test_large_images_come_in_smaller_batches() -> None:
    maker = BatchMaker(SAMPLES, WORDS, BatchSettings(size=16, pixels=60_000))
    plan = maker.plan(0)
    for step, (height, width) in zip(plan.steps, plan.shapes, strict=True):
        assert len(step[0]) <= max(1, 60_000 // (height * width))


def test_the_real_training_set_wastes_less_than_a_quarter_on_padding(crohme: Path) -> None:
    samples = read_samples(crohme / "train_inkml.tar.xz", crohme / "train_caption.txt", align=False)
    settings = BatchSettings(size=24, pixels=560_000)
    plan = BatchMaker(samples, WORDS, settings, input_scale=0.8, processes=2).plan(0)
    assert sorted(set(uids(plan))) == sorted(s.uid for s in samples)
    assert wasted(plan) < 0.25
    shapes = {(len(part), *shape) for step, shape in zip(plan.steps, plan.shapes, strict=True) for part in step}
    assert len(shapes) <= 160  # of 8,835 different images

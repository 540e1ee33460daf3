"""Ink that takes the way of a picture: the strokes must be where the bitmap shows them."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ink2tex.data import photograph
from ink2tex.data.augment import AugmentSettings
from ink2tex.data.batches import CELL, BatchMaker, BatchSettings
from ink2tex.data.photograph import photographed, style_at
from ink2tex.data.readers import read_samples
from ink2tex.image.paper import NoInkError
from ink2tex.raster import OFFICIAL, rasterise
from ink2tex.vocabulary import Vocabulary

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
INKED = [sample for path in sorted(EXAMPLES.glob("*.inkml")) for sample in read_samples(path)]


@settings(max_examples=40, deadline=None)
@given(index=st.integers(0, len(INKED) - 1), seed=st.integers(0, 2**32))
def test_the_strokes_lie_on_the_ink_of_the_bitmap(index: int, seed: int) -> None:
    strokes = INKED[index].strokes
    assert strokes is not None
    found = photographed(strokes, np.random.default_rng(seed))
    assert found is not None
    bitmap, moved = found
    assert [len(stroke) for stroke in moved] == [len(stroke) for stroke in strokes]
    x, y = np.floor(np.concatenate(moved)).astype(int).T
    height, width = bitmap.shape
    inside = (x >= 0) & (y >= 0) & (x < width) & (y < height)
    away = cv2.distanceTransform(255 - bitmap, cv2.DIST_L2, 5)[y[inside], x[inside]]
    # A thick pen fills small loops, and what is very small may be dropped as a speck.
    assert inside.mean() > 0.95
    assert np.quantile(away, 0.8) <= 2.0


def test_the_same_generator_takes_the_same_picture_and_another_one_another() -> None:
    strokes = INKED[0].strokes
    assert strokes is not None
    one, two, other = (photographed(strokes, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one is not None
    assert two is not None
    assert other is not None
    np.testing.assert_array_equal(one[0], two[0])
    assert one[0].shape != other[0].shape or not np.array_equal(one[0], other[0])


def test_ink_that_is_lost_on_the_picture_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def blank(picture: np.ndarray) -> None:
        raise NoInkError

    monkeypatch.setattr(photograph, "prepare", blank)
    assert photographed(INKED[0].strokes or (), np.random.default_rng(0)) is None


@pytest.mark.parametrize("scale", [1.0, 2.0, 3.0])
def test_ink_is_drawn_larger_as_a_whole(scale: float) -> None:
    strokes = INKED[0].strokes
    assert strokes is not None
    small = rasterise(strokes)
    large = rasterise([stroke * np.float32(scale) for stroke in strokes], style_at(scale))
    np.testing.assert_allclose(large.shape, np.array(small.shape) * scale, atol=2 * scale)
    assert style_at(1.0) == OFFICIAL


def test_batches_mark_the_cells_of_photographed_ink() -> None:
    words = Vocabulary()
    maker = BatchMaker(INKED, words, BatchSettings(size=4), AugmentSettings(photograph=1.0), seed=2)
    plan = maker.plan(0)
    assert all(item.bitmap is not None for step in plan.steps for part in step for item in part)
    found = total = 0
    for step in range(len(plan)):
        batch = maker.draw(plan, step)
        known = batch.cells.any(axis=(1, 2, 3))  # some ink has no alignment at all
        rows, columns = batch.cells.shape[2:]
        ink = batch.images.reshape(len(batch.images), rows, CELL, columns, CELL).sum(axis=(2, 4)) > 255 * 12
        marked = widened(batch.cells.any(axis=1))
        found += int((ink & marked)[known].sum())
        total += int(ink[known].sum())
    assert total > 100
    assert found > 0.95 * total


def widened(cells: np.ndarray) -> np.ndarray:
    """Cells (B, h, w) and their neighbours: a stroke along a border may come to lie on either side of it."""
    return np.stack([cv2.dilate(c.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0 for c in cells])

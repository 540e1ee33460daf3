"""The rasteriser: geometry, brushes, robustness, and the official images where they are at hand."""

from __future__ import annotations

import importlib.util
import math
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ink2tex.errors import InkError
from ink2tex.raster import (
    MAX_EXTENT,
    OFFICIAL,
    RasterStyle,
    brush,
    official_scale,
    place_strokes,
    rasterise,
    scale_strokes,
    stroke_cells,
    transform_strokes,
)

ROOT = Path(__file__).resolve().parent.parent


def stroke(*points: tuple[float, float]) -> np.ndarray:
    return np.array(points, dtype=np.float32)


def curve(seed: int = 0, n: int = 5) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    walks = np.cumsum(rng.normal(size=(n, 30, 2)) * 4, axis=1)
    walks[:, :, 0] += 40 * np.arange(n)[:, None]
    return tuple(walks.astype(np.float32))


def ink_box(bitmap: np.ndarray) -> tuple[int, int, int, int]:
    """Free pixels at the left, top, right and bottom."""
    rows, columns = np.nonzero(bitmap)
    height, width = bitmap.shape
    return int(columns.min()), int(rows.min()), int(width - 1 - columns.max()), int(height - 1 - rows.max())


class TestRasterise:
    def test_a_line_is_a_bar_of_three_pixels(self) -> None:
        bitmap = rasterise([stroke((5.9, 2.0), (15.2, 2.9))])
        expected = np.zeros((3 + 23, 11 + 2 + 23), np.uint8)
        expected[12:15, 12:25] = 255
        np.testing.assert_array_equal(bitmap, expected)

    def test_a_dot_is_one_brush(self) -> None:
        bitmap = rasterise([stroke((-7.5, 1e5))])
        assert bitmap.shape == (26, 26)
        assert bitmap.sum() == 9 * 255

    def test_points_are_rounded_down_before_they_are_moved(self) -> None:
        # 0.9 and 1.1 lie in neighbouring pixels, 1.0 and 1.2 in one.
        assert rasterise([stroke((0.9, 0), (1.1, 0))]).shape[1] == 27
        assert rasterise([stroke((1.0, 0), (1.2, 0))]).shape[1] == 26

    @given(st.floats(1, 9), st.tuples(*[st.integers(0, 20)] * 4), st.integers(0, 5))
    @settings(max_examples=40, deadline=None)
    def test_margins_hold_at_every_thickness(
        self, thickness: float, margins: tuple[int, int, int, int], seed: int
    ) -> None:
        bitmap = rasterise(curve(seed), RasterStyle(thickness, margins))
        assert set(np.unique(bitmap)) <= {0, 255}
        assert ink_box(bitmap) == margins

    def test_thicker_pens_leave_more_ink(self) -> None:
        ink = [rasterise(curve(), RasterStyle(t)).astype(bool).sum() for t in np.arange(1, 6, 0.5)]
        assert all(a < b for a, b in pairwise(ink))
        grey = [rasterise(curve(), RasterStyle(t, antialias=True)).sum() for t in np.arange(1, 5, 0.25)]
        assert all(a < b for a, b in pairwise(grey))

    def test_antialiased_drawing_is_the_same_size_and_about_as_dark(self) -> None:
        hard, soft = rasterise(curve()), rasterise(curve(), RasterStyle(antialias=True))
        assert soft.shape == hard.shape
        assert soft.mean() == pytest.approx(hard.mean(), rel=0.15)
        assert len(np.unique(soft)) > 3

    @pytest.mark.parametrize("strokes", [[], [np.zeros((0, 2), np.float32)]])
    def test_no_ink(self, strokes: list[np.ndarray]) -> None:
        with pytest.raises(InkError, match="no ink"):
            rasterise(strokes)

    def test_refuses_what_cannot_be_drawn(self) -> None:
        with pytest.raises(InkError, match="finite"):
            rasterise([stroke((0, 0), (math.nan, 1))])
        with pytest.raises(InkError, match="pixels"):
            rasterise([stroke((0, 0), (1e6, 1e6))])

    @pytest.mark.parametrize("style", [{"thickness": 0.5}, {"thickness": math.nan}, {"margins": (1, 2, 3, -1)}])
    def test_style_is_checked(self, style: dict) -> None:
        with pytest.raises(ValueError, match=next(iter(style))):
            RasterStyle(**style)


class TestPlacement:
    @given(st.floats(-1000, 1000), st.floats(-1000, 1000), st.sampled_from([1, 1.5, 2, 2.5, 3, 4, 5]))
    @settings(max_examples=50, deadline=None)
    def test_placed_points_lie_on_ink(self, x: float, y: float, thickness: float) -> None:
        strokes = [s + np.float32([x, y]) for s in curve()]
        style = RasterStyle(thickness)
        placed, shape = place_strokes(strokes, style)
        bitmap = rasterise(strokes, style)
        assert bitmap.shape == shape
        columns, rows = np.floor(np.concatenate(placed)).astype(int).T
        assert (bitmap[rows, columns] == 255).all()

    def test_placing_again_changes_nothing(self) -> None:
        placed, shape = place_strokes(curve())
        again, same = place_strokes(placed)
        assert shape == same
        for a, b in zip(placed, again, strict=True):
            np.testing.assert_array_equal(a, b)


class TestScale:
    def test_mean_height_becomes_28(self) -> None:
        strokes = [stroke((0, 0), (1, 10.5)), stroke((3, 0), (9, 20.5)), stroke((0, 5), (30, 5.5))]
        assert official_scale(strokes) == pytest.approx(28 / 15.5)

    def test_mean_height_of_whole_numbers_is_rounded_down(self) -> None:
        strokes = [stroke((0, 0), (1, 10)), stroke((3, 0), (9, 21)), stroke((0, 5), (30, 7))]
        assert official_scale(strokes) == pytest.approx(28 / 15)

    def test_does_not_depend_on_place_and_follows_size(self) -> None:
        strokes = curve()
        scale = official_scale(strokes)
        assert official_scale([s * 3 + 100 for s in strokes]) == pytest.approx(scale / 3, rel=1e-4)

    def test_bars_and_dots(self) -> None:
        bar = stroke((0, 0), (300, 0))
        assert official_scale([bar]) * 300 == pytest.approx(112)
        assert official_scale([stroke((5, 5))]) == 1
        assert official_scale([]) == 1
        dots = [stroke((10 * i, 0), (10 * i, 0.1)) for i in range(3)]
        assert max(rasterise(scale_strokes(dots, official_scale(dots))).shape) < 600
        # One long bar does not change the scale of what is written above it.
        letters = [s * 2 for s in curve()]
        assert official_scale([*letters, bar * 4]) == official_scale(letters)

    @given(
        st.lists(
            hnp.arrays(np.float32, st.tuples(st.integers(1, 6), st.just(2)), elements=st.floats(-1e9, 1e9, width=32)),
            min_size=1,
            max_size=5,
        )
    )
    @settings(max_examples=200, deadline=None)
    def test_always_sane(self, strokes: list[np.ndarray]) -> None:
        scale = official_scale(strokes)
        assert math.isfinite(scale)
        assert scale > 0
        extent = np.ptp(np.concatenate(strokes).astype(np.float64), axis=0).max()
        assert scale * extent <= MAX_EXTENT * 1.0001 or extent == 0


class TestTransform:
    def test_identity(self) -> None:
        for a, b in zip(curve(), transform_strokes(curve()), strict=True):
            np.testing.assert_array_equal(a, b)

    def test_each_parameter(self) -> None:
        point = [stroke((2, -3))]  # two to the right, three up
        assert transform_strokes(point, scale=2)[0][0] == pytest.approx((4, -6))
        assert transform_strokes(point, aspect=4)[0][0] == pytest.approx((4, -1.5))
        assert transform_strokes(point, shear=0.5)[0][0] == pytest.approx((3.5, -3))
        assert transform_strokes(point, rotation=90)[0][0] == pytest.approx((-3, -2))

    @given(st.floats(0.5, 2), st.floats(0.5, 2), st.floats(-1, 1), st.floats(-180, 180))
    @settings(max_examples=50, deadline=None)
    def test_only_scale_changes_the_area(self, scale: float, aspect: float, shear: float, turn: float) -> None:
        unit = [np.eye(2, dtype=np.float32)]
        (image,) = transform_strokes(unit, scale, aspect, shear, turn)
        assert np.linalg.det(image) == pytest.approx(scale**2, rel=1e-3)


class TestCells:
    def test_a_long_segment_visits_every_cell(self) -> None:
        cells = stroke_cells([stroke((4, 4), (100, 4))], 8, (3, 20))
        np.testing.assert_array_equal(cells, [(0, c) for c in range(13)])

    def test_dots_offset_and_bounds(self) -> None:
        dots = [stroke((1, 20)), stroke((-1, 0)), stroke((500, 0))]
        np.testing.assert_array_equal(stroke_cells(dots, 16, (2, 4)), [(1, 0)])
        np.testing.assert_array_equal(stroke_cells(dots, 16, (2, 4), (16, -16)), [(0, 1)])
        assert stroke_cells([], 16, (2, 4)).shape == (0, 2)

    @given(st.integers(0, 20), st.sampled_from([4, 8, 16]))
    @settings(max_examples=30, deadline=None)
    def test_cells_are_those_of_a_one_pixel_drawing(self, seed: int, cell: int) -> None:
        style = RasterStyle(thickness=1)
        placed, (height, width) = place_strokes(curve(seed), style)
        rows, columns = np.nonzero(rasterise(curve(seed), style))
        drawn = set(zip((rows // cell).tolist(), (columns // cell).tolist(), strict=True))
        passed = set(map(tuple, stroke_cells(placed, cell, (height // cell + 1, width // cell + 1)).tolist()))
        assert len(drawn ^ passed) <= 0.1 * len(drawn) + 2  # lines are rounded to pixels, the pen is not


def test_half_steps_of_the_brush_lie_between_whole_ones() -> None:
    areas = [int(brush(t).sum()) for t in np.arange(1, 8, 0.5)]
    assert areas[:7] == [1, 3, 4, 5, 9, 12, 16]
    assert areas == sorted(areas)


@pytest.fixture(scope="module")
def overlap_benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("raster_overlap", ROOT / "benchmarks" / "raster_overlap.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_official_images_come_out_the_same(overlap_benchmark: ModuleType) -> None:
    folder = overlap_benchmark.crohme()
    if not (folder / "test2014_images.tar.xz").exists():
        pytest.skip(f"needs the CROHME archives in {folder} (set INK2TEX_CROHME)")
    figures = overlap_benchmark.main(folder, limit=100)
    assert figures["images"] == 100
    assert figures["IoU, predicted scale: mean"] > 0.99
    assert figures["identical images"] > 0.95
    assert figures["predicted / measured scale: largest difference"] < 0.05
    assert figures["ms per image: mean"] < 5


def test_scaling_keeps_float32() -> None:
    (scaled,) = scale_strokes([np.array([[1, 2]])], 0.5)
    assert scaled.dtype == np.float32
    assert RasterStyle() == OFFICIAL

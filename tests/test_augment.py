"""Augmentation: what it changes, what it must not change."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
from drawn import SAMPLES, drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from ink2tex.data.augment import Augmenter, AugmentSettings
from ink2tex.data.placed import Placed
from ink2tex.data.sample import Sample
from ink2tex.data.spans import Row, fences, parse, rows
from ink2tex.data.symbols import CLASSES, PAIRS, Metrics
from ink2tex.errors import RecipeError
from ink2tex.latex.grammar import grammar_for
from ink2tex.settings import from_mapping
from ink2tex.vocabulary import Direction, Vocabulary

EVERYTHING = AugmentSettings(
    scale=(0.75, 1.2),
    aspect=0.08,
    shear=0.1,
    rotation=2.0,
    elastic=1.5,
    shift_symbol=0.04,
    scale_symbol=0.06,
    rotate_symbol=3.0,
    noise=0.25,
    smooth=0.5,
    thickness=(2.0, 4.0),
    swap=0.3,
    substitute=0.5,
    cut=0.2,
    replace=0.2,
    join=0.2,
    wrap=0.2,
)
ALL = Augmenter(SAMPLES, EVERYTHING)
seeds = st.integers(0, 2**32 - 1)
indices = st.integers(0, len(SAMPLES) - 1)


def boxes(sample: Sample) -> np.ndarray:
    """(inked tokens, 4)"""
    assert sample.strokes is not None
    assert sample.token_strokes is not None
    points = [np.concatenate([sample.strokes[i] for i in s]) for s in sample.token_strokes if s]
    return np.array([[*p.min(axis=0), *p.max(axis=0)] for p in points])


def ink(sample: Sample) -> np.ndarray:
    assert sample.strokes is not None
    return np.concatenate(sample.strokes)


def augmented(settings: AugmentSettings, index: int, seed: int) -> Sample:
    return Augmenter(SAMPLES, settings)(index, np.random.default_rng(seed))[0]


@given(indices, seeds)
@settings(max_examples=300, deadline=None)
def test_label_and_ink_stay_consistent(index: int, seed: int) -> None:
    sample, thickness = ALL(index, np.random.default_rng(seed))
    assert sample.strokes is not None
    assert sample.token_strokes is not None
    for direction in Direction:
        assert grammar_for(Vocabulary(), direction).accepts(sample.tokens), sample.tokens
    assert len(sample.tokens) <= EVERYTHING.max_tokens
    used = [i for strokes in sample.token_strokes for i in strokes]
    assert sorted(used) == list(range(len(sample.strokes)))
    assert all(np.isfinite(s).all() and s.dtype == np.float32 and s.shape[1:] == (2,) for s in sample.strokes)
    for token, strokes in zip(sample.tokens, sample.token_strokes, strict=True):
        if token in ("{", "}", "^", "_", "\\limits"):
            assert not strokes
        elif token in "=+":
            assert len(strokes) == 2
    assert 2.0 <= thickness <= 4.0


@given(indices, seeds)
@settings(max_examples=30, deadline=None)
def test_the_seed_decides(index: int, seed: int) -> None:
    before = [ink(sample).copy() for sample in SAMPLES]
    first, thickness = ALL(index, np.random.default_rng(seed))
    again, same = Augmenter(SAMPLES, EVERYTHING)(index, np.random.default_rng(seed))
    assert (first.tokens, first.token_strokes, thickness) == (again.tokens, again.token_strokes, same)
    np.testing.assert_array_equal(ink(first), ink(again))
    for sample, points in zip(SAMPLES, before, strict=True):
        np.testing.assert_array_equal(ink(sample), points)


def test_off_is_the_sample_itself() -> None:
    off = Augmenter(SAMPLES, AugmentSettings())
    for index, sample in enumerate(SAMPLES):
        same, thickness = off(index, np.random.default_rng(index))
        assert same is sample
        assert thickness == 3.0


def test_pens_spread_around_the_official_one() -> None:
    augmenter = Augmenter(SAMPLES, AugmentSettings(thickness=(1.5, 6.0)))
    drawn = np.array([augmenter(0, np.random.default_rng(seed))[1] for seed in range(4000)])
    assert drawn.min() >= 1.5
    assert drawn.max() <= 6.0
    # Halving and doubling are the ends, alike: half of the pens are thicker than the official one, and a quarter of
    # those more than half way to the double.
    assert np.mean(drawn > 3) == pytest.approx(0.5, abs=0.03)
    assert np.mean(drawn > 3 * np.sqrt(2)) == pytest.approx(0.125, abs=0.02)
    assert np.mean(drawn < 3 / np.sqrt(2)) == pytest.approx(0.125, abs=0.02)


def test_bitmaps_and_empty_ink_pass_through() -> None:
    odd = (Sample("bitmap", ("x",), image=np.zeros((4, 4), np.uint8)), Sample("empty", ("x",), strokes=()))
    augmenter = Augmenter(odd, EVERYTHING)
    for index, sample in enumerate(odd):
        assert augmenter(index, np.random.default_rng(0))[0] is sample


def test_scale_is_exact() -> None:
    for index, sample in enumerate(SAMPLES):
        twice = augmented(AugmentSettings(scale=(2.0, 2.0)), index, 0)
        assert twice.tokens == sample.tokens
        np.testing.assert_allclose(boxes(twice), 2.0 * boxes(sample), atol=1e-3)


def test_slant_moves_points_sideways_by_their_height() -> None:
    sample = SAMPLES[3]
    moved = ink(augmented(AugmentSettings(shear=0.2), 3, 5)) - ink(sample)
    np.testing.assert_allclose(moved[:, 1], 0.0, atol=1e-4)
    slant = moved[:, 0] / ink(sample)[:, 1]
    np.testing.assert_allclose(slant, slant[0], atol=1e-3)
    assert 0.0 < abs(slant[0]) <= 0.5


def test_a_turn_keeps_distances() -> None:
    sample, turned = SAMPLES[3], augmented(AugmentSettings(rotation=20.0), 3, 1)
    a, b = ink(sample), ink(turned)
    assert np.abs(a - b).max() > 1.0
    np.testing.assert_allclose(np.linalg.norm(a - a[0], axis=1), np.linalg.norm(b - b[0], axis=1), atol=1e-3)


def test_aspect_keeps_the_area() -> None:
    before, after = boxes(SAMPLES[0])[0], boxes(augmented(AugmentSettings(aspect=0.3), 0, 2))[0]
    sides, new = before[2:] - before[:2], after[2:] - after[:2]
    assert abs(new[0] / sides[0] - 1.0) > 0.01
    assert np.prod(new) == pytest.approx(np.prod(sides), rel=1e-4)


@pytest.mark.parametrize(("name", "value", "reach"), [("elastic", 2.0, 10.0), ("noise", 0.5, 8.0)])
def test_distortions_are_small_and_real(name: str, value: float, reach: float) -> None:
    moved = ink(augmented(AugmentSettings(**{name: value}), 6, 0)) - ink(SAMPLES[6])
    assert 0.05 < np.abs(moved).max() < reach


def test_smoothing_shortens_strokes_and_keeps_their_ends() -> None:
    sample, smooth = SAMPLES[4], augmented(AugmentSettings(smooth=1.0), 4, 0)
    for a, b in zip(sample.strokes or (), smooth.strokes or (), strict=True):
        np.testing.assert_allclose(a[[0, -1]], b[[0, -1]], atol=1e-4)
        assert np.linalg.norm(np.diff(b, axis=0), axis=1).sum() < np.linalg.norm(np.diff(a, axis=0), axis=1).sum()


def test_symbols_move_each_by_itself() -> None:
    before = boxes(SAMPLES[6])
    after = boxes(augmented(AugmentSettings(shift_symbol=0.05), 6, 0))
    shift = (after - before)[:, :2]
    np.testing.assert_allclose((after - before)[:, 2:], shift, atol=1e-3)  # size is kept
    assert len(np.unique(shift.round(3), axis=0)) == len(shift)
    assert np.abs(shift).max() <= 2.5 * 0.05 * 30.0


def test_ink_that_is_not_all_matched_moves_as_one_thing() -> None:
    sample = drawn("x + 1")
    assert sample.token_strokes is not None
    odd = dataclasses.replace(sample, token_strokes=((), *sample.token_strokes[1:]))
    only_symbols = AugmentSettings(shift_symbol=0.1, swap=1.0, substitute=1.0, cut=1.0)
    result, _ = Augmenter([odd, *SAMPLES], only_symbols)(0, np.random.default_rng(0))
    assert (result.tokens, result.token_strokes) == (odd.tokens, odd.token_strokes)
    np.testing.assert_allclose(ink(result), ink(sample), atol=1e-4)


@given(indices, seeds)
@settings(max_examples=60, deadline=None)
def test_another_hand_writes_the_same_in_the_same_places(index: int, seed: int) -> None:
    sample, swapped = SAMPLES[index], augmented(AugmentSettings(swap=1.0), index, seed)
    assert swapped.tokens == sample.tokens
    before, after = boxes(sample), boxes(swapped)
    np.testing.assert_allclose((after[:, :2] + after[:, 2:]) / 2, (before[:, :2] + before[:, 2:]) / 2, atol=1e-3)
    sizes = [np.maximum(b[:, 2] - b[:, 0], b[:, 3] - b[:, 1]) for b in (before, after)]
    np.testing.assert_allclose(sizes[1], sizes[0], rtol=0.35)


def test_another_hand_is_another_hand() -> None:
    swapped = augmented(AugmentSettings(swap=1.0), 3, 0)
    assert np.abs(ink(swapped) - ink(SAMPLES[3])).max() > 1.0


def shape(row: Row) -> list:
    return [(row.role, [shape(part) for item in row.items for part in item.parts], len(row.items))]


@given(indices, seeds)
@settings(max_examples=100, deadline=None)
def test_substitution_keeps_the_form_and_the_classes(index: int, seed: int) -> None:
    sample = SAMPLES[index]
    other = augmented(AugmentSettings(substitute=1.0, substitute_symbol=0.7), index, seed)
    trees = parse(sample.tokens), parse(other.tokens)
    assert trees[0] is not None
    assert trees[1] is not None
    assert shape(trees[0]) == shape(trees[1])
    renamed: dict[str, str] = {}
    for a, b in zip(sample.tokens, other.tokens, strict=True):
        if a != b:
            assert any(a in members and b in members for members in (*CLASSES, *zip(*PAIRS, strict=True)))
        if a.isalpha():
            assert renamed.setdefault(a, b) == b  # all x become the same letter


def test_substitution_brings_in_other_symbols() -> None:
    settings_ = AugmentSettings(substitute=1.0, substitute_symbol=1.0)
    assert augmented(settings_, 6, 0).tokens != SAMPLES[6].tokens


def test_brackets_change_in_pairs() -> None:
    settings_ = AugmentSettings(substitute=1.0, substitute_symbol=1.0)
    index = next(i for i, sample in enumerate(SAMPLES) if "(" in sample.tokens)
    seen = set()
    for seed in range(60):
        tokens = augmented(settings_, index, seed).tokens
        tree = parse(tokens)
        assert tree is not None
        assert all(fences(tokens, row.items) is not None for row, _ in rows(tree))
        seen |= {token for token in tokens if token in {opening for opening, _ in PAIRS}}
    written = {token for sample in SAMPLES for token in sample.tokens}
    assert seen == {opening for opening, closing in PAIRS if {opening, closing} <= written}
    assert len(seen) > 1


def test_capitals_are_measured_against_what_stands_beside_them() -> None:
    """N is half as large again as n, but mostly in rows of capitals alone, which are drawn no larger than others."""
    large = {"N": 1.5, "M": 1.5}
    written = []
    for label in ["N = M"] * 20 + ["n + x = y", "x = n y"] * 10 + ["N + n = x", "M = n x y"]:
        sample = drawn(label)
        assert sample.strokes is not None
        assert sample.token_strokes is not None
        strokes = list(sample.strokes)
        for token, numbers in zip(sample.tokens, sample.token_strokes, strict=True):
            for number in numbers:
                centre = 0.5 * (strokes[number].min(axis=0) + strokes[number].max(axis=0))
                strokes[number] = (centre + (strokes[number] - centre) * large.get(token, 1.0)).astype(np.float32)
        shrink = np.float32(1 / 1.5 if sample.tokens[0] in large and sample.tokens[-1] in large else 1.0)
        placed = Placed.of(dataclasses.replace(sample, strokes=tuple(stroke * shrink for stroke in strokes)))
        assert placed is not None
        written.append(placed)
    metrics = Metrics(written)
    assert metrics.size("N") / metrics.size("n") == pytest.approx(1.5, rel=0.05)
    assert metrics.size("x") / metrics.size("n") == pytest.approx(1.0, rel=0.05)


def test_numbers_get_decimals_and_letters_factors() -> None:
    augmenter = Augmenter([*SAMPLES, drawn("1 . 5")], AugmentSettings(wrap=1.0))
    found = [augmenter(4, np.random.default_rng(seed))[0] for seed in range(300)]  # x + 1 2 = y
    texts = [" ".join(sample.tokens) for sample in found]
    decimals = [sample for sample, text in zip(found, texts, strict=True) if "1 2 . " in text]
    assert len(decimals) > 10
    assert not any("1 . 2" in text for text in texts)  # not within the number
    assert any("x . " in text for text in texts)
    for sample in decimals:
        assert sample.token_strokes is not None
        assert sample.strokes is not None
        point = sample.token_strokes[sample.tokens.index(".")]
        before = sample.token_strokes[sample.tokens.index(".") - 1]
        assert sample.strokes[point[0]][:, 0].min() > sample.strokes[before[0]][:, 0].max()


def test_letters_that_differ_by_their_size_are_exchanged_for_each_other() -> None:
    samples = [drawn(label) for label in ("c + 1", "C + 1", "a b", "x y z", "n m k", "t u v w")]
    augmenter = Augmenter(samples, AugmentSettings(substitute=1.0, substitute_symbol=1.0))
    heads = Counter(augmenter(0, np.random.default_rng(seed))[0].tokens[0] for seed in range(600))
    assert heads["c"] == 0
    assert heads["C"] > 1.5 * max(count for token, count in heads.items() if token != "C")


def test_symbols_outside_the_vocabulary_are_never_brought_in() -> None:
    few = Vocabulary(sorted({token for sample in SAMPLES[:12] for token in sample.tokens}))
    augmenter = Augmenter(SAMPLES, EVERYTHING, few)
    for seed in range(200):
        sample, _ = augmenter(seed % 12, np.random.default_rng(seed))
        assert all(token in few for token in sample.tokens)


@pytest.mark.parametrize(
    "wrong",
    [
        {"scale": (0.0, 1.0)},
        {"scale": (1.2, 0.8)},
        {"thickness": (0.5, 3.0)},
        {"swap": 1.5},
        {"rotation": -1.0},
        {"elastic": float("nan")},
        {"max_tokens": 0},
        {"cut": 0.6, "wrap": 0.6},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict) -> None:
    with pytest.raises(RecipeError, match=next(iter(wrong))):
        AugmentSettings(**wrong)


def test_settings_come_from_a_recipe() -> None:
    made = from_mapping(AugmentSettings, {"scale": [0.8, 1.2], "swap": 0.3})
    assert made == AugmentSettings(scale=(0.8, 1.2), swap=0.3)

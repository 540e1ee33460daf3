"""The weights of the package: they are there, small enough, honest about themselves, and they read."""

from __future__ import annotations

from pathlib import Path

import pytest

import ink2tex
from ink2tex.data.readers import read_captions, read_samples
from ink2tex.metrics import score
from ink2tex.runtime.bundle import read_manifest
from ink2tex.runtime.evaluation import Reader
from ink2tex.runtime.recognizer import DEFAULT_MODEL
from ink2tex.search import SearchOptions
from ink2tex.vocabulary import Direction

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_they_are_no_larger_than_fifteen_megabytes() -> None:
    assert sum(path.stat().st_size for path in DEFAULT_MODEL.iterdir()) <= 15e6


def test_both_branches_ship_and_say_where_they_come_from() -> None:
    manifest = read_manifest(DEFAULT_MODEL)
    assert set(manifest.directions) == set(Direction)
    assert {"step", "images", "hours", "wer"} <= set(manifest.notes)


def test_confidence_is_calibrated_within_five_points() -> None:
    calibration = read_manifest(DEFAULT_MODEL).calibration
    assert set(calibration) == {"l2r", "r2l", "joint"}
    for one in calibration.values():
        assert one.samples == 671
        assert one.error <= 0.05
        assert one(-0.1) > one(-1) > one(-9)  # likelier answers are righter


@pytest.mark.parametrize("suffix", [".png", ".inkml"])
def test_they_read_the_examples(suffix: str) -> None:
    reader = ink2tex.load()
    labels = read_captions(EXAMPLES / "labels.tsv")
    right = [tuple(label) == reader.recognize(EXAMPLES / f"{name}{suffix}").tokens for name, label in labels.items()]
    assert sum(right) >= 11


def test_they_read_what_was_kept_from_them(crohme: Path) -> None:
    samples = read_samples(crohme / "test2013_inkml.tar.xz", None, align=False, limit=80)
    read = Reader(DEFAULT_MODEL, "joint", SearchOptions(beam=5)).read(samples)
    assert score(read, {sample.uid: sample.tokens for sample in samples}).exprate > 35

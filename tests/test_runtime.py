"""The recogniser: batches, threads, boxes, probabilities, calibration."""

from __future__ import annotations

import io
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from ink2tex.errors import CheckpointError, ImageError, Ink2TexError, InkError
from ink2tex.image import Prepared, scale_bitmap
from ink2tex.ink import Ink, write_inkml
from ink2tex.latex import tokenise
from ink2tex.latex.grammar import grammar_for
from ink2tex.runtime import recognizer
from ink2tex.runtime.calibration import Calibration, calibration_error, fit, fit_with_error
from ink2tex.runtime.onnx_backend import OnnxEncoded, _Layout
from ink2tex.runtime.recognizer import VIEWS, Decode, Mode, Recognizer, load
from ink2tex.runtime.result import Result, token_boxes
from ink2tex.search import rescore
from ink2tex.vocabulary import Direction
from tests.drawn import SAMPLES
from tests.tiny import BITMAPS


@pytest.fixture(scope="module")
def reader(tiny_model: Path) -> Recognizer:
    return load(tiny_model, threads=2, beam=3)


def same(a: Result, b: Result) -> None:
    assert a.tokens == b.tokens
    assert a.confidence == pytest.approx(b.confidence, rel=1e-3)
    assert [x.tokens for x in a.alternatives] == [x.tokens for x in b.alternatives]
    assert a.boxes == b.boxes


def test_together_is_as_alone(reader: Recognizer) -> None:
    alone = [reader.recognize(bitmap) for bitmap in BITMAPS]
    assert len({result.tokens for result in alone}) > 10  # the pictures do matter
    for one, many in zip(alone, reader.recognize_many(BITMAPS), strict=True):
        same(one, many)


@pytest.mark.parametrize("decode", ["l2r", "joint"])
def test_batches_are_read_side_by_side(tiny_model: Path, monkeypatch: pytest.MonkeyPatch, decode: Mode) -> None:
    monkeypatch.setattr(recognizer, "_STEP_SIZE", 1)  # every picture is a batch
    reader = load(tiny_model, threads=2, decode=decode, beam=3, views=2)
    alone = [reader.recognize(bitmap) for bitmap in BITMAPS]
    calls, meeting, cores = count(), Barrier(2, timeout=60), set()
    search, stepper = recognizer.search, OnnxEncoded.stepper

    def searching(*args: Any) -> Any:
        if next(calls) < 2:  # the first two wait for each other
            meeting.wait()
        return search(*args)

    def stepping(self: OnnxEncoded, direction: Direction, threads: int = 1) -> Any:
        cores.add(threads)
        return stepper(self, direction, threads)

    monkeypatch.setattr(recognizer, "search", searching)
    monkeypatch.setattr(OnnxEncoded, "stepper", stepping)
    for one, many in zip(alone, reader.recognize_many(BITMAPS), strict=True):
        same(one, many)
    assert cores == {1}


def test_whoever_loses_interest_in_many_leaves_nothing_behind(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recognizer, "_STEP_SIZE", 1)
    reader = load(tiny_model, threads=2, beam=3)
    calls, gone, search = count(), Event(), recognizer.search

    def searching(*args: Any) -> Any:
        if next(calls) >= 6:
            assert gone.wait(60)
        return search(*args)

    monkeypatch.setattr(recognizer, "search", searching)
    answers = reader.read_all(BITMAPS)
    next(answers)
    answers.close()
    gone.set()
    assert reader.recognize(BITMAPS[0]).tokens  # the threads are free again
    assert next(calls) < len(BITMAPS)


@pytest.mark.parametrize("mode", ["l2r", "r2l", "joint"])
def test_answers_are_judged_at_several_sizes(tiny_model: Path, mode: Mode) -> None:
    """What is found at the usual size gets the mean of what each branch thinks of it at each size."""
    reader = load(tiny_model, threads=2, decode=mode, beam=4, views=3)
    backend, decode = reader.backend, reader.decode
    for bitmap in BITMAPS[:6]:
        (judged,) = reader.read([bitmap])
        found = [reader.read([bitmap], Decode(d.value, replace(decode.search, nbest=4)))[0] for d in decode.directions]
        assert {h.tokens for h in judged} <= {h.tokens for some in found for h in some}
        for hypothesis in judged:
            said = [
                rescore(encoded.stepper(direction, 1), np.array([0]), [hypothesis.tokens])[0].sum()
                for encoded in (backend.encode([scale_bitmap(bitmap, backend.input_scale * view)]) for view in VIEWS)
                for direction in decode.directions
            ]
            assert np.ptp(said) > 0  # the sizes do matter
            assert hypothesis.logprob == pytest.approx(float(np.mean(said)), rel=1e-3)
        assert [h.score for h in judged] == sorted((h.score for h in judged), reverse=True)


def test_a_picture_is_not_looked_at_more_often_than_there_are_sizes(tiny_model: Path) -> None:
    with pytest.raises(ValueError, match="1 to 3 times"):
        load(tiny_model, views=4)


def test_many_is_lazy(reader: Recognizer) -> None:
    drawn = 0

    def endless():  # type: ignore[no-untyped-def]
        nonlocal drawn
        while True:
            drawn += 1
            yield BITMAPS[0]

    assert next(iter(reader.recognize_many(endless()))).tokens
    assert drawn < 200


def test_threads_share_a_recogniser(reader: Recognizer) -> None:
    alone = [reader.recognize(bitmap) for bitmap in BITMAPS[:12]]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(reader.recognize, BITMAPS[:12] * 3))
    for one, many in zip(alone * 3, together, strict=True):
        same(one, many)


def test_every_kind_of_input_is_the_same_picture(reader: Recognizer, tmp_path: Path) -> None:
    sample, bitmap = SAMPLES[6], BITMAPS[6]
    assert sample.strokes is not None
    image = Image.fromarray(bitmap)
    path = tmp_path / "x.png"
    image.save(path)
    expected = reader.recognize(bitmap)
    for source in (path, str(path), path.read_bytes(), image, bitmap):
        same(reader.recognize(source), expected)
    ink = Ink(sample.strokes)
    (tmp_path / "x.inkml").write_bytes(write_inkml(ink))
    drawn = reader.recognize(ink)
    for strokes in (list(sample.strokes), write_inkml(ink), tmp_path / "x.inkml"):
        assert reader.recognize(strokes).tokens == drawn.tokens


def test_boxes_of_ink_are_in_its_own_units(reader: Recognizer) -> None:
    strokes = SAMPLES[6].strokes
    assert strokes is not None
    # Official pixels times ten, far away: the picture is the same, only the coordinates differ.
    moved = tuple((stroke * 10 + 5000).astype(np.float32) for stroke in strokes)
    result = reader.recognize(list(moved))
    points = np.concatenate(moved)
    low, high = points.min(0) - 30, points.max(0) + 30
    boxes = [box for box in result.boxes if box is not None]
    assert boxes
    for left, top, right, bottom in boxes:
        assert low[0] <= left < right <= high[0]
        assert low[1] <= top < bottom <= high[1]


def test_boxes_hold_the_ink_under_the_attention() -> None:
    bitmap = np.zeros((40, 100), np.uint8)
    bitmap[10:20, 5:15] = 255
    bitmap[12:30, 85:95] = 255
    attention = np.zeros((4, 2, 5), np.float32)
    attention[0, 0, 0] = 1
    attention[1, 0, 4], attention[1, 1, 4] = 0.6, 0.4
    attention[2, 0, 2] = 1  # where nothing is written
    attention[3] = 0.1
    prepared = Prepared(bitmap, (), 2.0, np.array([[0.5, 0, 100], [0, 0.5, 200]]))
    boxes = token_boxes(["x", "y", "z", "{"], attention, prepared, 20.0)
    assert boxes[0] == (102.5, 205, 107.5, 210)
    assert boxes[1] == (142.5, 206, 147.5, 215)
    assert boxes[2] is None
    assert boxes[3] is None  # a brace leaves no ink


def test_answers_are_latex_that_parses_and_probabilities(reader: Recognizer) -> None:
    for result in reader.recognize_many(BITMAPS[:12]):
        grammar = grammar_for(reader.backend.vocabulary, Direction.L2R)
        assert grammar.accepts(result.tokens)
        assert tokenise(result.latex) == list(result.tokens)
        assert 0 <= result.confidence <= 1
        assert len(result.token_probabilities) == len(result.boxes) == len(result.tokens)
        assert all(0 <= p <= 1 for p in result.token_probabilities)
        others = [other.probability for other in result.alternatives]
        assert result.confidence + sum(others) <= 1 + 1e-9
        assert all(other.tokens != result.tokens for other in result.alternatives)
        assert result.timing.total > 0
        assert set(result.to_dict()) >= {"latex", "tokens", "confidence", "alternatives", "boxes", "warnings"}


def test_bad_inputs_are_errors_of_ours(reader: Recognizer, tmp_path: Path) -> None:
    text = tmp_path / "text.png"
    text.write_text("not a picture")
    half = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (200, 200), np.uint8)).save(half, "JPEG")
    bad = [text, tmp_path / "missing.png", half.getvalue()[:500], b"", np.zeros((50, 50), np.uint8), b"<ink></ink>", []]
    for source in bad:
        with pytest.raises((ImageError, InkError)):
            reader.recognize(source)
    answers = list(reader.try_many([BITMAPS[0], text, BITMAPS[1]]))
    assert [isinstance(answer, Ink2TexError) for answer in answers] == [False, True, False]
    assert "text.png" in str(answers[1])
    with pytest.raises(ImageError):
        list(reader.recognize_many([BITMAPS[0], text]))


def test_decoding_that_the_model_cannot_do(tiny_model: Path) -> None:
    with pytest.raises(ValueError, match="'both'"):
        load(tiny_model, decode="both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nbest"):
        load(tiny_model, beam=2, nbest=3)
    assert load(tiny_model, nbest=7).decode.search.beam == 7


def test_the_default_decoding(tiny_model: Path) -> None:
    decode = load(tiny_model).decode
    assert (decode.mode, decode.search.beam, decode.search.grammar) == ("joint", 5, True)


def test_without_weights_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ink2tex.runtime.recognizer.DEFAULT_MODEL", tmp_path)
    with pytest.raises(CheckpointError, match="ink2tex train"):
        load()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=14))
@settings(max_examples=60, deadline=None)
def test_layout_finds_every_hypothesis_again(images: list[int]) -> None:
    layout = _Layout.of(np.array(images))
    names = np.arange(len(images)) + 100
    table = layout.spread(names)
    assert table.shape == (len(set(images)), max(images.count(i) for i in images))
    np.testing.assert_array_equal(layout.gather(table), names)
    for name, image in zip(names, images, strict=True):
        assert image in layout.images[np.argwhere(table == name)[:, 0]]


@given(st.floats(0.05, 2), st.floats(-2, 4), st.floats(0, 2), st.integers(0, 10))
@settings(max_examples=20, deadline=None)
def test_calibration_finds_the_curve_again(slope: float, intercept: float, doubt: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logprobs = -rng.exponential(3, 4000)
    right = rng.random(4000) < [Calibration(slope, intercept, doubt)(value) for value in logprobs]
    found = fit(logprobs, right)
    said = np.array([found(value) for value in logprobs])
    assert calibration_error(said, right) < 0.05
    assert min(found.slope, found.doubt) >= 0


@given(st.lists(st.tuples(st.floats(-60, 0), st.booleans()), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_a_surer_answer_is_never_less_probable(answers: list[tuple[float, bool]]) -> None:
    found = fit(*map(np.array, zip(*answers, strict=True)))
    said = [found(value) for value in (-1e4, -50, -5, -1, -0.1, -1e-3, 0, 1e-9)]
    assert said == sorted(said)
    assert 0 <= said[0] <= said[-1] <= 1


def test_calibration_of_answers_that_are_all_right_or_separate() -> None:
    assert fit(np.array([-1.0, -2, -3]), np.array([True, True, True]))(-2) > 0.6
    line = fit_with_error(np.r_[np.full(50, -1.0), np.full(50, -9.0)], np.r_[np.ones(50), np.zeros(50)] > 0)
    assert math.isfinite(line.slope)
    assert line(-1) > 0.9
    assert line(-9) < 0.1
    assert line.error < 0.1
    with pytest.raises(ValueError, match="answers"):
        fit(np.zeros(0), np.zeros(0))


def test_an_overconfident_score_is_off_by_what_it_exaggerates() -> None:
    assert calibration_error(np.full(10, 0.95), np.r_[np.ones(5), np.zeros(5)]) == pytest.approx(0.45)

"""The drawn examples: files, labels and the hand that draws them belong together."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from ink2tex.data.alignment import align
from ink2tex.data.readers import read_captions, sample_from_ink
from ink2tex.ink import Ink, read_inkml, write_inkml
from ink2tex.latex import normalise, truth_tokens
from ink2tex.latex.grammar import grammar_for
from ink2tex.latex.inked import ink_classes
from ink2tex.raster import official_scale
from ink2tex.vocabulary import Direction, Vocabulary

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))

import demo  # noqa: E402
import draw  # noqa: E402
import glyphs  # noqa: E402

LABELS = read_captions(EXAMPLES / "labels.tsv")
DRAWN = {name: draw.ink_of(draw.write(label, seed, name)) for name, seed, label in draw.EXAMPLES}
every_example = pytest.mark.parametrize("name", LABELS)


def ink_of(name: str) -> Ink:
    return read_inkml(EXAMPLES / f"{name}.inkml")


def picture_of(name: str) -> np.ndarray:
    with Image.open(EXAMPLES / f"{name}.png") as picture:
        return np.array(picture.convert("L"))


def test_each_label_has_its_two_files() -> None:
    assert len(LABELS) == 12
    for suffix in (".inkml", ".png"):
        assert {path.stem for path in EXAMPLES.glob(f"*{suffix}")} == set(LABELS)


@every_example
def test_truth_is_the_label(name: str) -> None:
    ink = ink_of(name)
    assert ink.truth is not None
    assert normalise(ink.truth) == truth_tokens(ink) == LABELS[name]


@every_example
def test_label_is_one_that_can_be_read(name: str) -> None:
    vocabulary = Vocabulary()
    vocabulary.encode(LABELS[name], name)
    for direction in Direction:
        assert grammar_for(vocabulary, direction).accepts(LABELS[name])


@every_example
def test_each_token_finds_the_strokes_that_wrote_it(name: str) -> None:
    """Without MathML the place alone tells equal symbols apart; the hand knows what it wrote."""
    label, seed = next((label, seed) for known, seed, label in draw.EXAMPLES if known == name)
    found = align(LABELS[name], ink_of(name))
    assert [bool(strokes) for strokes in found] == [c is not None for c in ink_classes(LABELS[name])]
    assert found == draw.write(label, seed).token_strokes


@every_example
def test_picture_shows_the_ink(name: str) -> None:
    ink, dark = draw.picture_of(ink_of(name)) < 128, picture_of(name) < 128
    assert ink.shape == dark.shape
    assert (ink & dark).sum() > 0.99 * (ink | dark).sum()
    assert 0.005 < dark.mean() < 0.2


@every_example
def test_size_is_that_of_official_ink(name: str) -> None:
    """A tenth of a pixel is the unit, and official scaling finds that out."""
    assert official_scale(ink_of(name).strokes) == pytest.approx(0.1, rel=0.02)
    sample = sample_from_ink(ink_of(name), LABELS[name])
    assert sample.strokes is not None
    width, height = np.ptp(np.concatenate(sample.strokes), axis=0)
    assert 60 < width < 700
    assert 25 < height < 250


@every_example
def test_files_are_as_drawn(name: str) -> None:
    """To the last digit; where another processor rounds otherwise, a digit may differ by one."""
    kept, drawn = ink_of(name), DRAWN[name]
    if (EXAMPLES / f"{name}.inkml").read_bytes() == write_inkml(drawn):
        return
    assert kept.truth == drawn.truth
    assert [(s.label, s.strokes) for s in kept.symbols] == [(s.label, s.strokes) for s in drawn.symbols]
    for ours, theirs in zip(kept.strokes, drawn.strokes, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1.01, err_msg="run 'python examples/draw.py' again")


def test_labels_are_those_of_the_hand() -> None:
    assert {name: label.split() for name, _, label in draw.EXAMPLES} == LABELS


def test_another_seed_is_another_drawing() -> None:
    one, again, other = (draw.write("x ^ { 2 }", seed) for seed in (1, 1, 2))
    assert one.strokes is not None
    assert again.strokes is not None
    assert other.strokes is not None
    assert all(map(np.array_equal, one.strokes, again.strokes))
    assert not all(a.shape == b.shape and np.allclose(a, b) for a, b in zip(one.strokes, other.strokes, strict=False))


@pytest.mark.parametrize(("token", "way"), [(token, way) for token, ways in glyphs.WAYS.items() for way in ways])
def test_strokes_pass_through_their_points(token: str, way: str) -> None:
    strokes = glyphs.strokes_of(way, np.random.default_rng(0), tremor=0.0)
    assert token in Vocabulary()
    assert len(strokes) == way.count(";") + 1
    for path, stroke in zip(way.split(";"), strokes, strict=True):
        assert np.isfinite(stroke).all()
        for word in path.split():
            point = np.array([float(v) for v in word.rstrip("!").split(",")])
            assert np.linalg.norm(stroke - point, axis=1).min() < 1e-9


def test_a_label_out_of_form_is_refused() -> None:
    with pytest.raises(ValueError, match="not a label"):
        draw.write("x ^ 2", 1)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Console:
    """Where the demo writes."""
    screen = Console(record=True, width=160, file=io.StringIO())
    monkeypatch.setattr(demo, "console", screen)
    return screen


def test_demo_reads_the_examples_with_shipped_weights(screen: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    def recognize(path: Path) -> SimpleNamespace:
        tokens = tuple("xyz") if path.name == "mean.png" else tuple(LABELS[path.stem])
        return SimpleNamespace(tokens=tokens, confidence=0.9)

    monkeypatch.setattr("ink2tex.load", lambda: SimpleNamespace(recognize=recognize), raising=False)
    demo.read_examples()
    text = screen.export_text()
    assert "11 of 12" in text
    assert "12 of 12" in text
    assert text.count("✗") == 1
    assert text.count("90%") == 24


def test_demo_trains_without_weights(screen: Console) -> None:
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    try:
        demo.train_and_read(drawings=24, unseen=3, steps=20)
    finally:
        torch.set_num_threads(threads)
    assert "of 3 read without a mistake" in screen.export_text()


def test_labels_of_the_demo_can_be_drawn_and_read() -> None:
    rng = np.random.default_rng(0)
    grammar = grammar_for(Vocabulary(), Direction.L2R)
    for seed in range(50):
        label = demo.some_label(rng)
        assert grammar.accepts(label.split())
        assert draw.write(label, seed).tokens == tuple(label.split())

"""Reading and writing InkML."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ink2tex import ink as ink_module
from ink2tex.errors import InkError
from ink2tex.ink import Ink, Symbol, ink_from_points, read_inkml, write_inkml

CROHME = rb"""<ink xmlns="http://www.w3.org/2003/InkML">
<traceFormat><channel name="X" type="decimal"/><channel name="Y" type="decimal"/></traceFormat>
<annotation type="UI">2011_IVC_F001_E001</annotation>
<annotation type="writer">somebody</annotation>
<annotation type="truth">$x^2$</annotation>
<annotationXML type="truth" encoding="Content-MathML">
  <math xmlns='http://www.w3.org/1998/Math/MathML'>
    <msup><mi xml:id="x_1">x</mi><mn xml:id="2_1">2</mn></msup>
  </math>
</annotationXML>
<trace id="10">1 2, 3.5 4, -5e-1 6</trace>
<trace id="11">
7 8
</trace>
<trace id="12">9 9, 10 10</trace>
<traceGroup xml:id="20">
  <annotation type="truth">Segmentation</annotation>
  <traceGroup xml:id="21">
    <annotation type="truth">x</annotation>
    <traceView traceDataRef="12"/><traceView traceDataRef="10"/>
    <annotationXML href="x_1"/>
  </traceGroup>
  <traceGroup xml:id="22"><annotation type="truth">2</annotation><traceView traceDataRef="11"/></traceGroup>
</traceGroup>
</ink>"""

MATHWRITING = b"""<ink xmlns="http://www.w3.org/2003/InkML">
<annotation type="label">\\frac12</annotation>
<annotation type="normalizedLabel">\\frac{1}{2}</annotation>
<annotation type="splitTagOriginal">train</annotation>
<annotation type="sampleId">000aa4c4</annotation>
<annotation type="inkCreationMethod">human</annotation>
<traceFormat><channel name="X"/><channel name="Y"/><channel name="T"/></traceFormat>
<trace id="0">64.28 132.48 0.0,64.28 131.9 16.0</trace>
</ink>"""


def ink_of(body: str) -> Ink:
    return read_inkml(f"<ink>{body}</ink>".encode())


def points(body: str) -> list[list[list[float]]]:
    return [stroke.tolist() for stroke in ink_of(body).strokes]


def test_reads_a_crohme_file() -> None:
    ink = read_inkml(CROHME, name="TrainINKML/HAMEX/formulaire001-equation001.inkml")
    assert ink.uid == "formulaire001-equation001"
    assert [s.tolist() for s in ink.strokes] == [[[1, 2], [3.5, 4], [-0.5, 6]], [[7, 8]], [[9, 9], [10, 10]]]
    assert all(s.dtype == np.float32 for s in ink.strokes)
    assert ink.truth == "$x^2$"
    assert dict(ink.annotations) == {"UI": "2011_IVC_F001_E001", "writer": "somebody"}
    assert [(s.label, s.strokes, s.ref) for s in ink.symbols] == [("x", (2, 0), "x_1"), ("2", (1,), None)]
    assert ink.mathml is not None
    assert ink.mathml.startswith('<math xmlns="http://www.w3.org/1998/Math/MathML"')
    assert '<mi xml:id="x_1">x</mi>' in ink.mathml


def test_reads_a_mathwriting_file() -> None:
    ink = read_inkml(MATHWRITING)
    assert ink.truth == r"\frac{1}{2}"
    assert ink.annotations["splitTagOriginal"] == "train"
    np.testing.assert_allclose(ink.strokes[0], [[64.28, 132.48], [64.28, 131.9]], rtol=1e-6)
    only_label = MATHWRITING.replace(b"normalizedLabel", b"other")
    assert read_inkml(only_label).truth == r"\frac12"


def test_sources_and_names(tmp_path: Path) -> None:
    file = tmp_path / "some.uid.inkml"
    file.write_bytes(CROHME)
    assert read_inkml(file).uid == read_inkml(str(file)).uid == "some.uid"
    with file.open("rb") as stream:
        assert read_inkml(stream).uid == "some.uid"
    assert read_inkml(io.BytesIO(CROHME)).uid == "2011_IVC_F001_E001"
    assert read_inkml(CROHME.replace(b"2011_IVC_F001_E001", b'"x.ink"')).uid == "x.ink"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<trace>1 2, 3 4</trace>", [[[1, 2], [3, 4]]]),
        ("<trace>1 2,3 4,</trace>", [[[1, 2], [3, 4]]]),
        ("<trace>1\t2\n,\n3 4</trace>", [[[1, 2], [3, 4]]]),
        ("<trace>1 2; 3 4</trace>", [[[1, 2], [3, 4]]]),
        ("<trace>1,2 3,4\n5,6</trace>", [[[1, 2], [3, 4], [5, 6]]]),
        ("<trace>1 2 16828, 3 4 17156</trace>", [[[1, 2], [3, 4]]]),
        ("<trace>1 2 .5 7 8, 3 4 .5 7 8</trace>", [[[1, 2], [3, 4]]]),
        ("<trace>-1.5e1 +2.</trace>", [[[-15, 2]]]),
        ("<trace id='a'/><trace id='b'>1 2</trace>", [[[1, 2]]]),
        ("<trace type='penUp'>1 2, 3 4</trace><trace>5 6</trace>", [[[5, 6]]]),
        (
            "<traceFormat><channel name='T'/><channel name='Y'/><channel name='X'/></traceFormat><trace>0 1 2</trace>",
            [[[2, 1]]],
        ),
        ("<traceGroup><trace>1 2</trace></traceGroup>", [[[1, 2]]]),
    ],
)
def test_point_dialects(body: str, expected: list[list[list[float]]]) -> None:
    assert points(body) == expected


def test_symbol_dialects() -> None:
    traces = "<trace xml:id='s0'>1 2</trace><trace xml:id='s1'>3 4</trace>"
    group = "<traceGroup><annotation type='truth'>{}</annotation>{}</traceGroup>"
    nested = group.format("all", group.format("part", group.format("x", "<traceView traceDataRef='#s1'/>")))
    assert [(s.label, s.strokes) for s in ink_of(traces + nested).symbols] == [("x", (1,))]
    dangling = group.format("y", "<traceView traceDataRef='s0'/><traceView traceDataRef='nowhere'/>")
    assert [(s.label, s.strokes) for s in ink_of(traces + dangling).symbols] == [("y", (0,))]


def test_misspelt_annotation_type_is_understood() -> None:
    assert ink_of("<annotation typx='truth'>$a$</annotation><trace>1 2</trace>").truth == "$a$"


def test_latin_1_where_utf_8_was_meant() -> None:
    body = b"<ink><annotation type='truth'>a\xb7b</annotation><trace>1 2</trace></ink>"
    assert read_inkml(body).truth == "a·b"


BOMB = b"""<!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">]>
<ink><annotation type="truth">&lol2;</annotation><trace>1 2</trace></ink>"""
EXTERNAL = b"""<!DOCTYPE ink [<!ENTITY passwd SYSTEM "file:///etc/passwd">]>
<ink><annotation type="truth">&passwd;</annotation><trace>1 2</trace></ink>"""


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "empty"),
        (b" \n ", "empty"),
        (b"<ink>", "not well-formed"),
        (b"\x00\x01\x02", "not well-formed"),
        (b"PK\x03\x04", "not well-formed"),
        (b"<svg/>", "not InkML"),
        (b"<ink/>", "no strokes"),
        (b"<ink><trace></trace></ink>", "no strokes"),
        (b"<ink><trace>1 nan</trace></ink>", "NaN"),
        (b"<ink><trace>inf 1</trace></ink>", "infinite"),
        (b"<ink><trace>1e300 1</trace></ink>", "beyond"),
        (b"<ink><trace>1 x</trace></ink>", "not a number"),
        (b"<ink><trace>1 2, 3</trace></ink>", "point 1 has 1 value"),
        (b"<ink><trace>1 2,, 3 4</trace></ink>", "point 1 has 0 value"),
        (b"<ink><trace id='1'>1 2</trace><trace id='1'>1 2</trace></ink>", "two traces"),
        (b"<ink><traceFormat><channel name='Q'/></traceFormat><trace>1 2</trace></ink>", "no channels X and Y"),
        (BOMB, "DTD or entities"),
        (EXTERNAL, "DTD or entities"),
        (b"<!DOCTYPE ink><ink><trace>1 2</trace></ink>", "DTD or entities"),
        (b"<ink>" + b"<a>" * 1000 + b"</a>" * 1000 + b"</ink>", "deep"),
        (b"<?xml version='1.0' encoding='klingon'?><ink/>", "not well-formed"),
    ],
)
def test_bad_files_are_named_and_explained(data: bytes, what: str) -> None:
    with pytest.raises(InkError, match=what) as caught:
        read_inkml(data, name="folder/bad.inkml")
    assert str(caught.value).startswith("folder/bad.inkml: ")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InkError, match=r"gone\.inkml: cannot be read"):
        read_inkml(tmp_path / "gone.inkml")
    with pytest.raises(InkError, match="cannot be read"):
        read_inkml(tmp_path)


@pytest.mark.parametrize(("limit", "value"), [("MAX_BYTES", 50), ("MAX_STROKES", 1), ("MAX_POINTS", 2)])
def test_limits(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    data = b"<ink><trace>1 2, 3 4</trace><trace>5 6</trace></ink>"
    assert len(read_inkml(data).strokes) == 2
    monkeypatch.setattr(ink_module, limit, value)
    with pytest.raises(InkError):
        read_inkml(data)


def test_ink_checks_itself() -> None:
    with pytest.raises(ValueError, match="shape"):
        Ink((np.zeros((3, 3), np.float32),))
    with pytest.raises(ValueError, match="do not exist"):
        Ink((np.zeros((3, 2), np.float32),), symbols=(Symbol("x", (1,)),))


def test_ink_from_points() -> None:
    ink = ink_from_points([[[1, 2], [3, 4, 99]], [], [[5, 6]]], uid="canvas")
    assert [s.tolist() for s in ink.strokes] == [[[1, 2], [3, 4]], [[5, 6]]]
    for bad in ([], [[]], [[[1]]], [[["a", "b"]]], [[None]], [[[1, float("nan")]]], [5], [{"x": 1}]):
        with pytest.raises(InkError):
            ink_from_points(bad)  # type: ignore[arg-type]


# What XML keeps as it is: printable, without white space at the ends.
words = st.text(st.characters(blacklist_categories=["Cs", "Cc", "Cn", "Co"]), max_size=12).map(str.strip).filter(bool)
coordinates = st.floats(-1e9, 1e9, width=32)
strokes = st.lists(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 5), st.just(2)), elements=coordinates), min_size=1, max_size=4
)


@st.composite
def inks(draw: st.DrawFn) -> Ink:
    drawn = draw(strokes)
    indices = st.lists(st.integers(0, len(drawn) - 1), min_size=1, unique=True).map(tuple)
    refs = st.none() | words.filter(lambda text: not text.startswith("#"))
    symbols = draw(st.lists(st.builds(Symbol, words, indices, refs), max_size=4))
    keys = words.filter(lambda key: key not in ("truth", "normalizedLabel", "label", "UI"))
    annotations = draw(st.dictionaries(keys, words, max_size=3))
    uid = draw(words.filter(lambda text: not text.startswith('"') and not text.endswith('"')))
    mathml = draw(st.sampled_from([None, read_inkml(CROHME).mathml]))
    return Ink(tuple(drawn), uid, draw(st.none() | words), mathml, tuple(symbols), annotations)


@given(inks())
def test_writing_and_reading_gives_the_same_ink(ink: Ink) -> None:
    again = read_inkml(write_inkml(ink))
    assert [s.tolist() for s in again.strokes] == [s.tolist() for s in ink.strokes]
    assert (again.uid, again.truth, again.mathml) == (ink.uid, ink.truth, ink.mathml)
    assert dict(again.annotations) == {**ink.annotations, "UI": ink.uid}
    assert [vars(s) for s in again.symbols] == [vars(s) for s in ink.symbols]


def test_writing_refuses_what_xml_cannot_hold() -> None:
    stroke = np.zeros((1, 2), np.float32)
    with pytest.raises(InkError, match="cannot hold"):
        write_inkml(Ink((stroke,), truth="a\x00b"))
    with pytest.raises(InkError, match="cannot hold"):
        write_inkml(Ink((stroke * np.nan,)))
    with pytest.raises(InkError, match="not well-formed"):
        write_inkml(Ink((stroke,), mathml="<math>"))


def test_reads_all_of_crohme(train_inks: list[Ink]) -> None:
    assert len(train_inks) == 8835
    assert sum(len(ink.strokes) for ink in train_inks) == 121_329
    assert all(ink.truth and ink.mathml and ink.symbols for ink in train_inks)


def test_real_ink_survives_writing(train_inks: list[Ink]) -> None:
    for ink in train_inks[::200]:
        again = read_inkml(write_inkml(ink), name=f"{ink.uid}.inkml")
        assert all(np.array_equal(a, b) for a, b in zip(again.strokes, ink.strokes, strict=True))
        assert (again.uid, again.truth, again.mathml) == (ink.uid, ink.truth, ink.mathml)
        assert [vars(s) for s in again.symbols] == [vars(s) for s in ink.symbols]
        assert again.annotations == ink.annotations

"""Pen strokes: reading and writing InkML.

One reader serves the dialects of CROHME 2011–2019 (with or without namespaces, nested `traceGroup`s, two to
many channels per point) and of MathWriting. What the rest of the house sees is `Ink`: strokes as arrays, the
truth as it stands in the file, and which strokes make up which symbol.

A file from outside is never trusted: DTDs, entities and external references are refused, sizes are limited,
and whatever is wrong comes out as one `InkError` that names the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final, TypeAlias
from xml.etree.ElementTree import Element, ParseError, SubElement, indent, tostring

import numpy as np
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ink2tex.errors import InkError

#: (N, 2) float32, x to the right and y down.
Stroke: TypeAlias = np.ndarray

#: The largest real file is a few hundred kB; a page full of strokes stays far below these.
MAX_BYTES: Final = 20_000_000
MAX_STROKES: Final = 10_000
MAX_POINTS: Final = 1_000_000
MAX_COORDINATE: Final = 1e9
MAX_DEPTH: Final = 400

_XML_ID: Final = "{http://www.w3.org/XML/1998/namespace}id"
_MATHML_NS: Final = "http://www.w3.org/1998/Math/MathML"
_INKML_NS: Final = "http://www.w3.org/2003/InkML"
#: Where the truth stands, best first: CROHME, then the two labels of MathWriting.
_TRUTHS: Final = ("truth", "normalizedLabel", "label")
#: Characters that XML 1.0 cannot hold, not even escaped.
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, eq=False)
class Symbol:
    """One written symbol: its label, the strokes that make it up, the MathML element that it stands for."""

    label: str
    #: Indices into `Ink.strokes`.
    strokes: tuple[int, ...]
    #: The `xml:id` in the MathML, if the file names one.
    ref: str | None = None


@dataclass(frozen=True, eq=False)
class Ink:
    """A written expression."""

    strokes: tuple[Stroke, ...]
    uid: str = ""
    #: The LaTeX annotation as it stands in the file.
    truth: str | None = None
    #: The `<math>` element, serialised without namespace prefixes.
    mathml: str | None = None
    symbols: tuple[Symbol, ...] = ()
    #: The other annotations of the file (`UI`, `writer`, `age`, …).
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        for i, stroke in enumerate(self.strokes):
            if stroke.ndim != 2 or stroke.shape[1] != 2 or not len(stroke):
                raise ValueError(f"{self.uid}: stroke {i} has the shape {stroke.shape}, not (N, 2)")
        for symbol in self.symbols:
            if not all(0 <= i < len(self.strokes) for i in symbol.strokes):
                raise ValueError(f"{self.uid}: symbol {symbol.label!r} names strokes that do not exist")


def ink_from_points(strokes: Iterable[Iterable[Sequence[float]]], uid: str = "") -> Ink:
    """Ink of plain lists of points (a drawing canvas, JSON); values beyond x and y are ignored.

    Raises `InkError` for what a careless client may send: no strokes, points that are not numbers, too many.
    """
    name = uid or "the drawing"
    try:
        arrays = [np.array([(float(p[0]), float(p[1])) for p in stroke], dtype=np.float64) for stroke in strokes]
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        raise InkError(f"{name}: a stroke is a list of points [x, y] of two numbers each") from None
    return Ink(_checked([a for a in arrays if len(a)], name), uid=uid)


def read_inkml(source: str | Path | bytes | BinaryIO, name: str | None = None) -> Ink:
    """The ink of an InkML file, given as a path, as its bytes or as an open binary file.

    `name` (or the path) names the ink: its stem becomes the `uid` and errors begin with it. Without either,
    the `UI` annotation is the `uid`.
    """
    data, name = _load(source, name)
    shown = name or "InkML data"
    root = parse_xml(data, shown)
    if root.tag != "ink":
        raise InkError(f"{shown}: not InkML (the outermost element is <{root.tag}>, <ink> is expected)")

    strokes: list[np.ndarray] = []
    index: dict[str, int] = {}
    x, y = _channels(root, shown)
    for position, trace in enumerate(root.iter("trace")):
        key = (trace.get(_XML_ID) or trace.get("id") or str(position)).strip()
        text = (trace.text or "").strip()
        if not text or trace.get("type") == "penUp":
            continue  # nothing was written
        if index.setdefault(key, len(strokes)) != len(strokes):
            raise InkError(f"{shown}: two traces have the id {key!r}; give each trace an id of its own")
        strokes.append(_points(text, x, y, f"{shown}: trace {key!r}"))

    annotations = _annotations(root)
    uid = Path(name).stem if name else annotations.get("UI", "").strip('"')
    truth = next((annotations[kind] for kind in _TRUTHS if annotations.get(kind)), None)
    annotations.pop("truth", None)
    return Ink(
        strokes=_checked(strokes, shown),
        uid=uid,
        truth=truth,
        mathml=_mathml(root),
        symbols=tuple(_symbols(root, index)),
        annotations=MappingProxyType(annotations),
    )


def write_inkml(ink: Ink) -> bytes:
    """`ink` as an InkML file in the CROHME dialect.

    `read_inkml` gives the same ink back, to the last bit of a coordinate. The `uid` is kept as the `UI`
    annotation unless the ink has one already.
    """
    root = Element("ink", {"xmlns": _INKML_NS})
    trace_format = SubElement(root, "traceFormat")
    for channel in "XY":
        SubElement(trace_format, "channel", {"name": channel, "type": "decimal"})
    annotations = dict(ink.annotations)
    if ink.uid:
        annotations.setdefault("UI", ink.uid)
    if ink.truth is not None:
        annotations["truth"] = ink.truth
    for kind, text in annotations.items():
        _annotate(root, _writable(kind, ink), _writable(text, ink))
    if ink.mathml is not None:
        holder = SubElement(root, "annotationXML", {"type": "truth", "encoding": "Content-MathML"})
        math_element = parse_xml(ink.mathml, f"{ink.uid or 'ink'}: its MathML")
        math_element.set("xmlns", _MATHML_NS)
        holder.append(math_element)
    for i, stroke in enumerate(ink.strokes):
        trace = SubElement(root, "trace", {"id": str(i)})
        trace.text = ", ".join(f"{_number(x)} {_number(y)}" for x, y in stroke)
    if ink.symbols:
        # Ids of groups count on after the ids of the traces, as in the files of CROHME.
        ids = iter(range(len(ink.strokes), len(ink.strokes) + len(ink.symbols) + 1))
        outer = SubElement(root, "traceGroup", {"xml:id": str(next(ids))})
        _annotate(outer, "truth", "Segmentation")
        for symbol in ink.symbols:
            group = SubElement(outer, "traceGroup", {"xml:id": str(next(ids))})
            _annotate(group, "truth", _writable(symbol.label, ink))
            for i in symbol.strokes:
                SubElement(group, "traceView", {"traceDataRef": str(i)})
            if symbol.ref is not None:
                SubElement(group, "annotationXML", {"href": _writable(symbol.ref, ink)})
    for child in root:
        if child.tag == "traceGroup":
            indent(child, level=1)
        child.tail = "\n"
    root.text = "\n"
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="utf-8", xml_declaration=False)


def _load(source: str | Path | bytes | BinaryIO, name: str | None) -> tuple[bytes, str | None]:
    """The bytes of `source` and its name."""
    if isinstance(source, bytes):
        data = source
    elif isinstance(source, str | Path):
        name = name or str(source)
        try:
            with open(source, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise InkError(f"{name}: cannot be read ({error.strerror or error})") from None
        except ValueError:
            raise InkError(f"{name!r}: not a path of a file") from None
    else:
        own_name = getattr(source, "name", None)
        name = name or (own_name if isinstance(own_name, str) else None)
        data = source.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InkError(f"{name or 'InkML data'}: larger than the {MAX_BYTES // 1_000_000} MB that one file may have")
    return data, name


def parse_xml(source: str | bytes, shown: str) -> Element:
    """The root element of XML from outside, with namespaces dropped from the tags; errors begin with `shown`.

    The one door for XML in the house: DTDs, entities and external references are refused here, and so is a
    depth that would exhaust the stack of whoever walks the tree.
    """
    data = source.encode() if isinstance(source, str) else source
    if not data.strip():
        raise InkError(f"{shown}: the file is empty")
    try:
        root: Element = fromstring(_decoded(data), forbid_dtd=True)
    except DefusedXmlException:
        raise InkError(f"{shown}: refused, because it holds a DTD or entities; InkML needs neither") from None
    except (ParseError, UnicodeError, LookupError, ValueError) as error:
        raise InkError(f"{shown}: not well-formed XML ({error})") from None
    level = [root]
    for _ in range(MAX_DEPTH):
        for element in level:
            element.tag = str(element.tag).rpartition("}")[2]
        level = [child for element in level for child in element]
        if not level:
            return root
    raise InkError(f"{shown}: elements are nested more than {MAX_DEPTH} deep")


def _decoded(data: bytes) -> bytes | str:
    """`data` itself, or decoded as Latin-1 if it claims to be UTF-8 and is not (as one file of MfrDB)."""
    if b"encoding=" in data[:100] or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")
    return data


def _channels(root: Element, shown: str) -> tuple[int, int]:
    """Which of the values of a point are x and y."""
    names = [(c.get("name") or "").upper() for form in root.iter("traceFormat") for c in form.iter("channel")]
    if not names:
        return 0, 1
    if "X" not in names or "Y" not in names:
        raise InkError(f"{shown}: the traceFormat has no channels X and Y (it has {', '.join(names)})")
    return names.index("X"), names.index("Y")


def _points(text: str, x: int, y: int, where: str) -> np.ndarray:
    """(N, 2) float64 of the text of a trace: points between commas (or semicolons), values between spaces.

    Writers that have it the other way round (`1,2 3,4`) are understood too.
    """
    text = text.replace(";", ",").strip(" \t\r\n,")
    if re.fullmatch(r"[^\s,]+(?:,[^\s,]+)+(?:\s+[^\s,]+(?:,[^\s,]+)+)*", text):
        text = text.translate(str.maketrans(", \t\n\r", " ,,,,"))
        text = re.sub(",+", ",", text)
    rows = [point.split() for point in text.split(",")]
    try:
        points = np.array([(float(row[x]), float(row[y])) for row in rows], dtype=np.float64)
    except IndexError:
        needed = max(x, y) + 1
        i, row = next((i, row) for i, row in enumerate(rows) if len(row) < needed)
        raise InkError(f"{where}: point {i} has {len(row)} value(s), at least {needed} are needed") from None
    except ValueError as error:
        raise InkError(f"{where}: a coordinate is not a number ({error})") from None
    return points


def _checked(strokes: list[np.ndarray], shown: str) -> tuple[Stroke, ...]:
    """The strokes as float32, after the checks that all ink has to pass."""
    if not strokes:
        raise InkError(f"{shown}: holds no strokes, so there is nothing to read")
    if len(strokes) > MAX_STROKES:
        raise InkError(f"{shown}: {len(strokes)} strokes; one expression may have {MAX_STROKES}")
    if (total := sum(map(len, strokes))) > MAX_POINTS:
        raise InkError(f"{shown}: {total} points; one expression may have {MAX_POINTS}")
    for i, stroke in enumerate(strokes):
        # Written so that NaN, which compares false with everything, fails too.
        if not (np.abs(stroke) <= MAX_COORDINATE).all():
            raise InkError(f"{shown}: stroke {i} has a coordinate that is NaN, infinite or beyond {MAX_COORDINATE:g}")
    return tuple(stroke.astype(np.float32) for stroke in strokes)


def _annotations(element: Element) -> dict[str, str]:
    """The annotations directly below `element`. A few files misspell the name `type`; its value counts."""
    found: dict[str, str] = {}
    for child in element.findall("annotation"):
        kind = child.get("type") or next(iter(child.attrib.values()), "")
        found.setdefault(kind, (child.text or "").strip())
    return found


def _symbols(root: Element, index: Mapping[str, int]) -> Iterator[Symbol]:
    """The symbols: every `traceGroup` that holds strokes itself. Groups of groups only hold them together."""
    for group in root.iter("traceGroup"):
        keys = [(view.get("traceDataRef") or "").strip().lstrip("#") for view in group.findall("traceView")]
        keys += [(trace.get(_XML_ID) or trace.get("id") or "").strip() for trace in group.findall("trace")]
        # References to traces that are not there are dropped: such a slip does not spoil the ink.
        strokes = tuple(dict.fromkeys(index[key] for key in keys if key in index))
        label = next((text for text in _annotations(group).values() if text), "")
        if strokes and label:
            link = group.find("annotationXML")
            ref = link.get("href") if link is not None else None
            yield Symbol(label, strokes, ref.lstrip("#") if ref and len(ref) > 1 else ref)


def _mathml(root: Element) -> str | None:
    """The first `<math>` of the file, in MathML's own namespace whatever the file says."""
    math_element = next(root.iter("math"), None)
    if math_element is None:
        return None
    math_element.tail = None
    math_element.set("xmlns", _MATHML_NS)
    return tostring(math_element, encoding="unicode")


def _annotate(parent: Element, kind: str, text: str) -> None:
    SubElement(parent, "annotation", {"type": kind}).text = text


def _writable(text: str, ink: Ink) -> str:
    if bad := _NOT_XML.search(text):
        raise InkError(f"{ink.uid or 'ink'}: {text!r} holds the character {bad[0]!r}, which InkML cannot hold")
    return text


def _number(value: np.floating) -> str:
    """The shortest decimal that reads back as the same float32."""
    if not math.isfinite(value):
        raise InkError(f"a coordinate is {value}, which InkML cannot hold")
    return np.format_float_positional(value, unique=True, trim="-")

"""How good a set of predictions is: ExpRate, ≤1, ≤2 and WER, by length, and at both ends of the expression.

The metrics are those of section 4 of the paper. Every reference counts: one without a prediction, or with an
empty one (the recogniser failed), is wrong at every tolerance and has all its tokens deleted. The denominator
never shrinks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from rapidfuzz.distance import Levenshtein

from ink2tex.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from rich.console import RenderableType

Tokens = Sequence[str]

#: First and last length (in tokens) of each group in the paper's table "Accuracy for different lengths".
LENGTH_GROUPS: Final[tuple[tuple[int, int | None], ...]] = ((1, 10), (11, 20), (21, 30), (31, 40), (41, None))

#: How many tokens at either end are compared in the paper's table of prefixes and suffixes.
EDGES: Final = (2, 5)

#: How the offline CROHME bitmaps extend the uid of an expression.
_BITMAP_SUFFIX: Final = "_0"


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


@dataclass(frozen=True)
class Tally:
    """Counts over a set of expressions, and the rates (in percent) that follow from them."""

    total: int
    exact: int
    within1: int
    within2: int
    #: Sum of the token edit distances.
    errors: int
    #: Sum of the lengths of the references.
    tokens: int

    @property
    def exprate(self) -> float:
        """Expressions read without any error, in percent."""
        return _percent(self.exact, self.total)

    @property
    def le1(self) -> float:
        """Expressions within one token edit, in percent."""
        return _percent(self.within1, self.total)

    @property
    def le2(self) -> float:
        """Expressions within two token edits, in percent."""
        return _percent(self.within2, self.total)

    @property
    def wer(self) -> float:
        """Edits per reference token, in percent; above 100 if much was invented."""
        return _percent(self.errors, self.tokens)

    def to_json(self) -> dict[str, float | int]:
        """Rates and counts as a plain dictionary."""
        return {
            "total": self.total,
            "exprate": self.exprate,
            "le1": self.le1,
            "le2": self.le2,
            "wer": self.wer,
            "exact": self.exact,
            "within1": self.within1,
            "within2": self.within2,
            "errors": self.errors,
            "tokens": self.tokens,
        }


@dataclass(frozen=True)
class Report:
    """The answer of `score`."""

    overall: Tally
    #: By length of the reference: `[1,10]`, …, `[41,inf)`; groups without references are there, with total 0.
    lengths: Mapping[str, Tally]
    #: How many expressions agree at their ends: `prefix-2`, `suffix-2`, `prefix-5`, `suffix-5`.
    edges: Mapping[str, int]
    #: How many expressions have the right structure, whatever the spelling; None if it was not asked for.
    structural: int | None
    #: References without a prediction, or with an empty one.
    missing: tuple[str, ...]
    #: Predictions that belong to no reference; they count for nothing.
    unknown: tuple[str, ...]

    @property
    def total(self) -> int:
        """Number of references."""
        return self.overall.total

    @property
    def exprate(self) -> float:
        """See `Tally.exprate`."""
        return self.overall.exprate

    @property
    def le1(self) -> float:
        """See `Tally.le1`."""
        return self.overall.le1

    @property
    def le2(self) -> float:
        """See `Tally.le2`."""
        return self.overall.le2

    @property
    def wer(self) -> float:
        """See `Tally.wer`."""
        return self.overall.wer

    @property
    def structural_exprate(self) -> float | None:
        """Expressions with the right structure, in percent."""
        return None if self.structural is None else _percent(self.structural, self.total)

    def edge(self, name: str) -> float:
        """One of the rates of `edges`, in percent."""
        return _percent(self.edges[name], self.total)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain dictionaries, lists and numbers."""
        return {
            **self.overall.to_json(),
            "structural_exprate": self.structural_exprate,
            "edges": {name: self.edge(name) for name in self.edges},
            "lengths": {name: tally.to_json() for name, tally in self.lengths.items()},
            "missing": list(self.missing),
            "unknown": list(self.unknown),
        }


def edit_distance(prediction: Tokens, reference: Tokens) -> int:
    """The least number of inserted, deleted and replaced tokens."""
    return int(Levenshtein.distance(*_as_numbers(prediction, reference)))


def score(predictions: Mapping[str, Tokens], references: Mapping[str, Tokens], structural: bool = False) -> Report:
    """Compare predictions with references, by uid.

    Prefix-n (suffix-n) asks whether the first (last) n tokens of the prediction are those of the reference. A
    reference shorter than n is compared whole: the prediction must then equal it, and longer ones are wrong.
    """
    if not references:
        raise DataError("there are no references to score against; give at least one labelled expression")
    rows: list[tuple[int, int, bool]] = []  # length of the reference, distance, whether something was read
    edges: dict[str, int] = {}
    same_structure = 0
    missing: list[str] = []
    for uid, expected in references.items():
        reference = list(expected)
        if not reference:
            raise DataError(f"the reference of {uid!r} is empty; remove it or give it a label")
        prediction = list(predictions.get(uid, ()))
        if not prediction:
            missing.append(uid)
        rows.append((len(reference), edit_distance(prediction, reference), bool(prediction)))
        for n in EDGES:
            for name, part in ((f"prefix-{n}", slice(n)), (f"suffix-{n}", slice(-n, None))):
                edges[name] = edges.get(name, 0) + (prediction[part] == reference[part])
        if structural:
            same_structure += _same_structure(prediction, reference)
    return Report(
        overall=_tally(rows),
        lengths={
            group_name(first, last): _tally(row for row in rows if first <= row[0] and (last is None or row[0] <= last))
            for first, last in LENGTH_GROUPS
        },
        edges=edges,
        structural=same_structure if structural else None,
        missing=tuple(missing),
        unknown=tuple(sorted(set(predictions) - set(references))),
    )


def confusions(predictions: Mapping[str, Tokens], references: Mapping[str, Tokens]) -> list[tuple[str, str, int]]:
    """Which token was read as which, most frequent first: `(reference, prediction, count)`.

    An empty string stands for nothing: `("x", "", 3)` are three x that were left out and `("", "x", 3)` three
    that were invented. Counted along a shortest edit of each pair; references without a prediction confuse
    nothing and are left out.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for uid, reference in references.items():
        prediction = predictions.get(uid, ())
        if not prediction:
            continue
        for op in Levenshtein.editops(*_as_numbers(reference, prediction)):
            expected = "" if op.tag == "insert" else reference[op.src_pos]
            got = "" if op.tag == "delete" else prediction[op.dest_pos]
            counts[expected, got] += 1
    return sorted(((*pair, n) for pair, n in counts.items()), key=lambda row: (-row[2], row[0], row[1]))


def read_predictions(path: str | Path, known: Collection[str] | None = None) -> dict[str, list[str]]:
    """Read predictions, one expression a line.

    A line is `uid tokens…` (tab or spaces between), or a JSON object with `uid` or `path`, and `tokens` or
    `latex`; with `error` in their place it is a failed recognition.

    `path` stands for the uid that its file name holds. When the `known` uids are given, the `_0` that the
    offline bitmaps add to a uid is taken off where that makes it a known one.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot read the predictions ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: predictions are UTF-8 text, but this file is not") from error
    predictions: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        uid, tokens = _json_line(line, where) if line.lstrip().startswith("{") else _plain_line(line)
        if known is not None and uid not in known and uid.removesuffix(_BITMAP_SUFFIX) in known:
            uid = uid.removesuffix(_BITMAP_SUFFIX)
        if uid in predictions:
            raise DataError(f"{where}: {uid!r} was predicted before; keep one line for each expression")
        predictions[uid] = tokens
    return predictions


def render(report: Report) -> RenderableType:
    """The report as a table for the terminal."""
    from rich.console import Group
    from rich.table import Table

    rates = Table(title=f"{report.total} expressions", title_justify="left")
    for heading in ("", "n", "ExpRate", "≤1", "≤2", "WER"):
        rates.add_column(heading, justify="left" if not heading else "right")
    for name, tally in {"all": report.overall, **report.lengths}.items():
        values = (tally.exprate, tally.le1, tally.le2, tally.wer)
        cells = (f"{value:.2f}" if tally.total else "–" for value in values)
        rates.add_row(name, str(tally.total), *cells, end_section=name == "all")
    ends = Table()
    for name in report.edges:
        ends.add_column(name, justify="right")
    ends_row = [f"{report.edge(name):.2f}" for name in report.edges]
    if report.structural_exprate is not None:
        ends.add_column("same structure", justify="right")
        ends_row.append(f"{report.structural_exprate:.2f}")
    ends.add_row(*ends_row)
    notes = []
    if report.missing:
        notes.append(f"{len(report.missing)} without a prediction, counted as wrong: {_some(report.missing)}")
    if report.unknown:
        notes.append(f"{len(report.unknown)} predictions without a reference: {_some(report.unknown)}")
    return Group(rates, ends, *notes)


def _as_numbers(*sequences: Tokens) -> tuple[list[int], ...]:
    """The sequences with equal numbers for equal tokens, so that no comparison rests on hashes."""
    numbers: dict[str, int] = {}
    return tuple([numbers.setdefault(token, len(numbers)) for token in tokens] for tokens in sequences)


def _tally(rows: Iterable[tuple[int, int, bool]]) -> Tally:
    rows = list(rows)
    exact, within1, within2 = (sum(read and distance <= n for _, distance, read in rows) for n in (0, 1, 2))
    errors, tokens = sum(row[1] for row in rows), sum(row[0] for row in rows)
    return Tally(len(rows), exact, within1, within2, errors, tokens)


def group_name(first: int, last: int | None) -> str:
    """How a length group is called in reports."""
    return f"[{first},inf)" if last is None else f"[{first},{last}]"


def _same_structure(prediction: Tokens, reference: Tokens) -> bool:
    from ink2tex.latex.structure import canonical

    return bool(prediction) and canonical(prediction) == canonical(reference)


def _plain_line(line: str) -> tuple[str, list[str]]:
    uid, *tokens = line.split()
    return uid, tokens


def _json_line(line: str, where: str) -> tuple[str, list[str]]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: this is no JSON ({error.msg}); write one object on each line") from error
    uid = record.get("uid") or (record.get("path") and PurePath(str(record["path"])).stem)
    if not uid:
        near = did_you_mean(next(iter(record), ""), ("uid", "path"))
        raise DataError(f"{where}: no 'uid' and no 'path'{near}; name the expression that was read")
    if "tokens" in record:
        tokens = record["tokens"]
        if isinstance(tokens, str):
            tokens = tokens.split()
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise DataError(f"{where}: 'tokens' is a list of words or one string with spaces between them")
        return str(uid), tokens
    if isinstance(record.get("latex"), str):
        return str(uid), _normalised(record["latex"], where)
    if "error" in record:
        return str(uid), []
    raise DataError(f"{where}: no 'tokens', 'latex' or 'error' for {uid!r}; say what was read")


def _normalised(latex: str, where: str) -> list[str]:
    from ink2tex.errors import LatexError
    from ink2tex.latex.normalise import normalise

    try:
        return normalise(latex)
    except LatexError:
        # Not an expression at all: it was read, and it is wrong. Spaces are the best guess at its tokens.
        return latex.split()


def _some(uids: Sequence[str], most: int = 5) -> str:
    return ", ".join(uids[:most]) + (", …" if len(uids) > most else "")

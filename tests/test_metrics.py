"""Scores: the denominator never shrinks, and the numbers are those of a plain implementation."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ink2tex.errors import DataError
from ink2tex.metrics import confusions, edit_distance, read_predictions, render, score


def words(text: str) -> list[str]:
    return text.split()


TOKENS = st.lists(st.sampled_from(["x", "y", r"\frac", "{", "}"]), max_size=12)


def plain_distance(a: list[str], b: list[str]) -> int:
    """Edit distance straight from its recurrence."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        row, above = [i], row
        for j, y in enumerate(b, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y)))
    return row[-1]


@given(TOKENS, TOKENS)
def test_distance_is_the_plain_one(a: list[str], b: list[str]) -> None:
    assert edit_distance(a, b) == plain_distance(a, b)


def test_rates_of_a_worked_example() -> None:
    references = {
        "right": words("x + 1"),
        "one": words("x + 1"),
        "two": words("x + 1 + y"),
        "far": ["x"] * 12,
    }
    predictions = {
        "right": words("x + 1"),
        "one": words("x + 2"),
        "two": words("x + 1"),
        "far": ["y"] * 12,
    }
    report = score(predictions, references)
    assert (report.exprate, report.le1, report.le2) == (25.0, 50.0, 75.0)
    assert report.wer == pytest.approx(100 * (0 + 1 + 2 + 12) / (3 + 3 + 5 + 12))
    assert report.lengths["[1,10]"].total == 3
    assert report.lengths["[11,20]"].total == 1
    assert report.lengths["[11,20]"].exprate == 0.0
    assert report.lengths["[41,inf)"].total == 0
    assert sum(tally.total for tally in report.lengths.values()) == report.total == 4


def test_missing_and_failed_predictions_are_wrong_and_stay_in_the_denominator() -> None:
    references = {"a": ["x"], "b": ["y"], "c": ["z"]}
    report = score({"a": ["x"], "b": [], "stranger": ["q"]}, references)
    assert report.missing == ("b", "c")
    assert report.unknown == ("stranger",)
    assert report.total == 3
    # One deleted token each would be "within one error"; but nothing was read.
    assert report.exprate == report.le1 == report.le2 == pytest.approx(100 / 3)
    assert report.wer == pytest.approx(200 / 3)


def test_no_prediction_at_all() -> None:
    report = score({}, {"a": ["x", "y"]})
    assert (report.exprate, report.le2, report.wer) == (0.0, 0.0, 100.0)
    assert all(report.edge(name) == 0 for name in report.edges)


@pytest.mark.parametrize(
    ("prediction", "reference", "right"),
    [
        ("a b c d e f", "a b c d e f", {"prefix-2", "prefix-5", "suffix-2", "suffix-5"}),
        ("a b c d e x", "a b c d e f", {"prefix-2", "prefix-5"}),
        ("x b c d e f", "a b c d e f", {"suffix-2", "suffix-5"}),
        ("a b x e f", "a b c d e f", {"prefix-2", "suffix-2"}),
        ("a", "a", {"prefix-2", "prefix-5", "suffix-2", "suffix-5"}),  # shorter than 2: compared whole
        ("a b", "a", set()),
        ("a b c d", "a b c", {"prefix-2"}),  # shorter than 5: compared whole
    ],
)
def test_ends(prediction: str, reference: str, right: set[str]) -> None:
    report = score({"u": prediction.split()}, {"u": reference.split()})
    assert {name for name, n in report.edges.items() if n} == right


def test_structural_rate_forgives_spelling_only() -> None:
    references = {"a": words("x _ { 1 } ^ { 2 }"), "b": words("x ^ { 2 }")}
    predictions = {"a": words("x ^ { 2 } _ { 1 }"), "b": words("x _ { 2 }")}
    report = score(predictions, references, structural=True)
    assert report.exprate == 0.0
    assert report.structural_exprate == 50.0
    assert score(predictions, references).structural_exprate is None


def test_report_is_plain_json_and_renders() -> None:
    report = score({"zz": ["x"]}, {"a": ["x"]}, structural=True)
    assert json.loads(json.dumps(report.to_json()))["missing"] == ["a"]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render(report))
    text = console.export_text()
    assert "ExpRate" in text
    assert "zz" in text


@pytest.mark.parametrize("references", [{}, {"a": []}])
def test_references_must_be_there(references: dict[str, list[str]]) -> None:
    with pytest.raises(DataError):
        score({}, references)


def test_confusions() -> None:
    references = {"a": list("xyz"), "b": list("xy"), "c": list("pq"), "gone": list("abc")}
    predictions = {"a": list("xwz"), "b": list("xw"), "c": list("pqr")}
    assert confusions(predictions, references) == [("y", "w", 2), ("", "r", 1)]
    assert confusions({"a": ["x", "z"]}, references) == [("y", "", 1)]


def test_read_plain_and_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "predictions.txt"
    lines = [
        "a\tx ^ { 2 }",
        "b x + 1",
        "empty",
        "",
        json.dumps({"uid": "c", "tokens": ["x", "y"]}),
        json.dumps({"path": "some/where/18_em_0_0.bmp", "tokens": "x + y", "latex": "x+y"}),
        json.dumps({"uid": "d", "latex": r"\frac12"}),
        json.dumps({"uid": "e", "error": "no ink"}),
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    assert read_predictions(file, known={"18_em_0"}) == {
        "a": words("x ^ { 2 }"),
        "b": words("x + 1"),
        "empty": [],
        "c": ["x", "y"],
        "18_em_0": ["x", "+", "y"],
        "d": words(r"\frac { 1 } { 2 }"),
        "e": [],
    }


@pytest.mark.parametrize("bad", ['{"uid": "a"}', '{"tokens": []}', '{"uid": ', '{"uid": "a", "tokens": 3}', "ok x"])
def test_bad_lines_are_named(tmp_path: Path, bad: str) -> None:
    file = tmp_path / "predictions.jsonl"
    file.write_text("ok x\n" + bad, encoding="utf-8")
    with pytest.raises(DataError, match=r"predictions\.jsonl, line 2"):
        read_predictions(file)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        read_predictions(tmp_path / "nowhere.txt")

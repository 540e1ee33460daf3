"""The command line as a user drives it: train, evaluate, score, convert, and errors that help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from drawn import drawn
from test_training import TINY

from ink2tex.app import cli
from ink2tex.data.sample import Sample
from ink2tex.ink import Ink, Symbol, write_inkml

LABELS = ("x + 1", "a = b", r"\frac { 1 } { 2 }", "x ^ { 2 }")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """`ink2tex ARGUMENTS` in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["ink2tex", *map(str, arguments)])
    try:
        cli.main()
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0


def as_inkml(sample: Sample, uid: str) -> bytes:
    assert sample.strokes is not None
    assert sample.token_strokes is not None
    pairs = zip(sample.tokens, sample.token_strokes, strict=True)
    symbols = tuple(Symbol(token, strokes, None) for token, strokes in pairs if strokes)
    return write_inkml(Ink(sample.strokes, uid=uid, truth=f"${' '.join(sample.tokens)}$", symbols=symbols))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """InkML files, captions, a tiny recipe, and the checkpoint that training made of them."""
    path = tmp_path_factory.mktemp("cli")
    (path / "ink").mkdir()
    lines = []
    for i, label in enumerate(LABELS):
        (path / "ink" / f"e{i}.inkml").write_bytes(as_inkml(drawn(label), f"e{i}"))
        lines.append(f"e{i}\t{label}\n")
    (path / "captions.txt").write_text("".join(lines))
    recipe = {**TINY, "schedule": {"kind": "hold", "steps": 2}, "run": {"save_every": 1, "validate_every": 2}}
    (path / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    command = [sys.executable, "-m", "ink2tex.app.cli", "train", path / "tiny.yaml", "--data", path / "ink"]
    command += ["--captions", path / "captions.txt", "--valid", path / "ink", "--folder", path / "run"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "validation: ExpRate" in done.stderr
    (checkpoint,) = (path / "run").glob("best-*.safetensors")
    checkpoint.rename(path / "model.safetensors")
    return path


def test_several_training_processes_tell_an_error_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ink2tex.app.cli", "train", "missing.yaml", "--data", "ink", "--processes", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("ink2tex: missing.yaml: there is no such file")


def test_a_trained_checkpoint_is_evaluated_and_its_predictions_score_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", folder / "ink", "--captions", folder / "captions.txt"]
    written = folder / "predictions.txt"
    common = [folder / "model.safetensors", *data, "--decode", "joint", "--beam", 3, "--predictions", written]
    assert run(monkeypatch, "evaluate", *common, "--json", "--structural") == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert evaluated.pop("decode") == {"mode": "joint", "beam": 3, "views": 1}
    assert len(written.read_text().splitlines()) == len(LABELS)
    assert run(monkeypatch, "score", written, folder / "captions.txt", "--json", "--structural") == 0
    scored = json.loads(capsys.readouterr().out)
    assert scored == evaluated
    assert scored["total"] == len(LABELS)


def test_scores_are_a_table_and_a_missing_line_counts_as_wrong(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "three.txt").write_text("".join(f"e{i} {label}\n" for i, label in enumerate(LABELS[:3])))
    assert run(monkeypatch, "score", folder / "three.txt", folder / "captions.txt", "--json") == 0
    assert json.loads(capsys.readouterr().out)["exprate"] == 75
    assert run(monkeypatch, "score", folder / "three.txt", folder / "captions.txt") == 0
    out = capsys.readouterr().out
    assert "75.00" in out
    assert "ExpRate" in out


def test_the_vocabulary_of_a_data_set(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "data", "vocab", folder / "ink") == 0
    symbols = capsys.readouterr().out.split()
    assert symbols == sorted({token for label in LABELS for token in label.split()})


def test_the_mean_of_a_checkpoint_with_itself_reads_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, mean = folder / "model.safetensors", folder / "mean.safetensors"
    assert run(monkeypatch, "average", one, one, "--share", "0.3", "--share", "0.7", "-o", mean) == 0
    assert "the mean of 2" in capsys.readouterr().out
    data = ["--data", folder / "ink", "--captions", folder / "captions.txt", "--json"]
    scores = []
    for model in (one, mean):
        assert run(monkeypatch, "evaluate", model, *data) == 0
        scores.append(json.loads(capsys.readouterr().out))
    assert scores[0] == scores[1]
    assert run(monkeypatch, "average", one, folder / "captions.txt", "-o", folder / "none.safetensors") == 2
    assert "captions.txt" in capsys.readouterr().err
    assert not (folder / "none.safetensors").exists()


def test_released_weights_that_are_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"a": torch.zeros(2)}, tmp_path / "a.pkl")
    assert run(monkeypatch, "import-abm", tmp_path / "a.pkl", "-o", tmp_path / "a.safetensors") == 2
    assert "not the state dict of the released ABM network" in capsys.readouterr().err
    assert not (tmp_path / "a.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "{folder}/nosuch.yaml", "--data", "{folder}/ink"], "there is no such file"),
        (["train", "{folder}/bad.yaml", "--data", "{folder}/ink"], "did you mean 'optimiser'"),
        (["train", "{folder}/tiny.yaml", "--data", "{folder}/nosuch"], "nosuch"),
        (["evaluate", "{folder}/tiny.yaml", "--data", "{folder}/ink"], "not a whole safetensors file"),
        (["evaluate", "{folder}/model.safetensors", "--data", "{folder}/ink", "--decode", "up"], "--decode is"),
        (["score", "{folder}/nosuch.txt", "{folder}/captions.txt"], "nosuch.txt"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    (folder / "bad.yaml").write_text("optimizer: {}\n")
    assert run(monkeypatch, *(part.format(folder=folder) for part in arguments)) == 2
    err = capsys.readouterr().err.strip()
    assert words in err
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err


def test_an_unknown_token_names_file_line_and_token(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "captions.txt").read_text().replace("a = b", r"a = \bogus")
    (folder / "odd.txt").write_text(text)
    code = run(monkeypatch, "train", folder / "tiny.yaml", "--data", folder / "ink", "--captions", folder / "odd.txt")
    assert code == 2
    err = capsys.readouterr().err
    assert r"'\\bogus'" in err
    assert "odd.txt" in err
    assert "2" in err


def test_help_and_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith("ink2tex ")
    assert run(monkeypatch, "--help") == 0
    out = capsys.readouterr().out
    assert all(command in out for command in ("train", "evaluate", "score", "average", "import-abm", "data"))

"""`ink2tex recognize`, `explain` and `export` as a user drives them, in processes of their own."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ink2tex.ink import Ink, write_inkml
from ink2tex.runtime.bundle import read_manifest
from tests.drawn import SAMPLES
from tests.tiny import BITMAPS

ENVIRONMENT = {**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "200"}


def ink2tex(*arguments: object, code: int = 0, given: bytes = b"") -> tuple[str, str]:
    """Run the command; what it wrote to both streams. It must end with `code`."""
    command = [sys.executable, "-m", "ink2tex.app.cli", *(str(argument) for argument in arguments)]
    done = subprocess.run(command, input=given, capture_output=True, env=ENVIRONMENT, check=False)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == code, err
    assert "Traceback" not in err
    return out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, ink, a broken file, a blank page, and a file that is none of ours."""
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(4):
        Image.fromarray(BITMAPS[3 * i]).save(folder / f"{i}.png")
    (folder / "deep").mkdir()
    Image.fromarray(255 - BITMAPS[1]).save(folder / "deep" / "dark.jpg")
    strokes = SAMPLES[4].strokes
    assert strokes is not None
    (folder / "ink.inkml").write_bytes(write_inkml(Ink(strokes)))
    (folder / "broken.png").write_text("this is no picture")
    Image.fromarray(np.full((80, 90), 255, np.uint8)).save(folder / "white.png")
    (folder / "notes.txt").write_text("not for us")
    return folder


@pytest.fixture(scope="module")
def fast(tiny_model: Path) -> list[str]:
    return ["--model", str(tiny_model), "--decode", "l2r", "--beam", "2"]


def test_one_picture_is_one_line(folder: Path, fast: list[str]) -> None:
    out, err = ink2tex("recognize", folder / "1.png", *fast)
    assert out.strip()
    assert out.count("\n") == 1
    assert err == ""


def test_a_folder_as_json_lines(folder: Path, fast: list[str]) -> None:
    out, err = ink2tex("recognize", folder, *fast, "--format", "jsonl", code=1)
    records = [json.loads(line) for line in out.splitlines()]
    names = [Path(record["path"]).relative_to(folder).as_posix() for record in records]
    assert names == ["0.png", "1.png", "2.png", "3.png", "broken.png", "deep/dark.jpg", "ink.inkml", "white.png"]
    assert err == ""  # no progress in a pipe
    for name, record in zip(names, records, strict=True):
        if name in ("broken.png", "white.png"):
            assert name in record["error"]
            assert "latex" not in record
        else:
            assert record["latex"]
            assert record["tokens"]
            assert 0 <= record["confidence"] <= 1
            assert isinstance(record["alternatives"], list)


def test_all_formats_say_the_same(folder: Path, fast: list[str], tmp_path: Path) -> None:
    paths = [folder / "0.png", folder / "broken.png", folder / "2.png"]
    arguments = ["recognize", *paths, *fast, "--nbest", 2]
    whole = json.loads(ink2tex(*arguments, "--format", "json", code=1)[0])
    lines = [json.loads(line) for line in ink2tex(*arguments, "-f", "jsonl", code=1)[0].splitlines()]
    for a, b in zip(whole, lines, strict=True):
        assert {k: v for k, v in a.items() if k != "seconds"} == {k: v for k, v in b.items() if k != "seconds"}
    out = tmp_path / "out.tsv"
    assert ink2tex(*arguments, "-f", "tsv", "-o", out, code=1)[0] == ""
    head, *rows = [line.split("\t") for line in out.read_text().splitlines()]
    assert head == ["path", "latex", "confidence", "error", "latex2", "probability2"]
    assert [row[1] for row in rows] == [record.get("latex", "") for record in whole]
    assert "broken.png" in rows[1][3]
    text, err = ink2tex(*arguments, code=1)
    assert "broken.png" in err
    readings = [line.split("\t") for line in text.splitlines()]
    assert [r[1] for r in readings if r[0] == str(paths[0])] == [
        whole[0]["latex"],
        *(other["latex"] for other in whole[0]["alternatives"]),
    ]


def test_standard_input(folder: Path, fast: list[str]) -> None:
    named, _ = ink2tex("recognize", folder / "1.png", *fast)
    piped, _ = ink2tex("recognize", "-", *fast, given=(folder / "1.png").read_bytes())
    assert piped == named
    ink, _ = ink2tex("recognize", "-", *fast, given=(folder / "ink.inkml").read_bytes())
    assert ink == ink2tex("recognize", folder / "ink.inkml", *fast)[0]
    assert "empty" in ink2tex("recognize", "-", *fast, code=2)[1]


def test_pages_of_a_pdf(folder: Path, fast: list[str], tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    pages = [Image.open(folder / f"{i}.png").convert("L").point(lambda v: 255 - v) for i in (1, 2)]
    pages[0].save(tmp_path / "two.pdf", save_all=True, append_images=pages[1:])
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    out, _ = ink2tex("recognize", tmp_path, *fast, "-f", "jsonl", code=1)
    records = [json.loads(line) for line in out.splitlines()]
    assert [Path(r["path"]).name for r in records] == ["broken.pdf", "two.pdf#page=1", "two.pdf#page=2"]
    assert "PDF" in records[0]["error"]
    assert records[1]["latex"]
    assert records[2]["latex"]


def test_what_the_network_saw(folder: Path, fast: list[str], tmp_path: Path) -> None:
    one = tmp_path / "saw.png"
    ink2tex("recognize", folder / "1.png", *fast, "--debug-image", one)
    seen = np.asarray(Image.open(one))
    assert seen.ndim == 2
    assert seen.max() == 255
    assert np.median(seen) == 0
    many = tmp_path / "many"
    ink2tex("recognize", folder / "0.png", folder / "1.png", *fast, "--debug-image", many)
    assert len(list(many.glob("*.png"))) == 2


def test_jobs_give_the_same_lines(folder: Path, fast: list[str], tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for i in range(40):  # more than one job takes at a time
        Image.fromarray(BITMAPS[i % 3]).save(many / f"{i:02}.png")
    (many / "20.png").write_text("broken")

    def run(*more: object) -> list[dict]:
        out, _ = ink2tex("recognize", many, *fast, "-f", "jsonl", *more, code=1)
        return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in out.splitlines()]

    alone, together = run(), run("--jobs", 2)
    assert [r["path"] for r in together] == [r["path"] for r in alone]
    assert [r.get("tokens") for r in together] == [r.get("tokens") for r in alone]
    assert "error" in together[20]


def test_a_killed_run_is_continued(tiny_model: Path, tmp_path: Path) -> None:
    many, out = tmp_path / "many", tmp_path / "out.jsonl"
    many.mkdir()
    for i in range(120):
        Image.fromarray(BITMAPS[i % len(BITMAPS)]).save(many / f"{i:03}.png")
    arguments = ["recognize", many, "-m", tiny_model, "--beam", 3, "-f", "jsonl", "-o", out, "--resume"]
    command = [sys.executable, "-m", "ink2tex.app.cli", *(str(argument) for argument in arguments)]
    process = subprocess.Popen(command, env=ENVIRONMENT)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not out.exists() or out.read_bytes().count(b"\n") < 20):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = out.read_bytes()
    written = before.count(b"\n")
    assert 0 < written < 120
    out.write_bytes(before + b'{"path": "half a li')  # as a kill in the middle of a write leaves it
    ink2tex(*arguments)
    after = out.read_bytes()
    assert after.startswith(before[: before.rfind(b"\n") + 1])  # nothing was read again
    names = [Path(json.loads(line)["path"]).name for line in after.decode().splitlines()]
    assert sorted(names) == [f"{i:03}.png" for i in range(120)]
    assert ink2tex(*arguments)[0] == ""
    assert out.read_bytes() == after


def test_mistakes_are_one_sentence(folder: Path, fast: list[str], tmp_path: Path) -> None:
    picture = folder / "1.png"
    for arguments, words in (
        (["recognize", "missing.png", *fast], "missing.png"),
        (["recognize", picture, *fast, "--format", "jsnl"], "did you mean 'jsonl'"),
        (["recognize", picture, *fast, "--resume"], "--output"),
        (["recognize", picture, "--model", tmp_path], "model.json"),
        (["recognize", picture, *fast, "--nbest", 3], "nbest"),
        (["recognize", picture, *fast[:2], "--decode", "up"], "'up'"),
        (["recognize", picture, *fast, "-o", tmp_path / "no" / "out.txt"], "folder"),
        (["recognize", tmp_path, *fast], "nothing to recognise"),
        (["explain", picture, *fast[:2], "-o", tmp_path / "x.doc"], ".gif"),
        (["export", picture, "-o", tmp_path / "m"], "safetensors"),
    ):
        _, err = ink2tex(*arguments, code=2)
        assert words in err
        assert err.count("\n") == 1


def test_a_foreign_output_is_not_continued(folder: Path, fast: list[str], tmp_path: Path) -> None:
    out = tmp_path / "letter.jsonl"
    out.write_text("Dear reader\n")
    _, err = ink2tex("recognize", folder / "1.png", *fast, "-f", "jsonl", "-o", out, "--resume", code=2)
    assert "letter.jsonl" in err
    assert out.read_text() == "Dear reader\n"


@pytest.mark.parametrize("suffix", ["gif", "png", "html"])
def test_explanations(folder: Path, tiny_model: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"attention.{suffix}"
    ink2tex("explain", folder / "1.png", "-m", tiny_model, "--beam", 2, "-o", out)
    if suffix == "html":
        page = out.read_text()
        assert "left to right" in page
        assert "right to left" in page
        assert page.count("data:image/png") > 2
        assert "http" not in page
        return
    picture = Image.open(io.BytesIO(out.read_bytes()))
    assert np.asarray(picture.convert("RGB")).std() > 5
    assert getattr(picture, "n_frames", 1) > 1 or suffix == "png"


def test_export_and_evaluate(tiny_checkpoint: Path, tmp_path: Path) -> None:
    out, _ = ink2tex("export", tiny_checkpoint, "-o", tmp_path / "model", "--decode", "l2r", "--beam", 2)
    assert "3 graphs" in out
    data = tmp_path / "data"
    data.mkdir()
    for i in range(6):
        strokes = SAMPLES[i].strokes
        assert strokes is not None
        (data / f"s{i}.inkml").write_bytes(write_inkml(Ink(strokes)))
    captions = tmp_path / "captions.txt"
    captions.write_text("".join(f"s{i}\t{' '.join(SAMPLES[i].tokens)}\n" for i in range(6)))
    arguments = ["--data", data, "--captions", captions, "--decode", "joint", "--beam", 2, "--json"]
    reports = []
    for model in (tmp_path / "model", tiny_checkpoint):
        predictions = tmp_path / "predictions.txt"
        report = json.loads(ink2tex("evaluate", model, *arguments, "--predictions", predictions)[0])
        reports.append((report, predictions.read_text()))
    assert reports[0] == reports[1]
    # Without options, a folder reads as it was exported and a checkpoint as in validation.
    for model, beam, words in ((tmp_path / "model", 2, "a beam of 2"), (tiny_checkpoint, 1, "greedy")):
        report = json.loads(ink2tex("evaluate", model, *arguments[:4], "--json")[0])
        assert report["decode"] == {"mode": "l2r", "beam": beam, "views": 1}
        assert report["total"] == 6
        assert f"Read l2r, {words}." in ink2tex("evaluate", model, *arguments[:4])[0]
    # The views that a model suggests belong to its own way of decoding.
    ink2tex("export", tiny_checkpoint, "-o", tmp_path / "twice", "--decode", "joint", "--beam", 2, "--views", 2)
    for options, views in (([], 2), (["--decode", "l2r"], 1), (["--decode", "joint"], 2), (["--views", 3], 3)):
        report = json.loads(ink2tex("evaluate", tmp_path / "twice", *arguments[:4], "--json", *options)[0])
        assert report["decode"]["views"] == views
    _, err = ink2tex("export", tiny_checkpoint, "-o", tmp_path / "unclear", "--views", 2, code=2)
    assert "say which with --decode" in err
    ink2tex("export", tiny_checkpoint, "-o", tmp_path / "larger", "--input-scale", 1.5)
    assert read_manifest(tmp_path / "larger").input_scale == 1.5
    scaled = [
        json.loads(ink2tex("evaluate", *model, *arguments)[0])
        for model in ((tmp_path / "larger",), (tiny_checkpoint, "--input-scale", 1.5))
    ]
    assert scaled[0] == scaled[1] != reports[0][0]


def test_the_command_does_not_import_torch(folder: Path, fast: list[str]) -> None:
    code = (
        "import sys; from ink2tex.app import cli\n"
        "sys.argv = ['ink2tex', *sys.argv[1:]]\n"
        "try: cli.main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('torch', 'lightning', 'onnx')]"
    )
    command = [sys.executable, "-c", code, "recognize", str(folder / "1.png"), *fast]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr

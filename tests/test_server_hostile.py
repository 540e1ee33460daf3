"""The server against its description, against hostile bodies, under load and when it is told to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import httpx
import load

from ink2tex.app.server.application import create_app
from ink2tex.app.server.settings import ServerSettings
from tests.drawn import SAMPLES
from tests.hostile import bodies
from tests.serving import serving

STROKES = [[[float(x), float(y)] for x, y in stroke] for stroke in SAMPLES[3].strokes or ()]


def test_answers_are_as_described(tiny_model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "run", "--no-color", "--max-examples", "10", "--seed", "1"]
    # Bytes that the description allows may still be no picture: such a refusal is no fault.
    command += ["--exclude-checks", "positive_data_acceptance", "--phases", "examples,coverage,fuzzing"]
    with serving(tiny_model, "--decode", "l2r", "--beam", "1", "--threads", "1") as server:
        command.append(server.url + "/openapi.json")
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "No issues found" in done.stdout, done.stdout[-3000:]


def test_the_description_needs_no_model() -> None:
    paths = create_app(ServerSettings()).openapi()["paths"]
    assert "/v1/recognize" in paths


def test_hostile_bodies_are_refused_and_memory_stays_flat(tiny_model: Path) -> None:
    with serving(tiny_model, "--decode", "l2r", "--beam", "1", "--threads", "1") as server:
        seen: dict[int, int] = {}
        with httpx.Client(base_url=server.url, timeout=30) as client:
            for number, (kind, body) in enumerate(islice(bodies(1), 240)):
                headers = {"content-type": kind} if kind else {}
                for call in ("recognize", "mathml"):
                    answer = client.post(f"/v1/{call}", content=body, headers=headers)
                    seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
                    assert 400 <= answer.status_code < 500, (call, kind, body[:80], answer.text)
                    assert answer.json()["detail"]
                if number == 120:
                    before = server.memory()
            assert server.memory() - before < 40e6
            assert client.post("/v1/recognize", json={"strokes": STROKES}).status_code == 200
        assert {400, 413, 415, 422} <= set(seen)


def test_load_and_a_stop_in_the_middle_of_it(tiny_model: Path) -> None:
    with serving(tiny_model, "--decode", "l2r", "--beam", "1", "--threads", "1", "--queue", "16") as server:
        calm = load.run(server.url, load.bodies_of([STROKES]), clients=40, seconds=3)
        assert calm.failed == 0
        assert set(calm.statuses) <= {200, 429}
        assert calm.statuses[200] > 0
        stopped = load.run(
            server.url,
            load.bodies_of([STROKES]),
            clients=20,
            seconds=6,
            after=(1.0, lambda: server.process.send_signal(signal.SIGTERM)),
        )
        assert set(stopped.statuses) <= {200, 429, 0}
        assert stopped.cut_off == 0  # no answer that had begun was cut
        _, log = server.stop()
    counts = [int(word) for word in log.split("stopped: ")[1].replace(",", "").split() if word.isdigit()]
    accepted, answered, abandoned = counts[:3]
    assert accepted == answered > 0
    assert abandoned == 0
    assert "Traceback" not in log

"""The REST API, against the tiny network."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.requests import Request
from starlette.testclient import TestClient

import ink2tex
from ink2tex.app.server.application import Service, create_app
from ink2tex.app.server.batching import BatchQueue, FullError
from ink2tex.app.server.metrics import Metrics
from ink2tex.app.server.problems import Problem
from ink2tex.app.server.settings import ServerSettings
from ink2tex.errors import Ink2TexError, RecipeError
from ink2tex.ink import Ink, write_inkml
from ink2tex.latex.pretty import to_mathml
from ink2tex.runtime.inputs import to_bitmap
from tests.drawn import SAMPLES
from tests.serving import serving

STROKES = [stroke.tolist() for stroke in SAMPLES[3].strokes or ()]
INKML = write_inkml(Ink(SAMPLES[3].strokes or ()))


def png(bitmap: np.ndarray, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(bitmap).save(file, form)
    return file.getvalue()


PICTURE = png(to_bitmap(INKML).bitmap)


def settings(model: Path, **changes: Any) -> ServerSettings:
    return ServerSettings(**{"model": str(model), "decode": "l2r", "beam": 2, **changes})


@pytest.fixture(scope="module")
def client(tiny_model: Path) -> Iterator[TestClient]:
    with TestClient(create_app(settings(tiny_model))) as client:
        yield client


@pytest.fixture(scope="module")
def expected(tiny_model: Path) -> ink2tex.Result:
    return ink2tex.load(tiny_model, threads=1, decode="l2r", beam=2).recognize(INKML)


@pytest.fixture(scope="module")
def of_picture(tiny_model: Path) -> ink2tex.Result:
    return ink2tex.load(tiny_model, threads=1, decode="l2r", beam=2).recognize(PICTURE)


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem in an answer, which must be one."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["code"] == code
    assert body["status"] == status
    assert body["detail"].endswith((".", "!", "?"))
    return body


def test_strokes_are_read_as_the_package_reads_them(client: TestClient, expected: ink2tex.Result) -> None:
    answer = client.post("/v1/recognize", json={"strokes": STROKES}).json()
    assert answer["latex"] == expected.latex
    assert answer["tokens"] == list(expected.tokens)
    assert answer["confidence"] == pytest.approx(expected.confidence, abs=1e-5)
    assert answer["mathml"].startswith("<math")
    assert len(answer["boxes"]) == len(answer["tokens"])
    assert [a["latex"] for a in answer["alternatives"]] == [a.latex for a in expected.alternatives]


@pytest.mark.parametrize("kind", ["application/inkml+xml", "application/xml", "text/xml; charset=utf-8"])
def test_inkml_is_read(client: TestClient, expected: ink2tex.Result, kind: str) -> None:
    answer = client.post("/v1/recognize", content=INKML, headers={"content-type": kind})
    assert answer.json()["latex"] == expected.latex


def test_inkml_and_pictures_in_json_and_forms(
    client: TestClient, expected: ink2tex.Result, of_picture: ink2tex.Result
) -> None:
    for answer in (
        client.post("/v1/recognize", content=PICTURE, headers={"content-type": "image/png"}),
        client.post("/v1/recognize", json={"image": base64.b64encode(PICTURE).decode()}),
        client.post("/v1/recognize", files={"file": ("a.png", PICTURE)}),
    ):
        assert answer.json()["latex"] == of_picture.latex
    for answer in (
        client.post("/v1/recognize", json={"inkml": INKML.decode()}),
        client.post("/v1/recognize", files={"file": ("a.inkml", INKML)}),
    ):
        assert answer.json()["latex"] == expected.latex


def test_options(client: TestClient) -> None:
    def ask(**options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = client.post("/v1/recognize", json={"strokes": STROKES}, params=options).json()
        return answer

    assert len(ask(nbest=4)["alternatives"]) == 3
    assert ask(nbest=1)["alternatives"] == []
    assert ask(boxes="false")["boxes"] is None
    assert ask(decode="joint", beam=3)["latex"]
    assert ask(decode="r2l")["tokens"] != []


@pytest.mark.parametrize(
    "query", ["nbest=0", "nbest=x", "nbest=1.0", "beam=1000", "decode=up", "boxes=maybe", "bexes=true", "nbest="]
)
def test_options_that_do_not_exist(client: TestClient, query: str) -> None:
    problem(client.post(f"/v1/recognize?{query}", json={"strokes": STROKES}), 422, "invalid_request")


def test_a_batch_answers_each_item(client: TestClient, expected: ink2tex.Result, of_picture: ink2tex.Result) -> None:
    items = [{"strokes": STROKES}, {"inkml": "<ink/>"}, {"inkml": INKML.decode()}, {"image": "AAAA"}]
    answer = client.post("/v1/recognize/batch", json={"items": items})
    assert answer.status_code == 200
    first, second, third, fourth = answer.json()["items"]
    assert first["result"]["latex"] == third["result"]["latex"] == expected.latex
    assert second["problem"]["code"] == "invalid_ink"
    assert fourth["problem"]["code"] == "invalid_picture"
    files = [("file", ("a.png", PICTURE)), ("file", ("b.inkml", INKML))]
    both = client.post("/v1/recognize/batch", files=files, params={"boxes": "false"}).json()["items"]
    assert [item["result"]["latex"] for item in both] == [of_picture.latex, expected.latex]
    assert both[0]["result"]["boxes"] is None


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "bad_json"),
        (b"{", 400, "bad_json"),
        (b"[" * 5000, 400, "bad_json"),
        (b'{"strokes": [[[0, NaN]]]}', 422, "invalid_request"),
        (b'{"strokes": [[[0, Infinity]]]}', 422, "invalid_request"),
        (b'{"strokes": [[[0, 1e999]]]}', 422, "invalid_request"),
        (b'{"strokes": [[[0, 1e12]]]}', 422, "invalid_request"),
        (b'{"strokes": [[[0, "1"]]]}', 422, "invalid_request"),
        (b'{"strokes": [[[true, 1]]]}', 422, "invalid_request"),
        (b'{"strokes": [[[1]]]}', 422, "invalid_request"),
        (b'{"strokes": []}', 422, "invalid_request"),
        (b'{"strokes": [[[0, 1]]], "path": "/etc/passwd"}', 422, "invalid_request"),
        (b'{"path": "/etc/passwd"}', 422, "invalid_request"),
        (b"7", 422, "invalid_request"),
        (b'{"inkml": "file:///etc/passwd"}', 422, "invalid_ink"),
        (b'{"image": "http://127.0.0.1/"}', 422, "invalid_picture"),
        (b'{"strokes": "' + b"[" * 200_000 + b'"}', 413, "too_many_points"),
    ],
)
def test_bad_json(client: TestClient, body: bytes, status: int, code: str) -> None:
    answer = client.post("/v1/recognize", content=body, headers={"content-type": "application/json"})
    problem(answer, status, code)


def test_limits(tiny_model: Path) -> None:
    limits = settings(tiny_model, max_body=20_000, max_pixels=10_000, max_strokes=3, max_points=50, max_items=2)
    with TestClient(create_app(limits)) as client:

        def post(content: bytes, kind: str = "image/png", path: str = "/v1/recognize") -> httpx.Response:
            return client.post(path, content=content, headers={"content-type": kind})

        problem(post(b"x" * 30_000), 413, "body_too_large")
        problem(post(png(np.zeros((200, 200), np.uint8))), 413, "picture_too_large")
        many = {"strokes": [[[i, j] for j in range(30)] for i in range(2)]}
        problem(client.post("/v1/recognize", json=many), 413, "too_many_points")
        problem(client.post("/v1/recognize", json={"strokes": [[[0, 1]]] * 4}), 413, "too_many_points")
        traces = b"<trace>1 2, 3 4</trace>" * 4
        problem(post(b"<ink>" + traces + b"</ink>", "text/xml"), 413, "too_many_points")
        problem(client.post("/v1/recognize/batch", json={"items": [{"inkml": "a"}] * 3}), 413, "too_many_items")
        files = [("file", ("a", b"x"))] * 4
        problem(client.post("/v1/recognize/batch", files=files), 413, "too_many_items")

        def chunks() -> Iterator[bytes]:  # no length is announced
            for _ in range(100):
                yield b"x" * 1000

        problem(
            client.post("/v1/recognize", content=chunks(), headers={"content-type": "image/png"}), 413, "body_too_large"
        )


def test_xml_bombs_and_entities(client: TestClient) -> None:
    bomb = b'<!DOCTYPE ink [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><ink><trace>&b;</trace></ink>'
    file = b'<!DOCTYPE ink [<!ENTITY a SYSTEM "file:///etc/passwd">]><ink><trace>&a;</trace></ink>'
    deep = b"<ink>" + b"<g>" * 50_000 + b"</g>" * 50_000 + b"</ink>"
    for body in (bomb, file, deep, b"<ink><trace>1 nan</trace></ink>", b"<a/>", b""):
        answer = client.post("/v1/recognize", content=body, headers={"content-type": "text/xml"})
        assert "root:" not in problem(answer, 422, "invalid_ink")["detail"]


def test_pictures_that_are_none(client: TestClient) -> None:
    for body in (b"", b"GIF89a", PICTURE[:60], b"%!PS-Adobe-3.0 EPSF-3.0\n", png(np.zeros((40, 40), np.uint8))):
        problem(
            client.post("/v1/recognize", content=body, headers={"content-type": "image/png"}), 422, "invalid_picture"
        )


def test_latex_is_typeset(client: TestClient) -> None:
    answer = client.post("/v1/mathml", json={"latex": r"\frac{1}{2}x^{2}"})
    assert answer.status_code == 200
    assert answer.json() == {"mathml": to_mathml(r"\frac{1}{2}x^{2}", "block")}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "bad_json"),
        (b"x^2", 400, "bad_json"),
        (b"[]", 422, "invalid_request"),
        (b'{"latex": ""}', 422, "invalid_request"),
        (b'{"latex": 5}', 422, "invalid_request"),
        (b'{"latex": "x", "path": "/etc/passwd"}', 422, "invalid_request"),
        (b'{"latex": "' + b"x" * 2001 + b'"}', 422, "invalid_request"),
        (rb'{"latex": "\\frac{1}"}', 422, "invalid_latex"),
        (rb'{"latex": "\\text{<script>}"}', 422, "invalid_latex"),
        (b'{"latex": "' + b"{" * 2000 + b'"}', 422, "invalid_latex"),
        (rb'{"latex": "\u0000"}', 422, "invalid_latex"),
    ],
)
def test_latex_that_is_refused(client: TestClient, body: bytes, status: int, code: str) -> None:
    answer = client.post("/v1/mathml", content=body, headers={"content-type": "application/json"})
    assert len(problem(answer, status, code)["detail"]) < 300


def test_other_problems(client: TestClient) -> None:
    problem(client.get("/nowhere"), 404, "not_found")
    refused = client.get("/v1/recognize")
    problem(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "POST"
    problem(client.post("/v1/recognize", content=b"x"), 415, "unsupported_media_type")
    only = problem(client.post("/v1/mathml", content=b"x"), 415, "unsupported_media_type")
    assert only["detail"].endswith("send application/json.")
    problem(
        client.post("/v1/recognize", content=b"x", headers={"content-type": "text/html"}), 415, "unsupported_media_type"
    )
    form = {"content-type": "multipart/form-data; boundary=b"}
    problem(client.post("/v1/recognize", content=b"junk", headers=form), 400, "bad_multipart")
    no_boundary = {"content-type": "multipart/form-data"}
    problem(client.post("/v1/recognize", content=b"junk", headers=no_boundary), 400, "bad_multipart")
    problem(client.post("/v1/recognize", files={"picture": ("a", PICTURE)}), 422, "invalid_request")
    two = [("file", ("a", PICTURE)), ("file", ("b", PICTURE))]
    assert client.post("/v1/recognize", files=two).status_code in (413, 422)


def test_a_bug_is_a_problem_too(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(settings(tiny_model))
    with TestClient(app, raise_server_exceptions=False) as client:

        def broken() -> None:
            raise RuntimeError("secret")

        monkeypatch.setattr(app.state.service.reader, "describe", broken)
        assert "secret" not in problem(client.get("/v1/model"), 500, "internal_error")["detail"]


def test_health_model_and_metrics(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok"}
    model = client.get("/v1/model").json()
    assert model["directions"] == ["l2r", "r2l"]
    assert (model["decode"], model["beam"]) == ("l2r", 2)
    assert "\\frac" in model["symbols"]
    client.post("/v1/recognize", json={"strokes": STROKES})
    text = client.get("/metrics").text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
    assert values['ink2tex_requests_total{route="recognize",status="200"}'] >= 1
    assert values["ink2tex_queue"] == 0
    assert values["ink2tex_inputs_total"] == values["ink2tex_inputs_answered_total"] > 0
    assert values['ink2tex_batch_size_bucket{le="+Inf"}'] == values["ink2tex_batch_size_count"] > 0


def test_workers_count_together(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    path.touch()
    code = (
        "import sys; from ink2tex.app.server.metrics import Metrics; m = Metrics(sys.argv[1]);"
        "m.add('ink2tex_inputs_total', 2); print(m.render())"
    )
    own = Metrics(str(path))
    own.add("ink2tex_inputs_total")
    for total in (3, 5):  # the second takes the row of the first, which has ended
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        assert f"ink2tex_inputs_total {total}\n" in done.stdout
    assert own.get("ink2tex_inputs_total") == 1


def test_headers_of_safety(client: TestClient) -> None:
    for path in ("/", "/healthz", "/nowhere"):
        headers = client.get(path).headers
        csp = headers["content-security-policy"]
        assert "default-src 'none'" in csp
        assert "unsafe" not in csp
        assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in client.get("/healthz", headers={"origin": "https://a.example"}).headers


def test_cors_when_opened(tiny_model: Path) -> None:
    with TestClient(create_app(settings(tiny_model, cors=("https://a.example",), token="a-long-token"))) as client:
        asked = {"origin": "https://a.example", "access-control-request-method": "POST"}
        assert client.options("/v1/recognize", headers=asked).headers["access-control-allow-origin"] == asked["origin"]
        other = client.options("/v1/recognize", headers={**asked, "origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers


def test_a_token_is_asked_for(tiny_model: Path) -> None:
    with TestClient(create_app(settings(tiny_model, token="a-long-token"))) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic a-long-token"}):
            for path in ("/v1/model", "/metrics"):
                refused = client.get(path, headers=headers)
                problem(refused, 401, "unauthorized")
                assert refused.headers["www-authenticate"].startswith("Bearer")
        assert client.get("/v1/model", headers={"authorization": "Bearer a-long-token"}).status_code == 200
        assert client.get("/healthz").status_code == client.get("/").status_code == 200
        schema = client.get("/openapi.json").json()
        assert schema["paths"]["/v1/recognize"]["post"]["security"] == [{"token": []}]
    with pytest.raises(RecipeError, match="longer"):
        ServerSettings(token="short")


def test_the_description_is_complete(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        "/v1/recognize", "/v1/recognize/batch", "/v1/mathml", "/v1/model", "/healthz", "/readyz", "/metrics",
    }  # fmt: skip
    text = json.dumps(schema)
    known = schema["components"]["schemas"]
    for reference in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert reference in known
    for operations in schema["paths"].values():
        for operation in operations.values():
            assert operation["summary"]
            assert operation["description"]
    content = schema["paths"]["/v1/recognize"]["post"]["requestBody"]["content"]
    for example in content["application/json"]["examples"].values():
        assert client.post("/v1/recognize", json=example["value"]).status_code == 200


class Slow:
    """A reader that can be held up, and remembers its batches."""

    def __init__(self, seconds: float = 0.05) -> None:
        self.seconds = seconds
        self.batches: list[list[int]] = []

    def __call__(self, key: object, values: Sequence[int]) -> list[int | Ink2TexError]:
        self.batches.append(list(values))
        time.sleep(self.seconds)
        if -1 in values:
            raise RuntimeError("poison")
        return [Ink2TexError("odd") if value % 2 else value * 10 for value in values]


def queue_of(read: Any, **options: Any) -> BatchQueue[int, int]:
    return BatchQueue(read, Metrics(), **options)


async def ask(queue: BatchQueue[int, int], value: int, key: str = "k") -> int:
    places = queue.reserve()
    try:
        return await queue.answer(lambda: value, key)
    finally:
        places.release(True)


def test_requests_are_gathered() -> None:
    async def run() -> list[list[int]]:
        slow = Slow()
        queue = queue_of(slow, batch=4, gather=0.02)
        queue.start()
        answers = await asyncio.gather(*(ask(queue, 2 * i) for i in range(10)))
        assert answers == [20 * i for i in range(10)]
        await queue.close()
        return slow.batches

    batches = asyncio.run(run())
    assert sorted(value for batch in batches for value in batch) == list(range(0, 20, 2))
    assert max(map(len, batches)) == 4
    assert len(batches) <= 5


def test_different_options_are_not_read_together() -> None:
    async def run() -> list[list[int]]:
        slow = Slow()
        queue = queue_of(slow, gather=0.02)
        queue.start()
        await asyncio.gather(*(ask(queue, 2 * i, key="ab"[i % 2]) for i in range(4)))
        await queue.close()
        return slow.batches

    assert sorted(asyncio.run(run())) == [[0, 4], [2, 6]]


def test_one_bad_input_does_not_spoil_the_others() -> None:
    async def run() -> list[Any]:
        queue = queue_of(Slow(0), gather=0.02)
        queue.start()
        answers = await asyncio.gather(*(ask(queue, value) for value in (2, -1, 3)), return_exceptions=True)
        await queue.close()
        return answers

    good, poison, odd = asyncio.run(run())
    assert good == 20
    assert isinstance(poison, RuntimeError)
    assert isinstance(odd, Ink2TexError)


def test_a_full_queue_refuses_and_a_cancelled_request_frees_its_place() -> None:
    async def run() -> None:
        slow = Slow(0.2)
        queue = queue_of(slow, places=2, batch=1, gather=0)
        queue.start()
        first, second = (asyncio.create_task(ask(queue, value)) for value in (2, 4))
        await asyncio.sleep(0.05)
        with pytest.raises(FullError) as full:
            queue.reserve()
        assert full.value.seconds >= 1
        second.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await ask(queue, 6) == 60
        assert await first == 20
        assert [4] not in slow.batches  # nobody waited for it any more
        await queue.close()

    asyncio.run(run())


def test_closing_answers_what_was_accepted() -> None:
    async def run() -> None:
        queue = queue_of(Slow(0.05), batch=2, gather=0)
        queue.start()
        tasks = [asyncio.create_task(ask(queue, 2 * i)) for i in range(7)]
        await asyncio.sleep(0.03)
        await queue.close()
        assert [await task for task in tasks] == [20 * i for i in range(7)]

    asyncio.run(run())


def test_busy_and_deadline(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(settings(tiny_model, queue=1, deadline=0.3))
    with TestClient(app) as client:
        service = app.state.service
        real = service.queue._read
        service.queue._read = lambda key, values: (time.sleep(0.6), real(key, values))[1]
        late = client.post("/v1/recognize", json={"strokes": STROKES})
        problem(late, 503, "deadline_exceeded")
        places = service.queue.reserve()
        busy = client.post("/v1/recognize", json={"strokes": STROKES})
        problem(busy, 429, "busy")
        assert int(busy.headers["retry-after"]) >= 1
        places.release(True)


def test_a_body_that_does_not_arrive_is_given_up(tiny_model: Path) -> None:
    async def never() -> Any:
        await asyncio.sleep(5)

    async def run() -> None:
        service = Service(settings(tiny_model, deadline=0.1))
        request = Request({"type": "http", "headers": []}, never)
        with pytest.raises(Problem) as slow:
            await service._receive(request)
        assert (slow.value.code, slow.value.status) == ("slow_request", 408)

    asyncio.run(run())


def test_all_bodies_together_have_a_limit(tiny_model: Path) -> None:
    async def chunk() -> Any:
        return {"type": "http.request", "body": b"x" * 60, "more_body": True}

    async def run() -> None:
        service = Service(settings(tiny_model, max_bodies=100))
        with pytest.raises(Problem) as busy:
            await service.bodies.read(Request({"type": "http", "headers": []}, chunk))
        assert busy.value.code == "busy"

    asyncio.run(run())


def test_the_server_does_not_import_torch() -> None:
    code = "import sys, ink2tex.app.server.application; print([m for m in sys.modules if m in ('torch', 'scipy')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_client_that_hangs_up_frees_its_place(tiny_model: Path) -> None:
    body = json.dumps({"strokes": STROKES}).encode()
    head = "POST /v1/recognize?beam=20 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with serving(tiny_model, "--queue", "100", "--threads", "1") as server:
        sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(60)]
        for one in sockets:
            one.sendall(head.encode() + body)
        for one in sockets:
            one.close()
        end = time.monotonic() + 20
        while "ink2tex_queue 0\n" not in (text := httpx.get(server.url + "/metrics").text):
            assert time.monotonic() < end, text
            time.sleep(0.05)
        abandoned = int(text.split("\nink2tex_inputs_abandoned_total ")[1].split()[0])
        assert abandoned > 0
        code, log = server.stop()
        assert "Traceback" not in log
        assert code in (0, -signal.SIGTERM)


def test_several_workers(tiny_model: Path) -> None:
    with serving(tiny_model, "--workers", "2", "--decode", "l2r", "--beam", "1") as server:
        for _ in range(8):
            with httpx.Client() as client:
                assert client.post(server.url + "/v1/recognize", json={"strokes": STROKES}).status_code == 200
        assert 'route="recognize",status="200"} 8\n' in httpx.get(server.url + "/metrics").text
        _, log = server.stop()
        assert log.count("stopped: ") == 2


def test_serve_says_what_is_wrong_in_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ink2tex.app.cli", "serve", "--model", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "model.json" in done.stderr

"""The page in a real browser."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ink2tex.data.readers import read_samples
from ink2tex.ink import Ink, read_inkml, write_inkml
from tests.browser import chromium, chromium_path, fitted, pen, write
from tests.drawn import SAMPLES
from tests.serving import Server, serving

if chromium_path() is None:
    pytest.skip("no chromium here; install Debian's package 'chromium' to test the page", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect

INK = fitted(SAMPLES[3].strokes or ())[:4]  # twelve points each
CROSS = [[(100, 100), (140, 140), (180, 180)], [(180, 100), (140, 142), (100, 180)]]


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[Server]:
    with serving(tiny_model) as server:
        yield server


@pytest.fixture(scope="module")
def browser():  # type: ignore[no-untyped-def]
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser, server: Server):  # type: ignore[no-untyped-def]
    context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.outside = []
    page.on(
        "request", lambda r: None if r.url.startswith((server.url, "blob:", "data:")) else page.outside.append(r.url)
    )
    page.goto(server.url)
    yield page
    assert page.complaints == []
    assert page.outside == []
    context.close()


def read(page) -> str:  # type: ignore[no-untyped-def]
    """The LaTeX, when the page has read what is there."""
    expect(page.locator("#status")).to_have_text(re.compile("Read[.]|^Chosen"), timeout=20_000)
    value: str = page.locator("#latex").input_value()
    return value


def asked(page, strokes, replay=write) -> str:  # type: ignore[no-untyped-def]
    """Write, and wait for the answer to all of it."""
    with page.expect_response(
        lambda r: r.request.method == "POST" and len(json.loads(r.request.post_data)["strokes"]) == len(strokes)
    ):
        replay(page, strokes)
    return read(page)


def recognised(model: Path | None, inkml: Path) -> str:
    """What the command line says, at one size of the picture as the page reads while one writes."""
    command = [sys.executable, "-m", "ink2tex.app.cli", "recognize", str(inkml), "--views", "1"]
    command += ["--model", str(model)] if model else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def replayed(page, model: Path | None, crohme: Path, scratch: Path, number: int) -> str:  # type: ignore[no-untyped-def]
    """Write real ink with the pen; what the page says, which must be what the command line says of the same ink."""
    import tarfile

    with tarfile.open(crohme / "test2014_inkml.tar.xz") as archive:
        members = (m for m in archive if m.name.endswith(".inkml"))
        for _ in range(number + 1):
            member = next(members)
        file = archive.extractfile(member)
        assert file is not None
        strokes = fitted(read_inkml(file.read(), name=member.name).strokes)
    path = scratch / "same.inkml"
    path.write_bytes(write_inkml(Ink(tuple(np.array(stroke, np.float32) for stroke in strokes))))
    said = asked(page, strokes, pen)
    assert said == recognised(model, path)
    return said


def test_writing_reads_as_the_command_line_does(page, tiny_model: Path, crohme: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    replayed(page, tiny_model, crohme, tmp_path, 0)
    assert page.locator("#typeset math").count() == 1


def test_the_shipped_weights_read_writing_as_the_command_line_does(browser, crohme: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with serving(None) as server:
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        answers = set()
        for number in range(4):
            page.goto(server.url)
            answers.add(replayed(page, None, crohme, tmp_path, number))
            assert page.locator("#typeset math").count() == 1
        assert len(answers) == 4
        page.close()


def test_undo_redo_erase_clear(page) -> None:  # type: ignore[no-untyped-def]
    def strokes() -> int:
        with page.expect_request("**/v1/recognize*") as request:
            pass
        return len(json.loads(request.value.post_data)["strokes"])

    write(page, INK)
    assert strokes() == 4
    page.locator("#canvas").press("Control+z")
    assert strokes() == 3
    page.get_by_role("button", name="Redo").click()
    assert strokes() == 4
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#latex")).to_have_value("")
    write(page, CROSS)
    assert strokes() == 2
    page.get_by_role("button", name="Erase").click()
    write(page, [[(100, 105), (104, 104)]])  # touches the beginning of the first stroke only
    assert strokes() == 1
    page.get_by_role("button", name="Undo").click()
    assert strokes() == 2
    page.get_by_role("button", name="Fit").click()


def test_choose_copy_and_point(page) -> None:  # type: ignore[no-untyped-def]
    first = asked(page, INK)
    second = page.locator("#alternatives button").first
    expected = second.get_attribute("aria-label").rpartition(",")[0]
    assert expected != first
    second.click()
    expect(page.locator("#latex")).to_have_value(expected)
    assert page.locator("#alternatives button").first.get_attribute("aria-label").startswith(first)
    for kind, text in (("latex", expected), ("dollars", f"${expected}$")):
        page.locator(f"[data-copy={kind}]").click()
        expect(page.locator("#status")).to_contain_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == text
    page.locator("[data-copy=mathml]").click()
    page.wait_for_function("async () => (await navigator.clipboard.readText()).startsWith('<math')")
    page.locator("#alternatives button").first.click()  # back to the first, whose places are known
    expect(page.locator("#latex")).to_have_value(first)


def test_latex_corrected_by_hand_is_typeset_and_copied(page) -> None:  # type: ignore[no-untyped-def]
    first = asked(page, CROSS)
    field, shown, copied = page.locator("#latex"), page.locator("#typeset"), page.locator("[data-copy=mathml]")
    page.evaluate("navigator.clipboard.writeText('')")
    field.fill(r"\frac{7}{8}")
    copied.click()  # before the pause after which it is typeset
    page.wait_for_function("async () => (await navigator.clipboard.readText()).includes('<mfrac>')")
    expect(shown.locator("mfrac")).to_have_count(1)
    expect(page.locator("#typeset .symbol")).to_have_count(0)  # nobody knows where these were read
    field.fill(r"\frac{7}")
    expect(page.locator("#status")).to_contain_text("cannot be written as MathML")
    expect(shown.locator("math")).to_have_count(0)
    copied.click()
    expect(page.locator("#status")).to_have_class("bad")
    assert "<mn>8</mn>" in page.evaluate("navigator.clipboard.readText()")  # nothing false was copied
    assert all("422" in complaint for complaint in page.complaints)
    page.complaints.clear()  # the browser logs refused requests itself
    field.fill("")
    expect(copied).to_be_disabled()
    field.fill(first)
    expect(page.locator("#typeset .symbol").first).to_be_visible()


def test_a_symbol_lights_its_place(page) -> None:  # type: ignore[no-untyped-def]
    asked(page, CROSS)
    symbol = page.locator("#typeset .symbol").first
    symbol.hover()
    boxes = json.loads(page.locator("#canvas").get_attribute("data-lit"))
    assert boxes
    for left, top, right, bottom in boxes:  # on the ink
        assert 80 < left < right < 200
        assert 80 < top < bottom < 200
    page.locator("#latex").hover()
    assert page.locator("#canvas").get_attribute("data-lit") is None


def test_history_is_training_data(page, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    asked(page, CROSS)
    page.locator("#latex").fill("x + \\frac{1}{2} < y^{2}")
    page.get_by_role("button", name="Keep").click()
    page.reload()
    expect(page.locator("#history code")).to_have_text("x + \\frac{1}{2} < y^{2}")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export as InkML").click()
    path = tmp_path / "handwriting.zip"
    download.value.save_as(path)
    (sample,) = read_samples(path)
    assert " ".join(sample.tokens) == "x + \\frac { 1 } { 2 } < y ^ { 2 }"
    assert len(sample.strokes or ()) == 2
    page.get_by_role("button", name="Open").click()
    assert read(page)
    page.get_by_role("button", name="Forget all").click()
    assert page.locator("#history li").count() == 0


def picture() -> str:
    pixels = np.full((200, 300, 3), 255, np.uint8)
    pixels[60:140, 100:108] = 0
    pixels[96:104, 60:150] = 0
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def test_paste_crop_and_choose_a_picture(page) -> None:  # type: ignore[no-untyped-def]
    page.evaluate(
        """(data) => {
            const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], "a.png", {type: "image/png"}));
            document.dispatchEvent(new ClipboardEvent("paste", {clipboardData: transfer}));
        }""",
        picture(),
    )
    button = page.get_by_role("button", name="Read this part")
    expect(button).to_be_visible()
    write(page, [[(60, 20), (500, 380)]])  # a frame
    page.evaluate(
        "() => { const real = fetch; window.fetch = (url, all) => { window.sent = all.body; return real(url, all); }; }"
    )
    button.click()
    assert read(page)
    assert 100 < page.evaluate("async () => (await createImageBitmap(window.sent)).width") < 300
    page.get_by_role("button", name="Back to writing").click()
    page.locator("#file").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"no picture"})
    expect(page.locator("#status")).to_contain_text("not a picture")
    page.locator("#file").set_input_files(
        {"name": "a.png", "mimeType": "image/png", "buffer": base64.b64decode(picture())}
    )
    page.get_by_role("button", name="Whole picture").click()
    assert read(page)


def test_light_dark_and_no_jump(page) -> None:  # type: ignore[no-untyped-def]
    def paper() -> str:
        colour: str = page.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor")
        return colour

    places = "['#canvas', '#latex', '#others', '#past'].map((s) => document.querySelector(s).getBoundingClientRect().y)"
    light, before = paper(), page.evaluate(places)
    page.get_by_role("button", name="Switch between").click()
    assert paper() != light
    asked(page, CROSS)
    assert page.evaluate(places) == before
    page.emulate_media(color_scheme="dark")
    page.evaluate("localStorage.clear()")
    page.reload()
    assert paper() != light


def test_everything_is_labelled_and_reachable(page) -> None:  # type: ignore[no-untyped-def]
    unnamed = page.evaluate(
        """[...document.querySelectorAll("button, input, textarea, canvas, meter")].filter((e) =>
            !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length)).map((e) => e.outerHTML)"""
    )
    assert unnamed == []
    seen = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id"))
    assert {"theme", "erase", "fit", "clear", "choose", "camera", "canvas", "latex"} <= seen


def test_on_a_phone(browser, server: Server) -> None:  # type: ignore[no-untyped-def]
    context = browser.new_context(viewport={"width": 360, "height": 700}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(server.url)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    box = page.locator("#canvas").bounding_box()
    with page.expect_response("**/v1/recognize*"):
        page.touchscreen.tap(box["x"] + 50, box["y"] + 50)
    context.close()


def test_an_error_is_a_sentence(page, server: Server) -> None:  # type: ignore[no-untyped-def]
    page.route("**/v1/recognize*", lambda route: route.abort())
    write(page, CROSS)
    expect(page.locator("#status")).to_contain_text("cannot be reached")
    page.complaints.clear()  # the browser logs the failed request itself


def test_a_token_is_asked_for(browser, tiny_model: Path) -> None:  # type: ignore[no-untyped-def]
    with serving(tiny_model, "--decode", "l2r", "--beam", "1", "--token", "a-long-token") as server:
        context = browser.new_context()
        page = context.new_page()
        page.goto(server.url)
        write(page, CROSS)
        field = page.get_by_label("This server wants a token")
        field.fill("a-long-token")
        field.press("Enter")
        assert read(page)
        expect(field).to_be_hidden()
        context.close()

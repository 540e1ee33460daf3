"""A real browser for tests and screenshots: Debian's chromium, driven by Playwright, with nothing but this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--no-first-run",
    "--no-default-browser-check",
]


def chromium_path() -> str | None:
    return shutil.which("chromium")


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def fitted(strokes: Sequence[np.ndarray], width: int = 500, height: int = 300) -> list[list[tuple[int, int]]]:
    """Strokes scaled into a sheet, on whole pixels, as a mouse gives them; no point twice in a row."""
    points = np.concatenate(list(strokes))
    low, high = points.min(axis=0), points.max(axis=0)
    scale = min(width / max(high[0] - low[0], 1e-6), height / max(high[1] - low[1], 1e-6))
    made = []
    for stroke in strokes:
        places = [tuple(place) for place in np.rint((stroke - low) * scale + 20).astype(int).tolist()]
        made.append([place for i, place in enumerate(places) if not i or place != places[i - 1]])
    return made


def write(page: Page, strokes: Sequence[Sequence[tuple[int, int]]]) -> None:
    """Replay strokes on the sheet with the mouse."""
    box = page.locator("#canvas").bounding_box()
    assert box is not None
    for stroke in strokes:
        page.mouse.move(box["x"] + stroke[0][0], box["y"] + stroke[0][1])
        page.mouse.down()
        for x, y in stroke[1:]:
            page.mouse.move(box["x"] + x, box["y"] + y)
        page.mouse.up()


def pen(page: Page, strokes: Sequence[Sequence[tuple[int, int]]]) -> None:
    """Replay strokes on the sheet as the events of a pen, several points to an event as a fast pen has them."""
    page.evaluate(
        """(strokes) => {
            const canvas = document.querySelector("#canvas"), box = canvas.getBoundingClientRect();
            const event = (kind, [x, y], coalesced = []) => new PointerEvent(kind, {
                pointerId: 7, pointerType: "pen", isPrimary: true, bubbles: true, button: 0, buttons: 1,
                clientX: box.left + x, clientY: box.top + y, coalescedEvents: coalesced });
            for (const stroke of strokes) {
                canvas.dispatchEvent(event("pointerdown", stroke[0]));
                for (let i = 1; i < stroke.length; i += 3) {
                    const points = stroke.slice(i, i + 3);
                    const parts = points.map((point) => event("pointermove", point));
                    canvas.dispatchEvent(event("pointermove", points.at(-1), parts));
                }
                canvas.dispatchEvent(event("pointerup", stroke.at(-1)));
            }
        }""",
        [[list(place) for place in stroke] for stroke in strokes],
    )

"""Pictures of the page for the README: light, dark and on a phone.

    python scripts/screenshots.py --model model/ --ink examples/quadratic.inkml --output docs/screenshots

starts a server of its own, writes the ink on the page in Debian's chromium and takes the pictures.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from ink2tex.ink import read_inkml  # noqa: E402
from tests.browser import chromium, chromium_path, fitted, pen  # noqa: E402
from tests.serving import serving  # noqa: E402

DEVICES = {
    "light": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "device_scale_factor": 2},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model folder; the weights of the package when left out")
    parser.add_argument("--ink", type=Path, default=ROOT / "examples" / "quadratic.inkml")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "screenshots")
    arguments = parser.parse_args()
    if chromium_path() is None:
        sys.exit("there is no chromium here; install Debian's package 'chromium'")
    arguments.output.mkdir(parents=True, exist_ok=True)
    strokes = read_inkml(arguments.ink).strokes
    with serving(arguments.model) as server, chromium() as browser:
        for name, device in DEVICES.items():
            page = browser.new_page(**device)  # type: ignore[arg-type]
            page.goto(server.url)
            box = page.locator("#canvas").bounding_box()
            assert box is not None
            pen(page, fitted(strokes, int(box["width"]) - 40, int(box["height"]) - 40))
            page.get_by_text(re.compile("^Read[.]")).wait_for(timeout=60_000)
            if name != "phone" and page.locator("#typeset .symbol").count():
                page.locator("#typeset .symbol").first.hover()
            page.screenshot(path=arguments.output / f"{name}.png")
            print(arguments.output / f"{name}.png")
            page.close()


if __name__ == "__main__":
    main()

"""`ink2tex explain`: a drawing of where the network looked, token by token (the paper's attention figure)."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ink2tex.errors import Ink2TexError
from ink2tex.latex.pretty import pretty
from ink2tex.runtime.recognizer import Explanation
from ink2tex.vocabulary import Direction

SUFFIXES: Final = (".gif", ".png", ".html")
_NAMES: Final = {Direction.L2R: "left to right", Direction.R2L: "right to left"}
#: The colour that attention adds to white paper.
_RED: Final = np.array([230, 40, 30], np.float32)
_WIDTH: Final = 900  # of a panel, at most
_LINE: Final = 18  # height of a caption


@dataclass(frozen=True, eq=False)
class _Step:
    """A token, and the picture with the attention drawn on it."""

    token: str
    image: Image.Image
    probability: float


def write(explanation: Explanation, output: Path) -> None:
    """Draw the steps of all branches to a GIF (a film), PNG (a sheet) or HTML (to point at)."""
    suffix = output.suffix.lower()
    if suffix not in SUFFIXES:
        raise Ink2TexError(f"{output}: an explanation is a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file")
    try:
        if suffix == ".html":
            output.write_text(_page(explanation), encoding="utf-8")
        elif suffix == ".png":
            _sheet(explanation).save(output)
        else:
            frames = _film(explanation)
            frames[0].save(output, save_all=True, append_images=frames[1:], duration=600, loop=0)
    except OSError as error:
        raise Ink2TexError(f"{output}: cannot be written ({error})") from None


def _steps(explanation: Explanation, direction: Direction, scale: float) -> list[_Step]:
    """The steps of one branch in the order in which it made them."""
    answer = explanation.answers[direction]
    assert answer.attention is not None
    tokens = explanation.vocabulary.decode(answer.tokens)
    steps = [
        _Step(token, _overlay(explanation, attention, scale), float(np.exp(logprob)))
        for token, attention, logprob in zip(tokens, answer.attention, answer.logprobs, strict=True)
    ]
    return steps if direction is Direction.L2R else steps[::-1]


def _overlay(explanation: Explanation, attention: np.ndarray, scale: float) -> Image.Image:
    """Dark ink on white paper, red where the attention (h, w) lies."""
    bitmap = explanation.prepared.bitmap
    height, width = bitmap.shape
    rows, columns = attention.shape
    spread = cv2.resize(
        attention / max(float(attention.max()), 1e-9),
        (round(columns * explanation.cell), round(rows * explanation.cell)),
        interpolation=cv2.INTER_CUBIC,
    )
    heat = np.zeros((height, width), np.float32)
    h, w = min(height, spread.shape[0]), min(width, spread.shape[1])
    heat[:h, :w] = spread[:h, :w].clip(0, 1)
    paper = 255 - heat[..., None] * 0.6 * (255 - _RED)
    ink = (bitmap / 255.0)[..., None]
    picture = (paper * (1 - ink)).astype(np.uint8)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR)


def _scale(explanation: Explanation, most: int) -> float:
    return min(2.0, most / explanation.prepared.bitmap.shape[1])


def _caption(draw: ImageDraw.ImageDraw, place: tuple[float, float], text: str, size: int = 13) -> None:
    draw.text(place, text, fill=(60, 60, 60), font=ImageFont.load_default(size))


def _film(explanation: Explanation) -> list[Image.Image]:
    """A frame for each step, the branches one below the other."""
    scale = _scale(explanation, _WIDTH)
    branches = [(direction, _steps(explanation, direction, scale)) for direction in explanation.answers]
    bitmap = explanation.prepared.bitmap
    width, height = max(round(bitmap.shape[1] * scale), 240), round(bitmap.shape[0] * scale)
    frames = []
    for t in range(max(1, *(len(steps) for _, steps in branches))):
        frame = Image.new("RGB", (width, (height + 2 * _LINE) * len(branches)), "white")
        draw = ImageDraw.Draw(frame)
        for i, (direction, steps) in enumerate(branches):
            top = i * (height + 2 * _LINE)
            now = steps[min(t, len(steps) - 1)]
            frame.paste(now.image, (0, top))
            written = [step.token for step in steps[: t + 1]]
            line = pretty(written if direction is Direction.L2R else written[::-1])
            _caption(draw, (4, top + height), f"{_NAMES[direction]}: {now.token}  ({now.probability:.2f})")
            _caption(draw, (4, top + height + _LINE), line[-120:] if direction is Direction.L2R else line[:120])
        frames.append(frame)
    return frames


def _sheet(explanation: Explanation) -> Image.Image:
    """All steps as small pictures, the branches one below the other."""
    scale = _scale(explanation, 280)
    bitmap = explanation.prepared.bitmap
    width, height = max(round(bitmap.shape[1] * scale), 80) + 12, round(bitmap.shape[0] * scale) + _LINE + 10
    across = max(1, 1200 // width)
    branches = [(direction, _steps(explanation, direction, scale)) for direction in explanation.answers]
    down = [-(-len(steps) // across) for _, steps in branches]
    sheet = Image.new("RGB", (across * width + 12, sum(n * height + 2 * _LINE for n in down)), "white")
    draw = ImageDraw.Draw(sheet)
    top = 0
    for (direction, steps), rows in zip(branches, down, strict=True):
        tokens = explanation.vocabulary.decode(explanation.answers[direction].tokens)
        _caption(draw, (8, top + 6), f"{_NAMES[direction]}: {pretty(tokens)}", 15)
        for i, step in enumerate(steps):
            x, y = 8 + i % across * width, top + 2 * _LINE + i // across * height
            sheet.paste(step.image, (x, y))
            draw.rectangle((x - 1, y - 1, x + step.image.width, y + step.image.height), outline=(210, 210, 210))
            _caption(draw, (x, y + step.image.height + 1), f"{step.token}  {step.probability:.2f}")
        top += rows * height + 2 * _LINE
    return sheet


def _data_url(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.quantize(64).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _page(explanation: Explanation) -> str:
    """One page without any other file: point at a token to see where it was read."""
    scale = _scale(explanation, _WIDTH)
    sections: list[str] = []
    for direction in explanation.answers:
        steps = _steps(explanation, direction, scale)
        sections.append(_section(_NAMES[direction], steps))
    return _TEMPLATE.replace("@sections@", "\n".join(sections))


def _section(title: str, steps: Sequence[_Step]) -> str:
    if not steps:
        return f"<section><h2>{title}</h2><p>nothing was read</p></section>"
    pictures = json.dumps([_data_url(step.image) for step in steps])
    tokens = "".join(
        f'<button data-step="{i}" title="{step.probability:.3f}" style="--sure:{step.probability:.3f}">'
        f"{html.escape(step.token)}</button>"
        for i, step in enumerate(steps)
    )
    first = steps[0].image
    return (
        f"<section><h2>{title}</h2><img alt='attention' width='{first.width}' height='{first.height}'>"
        f"<p>{tokens}</p><script type='application/json'>{pictures}</script></section>"
    )


_TEMPLATE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Where the network looked</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2rem auto; padding: 0 1rem; color: #222; }
img { max-width: 100%; height: auto; border: 1px solid #ddd; }
button { font: 15px ui-monospace, monospace; margin: 2px; padding: 2px 7px; border: 1px solid #bbb; border-radius: 4px;
  background: rgb(255 255 255 / var(--sure)); cursor: pointer; }
button[aria-current] { background: #e6281e; color: white; }
</style>
<h1>Where the network looked</h1>
<p>Point at a token, or go through them with the arrow keys.</p>
@sections@
<script>
for (const section of document.querySelectorAll("section")) {
  const data = section.querySelector("script");
  if (!data) continue;
  const pictures = JSON.parse(data.textContent), buttons = [...section.querySelectorAll("button")];
  const show = (i) => {
    section.querySelector("img").src = pictures[i];
    buttons.forEach((b, j) => j === i ? b.setAttribute("aria-current", "step") : b.removeAttribute("aria-current"));
  };
  buttons.forEach((b, i) => {
    b.onmouseenter = b.onfocus = () => show(i);
    b.onkeydown = (e) => {
      const next = buttons[i + ({ ArrowRight: 1, ArrowLeft: -1 }[e.key] ?? 0)];
      if (next) next.focus();
    };
  });
  show(0);
}
</script>
</html>
"""

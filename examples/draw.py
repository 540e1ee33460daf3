r"""Write expressions by an artificial hand, from the pen strokes of `glyphs.py`.

    python examples/draw.py

draws the examples of this folder anew: `<name>.inkml` (strokes, symbols and truth), `<name>.png` (the same ink as a
person would save it: black on white) and `labels.tsv`. `write` draws any label over the symbols of `glyphs.py`; the
same seed gives the same ink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from glyphs import SPELT, WAYS, curve, strokes_of
from PIL import Image

from ink2tex.data.augment import AugmentSettings, deform
from ink2tex.data.placed import Glyph
from ink2tex.data.sample import Sample
from ink2tex.data.spans import Item, Role, Row, parse
from ink2tex.ink import Ink, Symbol, write_inkml
from ink2tex.latex.pretty import pretty
from ink2tex.raster import RasterStyle, official_scale, rasterise, scale_strokes

FOLDER = Path(__file__).parent

#: Name, seed of the hand, label.
EXAMPLES = (
    ("mean", 1, r"\frac { a + b } { 2 }"),
    ("pythagoras", 2, r"x ^ { 2 } + y ^ { 2 } = z ^ { 2 }"),
    ("discriminant", 3, r"\sqrt { b ^ { 2 } - 4 a c }"),
    ("basel", 4, r"\sum _ { n = 1 } ^ { \infty } \frac { 1 } { n ^ { 2 } } = \frac { \pi ^ { 2 } } { 6 }"),
    ("integral", 5, r"\int _ { 0 } ^ { 1 } x ^ { 2 } d x"),
    ("limit", 6, r"\lim _ { x \rightarrow 0 } \frac { \sin x } { x } = 1"),
    ("progression", 7, r"a _ { n + 1 } = a _ { n } + d"),
    ("product", 8, r"( x + 1 ) ( x - 1 )"),
    ("euler", 9, r"e ^ { i \pi } + 1 = 0"),
    ("greek", 10, r"\alpha + \beta = \gamma"),
    ("quadratic", 11, r"\frac { - b \pm \sqrt { b ^ { 2 } - 4 a c } } { 2 a }"),
    ("function", 13, r"f ( x ) = 3 x + 7"),
)

#: The hand: what every drawing gets, in pixels of the official bitmaps and in shares of a symbol.
HAND = AugmentSettings(
    shear=0.12,
    rotation=1.5,
    elastic=1.6,
    elastic_wavelength=120.0,
    shift_symbol=0.045,
    scale_symbol=0.07,
    rotate_symbol=3.0,
    noise=0.12,
)
#: How far the pen passes beside the points of a glyph, and how much spaces vary; in units of `glyphs.py`.
TREMOR = 2.8
UNEVEN = 7.0
#: Pixels of a unit, in width and height: the ink comes out at about the size of the official bitmaps.
PIXEL = np.array([0.28, 0.25])

AXIS = -47.0  # where bars, minus and plus are
SCRIPT = 0.58  # size of scripts
GAP = 27.0  # between two symbols
#: More room on both sides of some.
WIDE = {
    **dict.fromkeys(("+", "-", r"\pm", r"\rightarrow"), 16.0),
    **dict.fromkeys(("(", ")"), 6.0),
    **dict.fromkeys(("=", r"\sin", r"\int", r"\frac", r"\sqrt"), 24.0),
    **dict.fromkeys((r"\lim", r"\sum"), 34.0),
}
BELOW_AND_ABOVE = (r"\sum", r"\lim")

#: A PNG is twice the size of the official bitmaps, with a pen to match.
PICTURE_SCALE = 2.0
PICTURE = RasterStyle(thickness=5.0, margins=(40, 40, 40, 40), antialias=True)


@dataclass
class Block:
    """Symbols that stand together: token and strokes of each, in the order of writing."""

    symbols: list[tuple[int, list[np.ndarray]]]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom."""
        points = np.concatenate([stroke for _, strokes in self.symbols for stroke in strokes])
        (left, top), (right, bottom) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
        return left, top, right, bottom

    def moved(self, dx: float, dy: float, size: float = 1.0) -> Block:
        """Scaled about the origin, then shifted."""
        return Block([(token, [stroke * size + (dx, dy) for stroke in strokes]) for token, strokes in self.symbols])

    def __add__(self, other: Block) -> Block:
        return Block(self.symbols + other.symbols)


class Writer:
    """Lays out one label, symbol by symbol as a person writes it."""

    def __init__(self, tokens: Sequence[str], rng: np.random.Generator) -> None:
        self.tokens = tokens
        self.rng = rng
        # A person keeps to one way of writing a symbol.
        self.ways = {token: WAYS[token][rng.integers(len(WAYS[token]))] for token in WAYS}

    def row(self, row: Row) -> Block:
        """Items beside each other on a line."""
        line = Block([])
        right, space = 0.0, 0.0
        for item in row.items:
            block = self.item(item)
            wide = WIDE.get(self.tokens[item.head], 0.0)
            if line.symbols:
                right += GAP + max(space, wide) + self._uneven()
            line += block.moved(right - block.box[0], 0.0)
            right, space = line.box[2], wide
        return line

    def item(self, item: Item) -> Block:
        """A symbol with all that hangs on it; its left end is anywhere, it stands on y = 0."""
        token = self.tokens[item.head]
        parts = {part.role: self.row(part) for part in item.parts}
        if token == r"\frac":
            block = self._fraction(item.head, parts[Role.NUMERATOR], parts[Role.DENOMINATOR])
        elif token == r"\sqrt":
            block = self._root(item.head, parts[Role.RADICAND])
        else:
            block = Block([(item.head, self._symbol(token))])
        return self._scripts(block, token, parts.get(Role.SUB), parts.get(Role.SUP))

    def _uneven(self) -> float:
        return float(np.clip(self.rng.normal(0.0, UNEVEN), -2 * UNEVEN, 2 * UNEVEN))

    def _symbol(self, token: str) -> list[np.ndarray]:
        strokes: list[np.ndarray] = []
        right = 0.0
        for letter in SPELT.get(token, [token]):
            own = strokes_of(self.ways[letter], self.rng, TREMOR)
            strokes += [stroke + np.array([right, 0.0]) for stroke in own]
            right = max(float(stroke[:, 0].max()) for stroke in strokes) + 0.7 * GAP
        return strokes

    def _fraction(self, head: int, above: Block, below: Block) -> Block:
        width = max(block.box[2] - block.box[0] for block in (above, below)) + 36 + abs(self._uneven())
        bar = curve(f"0,{AXIS} {width / 2:.1f},{AXIS - 2} {width:.1f},{AXIS - 3}", self.rng, TREMOR)
        above, below = (
            block.moved(0.5 * (width - block.box[0] - block.box[2]) + self._uneven(), 0.0) for block in (above, below)
        )
        above = above.moved(0.0, AXIS - 38 + 0.5 * self._uneven() - above.box[3])
        below = below.moved(0.0, AXIS + 38 + 0.5 * self._uneven() - below.box[1])
        return above + Block([(head, [bar])]) + below

    def _root(self, head: int, inside: Block) -> Block:
        left, top, right, bottom = inside.box
        inside = inside.moved(90 - left, 0.0)
        right += 90 - left + 16 + abs(self._uneven())
        top, bottom = top - 30 + 0.5 * self._uneven(), max(bottom, 0.0) + 4
        sign = f"0,{bottom - 62} 14,{bottom - 70}! 22,{bottom - 30} 34,{bottom}! 46,{bottom - 70} 58,{top}!"
        bar = f"{0.5 * (58 + right)},{top - 3} {right},{top - 2}"
        return Block([(head, [curve(f"{sign} {bar}", self.rng, TREMOR)])]) + inside

    def _scripts(self, base: Block, token: str, sub: Block | None, sup: Block | None) -> Block:
        left, top, right, bottom = base.box
        whole = base
        for script, down in ((sub, True), (sup, False)):
            if script is None:
                continue
            script = script.moved(0.0, 0.0, SCRIPT)
            if token in BELOW_AND_ABOVE:
                x = 0.5 * (left + right - script.box[0] - script.box[2])
                y = bottom + 30 - script.box[1] if down else top - 30 - script.box[3]
            elif token == r"\int":
                x = (0.7 * right if down else right + 14) - script.box[0]
                y = bottom + 16 if down else top + 40
            else:
                x = right + 13 - script.box[0]
                y = min(bottom, 10.0) + 34 if down else max(top, -150.0) + 26
            whole += script.moved(x + 0.5 * self._uneven(), y + 0.5 * self._uneven())
        return whole


def write(label: str, seed: int | Sequence[int], uid: str = "") -> Sample:
    """`label` (tokens with spaces between) as ink, in pixels of the official bitmaps."""
    rng = np.random.default_rng(seed)
    tokens = tuple(label.split())
    tree = parse(tokens)
    if tree is None:
        raise ValueError(f"not a label: {label}")
    symbols = Writer(tokens, rng).row(tree).symbols
    glyphs = [Glyph(stroke * PIXEL for stroke in strokes) for _, strokes in symbols]
    strokes = deform(glyphs, np.array([glyph.box for glyph in glyphs]), HAND, rng)
    numbers: list[tuple[int, ...]] = [()] * len(tokens)
    at = 0
    for (token, _), glyph in zip(symbols, glyphs, strict=True):
        numbers[token] = tuple(range(at, at + len(glyph.lengths)))
        at += len(glyph.lengths)
    return Sample(uid, tokens, scale_strokes(strokes, official_scale(strokes)), None, tuple(numbers))


def ink_of(sample: Sample) -> Ink:
    """The ink of a drawing, as a tablet gives it: whole numbers, a tenth of a pixel each, from the origin on."""
    assert sample.strokes is not None
    assert sample.token_strokes is not None
    corner = np.concatenate(sample.strokes).min(axis=0)
    strokes = tuple(np.round((stroke - corner) * 10) for stroke in sample.strokes)
    written = sorted((s, token) for token, s in zip(sample.tokens, sample.token_strokes, strict=True) if s)
    # Segmentations call a fraction by its bar.
    symbols = tuple(Symbol("-" if token == r"\frac" else token, s) for s, token in written)
    return Ink(strokes, uid=sample.uid, truth=f"${pretty(sample.tokens)}$", symbols=symbols)


def picture_of(ink: Ink) -> np.ndarray:
    """The ink as a picture (H, W) uint8, black on white."""
    scale = PICTURE_SCALE * official_scale(ink.strokes)
    return 255 - rasterise(scale_strokes(ink.strokes, scale), PICTURE)


def main(folder: Path = FOLDER) -> None:
    """Write the files of all examples."""
    for name, seed, label in EXAMPLES:
        ink = ink_of(write(label, seed, name))
        (folder / f"{name}.inkml").write_bytes(write_inkml(ink))
        Image.fromarray(picture_of(ink)).save(folder / f"{name}.png", optimize=True)
    labels = "".join(f"{name}\t{label}\n" for name, _, label in EXAMPLES)
    (folder / "labels.tsv").write_text(labels, encoding="utf-8")


if __name__ == "__main__":
    main()

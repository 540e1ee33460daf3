"""More ink than was ever written: other hands, other symbols, other expressions, other pens.

Everything is a function of the samples, the settings and a random generator. Structure comes first (on boxes,
see `ink2tex.data.placed`), then the points are moved once, all together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ink2tex.data.placed import Glyph, Placed, fit, split
from ink2tex.data.recombine import Limits, Recombiner
from ink2tex.data.sample import Sample
from ink2tex.data.symbols import SymbolBank
from ink2tex.errors import RecipeError
from ink2tex.raster import OFFICIAL
from ink2tex.vocabulary import Vocabulary

_WAVES = 4  # of which the elastic distortion is the sum
_PROBABILITIES = (
    "swap",
    "substitute",
    "substitute_symbol",
    "cut",
    "replace",
    "join",
    "wrap",
    "prime",
    "smooth",
    "photograph",
)
_SPREADS = ("aspect", "shear", "rotation", "elastic", "shift_symbol", "scale_symbol", "rotate_symbol", "noise")


@dataclass(frozen=True)
class AugmentSettings:
    """How strongly to augment; as built, nothing is changed.

    A spread is the standard deviation of a normal distribution (cut off at 2.5 times itself), a range is drawn
    from uniformly (the scale: in its logarithm), a probability applies to each sample unless it says otherwise.
    """

    #: Range of the size of the whole expression.
    scale: tuple[float, float] = (1.0, 1.0)
    #: Spread of the logarithm of width over height.
    aspect: float = 0.0
    #: Spread of the slant: pixels to the side per pixel of height.
    shear: float = 0.0
    #: Spread of the turn, in degrees.
    rotation: float = 0.0
    #: Spread of a smooth displacement, in pixels, and the shortest distance over which it turns round.
    elastic: float = 0.0
    elastic_wavelength: float = 100.0
    #: Spreads of each symbol's own displacement (a share of its size), size (logarithm) and turn (degrees).
    shift_symbol: float = 0.0
    scale_symbol: float = 0.0
    rotate_symbol: float = 0.0
    #: Spread of the trembling of the pen in pixels; how far a point may go towards the middle of its neighbours.
    noise: float = 0.0
    smooth: float = 0.0
    #: Range of the thickness of the strokes, in pixels; the official one is the most likely (`_thickness`).
    thickness: tuple[float, float] = (OFFICIAL.thickness, OFFICIAL.thickness)
    #: Probability to be drawn as some picture and prepared again, instead of by the official rasteriser.
    photograph: float = 0.0

    #: Probability for each symbol to be written by another hand.
    swap: float = 0.0
    #: Probability that symbols are exchanged for others of their class, and then for each symbol.
    substitute: float = 0.0
    substitute_symbol: float = 0.3
    #: Probabilities of the changes of structure, of which at most one happens to a sample: a part of the
    #: expression alone; a part replaced by one of another expression; two joined; one put into a larger form.
    cut: float = 0.0
    replace: float = 0.0
    join: float = 0.0
    wrap: float = 0.0
    #: Probability that, after that, a letter gets a prime.
    prime: float = 0.0
    #: Limits of what a change of structure may make; beyond them the expression stays as it is.
    max_tokens: int = 50
    max_width: float = 800.0
    max_height: float = 240.0

    def __post_init__(self) -> None:
        for name, least, most in (("scale", 0.1, 10.0), ("thickness", 1.0, 64.0)):
            value = getattr(self, name)
            if not isinstance(value, Sequence) or len(value) != 2 or not least <= value[0] <= value[1] <= most:
                raise RecipeError(
                    f"augmentation: {name} is a range [low, high] within {least:g} and {most:g}, not {value!r}"
                )
            object.__setattr__(self, name, (float(value[0]), float(value[1])))
        for name in _PROBABILITIES:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise RecipeError(f"augmentation: {name} lies between 0 and 1, not {getattr(self, name)!r}")
        for name in _SPREADS:
            if not 0.0 <= getattr(self, name) < np.inf:
                raise RecipeError(f"augmentation: {name} is a spread of 0 or more, not {getattr(self, name)!r}")
        for name in ("elastic_wavelength", "max_tokens", "max_width", "max_height"):
            if not getattr(self, name) > 0:
                raise RecipeError(f"augmentation: {name} is a number above 0, not {getattr(self, name)!r}")
        if self.restructured > 1.0 + 1e-9:
            raise RecipeError(
                f"augmentation: cut, replace, join and wrap exclude each other, so their sum must not exceed 1, "
                f"but it is {self.restructured:g}"
            )

    @property
    def restructured(self) -> float:
        """The share of the samples whose structure is to change."""
        return self.cut + self.replace + self.join + self.wrap

    @property
    def is_off(self) -> bool:
        """Whether samples stay as they are."""
        strengths = (getattr(self, name) for name in (*_SPREADS, *_PROBABILITIES) if name != "substitute_symbol")
        return self.scale == (1.0, 1.0) and not any(strengths)


class Augmenter:
    """Draws new samples from old ones."""

    def __init__(
        self,
        samples: Sequence[Sample],
        settings: AugmentSettings,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        """Take in `samples`; symbols that `vocabulary` does not hold are never brought into a label."""
        self.samples = samples
        self.settings = settings
        self._placed = [] if settings.is_off else [Placed.of(sample) for sample in samples]
        known = [p for p in self._placed if p is not None]
        if vocabulary is not None:
            known = [p for p in known if all(token in vocabulary for token in p.tokens)]
        self._bank = SymbolBank(known)
        limits = Limits(settings.max_tokens, settings.max_width, settings.max_height)
        self._recombiner = Recombiner(known, self._bank, limits, vocabulary)

    def __call__(self, index: int, rng: np.random.Generator) -> tuple[Sample, float]:
        """A variation of sample `index`, and the thickness of the strokes to draw it with."""
        sample, settings = self.samples[index], self.settings
        thickness = _thickness(settings.thickness, rng)
        if settings.is_off or sample.strokes is None or not any(map(len, sample.strokes)):
            return sample, thickness
        placed = self._placed[index]
        if placed is None:
            # Not all of its ink is accounted for: it moves as one thing.
            whole = Glyph(sample.strokes)
            strokes = deform([whole], whole.box[None], settings, rng, symbols=False)
            return Sample(sample.uid, sample.tokens, strokes, None, sample.token_strokes), thickness
        placed = self._restructure(placed, rng)
        if settings.prime and rng.random() < settings.prime:
            placed = self._recombiner.prime(placed, rng) or placed
        if settings.substitute and rng.random() < settings.substitute:
            placed = self._bank.substitute(placed, settings.substitute_symbol, rng)
        if settings.swap:
            placed = self._bank.swap(placed, settings.swap, rng)
        glyphs = [glyph for glyph in placed.glyphs if glyph is not None]
        strokes = deform(glyphs, placed.boxes[np.isfinite(placed.boxes[:, 0])], settings, rng)
        return Sample(sample.uid, placed.tokens, strokes, None, placed.token_strokes()), thickness

    def _restructure(self, placed: Placed, rng: np.random.Generator) -> Placed:
        settings = self.settings
        if not settings.restructured:
            return placed
        draw = float(rng.random())
        for probability, change in (
            (settings.cut, self._recombiner.cut),
            (settings.replace, self._recombiner.replace),
            (settings.join, self._recombiner.join),
            (settings.wrap, self._recombiner.wrap),
        ):
            if draw < probability:
                return change(placed, rng) or placed
            draw -= probability
        return placed


def _spread(rng: np.random.Generator, deviation: float, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Normal, but never absurdly far out."""
    return deviation * np.clip(rng.standard_normal(shape), -2.5, 2.5)


def deform(
    glyphs: Sequence[Glyph],
    boxes: np.ndarray,  # (G, 4)
    settings: AugmentSettings,
    rng: np.random.Generator,
    symbols: bool = True,
) -> tuple[np.ndarray, ...]:
    """Draw each glyph into its box, and distort: each symbol by itself (if `symbols`), then all together."""
    scale, shift = fit(glyphs, boxes)  # (G, 2) each
    matrices = np.zeros((len(glyphs), 2, 2))
    matrices[:, 0, 0], matrices[:, 1, 1] = scale[:, 0], scale[:, 1]
    if symbols and (settings.shift_symbol or settings.scale_symbol or settings.rotate_symbol):
        matrices, shift = _jitter(matrices, shift, boxes, settings, rng)
    whole = _whole(settings, rng)
    matrices, shift = whole @ matrices, shift @ whole.T

    counts = [len(glyph.points) for glyph in glyphs]
    points = np.concatenate([glyph.points for glyph in glyphs])  # (P, 2)
    m = np.repeat(np.concatenate([matrices.reshape(-1, 4), shift], axis=1).astype(np.float32), counts, axis=0)
    x, y = points[:, 0], points[:, 1]
    points = np.stack([m[:, 0] * x + m[:, 1] * y + m[:, 4], m[:, 2] * x + m[:, 3] * y + m[:, 5]], axis=1)

    lengths = [length for glyph in glyphs for length in glyph.lengths]
    if settings.elastic:
        points += _elastic(points, settings, rng)
    if settings.smooth:
        points = _smooth(points, lengths, float(rng.uniform(0.0, settings.smooth)))
    if settings.noise:
        points += _tremble(len(points), abs(float(_spread(rng, settings.noise))), rng)
    return tuple(split(points, lengths))


def _whole(settings: AugmentSettings, rng: np.random.Generator) -> np.ndarray:  # (2, 2)
    """Scale, aspect, slant and turn of the whole expression, in this order."""
    low, high = np.log(settings.scale)
    size = np.exp(rng.uniform(low, high))
    aspect = np.exp(0.5 * _spread(rng, settings.aspect))
    slant = _spread(rng, settings.shear)
    turn = np.deg2rad(_spread(rng, settings.rotation))
    cos, sin = np.cos(turn), np.sin(turn)
    shear = np.array([[1.0, slant], [0.0, 1.0]])
    return np.array([[cos, -sin], [sin, cos]]) @ shear @ np.diag([size * aspect, size / aspect])


def _jitter(
    matrices: np.ndarray, shift: np.ndarray, boxes: np.ndarray, settings: AugmentSettings, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:  # (G, 2, 2), (G, 2)
    """Move, resize and turn each symbol about its own centre."""
    count = len(boxes)
    centre = 0.5 * (boxes[:, :2] + boxes[:, 2:])
    extent = boxes[:, 2:] - boxes[:, :2]
    size = np.minimum(extent.max(axis=1), 30.0)
    # A long bar is turned less: its ends must not run into what it separates.
    turn = np.deg2rad(_spread(rng, settings.rotate_symbol, (count,))) * np.minimum(1.0, 40.0 / (extent[:, 0] + 1.0))
    own = np.exp(_spread(rng, settings.scale_symbol, (count,)))
    own = np.where(extent.max(axis=1) > 60.0, 1.0, own)
    cos, sin = own * np.cos(turn), own * np.sin(turn)
    local = np.stack([cos, -sin, sin, cos], axis=1).reshape(-1, 2, 2)
    moved = centre + _spread(rng, settings.shift_symbol, (count, 2)) * size[:, None]
    return local @ matrices, (local @ (shift - centre)[:, :, None])[:, :, 0] + moved


def _elastic(points: np.ndarray, settings: AugmentSettings, rng: np.random.Generator) -> np.ndarray:  # (P, 2)
    """A smooth displacement: a few long waves in random directions."""
    direction = rng.uniform(0.0, 2.0 * np.pi, _WAVES)
    number = 2.0 * np.pi / (settings.elastic_wavelength * rng.uniform(1.0, 2.5, _WAVES))
    waves = np.stack([number * np.cos(direction), number * np.sin(direction)]).astype(np.float32)  # (2, waves)
    phase = rng.uniform(0.0, 2.0 * np.pi, _WAVES).astype(np.float32)
    # sin² is ½ on average, hence the 2.
    amplitude = _spread(rng, settings.elastic * np.sqrt(2.0 / _WAVES), (_WAVES, 2)).astype(np.float32)
    return np.sin(points @ waves + phase) @ amplitude


def _smooth(points: np.ndarray, lengths: Sequence[int], share: float) -> np.ndarray:  # (P, 2)
    """Each point moved by `share` towards the middle of its neighbours; the ends of a stroke stay."""
    moved = points.copy()
    moved[1:-1] += share * (0.5 * (points[:-2] + points[2:]) - points[1:-1])
    ends = np.cumsum(lengths)
    fixed = np.concatenate([ends - 1, ends[:-1], [0]])
    moved[fixed] = points[fixed]
    return moved


def _tremble(count: int, deviation: float, rng: np.random.Generator) -> np.ndarray:  # (P, 2)
    """Noise that changes over about five points: a hand trembles more slowly than a tablet samples."""
    noise = rng.standard_normal((count + 4, 2), dtype=np.float32)
    total = np.cumsum(noise, axis=0)
    total[5:] = total[5:] - total[:-5]
    return total[4:] * np.float32(deviation / np.sqrt(5.0))


def _thickness(bounds: tuple[float, float], rng: np.random.Generator) -> float:
    """A pen within `bounds`: by ratio, most likely the official one, ever less likely towards either end.

    So a wide range teaches thick pens without giving them half of the pictures.
    """
    low, high = np.log(bounds)
    if low == high:
        return bounds[0]
    drawn = rng.triangular(low, np.clip(np.log(OFFICIAL.thickness), low, high), high)
    return float(np.clip(np.exp(drawn), *bounds))

"""Recipes: everything that decides what a training run does, read from YAML and checked strictly."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from ink2tex.data.augment import AugmentSettings
from ink2tex.data.batches import BatchSettings
from ink2tex.errors import RecipeError
from ink2tex.model.config import NetworkConfig
from ink2tex.settings import from_mapping, to_mapping


@dataclass(frozen=True)
class LossSettings:
    """Weights of the parts of the loss; each part is a mean over tokens."""

    #: λ and S of mutual learning (equations 9, 10 and 14).
    mutual: float = 0.5
    temperature: float = 2.0
    #: Label smoothing of the recognition losses.
    smoothing: float = 0.0
    #: Supervision from the ink: attention on the strokes of the token, from the first value to the second over the
    #: first `attention_steps` steps; and a classifier of the symbols that cells hold.
    attention: tuple[float, float] = (0.0, 0.0)
    attention_steps: int = 10000
    cells: float = 0.0
    #: For so many steps the classifier of cells learns alone: a new one would lead a trained encoder astray.
    cells_alone: int = 0
    #: Share of the decoder's input tokens that is replaced by random ones, so that it learns to look.
    token_noise: float = 0.0

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise RecipeError("'temperature' is above 0")
        if not 0 <= self.token_noise < 1 or not 0 <= self.smoothing < 1:
            raise RecipeError("'token_noise' and 'smoothing' are shares between 0 and 1")


@dataclass(frozen=True)
class OptimiserSettings:
    """How weights follow gradients."""

    kind: Literal["adadelta", "adamw", "muon"] = "adadelta"
    rate: float = 1.0
    weight_decay: float = 0.0
    #: Norm to which gradients are clipped; 0 leaves them.
    clip: float = 100.0
    #: Decay of the moving average of the weights that is validated and saved; 0 for none.
    average: float = 0.0

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise RecipeError("'rate' is above 0")
        if not 0 <= self.average < 1:
            raise RecipeError("'average' lies between 0 and 1")


@dataclass(frozen=True)
class ScheduleSettings:
    """How the rate changes, and when the run ends.

    `plateau` is the paper's: the rate is halved when the validation WER has not fallen for `patience` validations,
    and after `halvings` of them the run ends. `hold` keeps the rate and lets it fall to zero, linearly in the
    square root of time left, over the last `decay` steps. `cosine` falls from the start.
    """

    kind: Literal["plateau", "hold", "cosine"] = "plateau"
    warmup: int = 0
    patience: int = 15
    halvings: int = 10
    #: The run ends after this many steps (0: never); `cosine` and a `decay` need it.
    steps: int = 0
    decay: int = 0

    def __post_init__(self) -> None:
        if (self.kind == "cosine" or self.decay) and not self.steps:
            raise RecipeError(f"a schedule '{self.kind}' that falls to zero needs 'steps', the length of the run")
        if self.decay > self.steps:
            raise RecipeError("'decay' is longer than the whole run")


@dataclass(frozen=True)
class RunSettings:
    """What is written down, and how often."""

    #: Steps between two saves; a killed run goes on from the last one.
    save_every: int = 200
    #: Steps between two validations; 0 for once an epoch.
    validate_every: int = 0
    #: Best checkpoints to keep, by validation WER.
    keep: int = 3
    #: Products of matrices in training: with `bfloat16` in half as many bits, weights, norms and states stay in 32;
    #: `auto` does so where the processor has a unit for it. Validation reads with 32 bits.
    precision: Literal["float32", "bfloat16", "auto"] = "float32"


@dataclass(frozen=True)
class Recipe:
    """A training run."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    batch: BatchSettings = field(default_factory=BatchSettings)
    augment: AugmentSettings = field(default_factory=AugmentSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    run: RunSettings = field(default_factory=RunSettings)
    seed: int = 1

    def to_mapping(self) -> dict[str, Any]:
        """The recipe in types that JSON and YAML know."""
        return to_mapping(self)

    def changes(self, other: Recipe) -> list[str]:
        """What differs in `other`, one line for each key."""
        ours, theirs = _flat(self.to_mapping()), _flat(other.to_mapping())
        return [f"{key}: {ours[key]} → {theirs[key]}" for key in ours if ours[key] != theirs[key]]


def read_recipe(path: str | Path) -> Recipe:
    """Read and check a YAML recipe. With `base: other.yaml` it says only what differs from the recipe beside it."""
    return parse_recipe(_values(Path(path)), str(path))


def _values(path: Path, above: tuple[Path, ...] = ()) -> Any:
    """What a recipe and those that it is based on say; `above` are the recipes that are based on this one."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = f"it is the 'base' of {above[-1]}" if above else "recipes that come with ink2tex are in recipes/"
        raise RecipeError(f"{path}: there is no such file; {hint}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(f"{path}: not a YAML file ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict) or "base" not in values:
        return values if values is not None else {}
    base = values.pop("base")
    if not isinstance(base, str):
        raise RecipeError(f"{path}: 'base' is {base!r}, but must be the name of another recipe")
    other = path.parent / base
    above = (*above, path)
    if other.resolve() in (one.resolve() for one in above):
        raise RecipeError(f"{path}: its 'base' {base} is based on this very recipe; one of them must stand alone")
    below = parse_recipe(_values(other, above), str(other)).to_mapping()  # its mistakes are told under its name
    return _merged(below, values)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`below` with what `above` says of the same keys, group by group."""
    both = dict(below)
    for key, value in above.items():
        old = below.get(key)
        both[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def parse_recipe(values: Any, where: str) -> Recipe:
    """A recipe from plain values; `where` names their source in errors."""
    try:
        return from_mapping(Recipe, values)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from None


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat

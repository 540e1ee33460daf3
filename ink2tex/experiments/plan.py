"""What the paper compares: variants of one recipe, and the tables that they fill.

A variant is a recipe with some keys changed; several tables share variants, and each is trained once. The paper's own
figures (Bian et al., AAAI 2022, section 4) stand beside ours in every table.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ink2tex.errors import RecipeError, did_you_mean
from ink2tex.metrics import LENGTH_GROUPS, Report, group_name
from ink2tex.training.recipe import Recipe, parse_recipe

_SIZES: Final = "network.decoder.attention.kernels"
_BASELINE: Final = {_SIZES: [11], "network.mode": "l2r"}
_AAM: Final = {_SIZES: [5, 11]}
_BML: Final = {"network.mode": "bml"}
_KERNELS: Final = ((3,), (5,), (7,), (11,), (3, 7), (5, 7), (3, 11), (5, 11), (7, 11))
_LAMBDAS: Final = (0.1, 0.3, 0.5, 0.7, 1.0)


def _both(base: Mapping[str, Any], name: str, modules: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A network without and with the paper's modules."""
    return {name: {**base, **_BASELINE}, f"{name}-abm": {**base, **_BASELINE, **modules}}


#: Changes of a recipe by the name of the variant.
VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "uni-l2r": {**_BASELINE},
    "uni-r2l": {**_BASELINE, "network.mode": "r2l"},
    "aam": {**_BASELINE, **_AAM},
    "bml": {**_BASELINE, **_BML},
    "abm": {**_AAM, **_BML},
    "aum-l2r": {**_AAM, "network.mode": "aum"},
    "aum-r2l": {**_AAM, "network.mode": "aum-r2l"},
    **_both({"network.encoder.kind": "mobilenetv2"}, "mobilenetv2", {**_AAM, **_BML}),
    **_both({"network.encoder.kind": "xception"}, "xception", {**_AAM, **_BML}),
    **_both({"network.decoder.kind": "lstm"}, "lstm", {**_AAM, **_BML}),
    **_both({"network.decoder.kind": "transformer"}, "transformer", _BML),
    **{f"kernels-{'-'.join(map(str, sizes))}": {**_BML, _SIZES: list(sizes)} for sizes in _KERNELS},
    **{f"lambda-{value:g}": {**_AAM, **_BML, "loss.mutual": value} for value in _LAMBDAS},
}
#: Other names of the same thing: it is not trained twice.
SAME: Final = {"kernels-5-11": "abm", "kernels-11": "bml", "lambda-0.5": "abm"}

_RATES: Final = ("ExpRate", "≤ 1", "≤ 2", "WER")
_EDGES: Final = ("prefix-2", "suffix-2", "prefix-5", "suffix-5")
_LENGTHS: Final = tuple(group_name(*group) for group in LENGTH_GROUPS)


@dataclass(frozen=True)
class Line:
    """One row of a table: a variant read by one of its branches, and what the paper found."""

    label: str
    variant: str
    decode: str = "l2r"
    paper: tuple[float, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def variants(self) -> tuple[str, ...]:
        """What has to be trained, each once."""
        return tuple(dict.fromkeys(SAME.get(line.variant, line.variant) for line in self.lines))

    def values(self, report: Report) -> tuple[float, ...]:
        """The columns of a row."""
        if self.columns == _EDGES:
            return tuple(report.edge(name) for name in _EDGES)
        if self.columns == _LENGTHS:
            return tuple(tally.exprate for tally in report.lengths.values())
        return (report.exprate, report.le1, report.le2, report.wer)[: len(self.columns)]


EXPERIMENTS: Final[dict[str, Experiment]] = {
    "ablation": Experiment(
        "Ablation study",
        _RATES,
        (
            Line("Baseline", "uni-l2r", paper=(50.60, 68.05, 71.56, 13.12)),
            Line("+AAM", "aam", paper=(52.64, 68.62, 77.25, 12.12)),
            Line("+BML", "bml", paper=(55.23, 72.58, 79.08, 10.25)),
            Line("ABM", "abm", paper=(56.85, 73.73, 81.24, 10.01)),
        ),
    ),
    "comparison": Experiment(
        "The baseline and ABM on a test set (the paper's figures: CROHME 2014)",
        _RATES[:3],
        (
            Line("DWAP", "uni-l2r", paper=(50.60, 68.05, 71.56)),
            Line("ABM", "abm", paper=(56.85, 73.73, 81.24)),
        ),
    ),
    "directions": Experiment(
        "Decoding directions",
        _RATES,
        (
            Line("Uni-L2R", "uni-l2r", "l2r", (50.60, 68.05, 71.56, 12.75)),
            Line("Uni-R2L", "uni-r2l", "r2l", (49.24, 68.05, 71.56, 13.26)),
            Line("AUM-L2R", "aum-l2r", "l2r", (56.24, 71.56, 77.34, 10.76)),
            Line("AUM-R2L", "aum-r2l", "r2l", (54.71, 69.94, 74.12, 11.01)),
            Line("ABM-L2R", "abm", "l2r", (56.85, 73.73, 81.24, 10.01)),
            Line("ABM-R2L", "abm", "r2l", (54.86, 72.01, 78.90, 10.86)),
        ),
    ),
    "edges": Experiment(
        "Prefixes and suffixes",
        _EDGES,
        (
            Line("Uni-L2R", "uni-l2r", "l2r", (85.29, 80.02, 72.21, 67.14)),
            Line("Uni-R2L", "uni-r2l", "r2l", (81.22, 84.47, 67.01, 71.17)),
            Line("ABM-L2R", "abm", "l2r", (88.73, 84.37, 76.35, 73.10)),
            Line("ABM-R2L", "abm", "r2l", (83.37, 87.12, 71.60, 75.86)),
        ),
    ),
    "generality": Experiment(
        "Encoders and decoders without and with AAM and BML (the Transformer: BML)",
        _RATES[:3],
        (
            Line("WAP-MobileNetV2", "mobilenetv2", paper=(40.61, 60.32, 67.59)),
            Line("WAP-MobileNetV2 †", "mobilenetv2-abm", paper=(45.08, 64.56, 73.60)),
            Line("WAP-Xception", "xception", paper=(43.05, 62.45, 70.10)),
            Line("WAP-Xception †", "xception-abm", paper=(46.70, 68.12, 75.83)),
            Line("DWAP-GRU", "uni-l2r", paper=(50.60, 68.05, 71.56)),
            Line("DWAP-GRU †", "abm", paper=(56.85, 73.73, 81.24)),
            Line("DWAP-LSTM", "lstm", paper=(49.64, 65.62, 76.06)),
            Line("DWAP-LSTM †", "lstm-abm", paper=(55.13, 69.95, 78.84)),
            Line("BTTR", "transformer", paper=(48.13, 66.90, 74.30)),
            Line("BTTR ‡", "transformer-abm", paper=(51.47, 69.23, 76.64)),
        ),
    ),
    "lengths": Experiment(
        "ExpRate by length of the expression",
        _LENGTHS,
        (
            Line("DWAP", "uni-l2r", paper=(63.91, 54.03, 47.16, 43.08, 26.82)),
            Line("ABM", "abm", paper=(72.85, 58.46, 51.88, 53.65, 27.66)),
        ),
    ),
    "kernels": Experiment(
        "Kernels of the coverage attention (the paper shows a figure and chooses 5 and 11)",
        _RATES,
        tuple(Line(" and ".join(map(str, sizes)), f"kernels-{'-'.join(map(str, sizes))}") for sizes in _KERNELS),
    ),
    "lambda": Experiment(
        "Weight of mutual learning (the paper shows a figure and chooses 0.5)",
        _RATES,
        tuple(Line(f"λ = {value:g}", f"lambda-{value:g}") for value in _LAMBDAS),
    ),
}


def experiment_of(name: str) -> Experiment:
    """One of `EXPERIMENTS`, or an error that names them."""
    if name not in EXPERIMENTS:
        raise RecipeError(
            f"there is no experiment {name!r}{did_you_mean(name, EXPERIMENTS)}; "
            f"known are {', '.join(EXPERIMENTS)} and features"
        )
    return EXPERIMENTS[name]


def recipe_of(variant: str, base: Recipe, steps: int | None = None) -> Recipe:
    """`base` with the changes of a variant; with `steps`, a run of that length whose rate falls over its last fifth."""
    values = copy.deepcopy(base.to_mapping())
    for path, value in VARIANTS[variant].items():
        *parents, last = path.split(".")
        place = values
        for key in parents:
            place = place[key]
        place[last] = value
    if steps is not None:
        warmup = min(values["schedule"]["warmup"], steps // 4)
        values["schedule"] |= {"kind": "hold", "warmup": warmup, "steps": steps, "decay": steps // 5}
    return parse_recipe(values, variant)

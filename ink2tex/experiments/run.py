"""Carry out an experiment: train what is missing, read the test set, fill the table.

Every variant has a folder of its own with its recipe, its run and what it read. A killed experiment is continued by
the same command: trained variants are not trained again, and a training that was interrupted goes on.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from ink2tex.data.readers import read_samples
from ink2tex.errors import DataError
from ink2tex.experiments.plan import SAME, Experiment, Line, recipe_of
from ink2tex.metrics import Report, read_predictions, score
from ink2tex.model.checkpoint import load_checkpoint
from ink2tex.model.network import Network
from ink2tex.search import SearchOptions
from ink2tex.training.evaluation import read_samples_with
from ink2tex.training.recipe import Recipe

_DONE = "trained"


@dataclass(frozen=True)
class Setting:
    """What all variants have in common."""

    recipe: Recipe
    folder: Path
    data: Path
    valid: Path
    test: Path
    captions: Path | None = None
    valid_captions: Path | None = None
    test_captions: Path | None = None
    cache: Path | None = None
    processes: int = 1
    #: Length of each training in steps; the recipe's own when left out.
    steps: int | None = None
    beam: int = 10


def carry_out(experiment: Experiment, setting: Setting, tell: Callable[[str], None]) -> str:
    """The table of an experiment in Markdown, the paper's figures beside ours."""
    for variant in experiment.variants:
        trained(variant, setting, tell)
    samples = read_samples(setting.test, setting.test_captions, align=False)
    references = {sample.uid: sample.tokens for sample in samples}
    reports = []
    for line in experiment.lines:
        place = folder_of(line.variant, setting) / f"{setting.test.stem}-{line.decode}-beam{setting.beam}.txt"
        if not place.is_file():
            tell(f"reading {setting.test.name} with {line.label}")
            network = best(folder_of(line.variant, setting))
            options = SearchOptions(beam=setting.beam)
            read = read_samples_with(network, samples, line.decode, options)  # type: ignore[arg-type]
            text = "".join(f"{uid}\t{' '.join(tokens)}\n" for uid, tokens in sorted(read.items()))
            partial = place.with_suffix(".part")
            partial.write_text(text, encoding="utf-8")
            partial.replace(place)
        reports.append(score(read_predictions(place, references), references))
    return table(experiment, experiment.lines, reports)


def folder_of(variant: str, setting: Setting) -> Path:
    """Where a variant lives; one that goes by two names lives once."""
    return setting.folder / SAME.get(variant, variant)


def trained(variant: str, setting: Setting, tell: Callable[[str], None]) -> Path:
    """The folder of a variant, trained."""
    folder = folder_of(variant, setting)
    if (folder / _DONE).is_file():
        return folder
    tell(f"training {variant} in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    recipe = folder / "variant.yaml"
    values = recipe_of(variant, setting.recipe, setting.steps).to_mapping()
    recipe.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    options: list[tuple[str, object]] = [
        ("--data", setting.data),
        ("--captions", setting.captions),
        ("--valid", setting.valid),
        ("--valid-captions", setting.valid_captions),
        ("--folder", folder),
        ("--cache", setting.cache),
        ("--processes", setting.processes),
    ]
    given = [str(part) for option in options if option[1] is not None for part in option]
    code = subprocess.call([sys.executable, "-m", "ink2tex.app.cli", "train", str(recipe), *given])
    if code:
        raise DataError(f"training {variant} ended with exit code {code}; start the same command again to continue it")
    (folder / _DONE).touch()
    return folder


def best(folder: Path) -> Network:
    """The network of a run with the lowest validation WER."""
    with open(folder / "valid.csv", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["wer"]))
    for row in rows:
        path = folder / f"best-{int(row['step']):07d}.safetensors"
        if path.is_file():
            return load_checkpoint(path)[0]
    raise DataError(f"{folder}: the run has no validated checkpoint; train it longer than 'run.validate_every' steps")


def table(experiment: Experiment, lines: Sequence[Line], reports: Sequence[Report]) -> str:
    """Markdown; the paper's figures in parentheses."""
    rows = [[experiment.title, *experiment.columns], ["---", *["---:"] * len(experiment.columns)]]
    for line, report in zip(lines, reports, strict=True):
        paper = line.paper or (None,) * len(experiment.columns)
        cells = [
            f"{ours:.2f}" + ("" if theirs is None else f" ({theirs:.2f})")
            for ours, theirs in zip(experiment.values(report), paper, strict=True)
        ]
        rows.append([line.label, *cells])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)

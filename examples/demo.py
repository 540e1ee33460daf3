"""What ink2tex does, in a minute: `make demo`.

With the weights of the package it reads the drawings of this folder. In a checkout without weights it trains a tiny
network on drawings of the same hand first (a dozen symbols, two cores, about a minute) and reads drawings that the
network has not seen.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from draw import FOLDER, write
from rich.console import Console
from rich.progress import track
from rich.table import Table

import ink2tex
from ink2tex.data.readers import read_captions
from ink2tex.latex.pretty import pretty

WEIGHTS = Path(ink2tex.__file__).parent / "weights" / "model.json"
console = Console()


def read_examples() -> None:
    """Read every example with the shipped weights, first the pictures, then the ink."""
    labels = read_captions(FOLDER / "labels.tsv")
    reader = ink2tex.load()
    for kind, suffix in (("picture", ".png"), ("ink", ".inkml")):
        results = [reader.recognize(FOLDER / f"{name}{suffix}") for name in labels]
        rows = [(*label, result.tokens) for label, result in zip(labels.items(), results, strict=True)]
        show(kind, rows, [f"{result.confidence:.0%}" for result in results])


def some_label(rng: np.random.Generator) -> str:
    """Two terms with a sign between: numbers, letters, powers, fractions."""

    def term() -> str:
        number, letter, power = str(rng.choice(list("123"))), str(rng.choice(list("xy"))), str(rng.choice(list("23")))
        over, under = rng.choice(list("123xy"), 2)
        return str(rng.choice([number, letter, f"{letter} ^ {{ {power} }}", f"\\frac {{ {over} }} {{ {under} }}"]))

    return f"{term()} {rng.choice(list('+='))} {term()}"


def train_and_read(drawings: int = 1000, unseen: int = 12, steps: int = 360) -> None:
    """Train on drawings, read others. The loop, the losses and the network's parts are those of a real run."""
    import torch

    from ink2tex.data.batches import BatchSettings
    from ink2tex.model.config import AttentionConfig, DecoderConfig, EncoderConfig, NetworkConfig
    from ink2tex.training.evaluation import read_samples_with
    from ink2tex.training.recipe import LossSettings, OptimiserSettings, Recipe, RunSettings, ScheduleSettings
    from ink2tex.training.run import train
    from ink2tex.vocabulary import Vocabulary

    recipe = Recipe(
        network=NetworkConfig(
            mode="l2r",
            input_scale=0.5,
            encoder=EncoderConfig(kind="light-densenet", growth=16, blocks=(4, 4), stem=(12, 24, 48), dropout=0.0),
            decoder=DecoderConfig(hidden=96, attention=AttentionConfig(width=96, channels=8)),
        ),
        batch=BatchSettings(size=16),
        loss=LossSettings(attention=(1.0, 0.5), attention_steps=steps, cells=1.0),
        optimiser=OptimiserSettings(kind="adamw", rate=5e-3, clip=5.0, average=0.95),
        schedule=ScheduleSettings(kind="cosine", warmup=20, steps=steps),
        run=RunSettings(save_every=20),
    )
    console.print("There are no weights here yet: a tiny network learns to read drawings, in about a minute.")
    rng = np.random.default_rng(7)
    numbers = track(range(1, unseen + drawings + 1), "drawing", console=console)
    samples = [write(some_label(rng), (7, i), str(i)) for i in numbers]
    held_out, samples = samples[:unseen], samples[unseen:]
    torch.set_num_threads(1)  # such small arrays are not worth sharing
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Vocabulary.from_captions(sample.tokens for sample in samples)
        # On a busy machine the run ends early rather than late.
        network = train(recipe, samples, (), folder, vocabulary, minutes=1.1)
    read = read_samples_with(network, held_out)
    show("drawing", [(sample.uid, sample.tokens, read[sample.uid]) for sample in held_out])


def show(kind: str, rows: Sequence[tuple[str, Sequence[str], Sequence[str]]], notes: Sequence[str] = ()) -> None:
    """A table of name, expected and read label (and a note on each), and how many are right."""
    right = sum(tuple(expected) == tuple(read) for _, expected, read in rows)
    table = Table(kind, "expected", "read", "", *(["confidence"] if notes else []))
    for (name, expected, read), note in zip(rows, notes or [""] * len(rows), strict=True):
        mark = "[green]✓" if tuple(expected) == tuple(read) else "[red]✗"
        table.add_row(name, pretty(expected), pretty(read), mark, *([note] if notes else []))
    console.print(table)
    console.print(f"{right} of {len(rows)} read without a mistake")


if __name__ == "__main__":
    read_examples() if WEIGHTS.is_file() else train_and_read()

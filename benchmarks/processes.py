"""Two processes of one thread against one process of two threads: images a second and loss, in the same run.

    python benchmarks/processes.py [--recipe recipes/abm-lite.yaml] [--rounds 2]

All train the recipe's network on the same expressions, one after the other in turns: `--processes 2`; one process with
the recipe as it is, so with half as many images for each optimisation step; and one process with batches of twice the
size, so with the same images for each step, whose loss must agree. Last, one process of one thread: how much of the
second core each of the others makes use of, so how much there is to win. The expressions are those of the CROHME
training set (INK2TEX_CROHME, or beside the repository), augmented as the recipe says; without it, made-up ink of
similar size.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from ink2tex.data.sample import Sample
from ink2tex.training import launch
from ink2tex.vocabulary import CROHME_SYMBOLS, Vocabulary

ROOT = Path(__file__).parents[1]
#: One of so many expressions of the training set is used.
SHARE = 16


def scribbles(count: int, seed: int = 0) -> list[Sample]:
    """Rows of random symbols in the sizes that CROHME has: 5 to 25 tokens, each with a stroke of its own."""
    rng = np.random.default_rng(seed)
    letters = [symbol for symbol in CROHME_SYMBOLS if len(symbol) == 1 and symbol.isalnum()]
    shapes = {letter: rng.random((14, 2)).astype(np.float32) for letter in letters}
    samples = []
    for i in range(count):
        tokens = tuple(rng.choice(letters, size=int(rng.integers(5, 26))))
        strokes = []
        for t, token in enumerate(tokens):
            strokes.append(shapes[token] * (24, 28) + (20.0 * t, 30.0 * (rng.random() > 0.8)))
        samples.append(Sample(f"s{i}", tokens, tuple(strokes), None, tuple((t,) for t in range(len(tokens)))))
    return samples


def expressions(cache: Path) -> list[Sample]:
    """What is trained on."""
    folder = Path(os.environ.get("INK2TEX_CROHME") or ROOT.parent / "shared" / "crohme")
    if not (folder / "train_inkml.tar.xz").is_file():
        return scribbles(800)
    from ink2tex.data.readers import read_samples

    return read_samples(folder / "train_inkml.tar.xz", folder / "train_caption.txt", cache=cache)[::SHARE]


def worker(recipe_path: str, folder: str, cache: str, times: int) -> None:
    """Two epochs with batches `times` as large; speed and loss are what the run itself wrote down for the second."""
    from ink2tex.data.batches import BatchMaker
    from ink2tex.training.recipe import RunSettings, ScheduleSettings, read_recipe
    from ink2tex.training.run import train

    launch.prepare_process()
    recipe = read_recipe(recipe_path)
    large = {"size": recipe.batch.size * times, "pixels": recipe.batch.pixels * times, "small_first": ()}
    batch, samples = dataclasses.replace(recipe.batch, **large), expressions(Path(cache))
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    scale, words = recipe.network.input_scale, Vocabulary()
    steps = len(BatchMaker(samples, words, batch, recipe.augment, scale, recipe.seed, processes).plan(0))
    recipe = dataclasses.replace(
        recipe,
        batch=batch,
        schedule=ScheduleSettings(kind="hold", steps=2 * steps),
        run=RunSettings(save_every=steps, validate_every=10**9, keep=1),
    )
    train(recipe, samples, [], folder)


def measure(processes: int, threads: int, times: int, arguments: argparse.Namespace) -> tuple[float, float]:
    """Images a second of the second epoch (kernels are built in the first), and its mean loss."""
    with tempfile.TemporaryDirectory() as folder:
        inner = [str(Path(__file__).resolve()), "--worker", folder, "--recipe", arguments.recipe]
        inner += ["--cache", arguments.cache, "--times", str(times)]
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command = [sys.executable, *(launcher if processes > 1 else []), *inner]
        environment = launch.environment(threads)
        subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
        header, *rows = (Path(folder) / "train.csv").read_text().splitlines()
        last = dict(zip(header.split(","), rows[-1].split(","), strict=True))
        return float(last["images_per_second"]), float(last["l2r"]) + float(last["r2l"])


def main() -> None:
    """Print speeds, ratios and losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default=str(ROOT / "recipes" / "abm-lite.yaml"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cache", default=str(Path(tempfile.gettempdir()) / "ink2tex-benchmark"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--times", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.recipe, arguments.worker, arguments.cache, arguments.times)
        return
    expressions(Path(arguments.cache))  # parsed once
    kinds = {  # processes, threads of each, size of batches
        "2 processes × 1 thread": (2, 1, 1),
        "1 process × 2 threads": (1, 2, 1),
        "  same images a step": (1, 2, 2),
        "1 process × 1 thread": (1, 1, 1),
    }
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for _ in range(arguments.rounds):
        for name, kind in kinds.items():
            runs[name].append(measure(*kind, arguments))
            print(f"{name:24} {runs[name][-1][0]:6.2f} images/s", file=sys.stderr, flush=True)
    speeds = {name: statistics.median(speed for speed, _ in values) for name, values in runs.items()}
    first, *others = kinds
    for name, values in runs.items():
        print(f"{name:24} {speeds[name]:6.2f} images/s   loss {statistics.mean(loss for _, loss in values):.3f}")
    for name in others:
        print(f"ratio to {name.strip()!r}: {speeds[first] / speeds[name]:.2f}")


if __name__ == "__main__":
    main()

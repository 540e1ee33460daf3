"""How the benchmarks read bitmaps: with a checkpoint through torch, or with exported weights through the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

#: Official bitmaps in, the tokens of each out.
Reader = Callable[[Sequence[np.ndarray]], list[list[str]]]


def load_reader(model: str | None, threads: int = 1, beam: int | None = None) -> Reader | None:
    """The reader for a checkpoint (`….safetensors`), a folder of exported weights or `default`; None for None."""
    if model is None:
        return None
    if Path(model).suffix in (".safetensors", ".pt", ".ckpt"):
        return _torch_reader(Path(model), threads, beam)
    return _package_reader(None if model == "default" else model, threads)


def _torch_reader(path: Path, threads: int, beam: int | None) -> Reader:
    import torch

    from ink2tex.data.sample import Sample
    from ink2tex.model.checkpoint import load_checkpoint
    from ink2tex.search import SearchOptions
    from ink2tex.training.evaluation import read_samples_with

    torch.set_num_threads(threads)
    network = load_checkpoint(path)[0]
    options = SearchOptions() if beam is None else SearchOptions(beam=beam)

    def read(bitmaps: Sequence[np.ndarray]) -> list[list[str]]:
        samples = [Sample(str(index), (), None, bitmap) for index, bitmap in enumerate(bitmaps)]
        answers = read_samples_with(network, samples, options=options)
        return [answers[sample.uid] for sample in samples]

    return read


def _package_reader(path: str | None, threads: int) -> Reader:
    import ink2tex

    recognizer = ink2tex.load(path, threads=threads) if path else ink2tex.load(threads=threads)

    def read(bitmaps: Sequence[np.ndarray]) -> list[list[str]]:
        return [list(result.tokens) for result in recognizer.recognize_many(bitmaps)]

    return read

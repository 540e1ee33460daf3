"""How the benchmarks read bitmaps that `prepare` has made: as they are, never prepared a second time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ink2tex.data.sample import Sample
from ink2tex.runtime.evaluation import Reader
from ink2tex.runtime.recognizer import DEFAULT_MODEL

#: Official bitmaps in, the tokens of each out.
Reading = Callable[[Sequence[np.ndarray]], list[list[str]]]


def load_reader(model: str | None) -> Reading | None:
    """What reads with a checkpoint, a folder of exported weights or `default`; None for None."""
    if model is None:
        return None
    reader = Reader(DEFAULT_MODEL if model == "default" else model)

    def read(bitmaps: Sequence[np.ndarray]) -> list[list[str]]:
        samples = [Sample(str(index), (), None, bitmap) for index, bitmap in enumerate(bitmaps)]
        answers = reader.read(samples)
        return [answers[sample.uid] for sample in samples]

    return read

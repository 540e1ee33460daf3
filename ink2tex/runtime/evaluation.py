"""Reading labelled samples with a model folder: what `ink2tex evaluate` and calibration share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ink2tex.data.sample import Sample
from ink2tex.raster import rasterise
from ink2tex.runtime.calibration import Calibration, fit_with_error
from ink2tex.runtime.recognizer import Decode, Mode, load
from ink2tex.search import Hypothesis, SearchOptions


class Reader:
    """A model with fixed ways of searching; without options, the ways that the model prefers."""

    def __init__(
        self,
        model: str | Path,
        mode: Mode | None = None,
        options: SearchOptions | None = None,
        input_scale: float | None = None,
        views: int | None = None,
    ) -> None:
        self.recognizer = load(model, decode=mode, views=views)
        if input_scale is not None:
            self.recognizer.backend.input_scale = input_scale
        preferred = self.recognizer.decode
        search = preferred.search if options is None else options
        self.decode = Decode(preferred.mode, replace(search, keep_attention=False), preferred.views)

    def change(self, beam: int | None = None, alpha: float | None = None, grammar: bool = True) -> None:
        """Search in another way, for the best answer only; what is None stays as the model prefers it."""
        search = self.decode.search
        beam, alpha = beam or search.beam, search.alpha if alpha is None else alpha
        changed = replace(search, beam=beam, nbest=1, alpha=alpha, grammar=grammar)
        self.decode = replace(self.decode, search=changed)

    def read(self, samples: Sequence[Sample], progress: Callable[[int], None] | None = None) -> dict[str, list[str]]:
        """The tokens read in each sample."""
        words = self.recognizer.backend.vocabulary
        answers = self.answers(samples, progress)
        return {s.uid: words.decode(h.tokens) for s, h in zip(samples, answers, strict=True)}

    def calibration(self, samples: Sequence[Sample]) -> Calibration:
        """How sure one may be of an answer, fitted on labelled samples."""
        words = self.recognizer.backend.vocabulary
        answers = self.answers(samples)
        right = [tuple(words.decode(h.tokens)) == s.tokens for s, h in zip(samples, answers, strict=True)]
        return fit_with_error(np.array([h.logprob for h in answers]), np.array(right))

    def answers(self, samples: Sequence[Sample], progress: Callable[[int], None] | None = None) -> list[Hypothesis]:
        """The best answer for each sample."""
        found: dict[int, Hypothesis] = {}
        for i, hypotheses in self.recognizer.read_all([_bitmap(sample) for sample in samples], self.decode):
            found[i] = hypotheses[0]
            if progress is not None:
                progress(1)
        return [found[i] for i in range(len(samples))]


def _bitmap(sample: Sample) -> np.ndarray:
    if sample.image is not None:
        return sample.image
    return rasterise(sample.strokes or ())

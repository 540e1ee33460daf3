"""The recogniser as the server uses it: one network, any options, answers as JSON has them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ink2tex import __version__
from ink2tex.app.server.schemas import Options
from ink2tex.app.server.settings import ServerSettings
from ink2tex.errors import Ink2TexError
from ink2tex.latex.pretty import to_mathml
from ink2tex.runtime.recognizer import Ready, Recognizer, load, prepare_input
from ink2tex.runtime.result import Result

Answer = dict[str, Any]


class Key(NamedTuple):
    """What inputs must have in common to be read together."""

    decode: str | None
    beam: int | None
    nbest: int | None
    views: int | None


class Reader:
    """Reads batches. Threads may share it."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        try:
            # One thread for each session: the cores are for the batches.
            self._base = load(settings.model, 1, decode=settings.decode, beam=settings.beam)  # type: ignore[arg-type]
        except ValueError as error:
            raise Ink2TexError(str(error)) from None
        self._recognizer = lru_cache(maxsize=16)(self._make)

    def _make(self, key: Key, threads: int) -> Recognizer:
        return Recognizer(
            self._base.backend,
            threads,
            decode=key.decode,  # type: ignore[arg-type]
            beam=key.beam,
            nbest=key.nbest,
            views=key.views,
        )

    def key(self, options: Options) -> Key:
        """The options with the server's own in place of those left out. Raises what the model cannot do."""
        beam = options.beam or self.settings.beam
        if beam is not None and options.nbest is not None:
            beam = max(beam, options.nbest)
        key = Key(options.decode or self.settings.decode, beam, options.nbest, options.views or 1)
        self._recognizer(key, 1)
        return key

    def read(self, key: Hashable, inputs: Sequence[Ready]) -> list[Answer | Ink2TexError]:
        """The answers to inputs. One by itself may use all cores; of several, every reader has its own."""
        assert isinstance(key, Key)
        recognizer = self._recognizer(key, self.settings.threads if len(inputs) == 1 else 1)
        return [
            answer if isinstance(answer, Ink2TexError) else to_answer(answer) for answer in recognizer.try_many(inputs)
        ]

    def warm_up(self) -> None:
        """Read something, so that the first request is not the slow one."""
        self.read(self.key(Options()), [prepare_input([[(0, 0), (30, 40)], [(30, 0), (0, 40)]])])  # type: ignore[list-item]

    def describe(self) -> dict[str, Any]:
        """What `/v1/model` says."""
        limits = ("max_body", "max_pixels", "max_strokes", "max_points", "max_items", "deadline")
        return {
            "name": Path(self.settings.model).name if self.settings.model else "ink2tex",
            "version": __version__,
            "directions": [direction.value for direction in self._base.backend.directions],
            "decode": self._base.decode.mode,
            "beam": self._base.decode.search.beam,
            "symbols": list(self._base.backend.vocabulary.symbols),
            "limits": {name: getattr(self.settings, name) for name in limits},
        }


def to_answer(result: Result) -> Answer:
    """A result with MathML for all of its readings."""
    answer = {**result.to_dict(), "mathml": _mathml(result.latex)}
    for reading in answer["alternatives"]:
        reading["mathml"] = _mathml(reading["latex"])
    return answer


def typeset(latex: str) -> str:
    """MathML as the page shows it."""
    return to_mathml(latex, "block")


def _mathml(latex: str) -> str | None:
    try:
        return typeset(latex)
    except Ink2TexError:
        return None

"""Errors that are meant for a person: one sentence that says what is wrong and what to do next.

Everything that bad input can cause derives from `Ink2TexError`; the command line turns it into exit code 2
and the server into a 4xx answer, so no caller has to know the individual classes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Ink2TexError(Exception):
    """Base of every error a user can cause and can do something about."""


class InkError(Ink2TexError):
    """Ink (InkML or strokes) that cannot be read."""


class LatexError(Ink2TexError):
    """LaTeX or MathML that cannot be read as a CROHME expression."""


class ImageError(Ink2TexError):
    """A picture that cannot be read, is too large, or holds no ink."""


class DataError(Ink2TexError):
    """A data set (captions, archive, folder) that is not what it should be."""


class CheckpointError(Ink2TexError):
    """A file of weights that is truncated, foreign or does not fit the network."""


class RecipeError(Ink2TexError):
    """A training recipe with a key or a value that is not understood."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the known word closest to `word`, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""

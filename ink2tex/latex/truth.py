"""The label of an ink, from the two truths that a file may hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from ink2tex.errors import LatexError
from ink2tex.ink import Ink
from ink2tex.latex.inked import SPELLINGS, ink_class, ink_classes
from ink2tex.latex.mathml import mathml_to_tokens
from ink2tex.latex.normalise import normalise


def truth_tokens(ink: Ink) -> list[str]:
    """The label of `ink` in CROHME's form.

    The LaTeX annotation comes first, as it did for the published labels. MathML takes its place where there is no
    annotation, where it is broken, and where the symbols that were really written contradict the annotation and
    agree with the MathML (an annotation may spell `\\log` as three letters, or hold dots that nobody wrote).
    """
    problems: list[str] = []
    candidates = [
        _attempt(normalise, ink.truth, problems),
        _attempt(mathml_to_tokens, ink.mathml, problems),
    ]
    found = [tokens for tokens in candidates if tokens]
    written = _written(ink)
    for tokens in found:
        if written is not None and _spelt(c for c in ink_classes(tokens) if c) == written:
            return tokens
    if found:
        return found[0]
    raise LatexError(f"{ink.uid or 'ink'}: {problems[0] if problems else 'holds no truth, neither LaTeX nor MathML'}")


def _written(ink: Ink) -> Counter[str] | None:
    """How often each symbol was written; None if the segmentation left strokes out, as then it proves nothing."""
    if {i for symbol in ink.symbols for i in symbol.strokes} != set(range(len(ink.strokes))):
        return None
    return _spelt(ink_class(symbol.label) for symbol in ink.symbols)


def _spelt(classes: Iterable[str]) -> Counter[str]:
    return Counter(part for c in classes for part in SPELLINGS.get(c, (c,)))


def _attempt(read: Callable[[str], list[str]], source: str | None, problems: list[str]) -> list[str] | None:
    """What `read` makes of `source`; None, and the problem noted, if it cannot be read."""
    if not source:
        return None
    try:
        return read(source)
    except LatexError as error:
        problems.append(str(error))
        return None

"""Which tokens of a label leave ink, and what the segmentation of a file calls that ink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

#: Tokens that are structure only. The brackets around the index of a root are too; see `ink_classes`.
STRUCTURE: Final = frozenset(["{", "}", "^", "_", r"\limits"])

#: One name for each shape: a fraction is written as its bar, and segmentations do not tell the dots apart.
_SHAPES: Final[Mapping[str, str]] = {
    r"\frac": "-",
    r"\lt": "<",
    r"\gt": ">",
    r"\cdots": r"\ldots",
    r"\dots": r"\ldots",
    r"\cdot": ".",
    "'": r"\prime",
    "COMMA": ",",
    r"\le": r"\leq",
    r"\ge": r"\geq",
    r"\ne": r"\neq",
    r"\to": r"\rightarrow",
    r"\lbrack": "[",
    r"\rbrack": "]",
    r"\vert": "|",
}

#: Classes that some writers, or those who segmented their ink, take apart: dots one by one, `tg` for `\\tan`.
SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    r"\ldots": (".", ".", "."),
    r"\tan": ("t", "g"),
}


def ink_class(label: str) -> str:
    """The name under which a token and the label of its symbol meet."""
    return _SHAPES.get(label, label)


def ink_classes(tokens: Sequence[str]) -> list[str | None]:
    """For each token of a label the class of its ink, None if it leaves none."""
    classes = [None if token in STRUCTURE else ink_class(token) for token in tokens]
    for i, token in enumerate(tokens):
        if token == "[" and i and tokens[i - 1] == r"\sqrt":
            classes[i] = None
            if (end := closing_bracket(tokens, i)) is not None:
                classes[end] = None
    return classes


def closing_bracket(tokens: Sequence[str], start: int) -> int | None:
    """Where the index of a root that opens at `start` (`\\sqrt [`) ends; brackets may stand in the index too."""
    depth = 0
    for i in range(start, len(tokens)):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(tokens[i], 0)
        if not depth:
            return i
    return None

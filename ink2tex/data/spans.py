r"""The structure of a label as spans of its tokens.

A label is a row of items. An item is a symbol (its *head*) together with what hangs on it in braces: the two
parts of a `\frac`, degree and radicand of a `\sqrt`, sub- and superscripts. Each part is a row again. Every row
and every item is a contiguous span of tokens, so taking one out or putting another in its place is slicing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Role(Enum):
    """What a row is in the item that it belongs to."""

    EXPRESSION = "expression"
    NUMERATOR = "numerator"
    DENOMINATOR = "denominator"
    DEGREE = "degree"
    RADICAND = "radicand"
    SUB = "sub"
    SUP = "sup"


@dataclass(frozen=True, slots=True)
class Item:
    """A symbol with everything that hangs on it: tokens `start` to `stop`, the symbol itself at `head`."""

    start: int
    stop: int
    head: int
    parts: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """Items beside each other: tokens `start` to `stop`, without the braces around them."""

    start: int
    stop: int
    items: tuple[Item, ...]
    role: Role


#: A row, the first and the last of the items in question.
Step = tuple[Row, int, int]

#: Brackets that are written as symbols and come in pairs.
FENCES: Final = {"(": ")", "[": "]", "\\{": "\\}"}
_CLOSING: Final = {close: open_ for open_, close in FENCES.items()}
_MARKS: Final = frozenset({"{", "}", "^", "_", "\\limits"})


class _NotALabelError(ValueError):
    """The tokens are not in label form."""


class _Parser:
    """Recursive descent over the tokens of one label."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def row(self, role: Role, end: str) -> Row:
        """Items up to `end` (the empty string is the end of the label), which is stepped over."""
        start, items = self.at, []
        while (token := self._peek()) != end:
            if token == "" or token in _MARKS:
                raise _NotALabelError(f"unexpected {token!r} at token {self.at}")
            items.append(self.item())
        if not items:
            raise _NotALabelError(f"nothing at token {self.at}")
        stop = self.at
        self.at += 1
        return Row(start, stop, tuple(items), role)

    def group(self, role: Role, opening: str = "{", closing: str = "}") -> Row:
        if self._peek() != opening:
            raise _NotALabelError(f"no {opening!r} at token {self.at}")
        self.at += 1
        return self.row(role, closing)

    def item(self) -> Item:
        head = self.at
        self.at += 1
        parts = []
        if self.tokens[head] == "\\frac":
            parts += [self.group(Role.NUMERATOR), self.group(Role.DENOMINATOR)]
        elif self.tokens[head] == "\\sqrt":
            if self._peek() == "[":
                parts.append(self.group(Role.DEGREE, "[", "]"))
            parts.append(self.group(Role.RADICAND))
        if self._peek() == "\\limits":
            self.at += 1
            if self._peek() not in ("_", "^"):
                raise _NotALabelError(f"no limits at token {self.at}")
        for mark, role in (("_", Role.SUB), ("^", Role.SUP)):
            if self._peek() == mark:
                self.at += 1
                parts.append(self.group(role))
        return Item(head, self.at, head, tuple(parts))


def parse(tokens: Sequence[str]) -> Row | None:
    """The structure of a label, or None if it is not in label form (braces around every part, `_` before `^`)."""
    parser = _Parser(tokens)
    try:
        return parser.row(Role.EXPRESSION, "")
    except _NotALabelError:
        return None


def rows(row: Row, path: tuple[Step, ...] = ()) -> Iterator[tuple[Row, tuple[Step, ...]]]:
    """`row` and all rows inside it, each with the way up: the item that it is part of, that item's parent, …"""
    yield row, path
    for k, item in enumerate(row.items):
        for part in item.parts:
            yield from rows(part, ((row, k, k), *path))


def inked(row: Row) -> Iterator[int]:
    """Indices of the tokens that have ink of their own."""
    for item in row.items:
        yield item.head
        for part in item.parts:
            yield from inked(part)


def fences(tokens: Sequence[str], items: Sequence[Item]) -> list[tuple[int, int]] | None:
    """Pairs of an opening and its closing bracket, by their places in `items`; None if one stands alone."""
    pairs: list[tuple[int, int]] = []
    waiting: list[int] = []
    bar = -1
    for k, item in enumerate(items):
        token = tokens[item.head]
        if token in FENCES:
            waiting.append(k)
        elif token in _CLOSING:
            if not waiting or tokens[items[waiting[-1]].head] != _CLOSING[token]:
                return None
            pairs.append((waiting.pop(), k))
        elif token == "|":
            if bar >= 0:
                pairs.append((bar, k))
            bar = k if bar < 0 else -1
    return None if waiting or bar >= 0 else pairs

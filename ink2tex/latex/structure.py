r"""Comparing expressions by what they mean on the page instead of how they are spelled.

`x _ { 1 } ^ { 2 }` and `x ^ { 2 } _ { 1 }` draw the same thing, and so do `\int \limits _ { a }` and `\int _ { a }` up
to the placement of the limits, and `{ x } ^ 2` and `x ^ { 2 }`. Published scores compare strings; this is the fairer
number beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from ink2tex.latex.grammar import ARGUMENTS

#: An item `(symbol, arguments, subscript, superscript)`; a sequence is a tuple of items.
Tree: TypeAlias = tuple[object, ...]

_NO_ITEM: Final = frozenset(("}", "_", "^", r"\limits"))


class _NotParsableError(Exception):
    """The tokens are no expression; never leaves this module."""


def canonical(tokens: Iterable[str]) -> Tree:
    """A hashable tree that is equal for expressions of the same structure.

    It does not depend on the order of `_` and `^`, on `\\limits` and on braces that group nothing. Tokens that do
    not parse are their own canonical form, so that they equal exactly themselves.
    """
    tokens = tuple(tokens)
    try:
        reader = _Reader(tokens)
        tree = reader.sequence(closing=None)
    except (_NotParsableError, RecursionError):
        return ("unparsable", *tokens)
    return tree


class _Reader:
    """Recursive descent over the tokens; more tolerant than the grammar, for labels of any origin."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens, self.at = tokens, 0

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            raise _NotParsableError
        self.at += 1
        return token

    def sequence(self, closing: str | None) -> Tree:
        """Items up to `closing` (None: the end of the tokens), which is consumed."""
        items: list[object] = []
        while (token := self.peek()) != closing:
            if token is None:
                raise _NotParsableError
            items.extend(self.item())
        self.at += closing is not None
        return tuple(items)

    def item(self) -> Tree:
        """One symbol, command or group with its scripts; a group without scripts dissolves into its items."""
        base: Tree = ()
        if self.peek() not in ("_", "^"):  # else the scripts of an empty base
            base = self.base()
        if self.peek() == r"\limits":
            self.take()
            if not base or self.peek() not in ("_", "^"):
                raise _NotParsableError
        scripts: dict[str, Tree] = {}
        while (mark := self.peek()) in ("_", "^"):
            self.take()
            if mark in scripts:
                raise _NotParsableError
            scripts[str(mark)] = self.argument()
        if not scripts:
            return base
        return (("scripts", base, scripts.get("_"), scripts.get("^")),)

    def base(self) -> Tree:
        token = self.take()
        if token in _NO_ITEM:
            raise _NotParsableError
        if token == "{":
            return self.sequence(closing="}")
        arguments: list[object] = []
        if token == r"\sqrt" and self.peek() == "[":
            self.take()
            arguments.append(("index", self.sequence(closing="]")))
        arguments.extend(self.argument() for _ in range(ARGUMENTS.get(token, 0)))
        return ((token, *arguments),)

    def argument(self) -> Tree:
        """A group or, as LaTeX allows, a single token."""
        return self.base()

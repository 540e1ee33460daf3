"""LaTeX as people write it, to the one form that CROHME's labels have.

In that form every argument and script stands in braces and nothing else does, a subscript comes before a
superscript, and sizes, fonts and spaces are gone. `\\limits` is kept after `\\int` only, as in the labels: for
`\\sum` and `\\lim` the limits stand above and below anyway.
"""

from __future__ import annotations

from typing import NoReturn

from ink2tex.errors import LatexError
from ink2tex.latex.tokens import (
    ACCENTS,
    FONTS,
    FRACTIONS,
    FUNCTIONS,
    INVISIBLE,
    SYMBOL_COMMANDS,
    SYNONYMS,
    Lexeme,
    excerpt,
    lex,
)

#: Deeper than any expression that a person writes, and far from exhausting the stack.
MAX_DEPTH = 100


def normalise(latex: str) -> list[str]:
    """The tokens of `latex` in the form of CROHME's labels.

    >>> " ".join(normalise(r"$\\left(\\frac12\\right)^n_i \\lt x$"))
    '( \\\\frac { 1 } { 2 } ) _ { i } ^ { n } < x'
    """
    return _Parser(latex).parse()


class _Parser:
    """Recursive descent; each method consumes lexemes and returns label tokens."""

    def __init__(self, latex: str) -> None:
        self.latex = latex
        self.lexemes = [lexeme for lexeme in lex(latex) if lexeme.text not in INVISIBLE]
        self.position = 0
        self.depth = 0

    def parse(self) -> list[str]:
        tokens = self._sequence(None)
        if not tokens:
            raise LatexError(f"{self.latex!r}: holds nothing that is written")
        return tokens

    def _peek(self) -> str | None:
        return self.lexemes[self.position].text if self.position < len(self.lexemes) else None

    def _next(self) -> str:
        self.position += 1
        return self.lexemes[self.position - 1].text

    def _fail(self, what: str, lexeme: Lexeme | None = None) -> NoReturn:
        lexeme = lexeme or (self.lexemes[self.position] if self.position < len(self.lexemes) else None)
        raise LatexError(f"{excerpt(self.latex, lexeme.start if lexeme else len(self.latex))}: {what}")

    def _sequence(self, end: str | None) -> list[str]:
        """Everything up to `end` (`}`, `]`, or None: the end of the text), which is consumed."""
        self._descend()
        opened = self.lexemes[self.position - 1] if end and self.position else None
        tokens: list[str] = []
        while (text := self._peek()) != end:
            if text is None:
                self._fail(f"this is never closed; a {end!r} is missing", opened)
            if text == r"\over":
                self._next()
                tokens = [r"\frac", "{", *tokens, "}", "{", *self._sequence(end), "}"]
                self.position -= end is not None  # the sequence of the denominator consumed our end
                continue
            tokens += self._scripted()
        self.position += end is not None
        self.depth -= 1
        return tokens

    def _scripted(self) -> list[str]:
        """An atom with its scripts, subscript first."""
        tokens = [] if self._peek() in ("_", "^") else self._atom()
        limits = False
        primes: list[str] = []
        scripts: dict[str, list[str]] = {}
        primable = tokens[-1:] not in ([], ["'"], [r"\prime"])
        while (text := self._peek()) in ("_", "^", r"\limits") or (text == "'" and primable):
            self._next()
            if text == "'":  # TeX reads `f'` as `f^{\prime}`, and `f'^2` as one superscript
                primes.append(r"\prime")
            elif text == r"\limits":
                limits = tokens[-1:] == [r"\int"]
            elif text in scripts:
                self.position -= 1
                self._fail(f"a second {text!r} on the same symbol; put the first into braces")
            else:
                assert text is not None
                scripts[text] = self._argument(text)
        if limits and scripts:
            tokens.append(r"\limits")
        if primes:
            scripts["^"] = primes + scripts.get("^", [])
        for mark in ("_", "^"):
            if scripts.get(mark):
                tokens += [mark, "{", *scripts[mark], "}"]
        return tokens

    def _argument(self, of: str) -> list[str]:
        """What a command or a script applies to: a group in braces or a single atom."""
        if self._peek() in (None, "}", "]", "_", "^", "&", r"\over", r"\right"):
            self._fail(f"{of!r} needs something in braces behind it")
        return self._inner()

    def _inner(self) -> list[str]:
        """An atom that belongs to a command before it."""
        self._descend()
        tokens = self._atom()
        self.depth -= 1
        return tokens

    def _descend(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self._fail(f"nested more than {MAX_DEPTH} deep")

    def _atom(self) -> list[str]:
        """A symbol, a group, or a command with its arguments."""
        text = self._next()
        if text == "{":
            return self._sequence("}")
        if text in FRACTIONS:
            above = self._argument(text)
            return [r"\frac", "{", *above, "}", "{", *self._argument(text), "}"]
        if text == r"\sqrt":
            index: list[str] = []
            if self._peek() == "[":
                self._next()
                index = ["[", *self._sequence("]"), "]"]
            return [r"\sqrt", *index, "{", *self._argument(text), "}"]
        if text in FONTS:
            inside = self._argument(text)
            command = "\\" + "".join(inside)
            return [command] if command in FUNCTIONS else inside
        if text in ACCENTS:
            return [text, "{", *self._argument(text), "}"]
        if text in (r"\left", r"\right"):
            if self._peek() == ".":
                self._next()  # the delimiter that is not there
                return []
            return self._inner() if self._peek() else self._fail(f"{text!r} needs a bracket behind it")
        if text in SYNONYMS:
            return list(SYNONYMS[text])
        if text in SYMBOL_COMMANDS or (text[0] != "\\" and text not in "}&"):
            return [text]
        self.position -= 1
        if text == "}":
            self._fail("this '}' closes nothing; a '{' is missing")
        self._fail(f"{text!r} has no place in a label")

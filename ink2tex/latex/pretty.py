r"""Labels as LaTeX that a person would write: `\frac { 1 } { 2 } x ^ { 2 }` becomes `\frac{1}{2}x^{2}`.

Only spaces change, so that reading the result again gives the same tokens. They stand where LaTeX needs one
(`\alpha x`) and where a reader expects one: around relations and binary operators, after a comma, behind
functions and big operators. In scripts and indices single characters are set tight: `\sum_{n=1}^{\infty} a_{n}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ink2tex.errors import Ink2TexError, InkError, LatexError
from ink2tex.ink import parse_xml
from ink2tex.latex.grammar import OPERATORS

_RELATIONS: Final = frozenset(("=", "<", ">", r"\leq", r"\geq", r"\neq", r"\in", r"\rightarrow", r"\equiv", r"\approx"))
_SIGNS: Final = frozenset(("+", "-", r"\pm", r"\mp"))
_BINARY: Final = _SIGNS | {r"\times", r"\div", r"\cdot", r"\cup", r"\cap"}
_FUNCTIONS: Final = frozenset((r"\sin", r"\cos", r"\tan", r"\cot", r"\log", r"\ln", r"\exp"))
_OPENING: Final = frozenset(("(", "[", r"\{", "{"))
_CLOSING: Final = frozenset((")", "]", r"\}", "}", ",", ".", "!", "'"))
_ATTACHED: Final = frozenset(("_", "^", r"\limits"))
#: What MathML of mathematics is made of; anything else was smuggled in.
_MATHML_ELEMENTS: Final = frozenset(
    "math mrow mi mn mo mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mstyle mpadded "
    "mphantom menclose mtable mtr mtd".split()
)
_MATHML_PARTS: Final = {"mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2} | {
    "msubsup": 3,
    "munderover": 3,
}
_MATHML_LINKS: Final = frozenset(("href", "src", "actiontype"))

_CONTROL_WORD: Final = re.compile(r"\\[A-Za-z]+$")


def pretty(tokens: Iterable[str]) -> str:
    """The label as one string of tidy LaTeX."""
    writer = _Writer()
    for token in tokens:
        writer.write(token)
    return "".join(writer.parts)


class _Writer:
    """Decides, one token after the other, whether a space stands before it."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.last = ""  # the token before, "" at the beginning
        self.base = ""  # the symbol whose scripts may follow, here in this group
        self.unary = False  # the token before is a sign without a left operand
        self.groups: list[tuple[str, bool]] = []  # base and tightness outside of each open group
        self.tight = False

    def write(self, token: str) -> None:
        unary = token in _SIGNS and not self._operand_before()
        if self.last and self._space_before(token, unary):
            self.parts.append(" ")
        self.parts.append(token)
        if token == "{":
            self.groups.append((self.base, self.tight))
            self.tight = self.tight or self.last in _ATTACHED
            self.base = ""
        elif token == "}" and self.groups:
            self.base, self.tight = self.groups.pop()
        elif token not in _ATTACHED:
            self.base = token
        self.last, self.unary = token, unary

    def _operand_before(self) -> bool:
        return bool(self.last) and not (
            self.last in _OPENING
            or self.last == ","
            or self.last in _RELATIONS | _BINARY
            or self.base in _FUNCTIONS | OPERATORS
        )

    def _space_before(self, token: str, unary: bool) -> bool:
        if _CONTROL_WORD.match(self.last) and (token[0].isalnum() or token[0] == "*"):
            return True  # `\alpha x` is needed, `\pi 2` is kinder
        if self.last in _OPENING or self.unary or token in _CLOSING or token in _ATTACHED or token == "{":
            return False
        if self._airy(self.last) or (self._airy(token) and not unary):
            return True
        if self.last == ",":
            return not self.tight and not self._thousands(token)
        if self.base in OPERATORS and self.last == "}":
            return True  # `\sum_{n} (…)`
        return self.base in _FUNCTIONS | OPERATORS and token not in _OPENING

    def _airy(self, token: str) -> bool:
        """Whether a space belongs on both sides of it."""
        return token in _RELATIONS | _BINARY and not (self.tight and len(token) == 1)

    def _thousands(self, token: str) -> bool:
        return token.isdigit() and len(self.parts) > 1 and self.parts[-2].isdigit()


def to_mathml(latex: str, display: str = "inline") -> str:
    """Presentation MathML of `latex`, by the optional package latex2mathml.

    Whatever the LaTeX, the answer is well-formed, holds nothing but MathML and leads nowhere, so that a page can show
    it. display: `inline` or `block`.
    """
    try:
        from latex2mathml.converter import convert
    except ImportError as error:
        raise Ink2TexError("MathML output needs the package latex2mathml; install it and try again") from error
    try:
        mathml = str(convert(latex, display=display))
    except Exception as error:  # it has no common class for LaTeX that it cannot read
        raise _no_mathml(latex, f"{type(error).__name__} in latex2mathml") from error
    try:
        elements = list(parse_xml(mathml, "MathML").iter())
    except (InkError, UnicodeError) as error:
        raise _no_mathml(latex, "it holds characters that XML cannot") from error
    attributes = {name.rpartition("}")[2] for element in elements for name in element.attrib}
    strange = {element.tag for element in elements} - _MATHML_ELEMENTS
    if strange or any(name in _MATHML_LINKS or name.startswith("on") for name in attributes):
        raise _no_mathml(latex, "it holds more than mathematics")
    if any(len(element) != _MATHML_PARTS.get(element.tag, len(element)) for element in elements):
        raise _no_mathml(latex, "a part is missing")
    return mathml


def _no_mathml(latex: str, reason: str) -> LatexError:
    shown = latex if len(latex) <= 60 else latex[:59] + "…"
    return LatexError(f"{shown!r}: cannot be written as MathML ({reason}); correct the LaTeX")

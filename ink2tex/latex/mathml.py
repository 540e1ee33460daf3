"""Presentation MathML, as CROHME's files hold it, to the tokens of a label.

The files come from five sources with habits of their own: leaves hold LaTeX (`\\alpha`), plain names (`alpha`),
HTML entities without `&` and `;` (`ctdot`) or damaged text (`im` for `\\lim`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from ink2tex.errors import InkError, LatexError
from ink2tex.ink import parse_xml
from ink2tex.latex.tokens import SYMBOL_COMMANDS, SYNONYMS

_XML_ID: Final = "{http://www.w3.org/XML/1998/namespace}id"

#: What a leaf may hold instead of the token.
_LEAVES: Final[Mapping[str, str]] = {
    "im": r"\lim",
    "ctdot": r"\cdots",
    "hellip": r"\ldots",
    "rarr": r"\rightarrow",
    "exist": r"\exists",
    "infin": r"\infty",
    "{": r"\{",
    "}": r"\}",
    "·": r"\cdot",
    "⋅": r"\cdot",
    "∙": r"\cdot",
    "×": r"\times",
    "÷": r"\div",
    "±": r"\pm",
    "−": "-",
    "–": "-",
    "≤": r"\leq",
    "≥": r"\geq",
    "≠": r"\neq",
    "→": r"\rightarrow",
    "∞": r"\infty",
    "…": r"\ldots",
    "⋯": r"\cdots",
    "∑": r"\sum",
    "∫": r"\int",
    "√": r"\sqrt",
    "∈": r"\in",
    "∀": r"\forall",
    "∃": r"\exists",
    "′": r"\prime",
    "π": r"\pi",
    "α": r"\alpha",
    "β": r"\beta",
    "γ": r"\gamma",
    "θ": r"\theta",
    "λ": r"\lambda",
    "μ": r"\mu",
    "σ": r"\sigma",
    "φ": r"\phi",
    "ϕ": r"\phi",
    "Δ": r"\Delta",
}
#: Function application, invisible times, separator, plus; zero width and other spaces.
_INVISIBLE: Final = frozenset("\u2061\u2062\u2063\u2064\u200b\u00a0\u2009")


class Item(NamedTuple):
    """A token and the `xml:id` of the element that it comes from (None for braces and other structure)."""

    token: str
    ref: str | None = None


#: Elements that only hold others together; `semantics` and `mstyle` change nothing that is written.
_ROWS: Final = frozenset(["math", "mrow", "mstyle", "semantics", "mpadded", "menclose", "merror", "mphantom"])
_LEAF_TAGS: Final = frozenset(["mi", "mn", "mo", "mtext", "ms"])
#: How many children the others have, and which of them are subscript and superscript.
_SCRIPTS: Final[Mapping[str, tuple[int | None, int | None]]] = {
    "msub": (1, None),
    "munder": (1, None),
    "msup": (None, 1),
    "mover": (None, 1),
    "msubsup": (1, 2),
    "munderover": (1, 2),
}
_LIMITS: Final = frozenset(["munder", "mover", "munderover"])


def mathml_to_tokens(mathml: str) -> list[str]:
    """The label that a `<math>` element stands for."""
    tokens = [item.token for item in mathml_items(mathml)]
    if not tokens:
        raise LatexError("the MathML holds nothing that is written")
    return tokens


def mathml_items(mathml: str) -> list[Item]:
    """The tokens of a `<math>` element in the order of the label, each with the id of its element."""
    try:
        root = parse_xml(mathml, "MathML")
    except InkError as error:
        raise LatexError(str(error)) from None
    return list(_items(root))


def _items(element: Element) -> Iterator[Item]:
    tag = element.tag
    children = [child for child in element if child.tag not in ("annotation", "annotation-xml", "mspace")]
    ref = element.get(_XML_ID)
    if tag in _LEAF_TAGS:
        for token in _leaf((element.text or "").strip()):
            yield Item(token, ref)
    elif tag in _ROWS:
        for child in children:
            yield from _items(child)
    elif tag == "msqrt":
        yield Item(r"\sqrt", ref)
        yield from _braced(*children)
    elif tag == "mfenced":
        yield Item(element.get("open", "("))
        separator = element.get("separators", ",").strip()[:1]
        for i, child in enumerate(children):
            if i and separator:
                yield Item(separator)
            yield from _items(child)
        yield Item(element.get("close", ")"))
    elif tag in ("mfrac", "mroot") or tag in _SCRIPTS:
        wanted = 3 if tag in ("msubsup", "munderover") else 2
        if len(children) != wanted:
            raise LatexError(f"the MathML element <{tag}> has {len(children)} children, {wanted} are needed")
        if tag == "mfrac":
            yield Item(r"\frac", ref)
            yield from _braced(children[0])
            yield from _braced(children[1])
        elif tag == "mroot":
            yield Item(r"\sqrt", ref)
            yield Item("[")
            yield from _items(children[1])
            yield Item("]")
            yield from _braced(children[0])
        else:
            yield from _script(tag, children)
    else:
        raise LatexError(f"the MathML element <{tag}> has no place in a label of CROHME")


def _script(tag: str, children: list[Element]) -> Iterator[Item]:
    base = list(_items(children[0]))
    yield from base
    if tag in _LIMITS and base and base[-1].token == r"\int":
        yield Item(r"\limits")
    for mark, index in zip("_^", _SCRIPTS[tag], strict=True):
        if index is not None:
            yield Item(mark)
            yield from _braced(children[index])


def _braced(*elements: Element) -> Iterator[Item]:
    yield Item("{")
    for element in elements:
        yield from _items(element)
    yield Item("}")


def _leaf(text: str) -> list[str]:
    """The tokens of a leaf: a known name, or letter by letter."""
    command = "\\" + text.lstrip("\\")
    if text in _LEAVES:
        return [_LEAVES[text]]
    if len(text) > 1 and command in SYNONYMS:
        return list(SYNONYMS[command])
    if len(text) > 1 and command in SYMBOL_COMMANDS:
        return [command]
    if "\\" in text:
        raise LatexError(f"the MathML holds {text!r}, which is no known symbol")
    return [_LEAVES.get(c, c) for c in text if not c.isspace() and c not in _INVISIBLE]

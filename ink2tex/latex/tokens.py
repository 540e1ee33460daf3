"""Splitting LaTeX into tokens, and what each command means to the labels of CROHME.

The tables below are the whole policy of the normal form: which commands leave no trace, which are other names of
a symbol, which take arguments. `normalise` only walks them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ink2tex.errors import LatexError, did_you_mean
from ink2tex.vocabulary import CROHME_SYMBOLS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Commands that only space, size or style what follows, and so are not part of a label.
INVISIBLE: Final = _words(
    r"""
    \, \; \: \! \> \/ \quad \qquad \enspace \thinspace \medspace \thickspace \negthinspace \displaystyle
    \textstyle \scriptstyle \scriptscriptstyle \nolimits \big \Big \bigg \Bigg \bigl \Bigl \biggl \Biggl \bigr
    \Bigr \biggr \Biggr \bigm \Bigm \biggm \Biggm \middle \nonumber \notag \rm \it \bf \cal \relax
    """
) | {"\\ ", "~", "$", "\\[", "\\]", "\\(", "\\)", "\\\n"}

#: Commands whose one argument is kept and who themselves go.
FONTS: Final = _words(
    r"""
    \mathrm \mathit \mathbf \mathsf \mathtt \mathcal \mathnormal \boldsymbol \bm \text \textrm \textit \textbf
    \mbox \hbox \operatorname \mathop \mathrel \mathbin \mathord \mathopen \mathclose \ensuremath
    """
)

#: Other names of a symbol.
SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    name: tuple(tokens.split())
    for name, tokens in {
        r"\lt": "<",
        r"\gt": ">",
        r"\le": r"\leq",
        r"\leqslant": r"\leq",
        r"\ge": r"\geq",
        r"\geqslant": r"\geq",
        r"\ne": r"\neq",
        r"\to": r"\rightarrow",
        r"\longrightarrow": r"\rightarrow",
        r"\dots": r"\ldots",
        r"\dotsc": r"\ldots",
        r"\dotsb": r"\cdots",
        r"\lbrack": "[",
        r"\rbrack": "]",
        r"\lbrace": r"\{",
        r"\rbrace": r"\}",
        r"\vert": "|",
        r"\lvert": "|",
        r"\rvert": "|",
        r"\mid": "|",
        r"\|": "| |",
        r"\Vert": "| |",
        r"\lVert": "| |",
        r"\rVert": "| |",
        r"\parallel": "| |",
        r"\colon": ":",
        r"\ast": "*",
        r"\cdotp": r"\cdot",
        r"\ldotp": ".",
        r"\varphi": r"\phi",
        r"\infin": r"\infty",
    }.items()
}

#: Other names of a fraction.
FRACTIONS: Final = frozenset([r"\frac", r"\dfrac", r"\tfrac", r"\cfrac"])

#: Commands with one argument that CROHME's labels do not have, but other data does.
ACCENTS: Final = _words(
    r"""
    \hat \vec \bar \dot \ddot \tilde \check \breve \acute \grave \overline \underline \widehat \widetilde
    \overrightarrow \overleftarrow \overbrace \underbrace \mathbb \mathfrak \mathscr
    """
)

#: Symbols of ordinary mathematics outside CROHME's 110, so that other data can be read with its own vocabulary.
OTHER_SYMBOLS: Final = _words(
    r"""
    \delta \epsilon \varepsilon \zeta \eta \vartheta \iota \kappa \nu \xi \varpi \rho \varrho \varsigma \tau
    \upsilon \chi \psi \omega \Gamma \Theta \Lambda \Xi \Pi \Sigma \Upsilon \Phi \Psi \Omega \partial \nabla \prod
    \coprod \oint \iint \iiint \bigcup \bigcap \bigoplus \bigotimes \bigvee \bigwedge \cup \cap \setminus \subset
    \supset \subseteq \supseteq \subsetneq \notin \ni \emptyset \varnothing \land \lor \lnot \neg \wedge \vee \oplus
    \otimes \odot \ominus \circ \bullet \star \dagger \mp \equiv \sim \simeq \approx \cong \propto \doteq \ll \gg
    \prec \succ \perp \angle \triangle \models \vdash \leftarrow \Leftarrow \Rightarrow \leftrightarrow
    \Leftrightarrow \iff \implies \mapsto \hookrightarrow \uparrow \downarrow \rightharpoonup \rightleftharpoons
    \langle \rangle \lceil \rceil \lfloor \rfloor \backslash \hbar \ell \Re \Im \aleph \wp \vdots \ddots \square
    \% \& \# \_ \top \bot \therefore \because
    """
)

#: Functions, which a font command may spell out: `\\mathrm{sin}`.
FUNCTIONS: Final = _words(
    r"""
    \sin \cos \tan \log \lim \cot \sec \csc \arcsin \arccos \arctan \sinh \cosh \tanh \coth \ln \lg \exp \min
    \max \sup \inf \limsup \liminf \det \dim \ker \deg \gcd \arg \hom \Pr
    """
)

#: Every command that stands for itself.
SYMBOL_COMMANDS: Final = (
    OTHER_SYMBOLS
    | FUNCTIONS
    | {s for s in CROHME_SYMBOLS if s[0] == "\\"}
    - {
        r"\frac",
        r"\sqrt",
        r"\limits",
    }
)

_KNOWN: Final = (
    INVISIBLE
    | FONTS
    | FRACTIONS
    | ACCENTS
    | SYMBOL_COMMANDS
    | frozenset(SYNONYMS)
    | {r"\sqrt", r"\limits", r"\left", r"\right", r"\over"}
)

_TOKEN: Final = re.compile(r"\s+|(\\[A-Za-z]+\*?|\\.|[^\\])", re.DOTALL)
#: `<` and `>` of some of CROHME's annotations were replaced by `\lt` and `\gt` without a space behind: `\ltN`.
_MERGED: Final = re.compile(r"(\\[lg]t)([A-Za-z])")


@dataclass(frozen=True)
class Lexeme:
    """A token and where in the text it stands, for messages."""

    text: str
    start: int


def lex(latex: str) -> list[Lexeme]:
    """The tokens of `latex` with their places; `LatexError` for a command that nothing is known of."""
    lexemes: list[Lexeme] = []
    position = 0
    while position < len(latex):
        match = _TOKEN.match(latex, position)
        if match is None:
            raise LatexError(f"{excerpt(latex, position)}: a backslash at the very end; write the command in full")
        text, start, position = match[1], position, match.end()
        if text is None:
            continue
        if text[0] == "\\" and text not in _KNOWN:
            text, position = _known(latex, text.rstrip("*"), start)
        lexemes.append(Lexeme(text, start))
    return lexemes


def tokenise(latex: str) -> list[str]:
    """The tokens of `latex` as they stand there: commands, escaped characters, single characters."""
    return [lexeme.text for lexeme in lex(latex)]


def _known(latex: str, command: str, start: int) -> tuple[str, int]:
    """A command that is not known as it stands: with a star, or `\\lt` run together with a letter."""
    merged = _MERGED.match(command)
    if merged and command not in _KNOWN:
        command = merged[1]
    if command not in _KNOWN:
        raise LatexError(
            f"{excerpt(latex, start)}: unknown command {command!r}{did_you_mean(command, _KNOWN)}; "
            "write it in the commands of ordinary LaTeX mathematics"
        )
    end = start + len(command)
    return command, end + latex.startswith("*", end) * (merged is None)


def excerpt(latex: str, position: int) -> str:
    """Where an error is: the text around it, and the column."""
    left, right = max(0, position - 15), position + 15
    shown = f"{'…' * (left > 0)}{latex[left:right]}{'…' * (right < len(latex))}"
    return f"at character {position + 1} of {shown!r}"

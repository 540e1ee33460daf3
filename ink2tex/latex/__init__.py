"""LaTeX and MathML: tokens, the normal form of CROHME's labels, the grammar, pretty output."""

from __future__ import annotations

from ink2tex.latex.mathml import mathml_to_tokens
from ink2tex.latex.normalise import normalise
from ink2tex.latex.tokens import tokenise
from ink2tex.latex.truth import truth_tokens

__all__ = ["mathml_to_tokens", "normalise", "tokenise", "truth_tokens"]

"""Tokens and their ids.

Ids follow the released ABM network: 0 is `<sos>`, 1 is `<eos>`, the symbols come after. The two directions
differ only in which of the two marks starts a sequence and which ends it: left to right runs from `<sos>` to
`<eos>`, right to left from `<eos>` to `<sos>` (paper, section "Bi-directional Mutual Learning Module").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from ink2tex.errors import DataError, did_you_mean

SOS: Final = 0
EOS: Final = 1
SOS_TOKEN: Final = "<sos>"
EOS_TOKEN: Final = "<eos>"

#: The 111 published symbols in the order of the released dictionary. `<eol>` takes part in no label; it is kept
#: so that ids and the size of the classifier agree with released weights.
CROHME_SYMBOLS: Final[tuple[str, ...]] = tuple(
    r"""
    \geq \sqrt \leq / \infty ( , 0 \cdot 8 \sigma < \pm \log \pi H L P \limits T X d h \} l p t \tan x | \gamma
    \{ ' + \theta \forall 3 7 \int \sin \prime C G \ldots S [ _ c z \cdots g k o s w \cos { \Delta \neq \in
    \alpha \times \lim . 2 6 \lambda 4 B F \exists N R V ^ b f j n r v > \frac \rightarrow \div ! \phi ) - 1 5 9
    = A E \beta I M Y ] \mu a e i \sum m q u y } <eol>
    """.split()
)


class UnknownTokenError(DataError):
    """A token that the vocabulary does not hold."""

    def __init__(self, token: str, known: Iterable[str], where: str = "") -> None:
        at = f"{where}: " if where else ""
        super().__init__(
            f"{at}unknown token {token!r}{did_you_mean(token, known)}; "
            "correct the label, or make a vocabulary of your own data with 'ink2tex data vocab'"
        )
        self.token = token


class Direction(Enum):
    """The order in which a decoder writes the tokens."""

    L2R = "l2r"
    R2L = "r2l"

    @property
    def start(self) -> int:
        """The id that a sequence of this direction begins with."""
        return SOS if self is Direction.L2R else EOS

    @property
    def end(self) -> int:
        """The id that ends a sequence of this direction."""
        return EOS if self is Direction.L2R else SOS

    def order(self, ids: Sequence[int]) -> list[int]:
        """`ids` (written left to right) in the order in which this direction reads them; its own inverse."""
        return list(ids) if self is Direction.L2R else list(reversed(ids))


class Vocabulary:
    """An immutable two-way map between tokens and ids."""

    def __init__(self, symbols: Iterable[str] = CROHME_SYMBOLS) -> None:
        self.symbols: tuple[str, ...] = tuple(symbols)
        self._tokens = (SOS_TOKEN, EOS_TOKEN, *self.symbols)
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        if len(self._ids) != len(self._tokens):
            twice = sorted({t for t in self._tokens if self._tokens.count(t) > 1})
            raise DataError(f"a vocabulary lists each token once, but these stand there twice: {twice}")
        bad = [t for t in self.symbols if not t or t != "".join(t.split())]
        if bad:
            raise DataError(f"a token is a word without spaces, but the vocabulary has {bad}")

    def __len__(self) -> int:
        """K, the number of classes: the symbols and the two marks."""
        return len(self._tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and other.symbols == self.symbols

    def __hash__(self) -> int:
        return hash(self.symbols)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.symbols)} symbols)"

    def id(self, token: str, where: str = "") -> int:
        """The id of one token; `where` names its place in the error if there is none."""
        try:
            return self._ids[token]
        except KeyError:
            raise UnknownTokenError(token, self.symbols, where) from None

    def token(self, i: int) -> str:
        """The token of one id."""
        return self._tokens[i]

    def encode(self, tokens: Iterable[str], where: str = "") -> list[int]:
        """Ids of `tokens`, without marks."""
        return [self.id(token, where) for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Tokens of `ids`; marks are left out."""
        return [self._tokens[i] for i in ids if i not in (SOS, EOS)]

    @classmethod
    def from_captions(cls, labels: Iterable[Iterable[str]]) -> Vocabulary:
        """The vocabulary of a set of labels, sorted so that it does not depend on the order of the files."""
        return cls(sorted({token for label in labels for token in label}))

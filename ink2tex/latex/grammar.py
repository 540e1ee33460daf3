r"""What may come next: the language of CROHME labels, token by token and in both directions.

A label is a sequence of items. An item is a symbol or a command with its `{…}` groups, then at most one `_ {…}` and
one `^ {…}` in either order:

- no group is empty, and none stands alone: it is the argument of `\frac`, `\sqrt`, `^` or `_`;
- `\sqrt` may have an index `[…]`, in which no further bracket stands (LaTeX would end the index there);
- `\limits` stands between an operator such as `\int` and its first script;
- `'` is a superscript by itself and stands at the beginning of a group, `f ^ { ' }`;
- `[`, `]` and all other brackets are symbols and need no partner: `[ 0 , 1 )`.

This is what all published labels look like, and everything in it is LaTeX that compiles.

It is written down twice, as pushdown automata that read from the left (`_forward`) and from the right
(`_backward`). Each is compiled for a vocabulary into tables, with the least number of tokens that lead from each
state to an end, so that a search can close everything before it reaches its length limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ink2tex.errors import DataError
from ink2tex.latex.tokens import ACCENTS, FRACTIONS
from ink2tex.vocabulary import EOS_TOKEN, SOS_TOKEN, Direction, Vocabulary

#: Commands and the number of `{…}` groups that they take; accents are not in CROHME but in other vocabularies.
ARGUMENTS: Final[dict[str, int]] = {
    r"\sqrt": 1,
    **dict.fromkeys(FRACTIONS, 2),
    **dict.fromkeys(ACCENTS, 1),
}

#: Operators that `\limits` may follow.
OPERATORS: Final = frozenset((r"\sum", r"\prod", r"\int", r"\oint", r"\lim", r"\max", r"\min"))

#: Tokens that are in vocabularies but in no label.
NEVER: Final = frozenset((SOS_TOKEN, EOS_TOKEN, "<eol>"))

SUB: Final = 1
SUP: Final = 2

_SCRIPTS: Final = {"_": SUB, "^": SUP}
_MOST_GROUPS: Final = max(ARGUMENTS.values())
_IMPOSSIBLE: Final = 1 << 20


def token_class(token: str) -> str:
    """What the grammar calls a token: itself if it has a role of its own, else `atom`, `operator`, `command<n>`."""
    if token in NEVER:
        return "never"
    if token in ("{", "}", "[", "]", "_", "^", "'", r"\limits", r"\sqrt"):
        return token
    if token in ARGUMENTS:
        return f"command{ARGUMENTS[token]}"
    return "operator" if token in OPERATORS else "atom"


class _Frame(Enum):
    """The innermost thing that is open: nothing but the label, a `{…}` group, or the `[…]` of a root."""

    LABEL = "label"
    GROUP = "group"
    INDEX = "index"


class _Kind(Enum):
    EMPTY = "nothing was read yet in this frame"
    ITEM = "an item was read"
    PRIME = "a ' was read"
    # From the left:
    LIMITS = "a script must follow"
    SCRIPT = "the group of a script must follow"
    ARGUMENT = "groups of a command must follow"
    # From the right:
    BASE = "scripts were read, what they belong to must follow"
    AFTER = "groups were read, what takes them must follow"
    ROOT = "the index of a root was read, the root must follow"
    OPERATOR = "limits was read, an operator must follow"


class _Mode(NamedTuple):
    """Where the automaton is within its innermost frame."""

    kind: _Kind
    #: Scripts of the current item so far (bits SUB, SUP).
    scripts: int = 0
    #: Groups that must still follow (from the left) or were read (from the right).
    groups: int = 0
    #: The command is a root, an index may follow first.
    rooted: bool = False
    #: The item is an operator without scripts, `\limits` may follow.
    operator: bool = False


_EMPTY: Final = _Mode(_Kind.EMPTY)
_ITEM: Final = _Mode(_Kind.ITEM)


@dataclass(frozen=True)
class _Go:
    mode: _Mode


@dataclass(frozen=True)
class _Push:
    """Open a frame; when it is closed, go on with `then` in the present one."""

    frame: _Frame
    then: _Mode


@dataclass(frozen=True)
class _Pop:
    """Close the innermost frame; that of the label is closed by the end mark."""


_Move: TypeAlias = _Go | _Push | _Pop
_Moves: TypeAlias = dict[str, _Move]


def _forward(mode: _Mode, frame: _Frame) -> _Moves:
    """The moves by class of token, reading from the left."""
    moves: _Moves = {}
    if mode.kind in (_Kind.EMPTY, _Kind.ITEM, _Kind.PRIME):
        moves["atom"] = _Go(_ITEM)
        moves["operator"] = _Go(_ITEM._replace(operator=True))
        if frame is not _Frame.INDEX:
            moves["["] = moves["]"] = _Go(_ITEM)
        for n in range(1, _MOST_GROUPS + 1):
            moves[f"command{n}"] = _Go(_Mode(_Kind.ARGUMENT, groups=n))
        moves[r"\sqrt"] = _Go(_Mode(_Kind.ARGUMENT, groups=1, rooted=frame is not _Frame.INDEX))
        if mode.kind is _Kind.PRIME or (mode.kind is _Kind.EMPTY and frame is _Frame.GROUP):
            moves["'"] = _Go(_Mode(_Kind.PRIME, scripts=SUP))
    if mode.kind in (_Kind.ITEM, _Kind.PRIME):
        moves[{_Frame.LABEL: "end", _Frame.GROUP: "}", _Frame.INDEX: "]"}[frame]] = _Pop()
        if mode.operator:
            moves[r"\limits"] = _Go(_Mode(_Kind.LIMITS))
    if mode.kind in (_Kind.ITEM, _Kind.PRIME, _Kind.LIMITS):
        for mark, bit in _SCRIPTS.items():
            if not mode.scripts & bit:
                moves[mark] = _Go(_Mode(_Kind.SCRIPT, scripts=mode.scripts | bit))
    if mode.kind is _Kind.SCRIPT:
        moves["{"] = _Push(_Frame.GROUP, _Mode(_Kind.ITEM, scripts=mode.scripts))
    if mode.kind is _Kind.ARGUMENT:
        more = mode.groups - 1
        moves["{"] = _Push(_Frame.GROUP, _Mode(_Kind.ARGUMENT, groups=more) if more else _ITEM)
        if mode.rooted:
            moves["["] = _Push(_Frame.INDEX, _Mode(_Kind.ARGUMENT, groups=1))
    return moves


def _backward(mode: _Mode, frame: _Frame) -> _Moves:
    """The moves by class of token, reading from the right: `}` opens a group and what stands before it decides."""
    moves: _Moves = {}
    if mode.kind in (_Kind.EMPTY, _Kind.ITEM, _Kind.BASE):
        moves["atom"] = moves["operator"] = _Go(_ITEM)
        if frame is not _Frame.INDEX:
            moves["["] = moves["]"] = _Go(_ITEM)
        if not mode.scripts & SUP:
            moves["'"] = _Go(_Mode(_Kind.PRIME))
        moves["}"] = _Push(_Frame.GROUP, _Mode(_Kind.AFTER, scripts=mode.scripts, groups=1))
    if mode.kind is _Kind.ITEM:
        moves[{_Frame.LABEL: "end", _Frame.GROUP: "{", _Frame.INDEX: "["}[frame]] = _Pop()
    if mode.kind is _Kind.PRIME:
        moves["'"] = _Go(mode)
        if frame is _Frame.GROUP:
            moves["{"] = _Pop()
    if mode.kind is _Kind.BASE:
        moves[r"\limits"] = _Go(_Mode(_Kind.OPERATOR))
    if mode.kind is _Kind.AFTER:
        moves[f"command{mode.groups}"] = _Go(_ITEM)
        if mode.groups < _MOST_GROUPS:
            moves["}"] = _Push(_Frame.GROUP, _Mode(_Kind.AFTER, groups=mode.groups + 1))
        if mode.groups == 1:
            moves[r"\sqrt"] = _Go(_ITEM)
            if frame is not _Frame.INDEX:
                moves["]"] = _Push(_Frame.INDEX, _Mode(_Kind.ROOT))
            for mark, bit in _SCRIPTS.items():
                if not mode.scripts & bit:
                    moves[mark] = _Go(_Mode(_Kind.BASE, scripts=mode.scripts | bit))
    if mode.kind is _Kind.ROOT:
        moves[r"\sqrt"] = _Go(_ITEM)
    if mode.kind is _Kind.OPERATOR:
        moves["operator"] = _Go(_ITEM)
    return moves


_Place: TypeAlias = tuple[_Mode, _Frame]


class GrammarState(NamedTuple):
    """A prefix (of either direction), as far as its continuation is concerned."""

    #: Row in the tables: where we are in the innermost frame.
    key: int
    #: `(key to go on with, stack below)` for each open frame, innermost first.
    stack: tuple[int, Any] | None
    #: The least number of tokens until the end mark may come.
    finish: int


class Grammar:
    """The grammar for one vocabulary and direction; `grammar_for` keeps the ones that were built."""

    def __init__(self, vocabulary: Vocabulary, direction: Direction) -> None:
        self.vocabulary, self.direction, self._end = vocabulary, direction, direction.end
        classes = [token_class(vocabulary.token(i)) for i in range(len(vocabulary))]
        classes[direction.end] = "end"
        moves, cost = _explore(_forward if direction is Direction.L2R else _backward, frozenset(classes))
        home: _Place = (_EMPTY, _Frame.LABEL)
        if cost[home] >= _IMPOSSIBLE:
            raise DataError(f"{vocabulary!r} holds no token that a label could be written with")
        keys = {place: i for i, place in enumerate(moves)}
        self.start = GrammarState(keys[home], None, cost[home])
        # For each key and token: (key afterwards, or -1 to take it from the stack; key to stack, or -1; change of
        # `finish`); None where the token may not come.
        self._moves: list[list[tuple[int, int, int] | None]] = []
        for place, by_class in moves.items():
            compiled = {name: _compile(place, move, keys, cost) for name, move in by_class.items()}
            self._moves.append([compiled.get(name) for name in classes])
        change = np.array(
            [[_IMPOSSIBLE if move is None else move[2] for move in row] for row in self._moves], dtype=np.int64
        )  # (keys, K)
        possible = change < _IMPOSSIBLE // 2
        # A token costs one of the budget and may raise what is needed after it; beyond `_roomy` to spare,
        # everything fits.
        self._roomy = int(change[possible].max()) + 1
        slack = np.arange(self._roomy + 1)
        self._masks = possible[:, None, :] & (change[:, None, :] + 1 <= slack[None, :, None])  # (keys, slack, K)

    def masks(self, states: Sequence[GrammarState], budgets: Sequence[int] | None = None) -> np.ndarray:
        """Which tokens may come next in each state, (N, K) bool.

        budgets: the tokens that may still be written (the end mark not counted); only those are allowed after
            which the label can be finished in time. A budget below `finish` leaves nothing.
        """
        roomy = self._roomy
        keys = [state.key for state in states]
        if budgets is None:
            return self._masks[keys, roomy]
        slack = [min(budget - state.finish, roomy) for state, budget in zip(states, budgets, strict=True)]
        masks = self._masks[keys, slack]
        if slack and min(slack) < 0:
            masks[np.array(slack) < 0] = False
        return masks

    def allowed(self, state: GrammarState, budget: int | None = None) -> np.ndarray:
        """Which tokens may come next, (K,) bool; see `masks`."""
        return self.masks((state,), None if budget is None else (budget,))[0]

    def advance(self, state: GrammarState, token: int) -> GrammarState:
        """The state after one more token, which must be allowed and not the end mark."""
        move = self._moves[state.key][token]
        if move is None or token == self._end:
            raise ValueError(f"{self.vocabulary.token(token)!r} may not come next")
        key, stacked, change = move
        stack = state.stack
        if key < 0:
            assert stack is not None
            key, stack = stack
        elif stacked >= 0:
            stack = (stacked, stack)
        return GrammarState(key, stack, state.finish + change)

    def min_to_finish(self, state: GrammarState) -> int:
        """The least number of tokens until the end mark may come."""
        return state.finish

    def accepts(self, tokens: Iterable[str]) -> bool:
        """Whether a whole label (tokens from left to right, without marks) is in the language."""
        state = self.start
        try:
            for token in self.direction.order([self.vocabulary.id(token) for token in tokens]):
                state = self.advance(state, token)
        except (DataError, ValueError):
            return False
        return state.finish == 0


@lru_cache(maxsize=16)
def grammar_for(vocabulary: Vocabulary, direction: Direction) -> Grammar:
    """The grammar of a vocabulary and a direction, built once."""
    return Grammar(vocabulary, direction)


def _explore(
    automaton: Callable[[_Mode, _Frame], _Moves], classes: frozenset[str]
) -> tuple[dict[_Place, _Moves], dict[_Place, int]]:
    """All places that can be reached with these classes of tokens, and from each the least number of tokens to
    where its frame can be closed; moves that lead nowhere are left out.
    """
    moves: dict[_Place, _Moves] = {}
    waiting: list[_Place] = [(_EMPTY, _Frame.LABEL)]
    while waiting:
        place = waiting.pop()
        if place in moves:
            continue
        moves[place] = {name: move for name, move in automaton(*place).items() if name in classes}
        for move in moves[place].values():
            waiting.extend(_leads_to(place, move))
    cost = dict.fromkeys(moves, _IMPOSSIBLE)
    changed = True
    while changed:
        changed = False
        for place in moves:
            best = min((_tokens(place, move, cost) for move in moves[place].values()), default=_IMPOSSIBLE)
            if best < cost[place]:
                cost[place], changed = best, True
    for place, by_class in moves.items():
        moves[place] = {name: move for name, move in by_class.items() if _tokens(place, move, cost) < _IMPOSSIBLE}
    return moves, cost


def _leads_to(place: _Place, move: _Move) -> list[_Place]:
    """The places that a move leads to: within the frame, or into the new frame and behind it."""
    match move:
        case _Go(mode):
            return [(mode, place[1])]
        case _Push(frame, then):
            return [(_EMPTY, frame), (then, place[1])]
        case _:
            return []


def _tokens(place: _Place, move: _Move, cost: dict[_Place, int]) -> int:
    """The least number of tokens to where the frame of `place` can be closed, if this move comes next."""
    after = _leads_to(place, move)
    if not after:
        return 0
    opened = isinstance(move, _Push)  # the frame that was opened takes a token to close
    return 1 + opened + sum(cost[there] for there in after)


def _compile(place: _Place, move: _Move, keys: dict[_Place, int], cost: dict[_Place, int]) -> tuple[int, int, int]:
    """A move as (key afterwards or -1, key to stack or -1, change of the least number of tokens to the end)."""
    if isinstance(move, _Pop):
        return -1, -1, -1  # the closing token itself was counted
    change = _tokens(place, move, cost) - 1 - cost[place]
    there, *behind = _leads_to(place, move)
    return keys[there], keys[behind[0]] if behind else -1, change

"""Which strokes wrote which token of a label.

A file of CROHME says which strokes make up a symbol, what the symbol is, and mostly which element of the MathML
it stands for. Read in the order of the label, the MathML therefore names the symbol of each token. Where ids are
missing, or there is no MathML, the label itself tells roughly where each token must stand on the page, and each
symbol goes to the equal token whose place it is nearest to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from ink2tex.data.layout import layout
from ink2tex.errors import LatexError
from ink2tex.ink import Ink
from ink2tex.latex.inked import SPELLINGS, ink_class, ink_classes
from ink2tex.latex.mathml import mathml_items

#: Rounds of fitting the layout to the page and matching anew; more change nothing.
_ROUNDS = 4


def align(tokens: Sequence[str], ink: Ink) -> tuple[tuple[int, ...], ...]:
    """For each token the indices of the strokes that wrote it, empty where there are none or none are known.

    Each symbol of the ink is given to one token at most.
    """
    classes = ink_classes(tokens)
    symbols = [ink_class(symbol.label) for symbol in ink.symbols]
    matched: dict[int, tuple[int, ...]] = {}  # token -> symbols
    for token, symbol in _by_mathml(classes, ink, symbols):
        matched[token] = (symbol,)
    _by_place(tokens, classes, ink, symbols, matched)
    _by_spelling(tokens, classes, ink, symbols, matched)
    return tuple(
        tuple(sorted({i for s in matched.get(t, ()) for i in ink.symbols[s].strokes})) for t in range(len(tokens))
    )


def alignment_rate(pairs: Iterable[tuple[Sequence[str], Ink]]) -> tuple[int, int]:
    """(tokens with strokes, inked tokens) over labels with their ink.

    An inked token is any but `{ } ^ _ \\limits` and the brackets around the index of a root.
    """
    found = inked = 0
    for tokens, ink in pairs:
        for class_, strokes in zip(ink_classes(tokens), align(tokens, ink), strict=True):
            inked += class_ is not None
            found += bool(strokes)
    return found, inked


def _by_mathml(classes: Sequence[str | None], ink: Ink, symbols: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs (token, symbol) along the MathML: its symbols in the order of the label, then the longest common
    subsequence with the tokens, as label and MathML need not agree everywhere."""
    if ink.mathml is None:
        return []
    try:
        refs = [item.ref for item in mathml_items(ink.mathml) if item.ref is not None]
    except LatexError:
        return []
    by_ref: dict[str, int] = {}
    for i, symbol in enumerate(ink.symbols):
        if symbol.ref is not None:
            by_ref.setdefault(symbol.ref, i)
    order = [by_ref[ref] for ref in dict.fromkeys(refs) if ref in by_ref]
    inked = [i for i, class_ in enumerate(classes) if class_ is not None]
    pairs = common_subsequence([classes[i] for i in inked], [symbols[s] for s in order])
    return [(inked[a], order[b]) for a, b in pairs]


def common_subsequence(left: Sequence[object], right: Sequence[object]) -> list[tuple[int, int]]:
    """Index pairs of a longest common subsequence."""
    # length[i][j]: of left[i:] and right[j:]
    length = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in reversed(range(len(left))):
        for j in reversed(range(len(right))):
            same = left[i] == right[j]
            length[i][j] = length[i + 1][j + 1] + 1 if same else max(length[i + 1][j], length[i][j + 1])
    pairs = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif length[i + 1][j] >= length[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _by_place(
    tokens: Sequence[str],
    classes: Sequence[str | None],
    ink: Ink,
    symbols: Sequence[str],
    matched: dict[int, tuple[int, ...]],
) -> None:
    """Add to `matched` the tokens left over, each with the nearest free symbol of its class."""
    groups = _free(classes, symbols, matched)
    if not groups:
        return
    known = [(t, s[0]) for t, s in matched.items()]
    # What has one candidate only is sure whatever its place, and helps to place the rest.
    known += [(ts[0], ss[0]) for ts, ss in groups.values() if len(ts) == len(ss) == 1]
    groups = {c: (ts, ss) for c, (ts, ss) in groups.items() if not len(ts) == len(ss) == 1}
    places = layout(tokens)  # (T, 2)
    centres = _centres(ink)  # (S, 2)
    pairs: list[tuple[int, int]] = []
    for _ in range(_ROUNDS if groups else 0):
        fitted = _fit(places, centres, known + pairs, classes)
        pairs = []
        for ts, ss in groups.values():
            distance = np.hypot(*(fitted[ts][:, None] - centres[ss][None]).transpose(2, 0, 1))  # (tokens, symbols)
            for _ in range(min(len(ts), len(ss))):
                a, b = np.unravel_index(distance.argmin(), distance.shape)
                pairs.append((ts[a], ss[b]))
                distance[a] = distance[:, b] = np.inf
    for token, symbol in known + pairs:
        matched[token] = (symbol,)


def _by_spelling(
    tokens: Sequence[str],
    classes: Sequence[str | None],
    ink: Ink,
    symbols: Sequence[str],
    matched: dict[int, tuple[int, ...]],
) -> None:
    """Add to `matched` the tokens whose parts were segmented one by one: `\\ldots` as three dots."""
    for token, class_ in enumerate(classes):
        if class_ is None or token in matched or class_ not in SPELLINGS:
            continue
        taken = {s for ss in matched.values() for s in ss}
        free = [s for s in range(len(symbols)) if s not in taken]
        parts: list[int] = []
        for part in SPELLINGS[class_]:
            parts += [s for s in free if symbols[s] == part and s not in parts][:1]
        if len(parts) == len(SPELLINGS[class_]):
            matched[token] = tuple(parts)


def _free(
    classes: Sequence[str | None], symbols: Sequence[str], matched: dict[int, tuple[int, ...]]
) -> dict[str, tuple[list[int], list[int]]]:
    """The tokens and symbols not matched yet, by class, for classes that have both."""
    tokens_of: dict[str, list[int]] = defaultdict(list)
    symbols_of: dict[str, list[int]] = defaultdict(list)
    taken = {s for ss in matched.values() for s in ss}
    for t, class_ in enumerate(classes):
        if class_ is not None and t not in matched:
            tokens_of[class_].append(t)
    for s, class_ in enumerate(symbols):
        if s not in taken:
            symbols_of[class_].append(s)
    return {c: (tokens_of[c], symbols_of[c]) for c in tokens_of if c in symbols_of}


def _centres(ink: Ink) -> np.ndarray:
    """(S, 2) centres of the boxes of the symbols."""
    centres = np.zeros((len(ink.symbols), 2))
    for s, symbol in enumerate(ink.symbols):
        points = np.concatenate([ink.strokes[i] for i in symbol.strokes])
        centres[s] = (points.min(axis=0) + points.max(axis=0)) / 2
    return centres


def _fit(
    places: np.ndarray, centres: np.ndarray, known: Sequence[tuple[int, int]], classes: Sequence[str | None]
) -> np.ndarray:
    """(T, 2) the places moved onto the page: x and y each scaled and shifted to agree with the known pairs best.

    Without two pairs that differ, the extent of the layout is laid onto the extent of the ink.
    """
    inked = [t for t, class_ in enumerate(classes) if class_ is not None]
    fitted = np.empty_like(places)
    for axis in (0, 1):
        have = places[[t for t, _ in known], axis] if known else np.zeros(0)
        want = centres[[s for _, s in known], axis] if known else np.zeros(0)
        if len(known) < 2 or np.ptp(have) < 1e-6:
            have = np.array([places[inked, axis].min(), places[inked, axis].max()])
            want = np.array([centres[:, axis].min(), centres[:, axis].max()])
        spread = np.ptp(have)
        slope = np.cov(have, want, bias=True)[0, 1] / have.var() if spread > 1e-6 else 0.0
        fitted[:, axis] = want.mean() + max(slope, 0.0) * (places[:, axis] - have.mean())
    return fitted

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
#: How many tokens before and behind count as neighbours, how far apart (in letters) two places have to be to tell
#: on which side of each other they are, and by how much an exchange has to lessen the disorder.
_NEIGHBOURS = 5
_CLEAR = 0.3
_GAIN = 0.5


def align(tokens: Sequence[str], ink: Ink) -> tuple[tuple[int, ...], ...]:
    """For each token the indices of the strokes that wrote it, empty where there are none or none are known.

    Each symbol of the ink is given to one token at most.
    """
    classes = ink_classes(tokens)
    symbols = [ink_class(symbol.label) for symbol in ink.symbols]
    matched: dict[int, tuple[int, ...]] = {}  # token -> symbols
    for token, symbol in _by_mathml(classes, ink, symbols):
        matched[token] = (symbol,)
    places, boxes = layout(tokens), _boxes(ink)
    _by_place(classes, symbols, matched, places, boxes)
    _untangle(classes, matched, places, boxes)
    _by_spelling(classes, symbols, matched)
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
    classes: Sequence[str | None],
    symbols: Sequence[str],
    matched: dict[int, tuple[int, ...]],
    places: np.ndarray,  # (T, 3)
    boxes: np.ndarray,  # (S, 3)
) -> None:
    """Add to `matched` the tokens left over, each with the nearest free symbol of its class."""
    groups = _free(classes, symbols, matched)
    if not groups:
        return
    known = [(t, s[0]) for t, s in matched.items()]
    # What has one candidate only is sure whatever its place, and helps to place the rest.
    known += [(ts[0], ss[0]) for ts, ss in groups.values() if len(ts) == len(ss) == 1]
    groups = {c: (ts, ss) for c, (ts, ss) in groups.items() if not len(ts) == len(ss) == 1}
    pairs: list[tuple[int, int]] = []
    for _ in range(_ROUNDS if groups else 0):
        fitted = _fit(places, boxes, known + pairs, classes)
        pairs = []
        for ts, ss in groups.values():
            distance = np.hypot(*(fitted[ts][:, None] - boxes[ss, :2][None]).transpose(2, 0, 1))  # (tokens, symbols)
            for _ in range(min(len(ts), len(ss))):
                a, b = np.unravel_index(distance.argmin(), distance.shape)
                pairs.append((ts[a], ss[b]))
                distance[a] = distance[:, b] = np.inf
    for token, symbol in known + pairs:
        matched[token] = (symbol,)


def _untangle(
    classes: Sequence[str | None],
    matched: dict[int, tuple[int, ...]],
    places: np.ndarray,  # (T, 3)
    boxes: np.ndarray,  # (S, 3)
) -> None:
    """Exchange the symbols of two equal tokens where that puts the neighbourhood in order.

    Ids may be wrong (a file that names the minus as the bar of the fraction), and places are only rough. What is
    reliable is on which side of each other neighbours stand.
    """
    order = sorted(matched)
    if len({classes[t] for t in order}) == len(order):
        return
    at = places[order]  # (k, 3)
    want = at[None] - at[:, None]  # (k, k, 3) from row to column
    rank = np.arange(len(order))
    near = np.abs(rank[:, None] - rank) <= _NEIGHBOURS
    names = np.array([classes[t] for t in order])
    # On which side: left or right if the widths do not overlap; above or below; wider or narrower, of equal tokens.
    clear = np.stack(
        [
            near & (np.abs(want[..., 0]) > np.maximum(at[None, :, 2], at[:, None, 2]) / 2),
            near & (np.abs(want[..., 1]) > _CLEAR),
            (names[:, None] == names) & (np.abs(want[..., 2]) > 2 * _CLEAR),
        ],
        axis=-1,
    )
    side = np.sign(want) * clear
    extent = max(float(np.ptp(at[:, :2], axis=0).max()), 1.0)
    unit = max(float(np.ptp(boxes[:, :2], axis=0).max()) / extent, 1e-9)

    def disorder(now: np.ndarray) -> np.ndarray:
        """(k,) by how much each token stands on the wrong side of its neighbours."""
        have = (now[None] - now[:, None]) / unit
        return np.minimum(np.maximum(-side * have, 0.0), 1.0).sum(axis=(1, 2))

    now = boxes[[matched[t][0] for t in order]]  # (k, 3)
    for _ in range(len(order)):
        cost = disorder(now)
        best, swap = _GAIN, (-1, -1)
        for a in np.flatnonzero(cost > _GAIN / 2).tolist():
            for b in np.flatnonzero(names == names[a]).tolist():
                trial = now.copy()
                trial[[a, b]] = now[[b, a]]
                gain = float(cost.sum() - disorder(trial).sum())
                if gain > best:
                    best, swap = gain, (a, b)
        a, b = swap
        if a < 0:
            return
        now[[a, b]] = now[[b, a]]
        matched[order[a]], matched[order[b]] = matched[order[b]], matched[order[a]]


def _by_spelling(classes: Sequence[str | None], symbols: Sequence[str], matched: dict[int, tuple[int, ...]]) -> None:
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


def _boxes(ink: Ink) -> np.ndarray:
    """(S, 3) x and y of the centre of each symbol and its width."""
    boxes = np.zeros((len(ink.symbols), 3))
    for s, symbol in enumerate(ink.symbols):
        points = np.concatenate([ink.strokes[i] for i in symbol.strokes])
        low, high = points.min(axis=0), points.max(axis=0)
        boxes[s] = (*((low + high) / 2), high[0] - low[0])
    return boxes


def _fit(
    places: np.ndarray, boxes: np.ndarray, known: Sequence[tuple[int, int]], classes: Sequence[str | None]
) -> np.ndarray:
    """(T, 2) the places moved onto the page: x and y each scaled and shifted to agree with the known pairs best.

    Without two pairs that differ, the extent of the layout is laid onto the extent of the ink.
    """
    inked = [t for t, class_ in enumerate(classes) if class_ is not None]
    fitted = np.empty((len(places), 2))
    for axis in (0, 1):
        have = places[[t for t, _ in known], axis] if known else np.zeros(0)
        want = boxes[[s for _, s in known], axis] if known else np.zeros(0)
        if len(known) < 2 or np.ptp(have) < 1e-6:
            have = np.array([places[inked, axis].min(), places[inked, axis].max()])
            want = np.array([boxes[:, axis].min(), boxes[:, axis].max()])
        spread = np.ptp(have)
        slope = np.cov(have, want, bias=True)[0, 1] / have.var() if spread > 1e-6 else 0.0
        fitted[:, axis] = want.mean() + max(slope, 0.0) * (places[:, axis] - have.mean())
    return fitted

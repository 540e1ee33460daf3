"""Printed rules and squares: found as long thin lines from edge to edge, and wiped away around the strokes.

A rule runs through the whole picture; a fraction bar does not, so bars stay. Where a stroke crosses a rule, the
column of ink is longer than the rule is thick and nothing is wiped: strokes are not cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import cv2
import numpy as np

#: Rules are looked for within this angle of the axes, in degrees.
_TILT: Final = 6.0
#: Side of the small picture on which lines are voted for.
_SMALL: Final = 700
#: At most this many lines are looked at, in each direction.
_MOST: Final = 80
#: A rule is seen in this part of its columns; one that belongs to a family of parallels may be patchy.
_SEEN, _SEEN_IN_FAMILY = 0.6, 0.35
#: So many faint parallels that are seen in this part of the columns are rules even if they end before the edge.
_MANY, _SEEN_OF_MANY = 3, 0.75
#: Lines that come this near to the edge, as part of the side, reach it.
_EDGE: Final = 0.05
#: A single line across the picture is a rule if it is this much fainter than the ink.
_FAINTER: Final = 0.7


@dataclass(frozen=True, eq=False)
class Rule:
    """A line from the left to the right of a picture (or, turned, from top to bottom)."""

    #: (W,) float: its row in each column.
    trace: np.ndarray
    #: Part of the columns where it is seen, whether it reaches both edges, and how dark it is.
    seen: float
    across: bool
    strength: float
    #: Pixels from its upper to its lower edge.
    thickness: float
    #: Degrees.
    tilt: float

    def scaled(self, width: int, scale: float) -> Rule:
        """The same rule on a picture that is `width` px wide and `scale` times as large."""
        old = np.arange(len(self.trace)) * scale
        trace = np.interp(np.arange(width), old, self.trace * scale)
        return replace(self, trace=trace, thickness=self.thickness * scale)


@dataclass(frozen=True, eq=False)
class Rules:
    """The rules of a page in both directions; those of the second are found on the picture turned over."""

    level: tuple[Rule, ...] = ()
    upright: tuple[Rule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.level or self.upright)

    def scaled(self, shape: tuple[int, int], scale: float) -> Rules:
        """The same rules on a picture of `shape`, `scale` times as large."""
        height, width = shape
        return Rules(
            tuple(rule.scaled(width, scale) for rule in self.level),
            tuple(rule.scaled(height, scale) for rule in self.upright),
        )


NO_RULES: Final = Rules()


def find_rules(strength: np.ndarray, level: float, noise: float, pen: float) -> Rules:
    """The rules on a map of ink, (H, W) float32.

    `level` is the strength of ink, `noise` that of empty paper, `pen` the width of strokes in pixels.
    """
    least = _least(level, noise)
    flat = _found(strength, least, level, pen)
    rest = _wiped(strength, flat, least, level, pen)
    return Rules(flat, _found(np.ascontiguousarray(rest.T), least, level, pen))


def without_rules(strength: np.ndarray, rules: Rules, level: float, noise: float, pen: float) -> np.ndarray:
    """`strength` (H, W) float32 with that of rules set to 0, except where strokes cross or cover them."""
    least = _least(level, noise)
    rest = _wiped(strength, rules.level, least, level, pen)
    turned = _wiped(np.ascontiguousarray(rest.T), rules.upright, least, level, pen)
    return np.ascontiguousarray(turned.T)


def _least(level: float, noise: float) -> float:
    """How dark the faintest rule is."""
    return max(3.0 * noise, min(0.12 * level, 0.06))


def _found(strength: np.ndarray, least: float, level: float, pen: float) -> tuple[Rule, ...]:
    """The rules that run from left to right."""
    marked = (strength > least).astype(np.uint8)
    thickest = max(3, round(1.5 * pen))
    # Pixels in columns of at most `thickest` marked pixels: horizontal lines, whatever crosses them left out.
    flat = cv2.subtract(marked, cv2.morphologyEx(marked, cv2.MORPH_OPEN, np.ones((thickest + 1, 1), np.uint8)))
    long = cv2.morphologyEx(flat, cv2.MORPH_OPEN, np.ones((1, max(9, round(4 * pen))), np.uint8))
    return tuple(_rules(long, strength, level, pen))


def _wiped(strength: np.ndarray, rules: Sequence[Rule], least: float, level: float, pen: float) -> np.ndarray:
    """`strength` without the rules that run from left to right."""
    if not rules:
        return strength
    marked = (strength > least).astype(np.uint8)
    height, width = strength.shape
    gone = np.zeros_like(marked)
    columns = np.arange(width)
    # Rules of a page look alike; each on its own may be covered by strokes.
    thickness = float(np.median([rule.thickness for rule in rules]))
    usual = float(np.median([rule.strength for rule in rules]))
    darker = strength > min(1.6 * usual, 0.5 * (usual + level)) if usual < _FAINTER * level else None
    reach = thickness / 2 + max(1.0, 0.3 * pen)
    tall = round(thickness + max(1.5, 0.3 * pen)) + 1
    for rule in rules:
        sides = [np.stack([columns, rule.trace - reach], 1), np.stack([columns, rule.trace + reach], 1)[::-1]]
        outline = np.round(np.concatenate(sides)).astype(np.int32)
        top, bottom = max(0, int(outline[:, 1].min())), min(height, int(outline[:, 1].max()) + 1)
        if top >= bottom:
            continue
        band = np.zeros((bottom - top, width), np.uint8)
        cv2.fillPoly(band, [outline - np.array([0, top], np.int32)], 1)
        above = max(0, top - tall)
        crossing = cv2.morphologyEx(marked[above : bottom + tall], cv2.MORPH_OPEN, np.ones((tall, 1), np.uint8))
        band[crossing[top - above :][: bottom - top] > 0] = 0
        if darker is not None:
            band[darker[top:bottom]] = 0
        gone[top:bottom] |= band
    return np.where(gone == 1, np.float32(0), strength)


def _rules(long: np.ndarray, strength: np.ndarray, level: float, pen: float) -> list[Rule]:
    height, width = long.shape
    if cv2.countNonZero(long) < width * _SEEN_IN_FAMILY:
        return []
    found: list[Rule] = []
    rows, columns = np.nonzero(long)
    for slope, start in _lines(rows, columns, height, width):
        rule = _traced(slope, start, rows, columns, long, strength, pen)
        if rule is None or any(np.abs(rule.trace - other.trace).mean() < 2 * pen for other in found):
            continue
        found.append(rule)
    sure = [r for r in found if r.across and r.seen >= _SEEN]
    # Where other rules cross, or the page ends before the picture, rules do not reach the edge; many of them do.
    most = [r for r in found if r.seen >= _SEEN_OF_MANY and r.strength < _FAINTER * level]
    if len(most) >= _MANY:
        sure += [r for r in most if r not in sure]
    # One line as dark as ink, or a few by the same pen, are bars.
    bold = [r for r in sure if r.strength > _FAINTER * level]
    if len(bold) == len(sure) and (
        len(sure) < 2 or (len(sure) <= _MANY and np.median([r.thickness for r in sure]) > 0.6 * pen)
    ):
        return []
    tilt = float(np.median([rule.tilt for rule in sure]))
    family = len(sure) > 1
    return [r for r in found if r in sure or (family and r.seen >= _SEEN_IN_FAMILY and abs(r.tilt - tilt) < 1.5)]


def _lines(rows: np.ndarray, columns: np.ndarray, height: int, width: int) -> list[tuple[float, float]]:
    """(slope, row at the left edge) of lines that many columns vote for, the strongest first."""
    scale = min(1.0, _SMALL / max(height, width))
    small = np.zeros((int(height * scale) + 1, int(width * scale) + 1), dtype=np.uint8)
    small[(rows * scale).astype(np.int64), (columns * scale).astype(np.int64)] = 255
    small[1:] &= ~small[:-1]  # one vote for each column of a line
    right = np.pi / 2
    tilt = np.deg2rad(_TILT)
    votes = int(_SEEN_IN_FAMILY * small.shape[1] * 0.7)
    lines = cv2.HoughLines(small, 1.5, np.deg2rad(0.25), max(8, votes), min_theta=right - tilt, max_theta=right + tilt)
    if lines is None:
        return []
    answer: list[tuple[float, float]] = []
    ends: list[tuple[float, float]] = []
    for rho, theta in lines.reshape(-1, 2)[:2000].tolist():
        slope = -np.cos(theta) / np.sin(theta)
        left = rho / np.sin(theta)
        end = left + slope * small.shape[1]
        if any(abs(left - a) + abs(end - b) < 10 for a, b in ends):
            continue
        ends.append((left, end))
        answer.append((slope, left / scale))
        if len(answer) == _MOST:
            break
    return answer


def _traced(
    slope: float,
    start: float,
    rows: np.ndarray,
    columns: np.ndarray,
    long: np.ndarray,
    strength: np.ndarray,
    pen: float,
) -> Rule | None:
    """The rule near a line, followed along a slight bend."""
    width = long.shape[1]
    reach = max(4.0, 1.5 * pen, 0.004 * width)
    x = np.arange(width)
    fit = np.array([0.0, slope, start])
    for tolerance in (reach, max(2.0, 0.6 * pen)):
        close = np.abs(rows - np.polyval(fit, columns)) <= tolerance
        if np.count_nonzero(close) < 8 or np.ptp(columns[close]) < 0.2 * width:
            return None
        fit = np.polyfit(columns[close], rows[close], 2)
    trace = np.polyval(fit, x)
    close = np.abs(rows - np.polyval(fit, columns)) <= max(2.0, 0.7 * pen)
    if not close.any():
        return None
    where, count = np.unique(columns[close], return_counts=True)
    edge = max(2.0, _EDGE * width)
    dark = strength[rows[close], columns[close]]
    return Rule(
        trace,
        seen=len(where) / width,
        across=bool(where[0] <= edge and where[-1] >= width - 1 - edge),
        strength=float(np.median(dark)),
        thickness=float(np.median(count)),
        tilt=float(np.degrees(np.arctan((trace[-1] - trace[0]) / width))),
    )

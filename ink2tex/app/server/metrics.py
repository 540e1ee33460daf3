"""Counts for Prometheus, in its text format.

The set of series is fixed, so all numbers of a process are one row of an array. With several workers the rows live
in a file that they share: each worker owns one row (a lock on one byte tells whose it is), and whoever is asked adds
the rows up. A worker that takes a dead one's place goes on with its counts.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

ROUTES: Final = ("recognize", "batch", "model", "health", "metrics", "page", "other")
STATUSES: Final = (200, 304, 400, 401, 404, 405, 408, 413, 415, 422, 429, 499, 500, 503, 0)
_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
#: Name, help, upper bounds of the buckets.
_HISTOGRAMS: Final = (
    ("ink2tex_request_seconds", "Time to answer calls of the recognition API.", _SECONDS),
    ("ink2tex_wait_seconds", "Time that inputs waited to be read.", _SECONDS),
    ("ink2tex_batch_size", "Inputs that were read together.", (1, 2, 4, 8, 16, 32)),
)
_GAUGES: Final = (("ink2tex_queue", "Inputs that are accepted and not yet answered."),)
_COUNTERS: Final = (
    ("ink2tex_inputs_total", "Inputs that were accepted."),
    ("ink2tex_inputs_answered_total", "Inputs that were read, or found unreadable."),
    ("ink2tex_inputs_abandoned_total", "Inputs whose client hung up or whose deadline passed."),
)
_MAX_WORKERS: Final = 64

_PLACES: Final = {
    name: place
    for place, name in enumerate(
        [f"{route} {status}" for route in ROUTES for status in STATUSES]
        + [f"{name} {i}" for name, _, bounds in _HISTOGRAMS for i in (*range(len(bounds) + 1), "sum")]
        + [name for name, _ in _GAUGES + _COUNTERS]
    )
}


class Metrics:
    """The counts of this process, and the sums over all workers."""

    def __init__(self, path: str | None = None) -> None:
        self._lock_file: Any = None
        if path is None:
            self._rows = np.zeros((1, len(_PLACES)))
            self._own = self._rows[0]
            return
        self._rows = _shared(Path(path))
        self._own = self._rows[self._claim(path)]
        for name, _ in _GAUGES:
            self._own[_PLACES[name]] = 0  # of the worker that had this row before

    def _claim(self, path: str) -> int:
        import fcntl

        self._lock_file = open(path, "r+b")  # noqa: SIM115  (held as long as the process lives)
        for row in range(_MAX_WORKERS):
            try:
                fcntl.lockf(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, row)
                return row
            except OSError:
                continue
        raise RuntimeError(f"more than {_MAX_WORKERS} workers")

    def request(self, route: str, status: int) -> None:
        """Count an answer."""
        self._own[_PLACES[f"{route} {status if status in STATUSES else 0}"]] += 1

    def observe(self, name: str, value: float) -> None:
        """Put a value into a histogram."""
        bounds = next(bounds for known, _, bounds in _HISTOGRAMS if known == name)
        self._own[_PLACES[f"{name} {bisect_left(bounds, value)}"]] += 1
        self._own[_PLACES[f"{name} sum"]] += value

    def add(self, name: str, amount: float = 1) -> None:
        """Change a counter or a gauge."""
        self._own[_PLACES[name]] += amount

    def get(self, name: str) -> float:
        """A counter or gauge of this process."""
        return float(self._own[_PLACES[name]])

    def render(self) -> str:
        """The sums in the text format of Prometheus."""
        return "\n".join(self._lines(self._rows.sum(axis=0))) + "\n"

    def _lines(self, row: np.ndarray) -> Iterator[str]:
        yield from _heading("ink2tex_requests_total", "HTTP answers by route and status.", "counter")
        for route in ROUTES:
            for status in STATUSES:
                if count := row[_PLACES[f"{route} {status}"]]:
                    shown = status or "other"
                    yield f'ink2tex_requests_total{{route="{route}",status="{shown}"}} {count:.0f}'
        for name, text, bounds in _HISTOGRAMS:
            yield from _heading(name, text, "histogram")
            total = 0.0
            for i, bound in enumerate((*bounds, "+Inf")):
                total += row[_PLACES[f"{name} {i}"]]
                yield f'{name}_bucket{{le="{bound}"}} {total:.0f}'
            yield f"{name}_sum {row[_PLACES[f'{name} sum']]:.6f}"
            yield f"{name}_count {total:.0f}"
        for kind, series in (("gauge", _GAUGES), ("counter", _COUNTERS)):
            for name, text in series:
                yield from _heading(name, text, kind)
                yield f"{name} {row[_PLACES[name]]:.0f}"


def _heading(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _shared(path: Path) -> np.ndarray:
    """The rows of all workers in a file, which is made when it is empty."""
    size = _MAX_WORKERS * len(_PLACES) * 8
    with path.open("r+b") as file:
        if os.fstat(file.fileno()).st_size < size:
            file.truncate(size)
        return np.frombuffer(mmap.mmap(file.fileno(), size), np.float64).reshape(_MAX_WORKERS, -1)

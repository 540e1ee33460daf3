"""Exported models on ONNX Runtime.

Pictures are encoded one by one (no padding, no mask) and decoded together. All hypotheses of a picture share what
the encoder computed for it: a step runs over (B pictures, k hypotheses), and only the small recurrent states are
copied when the search drops and doubles hypotheses.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from ink2tex.errors import CheckpointError
from ink2tex.runtime.backend import cells
from ink2tex.runtime.bundle import ENCODER, Manifest, read_graph, read_manifest, step_file
from ink2tex.vocabulary import Direction

_CELLS: Final = ("h", "c")


class OnnxBackend:
    """A model folder. Sessions of ONNX Runtime may be used by many threads at once, and nothing else changes."""

    def __init__(self, folder: str | Path, threads: int = 1) -> None:
        self.folder = Path(folder)
        self.manifest: Manifest = read_manifest(folder)
        self.vocabulary = self.manifest.vocabulary
        self.directions = self.manifest.directions
        self.input_scale = self.manifest.input_scale
        self.decode = self.manifest.decode
        self.calibration = self.manifest.calibration
        decoder = self.manifest.network.get("decoder", {})
        self.width = int(decoder.get("attention", {}).get("width", 512))
        self.concurrent = True
        self._sessions: dict[tuple[str, int], Any] = {}
        self._lock = threading.Lock()
        self._session(ENCODER, threads)  # so that a broken model shows at once

    def encode(self, bitmaps: Sequence[np.ndarray], threads: int = 1) -> OnnxEncoded:
        encoder = self._session(ENCODER, threads)
        names = [output.name for output in encoder.get_outputs()]
        found = []
        for bitmap in bitmaps:
            image = (bitmap.astype(np.float32) / np.float32(255))[None, None]
            found.append(dict(zip(names, encoder.run(None, {"image": image}), strict=True)))
        return OnnxEncoded(self, found, [cells(bitmap) for bitmap in bitmaps])

    def step(self, direction: Direction, threads: int = 1) -> Any:
        """The session of one branch."""
        if direction not in self.directions:
            have = " and ".join(d.value for d in self.directions)
            raise CheckpointError(f"{self.folder}: this model writes {have} only; it has no {direction.value} branch")
        return self._session(step_file(direction), threads)

    def _session(self, name: str, threads: int) -> Any:
        """A graph on so many cores, loaded when it is first needed."""
        with self._lock:
            if (name, threads) not in self._sessions:
                self._sessions[name, threads] = _session(self.folder, name, self.manifest, threads)
            return self._sessions[name, threads]


def _session(folder: Path, name: str, manifest: Manifest, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Idle threads of one session must not keep the cores from the next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    graph = read_graph(folder, name, manifest)
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has no common class for its errors
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"{folder / name}: ONNX Runtime cannot load it ({reason}); export it again") from None


class OnnxEncoded:
    """The encoder's answers for some pictures."""

    def __init__(
        self, backend: OnnxBackend, found: Sequence[dict[str, np.ndarray]], sizes: Sequence[tuple[int, int]]
    ) -> None:
        self._backend = backend
        self._found = found
        self._sizes = sizes

    def stepper(self, direction: Direction, threads: int = 1) -> OnnxStepper:
        session = self._backend.step(direction, threads)
        values, keys, states = (
            [one[f"{direction.value}.{what}"] for one in self._found] for what in ("values", "keys", "h")
        )
        height, width = (max(size[axis] for size in self._sizes) for axis in (0, 1))
        first = np.concatenate(states)  # (B, n)
        if len(self._found) == 1:
            memory = _Memory(values[0], keys[0], np.zeros((1, height * width), np.float32))
        else:
            bias = np.full((len(self._sizes), height, width), -np.inf, np.float32)
            for row, (h, w) in zip(bias, self._sizes, strict=True):
                row[:h, :w] = 0
            memory = _Memory(
                _padded(values, self._sizes, height, width),
                _padded(keys, self._sizes, height, width),
                bias.reshape(len(bias), -1),
            )
        return OnnxStepper(session, direction, memory, first, (height, width))


def _padded(arrays: Sequence[np.ndarray], sizes: Sequence[tuple[int, int]], height: int, width: int) -> np.ndarray:
    """Arrays (1, h·w, c) of different sizes in one (B, height·width, c), zero outside."""
    channels = arrays[0].shape[2]
    whole = np.zeros((len(arrays), height, width, channels), np.float32)
    for row, array, (h, w) in zip(whole, arrays, sizes, strict=True):
        row[:h, :w] = array.reshape(h, w, channels)
    return whole.reshape(len(arrays), height * width, channels)


class _Memory(NamedTuple):
    """What all hypotheses of a picture read, one row for each of B pictures."""

    values: np.ndarray  # (B, L, 4n)
    keys: np.ndarray  # (B, L, d)
    bias: np.ndarray  # (B, L), -inf on the padding

    def take(self, images: np.ndarray) -> _Memory:
        return _Memory(*(part[images] for part in self))


@dataclass(frozen=True, eq=False)
class _Layout:
    """Where N hypotheses stand in a table of (B pictures, k places)."""

    images: np.ndarray  # (B,) pictures of the encoded batch
    places: int  # k
    image: np.ndarray  # (N,) picture of each hypothesis
    slots: np.ndarray | None  # (N,) place of each in the flat table; None if they fill it in order

    @classmethod
    def of(cls, image: np.ndarray) -> _Layout:
        n = len(image)
        if n and (image == image[0]).all():
            return cls(image[:1], n, image, None)
        images, row, counts = np.unique(image, return_inverse=True, return_counts=True)
        places = int(counts.max())
        if len(images) == n and (row == np.arange(n)).all():
            return cls(images, 1, image, None)
        order = np.argsort(row, kind="stable")
        place = np.empty(n, np.int64)
        place[order] = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
        slots = row * places + place
        full = len(images) * places == n and bool((slots == np.arange(n)).all())
        return cls(images, places, image, None if full else slots)

    def shortened(self, n: int) -> _Layout:
        """Of one picture, with n hypotheses."""
        return _Layout(self.images, n, self.images.repeat(n), None)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """(N,) values in the table (B, k); empty places repeat the first value of all."""
        if self.slots is None:
            return values.reshape(len(self.images), self.places)
        table = np.full(len(self.images) * self.places, values[0])
        table[self.slots] = values
        return table.reshape(len(self.images), self.places)

    def gather(self, table: np.ndarray) -> np.ndarray:
        """The rows (N, …) of the hypotheses in a table (B, k, …)."""
        flat = table.reshape(-1, *table.shape[2:])
        return flat if self.slots is None else flat[self.slots]


class _State(NamedTuple):
    layout: _Layout
    memory: _Memory  # rows in the order of layout.images
    covered: np.ndarray  # (B, k, H, W)
    cell: tuple[np.ndarray, ...]  # each (B, k, n)
    attention: np.ndarray | None  # (B, k, H, W)


class OnnxStepper:
    """`ink2tex.search.Stepper` over one branch of an exported model."""

    def __init__(
        self, session: Any, direction: Direction, memory: _Memory, first: np.ndarray, size: tuple[int, int]
    ) -> None:
        self.direction = direction
        self._run = session.run
        self._cells = [name for name in _CELLS if any(i.name == name for i in session.get_inputs())]
        self._memory, self._first, self._size = memory, first, size

    def start(self, rows: np.ndarray) -> _State:
        layout = _Layout.of(np.asarray(rows))
        shape = (len(layout.images), layout.places)
        h = np.ascontiguousarray(np.broadcast_to(self._first[layout.images][:, None], (*shape, self._first.shape[1])))
        cell = (h, *(np.zeros_like(h) for _ in self._cells[1:]))
        return _State(layout, self._take(layout), np.zeros((*shape, *self._size), np.float32), cell, None)

    def advance(self, state: _State, tokens: np.ndarray) -> tuple[np.ndarray, _State]:
        layout, memory = state.layout, state.memory
        feeds = {
            "values": memory.values,
            "keys": memory.keys,
            "bias": memory.bias,
            "tokens": layout.spread(np.asarray(tokens, dtype=np.int64)),
            "covered": state.covered,
            **dict(zip(self._cells, state.cell, strict=True)),
        }
        logprobs, attention, covered, *cell = self._run(None, feeds)
        return layout.gather(logprobs), _State(layout, memory, covered, tuple(cell), attention)

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        old = state.layout
        rows = np.asarray(rows)
        layout = old.shortened(len(rows)) if len(old.images) == 1 else _Layout.of(old.image[rows])
        source = layout.spread(rows if old.slots is None else old.slots[rows])  # (B, k) places in the old table
        same = len(layout.images) == len(old.images) and bool((layout.images == old.images).all())
        memory = state.memory if same else self._take(layout)

        def moved(table: np.ndarray) -> np.ndarray:
            return table.reshape(-1, *table.shape[2:])[source]

        cell = tuple(moved(part) for part in state.cell)
        attention = None if state.attention is None else moved(state.attention)
        return _State(layout, memory, moved(state.covered), cell, attention)

    def attention(self, state: _State) -> np.ndarray:
        assert state.attention is not None
        return state.layout.gather(state.attention)

    def _take(self, layout: _Layout) -> _Memory:
        whole = len(layout.images) == len(self._first) and bool((layout.images == np.arange(len(self._first))).all())
        return self._memory if whole else self._memory.take(layout.images)

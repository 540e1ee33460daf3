"""The torch side of `ink2tex.search.Stepper`: a branch of a network over an encoded batch."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from ink2tex.errors import CheckpointError
from ink2tex.model.attention import Memory
from ink2tex.model.decoders import Decoder, RecurrentState, TransformerMemory, TransformerState
from ink2tex.model.network import Network
from ink2tex.vocabulary import Direction


class _State(NamedTuple):
    rows: np.ndarray  # (N,) the image of each hypothesis
    memory: Memory | TransformerMemory  # one row for each hypothesis
    inner: RecurrentState | TransformerState  # (N, 1, …)
    attention: Tensor | None  # (N, L)


class TorchStepper:
    """One branch of `network` decoding `features`; every hypothesis is a row of its own."""

    def __init__(self, network: Network, branch: int, features: Tensor, mask: Tensor | None) -> None:
        self.direction: Direction = network.directions[branch]
        self._decoder: Any = cast(Decoder, network.branches[branch])
        self._memory = self._decoder.memory(features, mask)

    def start(self, rows: np.ndarray) -> _State:
        memory = self._select(self._memory, torch.from_numpy(rows))
        return _State(rows, memory, self._decoder.start(memory), None)

    @torch.inference_mode()
    def advance(self, state: _State, tokens: np.ndarray) -> tuple[np.ndarray, _State]:
        column = torch.from_numpy(np.asarray(tokens, dtype=np.int64))[:, None]
        inner, logits, attention = self._decoder.step(state.memory, state.inner, column)
        logp = torch.log_softmax(logits[:, 0], dim=-1).numpy()
        return logp, _State(state.rows, state.memory, inner, attention[:, 0])

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        index = torch.from_numpy(np.asarray(rows, dtype=np.int64))
        kept = state.rows[rows]
        # Hypotheses of one image share its memory: it only has to be gathered when images change places.
        same = len(kept) == len(state.rows) and bool((kept == state.rows).all())
        memory = state.memory if same else self._select(self._memory, torch.from_numpy(kept))
        inner = state.inner
        if isinstance(inner, RecurrentState):
            inner = RecurrentState(tuple(part[index] for part in inner.cell), inner.covered[index])
        else:
            inner = TransformerState(inner.embedded[index])
        return _State(kept, memory, inner, None if state.attention is None else state.attention[index])

    def attention(self, state: _State) -> np.ndarray:
        assert state.attention is not None
        return state.attention.unflatten(1, self._memory.size).numpy()

    @staticmethod
    def _select(memory: Memory | TransformerMemory, index: Tensor) -> Memory | TransformerMemory:
        changes: dict[str, Any] = {"features": memory.features[index], "bias": memory.bias[index]}
        if isinstance(memory, Memory):
            changes["keys"] = memory.keys[index]
        return memory._replace(**changes)


def stepper_for(network: Network, direction: Direction, features: Tensor, mask: Tensor | None) -> TorchStepper:
    """The branch of `network` that writes in `direction`."""
    if direction not in network.directions:
        have = " and ".join(sorted({d.value for d in network.directions}))
        raise CheckpointError(f"this network writes {have} only; it has no {direction.value} branch to decode with")
    return TorchStepper(network, network.directions.index(direction), features, mask)

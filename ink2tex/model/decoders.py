"""The decoders: GRU (equations 5–8), LSTM and Transformer, each blind to the direction it writes in.

A decoder maps a start token and the features to logits over the K classes. Training runs all steps of a known
sequence (`forward`), inference one step at a time (`start`, `step`); both run the same step, so what is trained is
what is exported. Two instances with targets in opposite order are the two branches of mutual learning.

Shapes: B images, k hypotheses of each, T steps, n hidden, D feature channels, L positions, K classes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ink2tex.model.attention import CoverageAttention, Memory
from ink2tex.model.config import DecoderConfig
from ink2tex.model.masking import widen


class Decoded(NamedTuple):
    """What a branch computes for a batch of known sequences."""

    logits: Tensor  # (B, T, K)
    attention: Tensor  # (B, T, H, W)
    hidden: Tensor  # (B, T, ·), what the classifier's last layer reads


class GruCell(nn.Module):
    """z·h + (1 - z)·tanh(W x + r·(U h)), the cell of WAP and of the released ABM."""

    gates = 3
    states = 1

    def __init__(self, inputs: int, hidden: int, input_bias: bool) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, 3 * hidden, bias=input_bias)  # z, r, candidate
        self.hidden = nn.Linear(hidden, 3 * hidden, bias=not input_bias)

    def forward(self, projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """One step from `self.input(x)`, which a caller may have computed for many steps at once."""
        (h,) = state
        zx, rx, cx = widen(projected).chunk(3, dim=-1)
        zh, rh, ch = widen(self.hidden(h)).chunk(3, dim=-1)
        z = torch.sigmoid(zx + zh)
        candidate = torch.tanh(torch.addcmul(cx, torch.sigmoid(rx + rh), ch))
        return (torch.lerp(candidate, h, z),)


class LstmCell(nn.Module):
    """The usual LSTM cell; its state is (h, memory)."""

    gates = 4
    states = 2

    def __init__(self, inputs: int, hidden: int, input_bias: bool) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, 4 * hidden, bias=input_bias)  # input, forget, candidate, output
        self.hidden = nn.Linear(hidden, 4 * hidden, bias=not input_bias)

    def forward(self, projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        h, memory = state
        i, f, c, o = (widen(projected) + widen(self.hidden(h))).chunk(4, dim=-1)
        memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(c)
        return torch.sigmoid(o) * torch.tanh(memory), memory


CELLS: dict[str, type[GruCell] | type[LstmCell]] = {"gru": GruCell, "lstm": LstmCell}


class RecurrentState(NamedTuple):
    """What a recurrent branch carries from step to step."""

    cell: tuple[Tensor, ...]  # h and, for an LSTM, its memory: each (B, k, n)
    covered: Tensor  # β, (B, k, L)


class RecurrentDecoder(nn.Module):
    """Two cells around coverage attention, and a maxout classifier."""

    def __init__(self, config: DecoderConfig, features: int, classes: int) -> None:
        super().__init__()
        n = config.hidden
        cell = CELLS[config.kind]
        self.config = config
        self.embedding = nn.Embedding(classes, n)  # E
        self.initial = nn.Linear(features, n)
        self.first = cell(n, n, True)  # f1, equation 7
        self.attention = CoverageAttention(config.attention, features, n)
        self.second = cell(features, n, False)  # f2, equation 8
        self.from_context = nn.Linear(features, n)  # W_t
        self.from_hidden = nn.Linear(n, n)  # W_h
        self.from_token = nn.Linear(n, n)  # W_y
        self.output = nn.Linear(n // 2, classes)  # W_o

    def memory(self, features: Tensor, mask: Tensor | None) -> Memory:
        """What all steps read from the features (B, D, H, W)."""
        return self.attention.memory(features, mask)

    def start(self, memory: Memory, hypotheses: int = 1) -> RecurrentState:
        """The state before the first step: tanh of a linear map of the masked mean of the features."""
        valid = (memory.bias == 0).to(memory.features.dtype)  # (B, L)
        mean = (valid.unsqueeze(1) @ memory.features) / valid.sum(1)[:, None, None]  # (B, 1, D)
        h = torch.tanh(widen(self.initial(mean))).expand(-1, hypotheses, -1)  # (B, k, n)
        cells = (h, *(torch.zeros_like(h) for _ in range(self.first.states - 1)))
        return RecurrentState(cells, h.new_zeros(*h.shape[:2], memory.bias.shape[1]))

    def advance(
        self, memory: Memory, state: RecurrentState, projected: Tensor
    ) -> tuple[RecurrentState, Tensor, Tensor]:
        """One step up to h_t: new state, α_t (B, k, L) and c_t (B, k, D); `projected` is f1's share of E y."""
        cell = self.first(projected, state.cell)  # ĥ_t
        attention, context = self.attention(memory, cell[0], state.covered)
        cell = self.second(self.second.input(context), cell)  # h_t
        return RecurrentState(cell, state.covered + attention), attention, context

    def maxout(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        """The larger of each pair of neighbours: (…, n/2)."""
        mixed = self.from_context(context) + self.from_hidden(hidden) + self.from_token(embedded)
        # A maximum of two slices has a far cheaper backward than a reduction.
        return torch.maximum(mixed[..., 0::2], mixed[..., 1::2])

    def classify(self, rows: Tensor) -> Tensor:
        """Equations 5 and 6: logits."""
        if self.training and self.config.dropout:
            rows = F.dropout(rows, self.config.dropout)
        return self.output(rows)

    def step(self, memory: Memory, state: RecurrentState, tokens: Tensor) -> tuple[RecurrentState, Tensor, Tensor]:
        """One step from the last tokens (B, k): new state, logits (B, k, K), α (B, k, L)."""
        embedded = self.embedding(tokens)
        state, attention, context = self.advance(memory, state, self.first.input(embedded))
        return state, self.classify(self.maxout(embedded, state.cell[0], context)), attention

    def forward(self, features: Tensor, mask: Tensor | None, tokens: Tensor) -> Decoded:
        """All steps of known sequences `tokens` (B, T), which begin with the start mark."""
        memory = self.memory(features, mask)
        state = self.start(memory)
        embedded = self.embedding(tokens)  # (B, T, n)
        projected = self.first.input(embedded)
        hidden, contexts, attentions = [], [], []
        for t in range(tokens.shape[1]):
            state, attention, context = self.advance(memory, state, projected[:, t : t + 1])
            hidden.append(state.cell[0])
            contexts.append(context)
            attentions.append(attention)
        rows = self.maxout(embedded, torch.cat(hidden, 1), torch.cat(contexts, 1))
        attention = torch.cat(attentions, 1).unflatten(2, memory.size)
        return Decoded(widen(self.classify(rows)), attention, rows)


class TransformerMemory(NamedTuple):
    """Features with their place on the page, and the padding."""

    features: Tensor  # (B, L, n)
    bias: Tensor  # (B, L)
    size: tuple[int, int]


class TransformerState(NamedTuple):
    """The embedded tokens so far; the layers run over them again, which short expressions can afford."""

    embedded: Tensor  # (B, k, t, n)


def sinusoid(positions: Tensor, width: int) -> Tensor:
    """Sine and cosine of `positions` (…,) at `width`/2 wavelengths: (…, width)."""
    rate = torch.exp(torch.arange(0, width, 2, device=positions.device) * (-math.log(10000.0) / width))
    angle = positions.unsqueeze(-1).float() * rate
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


class TransformerDecoder(nn.Module):
    """A BTTR-like decoder: masked self-attention, attention to the features, without coverage.

    The paper's table on generality pairs it with mutual learning only, because coverage needs one step to end
    before the next begins.
    """

    def __init__(self, config: DecoderConfig, features: int, classes: int) -> None:
        super().__init__()
        n = config.hidden
        self.config = config
        self.embedding = nn.Embedding(classes, n)
        self.project = nn.Linear(features, n)
        self.norm = nn.LayerNorm(n)
        self.layers = nn.ModuleList(TransformerLayer(n, config.heads, config.dropout) for _ in range(config.layers))
        self.output = nn.Linear(n, classes)

    def memory(self, features: Tensor, mask: Tensor | None) -> TransformerMemory:
        b, _, h, w = features.shape
        flat = self.project(features.flatten(2).transpose(1, 2))  # (B, L, n)
        half = flat.shape[-1] // 2
        rows = sinusoid(torch.arange(h, device=flat.device), half)[:, None].expand(h, w, half)
        columns = sinusoid(torch.arange(w, device=flat.device), half)[None].expand(h, w, half)
        flat = self.norm(flat + torch.cat((rows, columns), -1).reshape(1, h * w, -1))
        bias = flat.new_zeros(b, h * w)
        if mask is not None:
            bias = bias.masked_fill(mask.reshape(b, -1) == 0, float("-inf"))
        return TransformerMemory(flat, bias, (h, w))

    def start(self, memory: TransformerMemory, hypotheses: int = 1) -> TransformerState:
        b, _, n = memory.features.shape
        return TransformerState(memory.features.new_zeros(b, hypotheses, 0, n))

    def run(self, memory: TransformerMemory, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden rows (B, k, T, n) and the last layer's attention (B, k, T, L)."""
        t, n = embedded.shape[2:]
        x = embedded * math.sqrt(n) + sinusoid(torch.arange(t, device=embedded.device), n)
        attention = x.new_zeros(0)
        for layer in self.layers:
            x, attention = layer(x, memory)
        return x, attention

    def step(
        self, memory: TransformerMemory, state: TransformerState, tokens: Tensor
    ) -> tuple[TransformerState, Tensor, Tensor]:
        embedded = torch.cat((state.embedded, self.embedding(tokens).unsqueeze(2)), dim=2)
        rows, attention = self.run(memory, embedded)
        return TransformerState(embedded), self.output(rows[:, :, -1]), attention[:, :, -1]

    def forward(self, features: Tensor, mask: Tensor | None, tokens: Tensor) -> Decoded:
        memory = self.memory(features, mask)
        rows, attention = self.run(memory, self.embedding(tokens).unsqueeze(1))
        rows = rows.squeeze(1)
        return Decoded(widen(self.output(rows)), widen(attention).squeeze(1).unflatten(2, memory.size), rows)


class TransformerLayer(nn.Module):
    """Masked self-attention, attention to the features, feed-forward; norms after each, as in BTTR."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.self_qkv = nn.Linear(width, 3 * width)
        self.self_out = nn.Linear(width, width)
        self.cross_q = nn.Linear(width, width)
        self.cross_kv = nn.Linear(width, 2 * width)
        self.cross_out = nn.Linear(width, width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x: Tensor, memory: TransformerMemory) -> tuple[Tensor, Tensor]:
        t = x.shape[2]
        q, keys, values = self.self_qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)  # (B, k, T, h, n/h)
        later = torch.ones(t, t, device=x.device).triu(1).bool()
        weights = torch.einsum("bkthc,bkshc->bkhts", q, keys) / math.sqrt(q.shape[-1])
        weights = weights.masked_fill(later, float("-inf")).softmax(-1)
        mixed = torch.einsum("bkhts,bkshc->bkthc", weights, values).flatten(-2)
        x = self.norms[0](x + self._drop(self.self_out(mixed)))
        q = self.cross_q(x).unflatten(-1, (self.heads, -1))
        keys, values = self.cross_kv(memory.features).unflatten(-1, (2, self.heads, -1)).unbind(-3)  # (B, L, h, n/h)
        weights = torch.einsum("bkthc,blhc->bkhtl", q, keys) / math.sqrt(q.shape[-1])
        weights = (weights + memory.bias[:, None, None, None]).softmax(-1)
        mixed = torch.einsum("bkhtl,blhc->bkthc", weights, values).flatten(-2)
        x = self.norms[1](x + self._drop(self.cross_out(mixed)))
        x = self.norms[2](x + self._drop(self.narrow(F.relu(self.widen(x)))))
        return x, weights.mean(2)  # (B, k, T, L), averaged over the heads

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


Decoder = RecurrentDecoder | TransformerDecoder


def build_decoder(config: DecoderConfig, features: int, classes: int) -> Decoder:
    """The branch that `config` asks for, over `features` = D channels and `classes` = K symbols."""
    kind = TransformerDecoder if config.kind == "transformer" else RecurrentDecoder
    return kind(config, features, classes)

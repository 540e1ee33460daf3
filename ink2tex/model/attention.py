"""Coverage attention and its multi-scale form, the Attention Aggregation Module (equations 1–4).

The paper convolves the coverage β with kernels of several sizes (equation 1), maps each result linearly into the
attention space and adds them (equation 3). Both steps are linear in β, so all kernels and maps together are one
kernel of the largest size: it is folded once for a sequence, and a step costs one product however many scales
there are. With few filters per scale the two products in a row are cheaper, and are used instead. What depends on
the image alone, U_f F and every bias, is computed once as the keys.

Energies are kept doubled: tanh(e) = 2σ(2e) - 1, a logistic costs a quarter of a tanh on a CPU, and the constant is lost
in the softmax. In training, the gradients that all steps send to the features through the contexts are one product
over the steps at the end, not a sum of one outer product for each.

Shapes: B images, k hypotheses of each (1 in training), L = H·W positions, D feature channels, d attention width.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ink2tex.model.config import AttentionConfig
from ink2tex.model.masking import product_type, widen


class Memory(NamedTuple):
    """What every step of a branch reads from the image, and the folded coverage kernels."""

    features: Tensor  # (B, L, D), a in the paper
    keys: Tensor  # (B, L, d), U_f F and all biases, doubled
    bias: Tensor  # (B, L), 0 on the image and -inf on the padding
    filters: Tensor  # (d or q, 1, K, K), the coverage convolution
    mixing: Tensor  # (d, q), the map behind it, or (0, 0) if it is folded into the filters
    size: tuple[int, int]  # H, W
    owed: list[tuple[Tensor, Tensor]] | None = None  # in training: what the contexts still owe the features


class _Lend(torch.autograd.Function):
    """The features as the steps read them; backward, which runs after that of every step, collects what is owed."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, owed: list[tuple[Tensor, Tensor]]) -> Tensor:
        ctx.owed = owed
        return features.view_as(features)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        if ctx.owed:
            attentions, pulls = (torch.cat(parts, 1) for parts in zip(*ctx.owed, strict=True))  # (B, T, L), (B, T, D)
            ctx.owed.clear()
            grad = torch.baddbmm(grad, attentions.to(grad.dtype).transpose(1, 2), pulls)
        return grad, None


class _Context(torch.autograd.Function):
    """c_t = α_t a, whose gradient to the features is noted for later."""

    @staticmethod
    def forward(ctx: Any, attention: Tensor, features: Tensor, owed: list[tuple[Tensor, Tensor]]) -> Tensor:
        attention = attention.to(features.dtype)
        ctx.save_for_backward(attention, features)
        ctx.owed = owed
        return attention @ features

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        attention, features = ctx.saved_tensors
        ctx.owed.append((attention, grad))
        return widen(grad @ features.transpose(1, 2)), None, None


class CoverageAttention(nn.Module):
    """α_t from the state ĥ_t, the features and the sum of past attentions β_t."""

    def __init__(self, config: AttentionConfig, features: int, hidden: int) -> None:
        super().__init__()
        d, q = config.width, config.channels
        self.kernels = tuple(config.kernels)
        self.project = nn.Linear(features, d)  # U_f
        self.query = nn.Linear(hidden, d, bias=False)  # W_ĥ
        self.coverage = nn.ModuleList(nn.Conv2d(1, q, k, padding=k // 2, bias=False) for k in self.kernels)  # U_s, U_l
        self.maps = nn.ModuleList(nn.Linear(q, d) for _ in self.kernels)  # W_s, W_l
        self.score = nn.Linear(d, 1)  # v_a
        largest = max(self.kernels) ** 2
        total = q * len(self.kernels)
        #: One product of K²·d against two of K²·q and q·d, for each position.
        self.folds = largest * d <= largest * total + total * d

    def memory(self, features: Tensor, mask: Tensor | None) -> Memory:
        """Everything about the image that does not change from step to step; features are (B, D, H, W)."""
        b, _, h, w = features.shape
        flat = features.flatten(2).transpose(1, 2).to(product_type(features))  # (B, L, D)
        owed: list[tuple[Tensor, Tensor]] | None = None
        if torch.is_grad_enabled() and flat.requires_grad:
            owed = []
            flat = _Lend.apply(flat, owed)
        keys = self.keys_of(flat).to(flat.dtype)
        bias = widen(flat.new_zeros(b, h * w))
        if mask is not None:
            bias = bias.masked_fill(mask.reshape(b, -1) == 0, float("-inf"))
        filters, mixing = (weight.to(flat.dtype) for weight in self.fold())
        return Memory(flat, keys, bias, filters, mixing, (h, w), owed)

    def keys_of(self, features: Tensor) -> Tensor:
        """The image's share of the energies (B, L, d), doubled, with all biases; features are (B, L, D)."""
        return 2 * (self.project(features) + sum(linear.bias for linear in self.maps))  # type: ignore[misc]

    def fold(self) -> tuple[Tensor, Tensor]:
        """The doubled coverage kernels as one convolution and, unless folded into it, the linear map behind it."""
        largest = max(self.kernels)
        padded = []
        for conv, k in zip(self.coverage, self.kernels, strict=True):
            margin = (largest - k) // 2
            padded.append(F.pad(conv.weight, (margin,) * 4) * 2)  # type: ignore[arg-type]  # (q, 1, K, K)
        if not self.folds:
            mixing = torch.cat([linear.weight for linear in self.maps], dim=1)  # type: ignore[misc]
            return torch.cat(padded), mixing  # (m·q, 1, K, K), (d, m·q)
        folded = sum(
            torch.einsum("dq,qoij->doij", linear.weight, kernel)
            for linear, kernel in zip(self.maps, padded, strict=True)
        )
        assert isinstance(folded, Tensor)
        return folded, folded.new_zeros(0, 0)

    def forward(self, memory: Memory, state: Tensor, covered: Tensor) -> tuple[Tensor, Tensor]:
        """α_t (B, k, L) and c_t (B, k, D) from ĥ_t (B, k, n) and β_t (B, k, L)."""
        query = 2 * self.query(state)  # (B, k, d)
        if torch.onnx.is_in_onnx_export():
            scores = self._scores_by_channel(memory, query, covered)
        else:
            energy = memory.keys.unsqueeze(1) + query.unsqueeze(2)  # (B, k, L, d)
            energy = energy + self.coverage_term(memory, covered.to(energy.dtype)).view_as(energy)
            scores = 2 * widen(self.score(torch.sigmoid(energy))).squeeze(-1)  # (B, k, L)
        attention = torch.softmax(scores + memory.bias.unsqueeze(1), dim=-1)
        if memory.owed is not None:
            return attention, _Context.apply(attention, memory.features, memory.owed)
        return attention, attention @ memory.features

    def coverage_term(self, memory: Memory, covered: Tensor) -> Tensor:
        """2 (W_s A_s + W_l A_l) without the biases (they are in the keys): (B·k, L, d)."""
        # The convolution as one product: patches are shared by all filters, and on a CPU this beats a
        # convolution with a single input channel, backward above all.
        reach = memory.filters.shape[-1]
        patches = F.unfold(covered.reshape(-1, 1, *memory.size), reach, padding=reach // 2)  # (B·k, K², L)
        rows = patches.transpose(1, 2) @ memory.filters.flatten(1).t()  # (B·k, L, d or q)
        return rows if memory.mixing.numel() == 0 else rows @ memory.mixing.t()

    def _scores_by_channel(self, memory: Memory, query: Tensor, covered: Tensor) -> Tensor:
        """The scores (B, k, L) in fewer passes over the energies, for graphs that do without gradients.

        The energies lie as (B·k, d, L), as convolutions leave them, so nothing is transposed; and the query is added
        by the product behind the convolution, as the weight of one more response that is always one.
        """
        b, k, d = query.shape
        grid, query = covered.reshape(b * k, 1, *memory.size), query.reshape(b * k, d, 1)
        spread = F.conv2d(grid, memory.filters, padding=memory.filters.shape[-1] // 2).flatten(2)  # (B·k, d or q, L)
        if memory.mixing.numel() == 0:
            energy = spread + query
        else:
            weights = torch.cat((memory.mixing.expand(b * k, *memory.mixing.shape), query), dim=2)  # (B·k, d, q + 1)
            energy = weights @ torch.cat((spread, torch.ones_like(spread[:, :1])), dim=1)
        energy = energy.view(b, k, d, -1) + memory.keys.transpose(1, 2).unsqueeze(1)
        return (2 * self.score.weight @ torch.sigmoid(energy)).squeeze(2)

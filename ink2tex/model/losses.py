"""The losses: recognition and mutual learning of the paper, and supervision from the ink.

Every function returns a sum over tokens and leaves the division to the trainer, which knows how many tokens all
processes together have seen in a step.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ink2tex.model.decoders import Decoded

#: Targets with this id are padding.
IGNORE = -100


def recognition(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Equations 12 and 13: cross-entropy of logits (B, T, K) with targets (B, T), summed over the tokens."""
    return F.cross_entropy(
        logits.flatten(0, 1),
        targets.flatten(),
        ignore_index=IGNORE,
        reduction="sum",
        label_smoothing=smoothing,
    )


def align_steps(other: Tensor, lengths: Tensor, reverse: bool) -> Tensor:
    """The other branch's steps (B, T + 1, K) in the order of this one: (B, T, K), symbols only.

    Step i of one direction writes the symbol that step T + 1 - i of the other direction writes, T being the
    sequence's own length (equation 10); counted from zero that is T - 1 - i. The last step, which writes the end
    mark, is left out. Rows beyond a sequence's length are arbitrary and must be masked by the caller.
    """
    steps = torch.arange(other.shape[1] - 1, device=other.device).expand(len(lengths), -1)  # (B, T)
    if reverse:
        steps = (lengths[:, None] - 1 - steps).clamp_min(0)
    return other.gather(1, steps.unsqueeze(2).expand(-1, -1, other.shape[2]))


def mutual(first: Tensor, second: Tensor, lengths: Tensor, temperature: float, reverse: bool = True) -> Tensor:
    """Equation 10: S² Σ_i KL(σ(Z_i / S) ‖ σ(Z'_{T+1-i} / S)), summed over the symbols of all sequences.

    `first` and `second` are logits (B, T + 1, K) of the two branches, `lengths` (B,) the number of symbols of each
    sequence. Gradients reach both branches. `reverse` is false for two branches of one direction.
    """
    if first.shape[1] < 2:
        return first.sum() * 0
    ours = F.log_softmax(first[:, :-1] / temperature, dim=-1)
    theirs = F.log_softmax(align_steps(second, lengths, reverse) / temperature, dim=-1)
    divergence = (ours.exp() * (ours - theirs)).sum(-1)  # (B, T)
    inside = torch.arange(divergence.shape[1], device=lengths.device) < lengths[:, None]
    return temperature**2 * (divergence * inside).sum()


def attention_to_ink(decoded: Decoded, cells: Tensor) -> Tensor:
    """-log of the attention that falls on the cells through which the token's own strokes run.

    `cells` (B, T, H, W) is 1 on those cells and 0 elsewhere; tokens without known ink have none and do not count.
    """
    known = cells.flatten(2).any(-1)  # (B, T)
    mass = (decoded.attention * cells).flatten(2).sum(-1)
    return -(mass[known].clamp_min(1e-6).log()).sum()


def symbols_of_cells(logits: Tensor, targets: Tensor, cells: Tensor) -> Tensor:
    """Cross-entropy of a classifier of feature cells with the symbols drawn there.

    `logits` (B, H·W, K), `targets` (B, T) token ids, `cells` (B, T, H, W). Each inked token counts once, its cells
    in equal shares.
    """
    weights = cells.flatten(2).to(logits.dtype)  # (B, T, L)
    weights = weights / weights.sum(-1, keepdim=True).clamp_min(1)
    index = targets.clamp_min(0).unsqueeze(1).expand(-1, logits.shape[1], -1)  # (B, L, T)
    picked = F.log_softmax(logits, dim=-1).gather(2, index)  # (B, L, T)
    return -(picked.transpose(1, 2) * weights).sum()

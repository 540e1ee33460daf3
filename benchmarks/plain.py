"""The paper written down line by line, with the weights of a `Network`: the yardstick for tests and benchmarks.

Nothing here is clever. Each step convolves the coverage with every kernel of its own (equation 1), maps each result
(equation 3), and computes every projection when it is needed, the way research code does. Only what is constant for
an image, U_f F, stays outside of the loop, as it does in the released code.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ink2tex.model.decoders import Decoded, GruCell, RecurrentDecoder
from ink2tex.model.encoders import DenseBlock, DenseNet, Transition
from ink2tex.model.masking import MaskedNorm


def encode(encoder: DenseNet, images: Tensor) -> Tensor:
    """The published DenseNet on images (B, 1, H, W) of one size."""

    def norm(bn: MaskedNorm, x: Tensor) -> Tensor:
        y = F.batch_norm(x, bn.running_mean, bn.running_var, bn.weight, bn.bias, encoder.training, 0.1, bn.eps)
        return F.relu(y, inplace=True)

    def dense(block: DenseBlock, x: Tensor) -> Tensor:
        for layer in block:
            new = norm(layer.bn2, layer.conv2(norm(layer.bn1, layer.conv1(x))))
            x = torch.cat((x, F.dropout(new, layer.dropout, encoder.training)), 1)
        return x

    def transition(block: Transition, x: Tensor) -> Tensor:
        x = F.dropout(norm(block.bn1, block.conv1(x)), block.dropout, encoder.training)
        return F.avg_pool2d(x, 2, ceil_mode=True)

    x = F.max_pool2d(F.relu(encoder.conv1(images)), 2, ceil_mode=True)
    x = transition(encoder.trans1, dense(encoder.dense1, x))
    x = transition(encoder.trans2, dense(encoder.dense2, x))
    return dense(encoder.dense3, x)


def gru(cell: GruCell, x: Tensor, h: Tensor) -> Tensor:
    """z·h + (1 - z)·tanh(W x + r·(U h)) with one product for each gate."""
    wz, wr, wc = cell.input.weight.chunk(3)
    uz, ur, uc = cell.hidden.weight.chunk(3)
    zero = (None, None, None)
    bz, br, bc = cell.input.bias.chunk(3) if cell.input.bias is not None else zero
    cz, cr, cc = cell.hidden.bias.chunk(3) if cell.hidden.bias is not None else zero
    z = torch.sigmoid(F.linear(x, wz, bz) + F.linear(h, uz, cz))
    r = torch.sigmoid(F.linear(x, wr, br) + F.linear(h, ur, cr))
    candidate = torch.tanh(F.linear(x, wc, bc) + r * F.linear(h, uc, cc))
    return z * h + (1 - z) * candidate


class Picture(NamedTuple):
    """What stays the same from step to step."""

    features: Tensor  # (B, D, H, W)
    mask: Tensor  # (B, 1, H, W), 1 on the image
    projected: Tensor  # (B, H, W, d), U_f F


def begin(decoder: RecurrentDecoder, features: Tensor, mask: Tensor | None) -> tuple[Picture, Tensor, Tensor]:
    """The picture, the first state h (B, n) and the empty coverage β (B, 1, H, W)."""
    attend = decoder.attention
    if mask is None:
        mask = features.new_ones(len(features), 1, *features.shape[2:])
    mean = (features * mask).sum((2, 3)) / mask.sum((2, 3))
    projected = F.linear(features.permute(0, 2, 3, 1), attend.project.weight, attend.project.bias)
    return Picture(features, mask, projected), torch.tanh(decoder.initial(mean)), torch.zeros_like(mask)  # equation 2


def step(
    decoder: RecurrentDecoder, picture: Picture, h: Tensor, beta: Tensor, tokens: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Equations 1–8 for the last tokens (B,): what the classifier reads, α (B, 1, H, W), the new h and β."""
    attend = decoder.attention
    features, mask, projected = picture
    embedded = decoder.embedding(tokens)
    state = gru(decoder.first, embedded, h)  # equation 7
    energy = projected + F.linear(state, attend.query.weight)[:, None, None, :]
    for conv, linear in zip(attend.coverage, attend.maps, strict=True):
        assert isinstance(conv, nn.Conv2d)
        spread = conv(beta).permute(0, 2, 3, 1)  # equation 1
        energy = energy + linear(spread)  # equation 3
    score = F.linear(torch.tanh(energy), attend.score.weight, attend.score.bias)[..., 0]
    score = score.masked_fill(mask[:, 0] == 0, float("-inf"))
    alpha = torch.softmax(score.flatten(1), 1).view_as(mask)
    context = (alpha * features).sum((2, 3))  # equation 4
    h = gru(decoder.second, context, state)  # equation 8
    mixed = decoder.from_token(embedded) + decoder.from_hidden(h) + decoder.from_context(context)
    return mixed.view(len(mixed), -1, 2).max(2).values, alpha, h, beta + alpha  # maxout


def decode(decoder: RecurrentDecoder, features: Tensor, mask: Tensor | None, tokens: Tensor) -> Decoded:
    """All steps for known tokens (B, T); mask (B, 1, H, W) is 1 on the image."""
    picture, h, beta = begin(decoder, features, mask)
    logits, attentions, hidden = [], [], []
    for t in range(tokens.shape[1]):
        rows, alpha, h, beta = step(decoder, picture, h, beta, tokens[:, t])
        logits.append(decoder.output(rows))  # equations 5 and 6
        attentions.append(alpha[:, 0])
        hidden.append(rows)
    return Decoded(torch.stack(logits, 1), torch.stack(attentions, 1), torch.stack(hidden, 1))

"""Keeping padding out of the features.

Images of a batch are padded to one size. Whatever a convolution, a pooling or a norm would read from the
padding must be what it reads beyond the edge of an image that stands alone: nothing. Every layer that can carry
padding inwards takes the mask: (B, 1, H, W), 1 on the image and 0 on the padding, or None when there is none.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

Mask = Tensor | None  # (B, 1, H, W) of 0 and 1


def widen(x: Tensor) -> Tensor:
    """What a product in bfloat16 made, in the 32 bits that norms, attention and states are computed with."""
    return x.float() if x.dtype is torch.bfloat16 else x


def product_type(x: Tensor) -> torch.dtype:
    """The type in which products with `x` are computed: autocast's where it is on, or its own."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype


def halve(mask: Mask) -> Mask:
    """The mask after a stride of 2; an odd last row or column stays, as ceil-mode pooling keeps it."""
    return None if mask is None else mask[:, :, ::2, ::2]


def apply(x: Tensor, mask: Mask) -> Tensor:
    """Zero on the padding."""
    return x if mask is None else x * mask


def avg_pool(x: Tensor, mask: Mask) -> Tensor:
    """2 × 2 average pooling (ceil) over the image's own cells only; `x` is zero on the padding."""
    pooled = F.avg_pool2d(x, 2, ceil_mode=True)
    if mask is None:
        return pooled
    # avg_pool2d divided by the cells inside the tensor; correct it to the cells inside the image.
    share = F.avg_pool2d(mask, 2, ceil_mode=True)
    return pooled / share.clamp_min(0.25)


def max_pool(x: Tensor) -> Tensor:
    """2 × 2 max pooling (ceil); needs no mask after a ReLU, since zero never beats what is there."""
    return F.max_pool2d(x, 2, ceil_mode=True)


class _NormRelu(torch.autograd.Function):
    """Batch norm over the unmasked cells, ReLU (optional) and mask in one, on rows (N, C).

    Written out because it runs once for every convolution and is bound by memory: it passes over the rows as seldom
    as torch's own operations allow.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rows: Tensor, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = rows.sum()
        mean = (rows @ x) / count  # (C,)
        x = x - mean  # sums of centred values do not cancel
        var = (rows @ x.square()) / count
        y = torch.addcmul(bias, x, weight * (var + eps).rsqrt())
        if relu:
            y.clamp_min_(0)
        y.mul_(rows[:, None])
        ctx.save_for_backward(x, weight, var, rows, y if relu else x.new_empty(0))
        ctx.count, ctx.relu, ctx.eps = count, relu, eps
        ctx.mark_non_differentiable(mean, var)
        return y, mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, weight, var, rows, y = ctx.saved_tensors
        inverse = (var + ctx.eps).rsqrt()
        if ctx.relu:  # y is 0 on the padding too
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
        else:
            grad = grad * rows[:, None]
        grad_bias = grad.sum(0)
        dot = (grad * x).sum(0)
        # slope·(g - Σg / count - x·inverse²·Σgx / count), x being centred and the last two on the image only
        slope = weight * inverse
        rest = torch.addcmul(slope * grad_bias / -ctx.count, x, slope * inverse.square() * dot / -ctx.count)
        rest.mul_(rows[:, None])
        return rest.addcmul_(grad, slope), dot * inverse, grad_bias, None, None, None


def dropout(x: Tensor, share: float) -> Tensor:
    """Dropout for training, with a share rounded to 256ths.

    Torch draws one number for each element, which on a CPU costs as much as a convolution; here a draw of 64 bits
    serves eight elements.
    """
    dropped = round(share * 256)
    if dropped == 0:
        return x
    draws = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
    kept = (draws.view(torch.uint8)[: x.numel()] >= dropped).to(x.dtype).mul_(256 / (256 - dropped))
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        b, c, h, w = x.shape
        return x * kept.view(b, h, w, c).permute(0, 3, 1, 2)
    return x * kept.view(x.shape)


class MaskedNorm(nn.BatchNorm2d):
    """Batch normalisation, optionally ReLU, and the mask; statistics come from the image, not the padding.

    Parameters and buffers are those of `nn.BatchNorm2d`, so released weights fit.
    """

    def __init__(self, channels: int, relu: bool = True) -> None:
        super().__init__(channels)
        self.relu = relu

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        x = widen(x)
        if self.training and mask is not None:
            return self._masked(x, mask)
        y = super().forward(x)
        if self.relu:
            y = F.relu(y, inplace=True)
        return apply(y, mask)

    def _masked(self, x: Tensor, mask: Tensor) -> Tensor:
        b, c, h, w = x.shape
        flat = x.permute(0, 2, 3, 1).reshape(-1, c)  # (B·H·W, C), a view in channels_last
        rows = mask.reshape(-1)
        with torch.autocast("cpu", enabled=False):  # sums need their 32 bits
            y, mean, var = _NormRelu.apply(flat, self.weight, self.bias, rows, self.eps, self.relu)
        with torch.no_grad():
            count = rows.sum()
            momentum = self.momentum if self.momentum is not None else 0.1
            self.running_mean.lerp_(mean, momentum)  # type: ignore[union-attr]
            self.running_var.lerp_(var * (count / (count - 1).clamp_min(1)), momentum)  # type: ignore[union-attr]
            self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
        return y.view(b, h, w, c).permute(0, 3, 1, 2)

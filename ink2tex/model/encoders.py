"""Feature extraction module: a picture (B, 1, H, W) to features (B, D, ⌈H/16⌉, ⌈W/16⌉).

`DenseNet` is the published encoder (D = 684), `light-densenet` the same idea at a ninth of the cost: a stem of
three strided convolutions takes the place of the first dense block. MobileNetV2 and Xception serve the paper's
table on generality. All of them mask the padding of a batch (`masking`), so that a picture has the same features
alone and in company.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ink2tex.model import masking
from ink2tex.model.config import EncoderConfig
from ink2tex.model.masking import Mask, MaskedNorm, product_type, widen

#: Height and width of the picture over height and width of the features.
REDUCTION = 16


class ConvNorm(nn.Module):
    """Convolution without bias, masked norm and, unless told otherwise, ReLU."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, relu: bool = True
    ) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
        self.bn1 = MaskedNorm(outputs, relu)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """`mask` is that of the input; the output is zero where the (strided) mask is."""
        return self.bn1(self.conv1(x), masking.halve(mask) if self.stride == 2 else mask)


class DenseLayer(nn.Module):
    """A bottleneck layer: from everything before it (1 × 1, then 3 × 3), `growth` new channels."""

    def __init__(self, inputs: int, growth: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.bn1 = MaskedNorm(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.bn2 = MaskedNorm(growth)
        self.dropout = dropout

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        return self.widened(self.conv1(x), mask)

    def widened(self, x: Tensor, mask: Mask) -> Tensor:
        """What follows the 1 × 1 convolution, whose output is `x`."""
        new = self.bn2(self.conv2(self.bn1(x, mask)), mask)
        return masking.dropout(new, self.dropout) if self.training else new


class DenseBlock(nn.ModuleList):
    """Dense layers in a row, each output appended to its input."""

    def __init__(self, inputs: int, layers: int, growth: int, dropout: float) -> None:
        super().__init__(DenseLayer(inputs + i * growth, growth, dropout) for i in range(layers))
        self.outputs = inputs + layers * growth

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        if torch.is_grad_enabled() and self.training:
            return _Appended.apply(self, mask, x, *self.parameters())
        for layer in self:
            x = torch.cat((x, layer(x, mask)), dim=1)
        return x


def _height(rows: int, dtype: torch.dtype) -> int:
    """How many rows an array for `rows` of them gets.

    Products in bfloat16 are compiled for every size, which may take longer than to compute them: sizes are rounded up
    to four binary digits, so that those of most batches are the same.
    """
    if dtype is not torch.bfloat16:
        return rows
    unit = 1 << max(0, rows.bit_length() - 4)
    return -(-rows // unit) * unit


class _Appended(torch.autograd.Function):
    """A dense block for training that never copies what earlier layers made.

    Concatenating in every layer copies all channels so far, and backward adds all their gradients once more; at the
    paper's size that is a quarter of the encoder. Here all layers write into one array of rows (N, C), the 1 × 1
    convolutions are products with its first columns, and their gradients are accumulated in place by the product.
    """

    @staticmethod
    def forward(ctx: Any, block: DenseBlock, mask: Mask, x: Tensor, *parameters: Tensor) -> Tensor:
        b, c, h, w = x.shape
        dtype = product_type(x)
        n = b * h * w
        # Zeros, since products in bfloat16 read a few columns too many and multiply them by zero: a NaN would stay one.
        columns = x.new_zeros(_height(n, dtype), block.outputs, dtype=dtype)
        columns[:n, :c] = x.permute(0, 2, 3, 1).reshape(-1, c)
        ctx.block, ctx.inputs, ctx.parameters, ctx.graphs, ctx.dtype = block, c, parameters, [], x.dtype
        for layer in cast(Iterable[DenseLayer], block):
            made = widen((columns[:, :c] @ layer.conv1.weight.flatten(1).t().to(dtype))[:n])
            with torch.enable_grad():
                wide = made.view(b, h, w, -1).permute(0, 3, 1, 2).requires_grad_()
                new = layer.widened(wide, mask)
            ctx.graphs.append((wide, new))
            growth = new.shape[1]
            columns[:n, c : c + growth] = new.detach().permute(0, 2, 3, 1).reshape(-1, growth)
            c += growth
        ctx.columns = columns
        return columns[:n].view(b, h, w, -1).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        b, c, h, w = grad.shape
        n = b * h * w
        pull = torch.zeros_like(ctx.columns)  # (N or more, C)
        pull[:n] = grad.permute(0, 2, 3, 1).reshape(-1, c)
        gradients: dict[int, Tensor] = {}
        for layer, (wide, new) in zip(reversed(ctx.block), reversed(ctx.graphs), strict=True):
            growth = new.shape[1]
            own = pull[:n, c - growth : c].to(new.dtype).reshape(b, h, w, growth).permute(0, 3, 1, 2)
            c -= growth
            inner = [p for p in layer.parameters() if p is not layer.conv1.weight]
            back, *found = torch.autograd.grad(new, [wide, *inner], own)
            gradients |= {id(p): g for p, g in zip(inner, found, strict=True)}
            rows = pull.new_zeros(len(pull), back.shape[1])
            rows[:n] = back.permute(0, 2, 3, 1).reshape(-1, back.shape[1])
            weight = layer.conv1.weight
            gradients[id(weight)] = (rows.t() @ ctx.columns[:, :c]).view_as(weight).to(weight.dtype)
            pull[:, :c].addmm_(rows, weight.flatten(1).to(pull.dtype))
        ctx.graphs.clear()
        start = pull[:n, : ctx.inputs].to(ctx.dtype).reshape(b, h, w, -1).permute(0, 3, 1, 2)
        return None, None, start, *(gradients[id(p)] for p in ctx.parameters)


class Transition(nn.Module):
    """Half the channels, then half the height and width."""

    def __init__(self, inputs: int, dropout: float) -> None:
        super().__init__()
        self.outputs = inputs // 2
        self.conv1 = nn.Conv2d(inputs, self.outputs, 1, bias=False)
        self.bn1 = MaskedNorm(self.outputs)
        self.dropout = dropout

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        x = self.bn1(self.conv1(x), mask)
        if self.training:
            x = masking.dropout(x, self.dropout)
        return masking.avg_pool(x, mask)


class DenseNet(nn.Module):
    """The published encoder: 7 × 7 convolution, max pool, three dense blocks with transitions between them."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        growth, dropout = config.growth, config.dropout
        self.conv1 = nn.Conv2d(1, 2 * growth, 7, 2, padding=3, bias=False)
        self.dense1 = DenseBlock(2 * growth, config.blocks[0], growth, dropout)
        self.trans1 = Transition(self.dense1.outputs, dropout)
        self.dense2 = DenseBlock(self.trans1.outputs, config.blocks[1], growth, dropout)
        self.trans2 = Transition(self.dense2.outputs, dropout)
        self.dense3 = DenseBlock(self.trans2.outputs, config.blocks[2], growth, dropout)
        self.outputs = self.dense3.outputs

    def forward(self, x: Tensor, mask: Mask) -> tuple[Tensor, Mask]:
        half = masking.halve(mask)
        quarter = masking.halve(half)
        eighth = masking.halve(quarter)
        x = masking.max_pool(masking.apply(F.relu(self.conv1(x)), half))
        x = self.trans1(self.dense1(x, quarter), quarter)
        x = self.trans2(self.dense2(x, eighth), eighth)
        sixteenth = masking.halve(eighth)
        return self.dense3(x, sixteenth), sixteenth


class LightDenseNet(nn.Module):
    """Three stride-2 convolutions, then two dense blocks around one transition."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        first, second, third = config.stem
        self.stem1 = ConvNorm(1, first, 5, 2)
        self.stem2 = ConvNorm(first, second, 3, 2)
        self.stem3 = ConvNorm(second, third, 3, 2)
        self.dense1 = DenseBlock(third, config.blocks[0], config.growth, config.dropout)
        self.trans1 = Transition(self.dense1.outputs, config.dropout)
        self.dense2 = DenseBlock(self.trans1.outputs, config.blocks[1], config.growth, config.dropout)
        self.outputs = self.dense2.outputs

    def forward(self, x: Tensor, mask: Mask) -> tuple[Tensor, Mask]:
        for stem in (self.stem1, self.stem2, self.stem3):
            x = stem(x, mask)
            mask = masking.halve(mask)
        x = self.trans1(self.dense1(x, mask), mask)
        mask = masking.halve(mask)
        return self.dense2(x, mask), mask


class InvertedResidual(nn.Module):
    """MobileNetV2's block: widen, filter each channel, narrow; added to its input where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = inputs * expand
        self.widen = ConvNorm(inputs, wide) if expand != 1 else None
        self.filter = ConvNorm(wide, wide, 3, stride, groups=wide)
        self.narrow = ConvNorm(wide, outputs, relu=False)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        y = x if self.widen is None else self.widen(x, mask)
        y = self.filter(y, mask)
        y = self.narrow(y, masking.halve(mask) if self.filter.stride == 2 else mask)
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """Sandler et al. 2018, up to the last inverted residual; one stride is left out to stay at 1/16."""

    #: expansion, channels, repeats, first stride
    PLAN = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 1),
        (6, 320, 1, 1),
    )

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()

        def wide(channels: int) -> int:
            return max(8, round(channels * config.width / 8) * 8)

        self.stem = ConvNorm(1, wide(32), 3, 2)
        blocks: list[InvertedResidual] = []
        inputs = wide(32)
        for expand, channels, repeats, stride in self.PLAN:
            for i in range(repeats):
                blocks.append(InvertedResidual(inputs, wide(channels), stride if i == 0 else 1, expand))
                inputs = wide(channels)
        self.blocks = nn.ModuleList(blocks)
        self.outputs = inputs

    def forward(self, x: Tensor, mask: Mask) -> tuple[Tensor, Mask]:
        x, mask = self.stem(x, mask), masking.halve(mask)
        for block in self.blocks:
            x = block(x, mask)
            if block.filter.stride == 2:
                mask = masking.halve(mask)
        return x, mask


class SeparableConv(nn.Module):
    """A 3 × 3 filter on each channel, then a 1 × 1 mix of the channels, with norm."""

    def __init__(self, inputs: int, outputs: int, relu: bool = True) -> None:
        super().__init__()
        self.filter = nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False)
        self.mix = ConvNorm(inputs, outputs, relu=relu)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        return self.mix(self.filter(x), mask)


class XceptionBlock(nn.Module):
    """Separable convolutions beside a shortcut; entry blocks halve the size with a masked max pool."""

    def __init__(self, inputs: int, outputs: int, layers: int, halve: bool) -> None:
        super().__init__()
        widths = [inputs] + [outputs] * layers
        self.layers = nn.ModuleList(SeparableConv(widths[i], widths[i + 1], relu=i + 1 < layers) for i in range(layers))
        self.shrinks = halve
        self.shortcut = (
            ConvNorm(inputs, outputs, 1, 2 if halve else 1, relu=False) if halve or inputs != outputs else None
        )

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        y = F.relu(x)
        for layer in self.layers:
            y = layer(y, mask)
        if self.shrinks:
            # Outside the image -inf, as beyond the edge of a lone image, because values here may be negative.
            y = y if mask is None else y.masked_fill(mask == 0, float("-inf"))
            y = F.max_pool2d(y, 3, 2, padding=1)
            mask = masking.halve(mask)
            y = y if mask is None else y.masked_fill(mask == 0, 0.0)
        if self.shortcut is None:
            return x + y
        stride_mask = mask
        shortcut = self.shortcut.bn1(self.shortcut.conv1(x), stride_mask)
        return shortcut + y


class Xception(nn.Module):
    """Chollet 2017 with the entry, middle and exit flows, kept at 1/16 and without the classifier."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()

        def wide(channels: int) -> int:
            return max(8, round(channels * config.width / 8) * 8)

        self.stem1 = ConvNorm(1, wide(32), 3, 2)
        self.stem2 = ConvNorm(wide(32), wide(64), 3)
        entry = [wide(64), wide(128), wide(256), wide(728)]
        blocks = [XceptionBlock(entry[i], entry[i + 1], 2, halve=True) for i in range(3)]
        blocks += [XceptionBlock(wide(728), wide(728), 3, halve=False) for _ in range(8)]
        blocks += [XceptionBlock(wide(728), wide(1024), 2, halve=False)]
        self.blocks = nn.ModuleList(blocks)
        self.outputs = wide(1024)

    def forward(self, x: Tensor, mask: Mask) -> tuple[Tensor, Mask]:
        x = self.stem1(x, mask)
        mask = masking.halve(mask)
        x = self.stem2(x, mask)
        for block in self.blocks:
            x = block(x, mask)
            if block.shrinks:
                mask = masking.halve(mask)
        return F.relu(x), mask


ENCODERS: dict[str, type[nn.Module]] = {
    "densenet": DenseNet,
    "light-densenet": LightDenseNet,
    "mobilenetv2": MobileNetV2,
    "xception": Xception,
}


def build_encoder(config: EncoderConfig) -> nn.Module:
    """The encoder that `config` asks for; its attribute `outputs` is D."""
    return ENCODERS[config.kind](config)

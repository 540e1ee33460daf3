"""The network: one encoder, one or two branches. It knows nothing of how it is trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ink2tex.model.config import NetworkConfig
from ink2tex.model.decoders import Decoded, build_decoder
from ink2tex.model.encoders import build_encoder
from ink2tex.vocabulary import Direction, Vocabulary


class Network(nn.Module):
    """An ABM network, or one of its ablations, as `config` says."""

    def __init__(self, config: NetworkConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = vocabulary
        self.directions = tuple(Direction(name) for name in config.directions)
        self.encoder = build_encoder(config.encoder)
        self.branches = nn.ModuleList(
            build_decoder(config.decoder, int(self.encoder.outputs), len(vocabulary))  # type: ignore[arg-type]
            for _ in self.directions
        )
        initialise(self)

    def encode(self, images: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Features (B, D, ⌈H/16⌉, ⌈W/16⌉) of images (B, 1, H, W) in [0, 1], and the mask of the features."""
        return self.encoder(images.contiguous(memory_format=torch.channels_last), mask)

    def forward(self, images: Tensor, mask: Tensor | None, inputs: list[Tensor]) -> tuple[Tensor, list[Decoded]]:
        """Features, and for each branch what it computes for its own `inputs` (B, T) under teacher forcing."""
        features, small = self.encode(images, mask)
        return features, [branch(features, small, tokens) for branch, tokens in zip(self.branches, inputs, strict=True)]


def initialise(network: Network) -> None:
    """He for the encoder and the first branch, Glorot for the second, so that the branches begin apart."""
    for module in network.encoder.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    for i, branch in enumerate(network.branches):
        for name, parameter in branch.named_parameters():
            if parameter.dim() < 2:
                if name.endswith("bias"):
                    nn.init.zeros_(parameter)
            elif name == "embedding.weight":
                nn.init.normal_(parameter, std=0.1)
            elif i % 2 == 0:
                nn.init.kaiming_uniform_(parameter, a=5**0.5)
            else:
                nn.init.xavier_uniform_(parameter)

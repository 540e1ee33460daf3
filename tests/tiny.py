"""A network of a few thousand random weights whose answers vary and end, to test what runs networks."""

from __future__ import annotations

from typing import Any, cast

import torch

from ink2tex.data.sample import Sample
from ink2tex.model.config import AttentionConfig, DecoderConfig, EncoderConfig, NetworkConfig
from ink2tex.model.network import Network
from ink2tex.raster import rasterise
from ink2tex.vocabulary import Vocabulary
from tests.drawn import SAMPLES

#: What makes answers end: added to the logit of the end mark.
END = 5.5


def tiny_network(kind: str = "gru", mode: str = "bml", channels: int = 4, encoder: str = "light-densenet") -> Network:
    """Untrained, but peaked: every step has a favourite that depends on the picture."""
    torch.manual_seed(7)
    blocks = (2, 2, 2) if encoder == "densenet" else (2, 2)
    config = NetworkConfig(
        encoder=EncoderConfig(kind=encoder, growth=6, blocks=blocks, stem=(6, 8, 12), width=0.25),  # type: ignore[arg-type]
        decoder=DecoderConfig(
            kind=kind,  # type: ignore[arg-type]
            hidden=32,
            layers=1,
            attention=AttentionConfig(kernels=(3, 5), width=24, channels=channels),
        ),
        mode=mode,  # type: ignore[arg-type]
        input_scale=0.8,
    )
    network = Network(config, Vocabulary())
    with torch.no_grad():
        network.train()
        for sample in SAMPLES[:6]:  # norms that fit the pictures
            network.encode(torch.from_numpy(bitmap_of(sample))[None, None].float() / 255, None)
        for direction, branch in zip(network.directions, network.branches, strict=True):
            decoder = cast(Any, branch)
            decoder.embedding.weight.mul_(5)
            if kind != "transformer":
                decoder.attention.score.weight.mul_(30)
                decoder.from_context.weight.mul_(8)
                decoder.second.input.weight.mul_(4)
            decoder.output.weight.mul_(6)
            decoder.output.bias[direction.end] += END
    return network.eval()


def bitmap_of(sample: Sample):  # type: ignore[no-untyped-def]
    assert sample.strokes is not None
    return rasterise(sample.strokes)


BITMAPS = [bitmap_of(sample) for sample in SAMPLES]

"""A checkpoint behind the runtime's `Backend`, to compare torch with the exported graphs answer by answer."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ink2tex.model.checkpoint import load_checkpoint
from ink2tex.model.network import Network
from ink2tex.model.stepper import TorchStepper, stepper_for
from ink2tex.runtime.bundle import DecodeDefaults
from ink2tex.runtime.calibration import Calibration
from ink2tex.vocabulary import Direction


class TorchBackend:
    """A network of a checkpoint file, or one that is in memory already."""

    def __init__(self, network: Network | str | Path) -> None:
        own = copy.deepcopy(network) if isinstance(network, Network) else load_checkpoint(network)[0]
        self.network = own.eval().requires_grad_(False)
        self.vocabulary = self.network.vocabulary
        self.directions = tuple(dict.fromkeys(self.network.directions))
        self.input_scale = self.network.config.input_scale
        self.decode = DecodeDefaults()
        self.calibration: Mapping[str, Calibration] = {}
        self.width = self.network.config.decoder.attention.width
        self.concurrent = False  # torch has one number of threads for everybody

    @torch.inference_mode()
    def encode(self, bitmaps: Sequence[np.ndarray], threads: int = 1) -> TorchEncoded:
        height, width = (max(bitmap.shape[axis] for bitmap in bitmaps) for axis in (0, 1))
        images = torch.zeros(len(bitmaps), 1, height, width)
        mask = torch.zeros_like(images)
        for i, bitmap in enumerate(bitmaps):
            h, w = bitmap.shape
            images[i, 0, :h, :w] = torch.from_numpy(np.ascontiguousarray(bitmap)).float().div_(255)
            mask[i, 0, :h, :w] = 1
        return TorchEncoded(self.network, *self.network.encode(images, mask if len(bitmaps) > 1 else None))


class TorchEncoded:
    """Features of a batch."""

    def __init__(self, network: Network, features: Tensor, mask: Tensor | None) -> None:
        self._network, self._features, self._mask = network, features, mask

    @torch.inference_mode()
    def stepper(self, direction: Direction, threads: int = 1) -> TorchStepper:
        return stepper_for(self._network, direction, self._features, self._mask)

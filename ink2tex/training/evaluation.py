"""Reading a set of samples with a network: what validation and `ink2tex evaluate` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ink2tex.data.batches import Batch, BatchSettings, evaluation_batches
from ink2tex.data.sample import Sample
from ink2tex.model.network import Network
from ink2tex.model.stepper import stepper_for
from ink2tex.search import Hypothesis, LengthLimit, SearchOptions, joint_search, search
from ink2tex.vocabulary import Direction

Decode = Literal["l2r", "r2l", "joint"]


def to_tensors(batch: Batch) -> tuple[Tensor, Tensor]:
    """Images (B, 1, H, W) in [0, 1] and their mask (B, 1, H, W)."""
    images = torch.from_numpy(batch.images).unsqueeze(1).float().div_(255)
    height, width = images.shape[2:]
    sizes = torch.from_numpy(batch.sizes)
    rows = torch.arange(height) < sizes[:, :1]  # (B, H)
    columns = torch.arange(width) < sizes[:, 1:]  # (B, W)
    return images, (rows[:, :, None] & columns[:, None, :]).unsqueeze(1).float()


@torch.inference_mode()
def read_batch(network: Network, batch: Batch, decode: Decode, options: SearchOptions) -> list[list[Hypothesis]]:
    """The best hypotheses of each image of a batch."""
    images, mask = to_tensors(batch)
    features, small = network.encode(images, mask)
    limit = LengthLimit()
    scale = network.config.input_scale
    limits = np.array([limit(int(h / scale), int(w / scale)) for h, w in batch.sizes])
    directions = (Direction.L2R, Direction.R2L) if decode == "joint" else (Direction(decode),)
    steppers = [stepper_for(network, direction, features, small) for direction in directions]
    if decode == "joint":
        return joint_search(steppers[0], steppers[1], network.vocabulary, limits, options)
    return search(steppers[0], network.vocabulary, limits, options)


def read_samples_with(
    network: Network,
    samples: Sequence[Sample],
    decode: Decode = "l2r",
    options: SearchOptions | None = None,
    batch: BatchSettings | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, list[str]]:
    """Tokens that `network` reads in each sample."""
    options = options or SearchOptions()
    batch = batch or BatchSettings(size=16, pixels=1_000_000)
    network.eval()
    read: dict[str, list[str]] = {}
    for part in evaluation_batches(samples, network.vocabulary, batch, network.config.input_scale):
        answers = read_batch(network, part, decode, options)
        for uid, hypotheses in zip(part.uids, answers, strict=True):
            read[uid] = network.vocabulary.decode(hypotheses[0].tokens) if hypotheses else []
        if progress is not None:
            progress(len(part.uids))
    return read

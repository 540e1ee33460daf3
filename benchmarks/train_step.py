"""Images a second of a training step at the paper's size, against the plain transcription in the same run.

    python benchmarks/train_step.py [--rounds 3] [--threads 2]

Forward, losses and backward of a batch of 16 images of 110 × 320 pixels with 20 tokens each, both directions, AAM.
The process starts itself again in the environment of a training process (`ink2tex.training.launch`: allocator, kernel
cache), which serves both. Rounds of both alternate, so that a noisy machine disturbs both; the median of each counts.
The plain transcription (`benchmarks/plain.py`) runs with the same weights in torch's default memory layout.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
import time
from collections.abc import Callable

import plain
import torch

from ink2tex.model import losses
from ink2tex.model.config import NetworkConfig
from ink2tex.model.network import Network
from ink2tex.training import launch
from ink2tex.training.system import sequences
from ink2tex.vocabulary import Vocabulary

BATCH, HEIGHT, WIDTH, TOKENS = 16, 110, 320, 20


def timed(step: Callable[[], None]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def main() -> None:
    """Print both speeds and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if "ONEDNN_PRIMITIVE_CACHE_CAPACITY" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], launch.environment(arguments.threads))
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    reference = Network(NetworkConfig(), Vocabulary()).train()
    network = copy.deepcopy(reference).to(memory_format=torch.channels_last)
    images = (torch.rand(BATCH, 1, HEIGHT, WIDTH) > 0.9).float()
    mask = torch.ones_like(images)
    tokens, lengths = torch.randint(2, 112, (BATCH, TOKENS)), torch.full((BATCH,), TOKENS)
    pairs = [sequences(tokens, lengths, direction) for direction in network.directions]
    inputs = [given for given, _ in pairs]

    def loss(decoded: list) -> torch.Tensor:
        total = sum(losses.recognition(out.logits, target) for out, (_, target) in zip(decoded, pairs, strict=True))
        return total + 0.5 * losses.mutual(decoded[0].logits, decoded[1].logits, lengths, 2.0)

    def ours() -> None:
        network.zero_grad()
        loss(network(images, mask, inputs)[1]).backward()

    def transcription() -> None:
        reference.zero_grad()
        features = plain.encode(reference.encoder, images)
        loss([plain.decode(b, features, None, t) for b, t in zip(reference.branches, inputs, strict=True)]).backward()

    for step in (ours, transcription):  # kernels are built in the first call
        step()
    times: dict[str, list[float]] = {"ours": [], "plain": []}
    for _ in range(arguments.rounds):
        times["ours"].append(timed(ours))
        times["plain"].append(timed(transcription))
    speed = {name: BATCH / statistics.median(values) for name, values in times.items()}
    print(f"plain transcription  {speed['plain']:6.2f} images/s")
    print(f"ink2tex              {speed['ours']:6.2f} images/s")
    print(f"ratio                {speed['ours'] / speed['plain']:6.2f}")


if __name__ == "__main__":
    main()

"""Images a second of a training step at the paper's size, against the plain transcription in the same run.

    python benchmarks/train_step.py [--rounds 3] [--threads 2]

Forward, losses and backward of a batch of 16 images of 110 × 320 pixels with 20 tokens each, both directions, AAM.
The process starts itself again in the environment of a training process (`ink2tex.training.launch`: allocator, kernel
cache), which serves both. Rounds of both alternate, so that a noisy machine disturbs both; the median of each counts.
The plain transcription (`benchmarks/plain.py`) runs with the same weights in torch's default memory layout. On a
processor that multiplies matrices in bfloat16, a third line has our step with such products (`run.precision: auto`).
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
from ink2tex.training.system import has_matrix_unit, sequences
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

    def ours(half: bool = False) -> None:
        network.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            decoded = network(images, mask, inputs)[1]
        loss(decoded).backward()

    def in_half_as_many_bits() -> None:
        ours(half=True)

    def transcription() -> None:
        reference.zero_grad()
        features = plain.encode(reference.encoder, images)
        loss([plain.decode(b, features, None, t) for b, t in zip(reference.branches, inputs, strict=True)]).backward()

    steps: dict[str, Callable[[], None]] = {"plain transcription": transcription, "ink2tex": ours}
    if has_matrix_unit():
        steps["in bfloat16"] = in_half_as_many_bits
    for step in steps.values():  # kernels are built in the first call
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            times[name].append(timed(step))
    speed = {name: BATCH / statistics.median(values) for name, values in times.items()}
    for name, value in speed.items():
        ratio = "" if name == "plain transcription" else f"  ratio {value / speed['plain transcription']:5.2f}"
        print(f"{name:20s} {value:6.2f} images/s{ratio}")


if __name__ == "__main__":
    main()

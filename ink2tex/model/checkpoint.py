"""Checkpoints: safetensors files that carry their configuration, their vocabulary and a hash.

A file says itself what network it belongs to; loading it executes nothing. The hash covers the tensors, so that a
flipped bit is an error here and not a strange result later.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ink2tex.errors import CheckpointError, RecipeError
from ink2tex.model.config import NetworkConfig
from ink2tex.model.network import Network
from ink2tex.vocabulary import Vocabulary

FORMAT = "ink2tex-1"


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes of all tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_checkpoint(network: Network, path: str | Path, notes: Mapping[str, Any] | None = None) -> None:
    """Write the network's weights; `notes` (plain values: step, scores …) travel along. Atomic."""
    path = Path(path)
    tensors = {name: tensor.detach().contiguous() for name, tensor in network.state_dict().items()}
    metadata = {
        "format": FORMAT,
        "network": json.dumps(network.config.to_mapping()),
        "vocabulary": json.dumps(network.vocabulary.symbols),
        "hash": fingerprint(tensors),
        "notes": json.dumps(dict(notes or {})),
    }
    temporary = path.with_name(path.name + ".part")
    save_file(tensors, str(temporary), metadata)
    os.replace(temporary, path)


def read_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata (`network`, `vocabulary`, `notes` parsed) of a checkpoint file, verified."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such file; give the path of a .safetensors checkpoint")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CheckpointError(
                    f"{path}: a safetensors file, but not one of ink2tex; weights of the released ABM are "
                    "converted with 'ink2tex import-abm'"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path}: not a whole safetensors file ({error}); it may be truncated, so copy or train it again"
        ) from None
    if fingerprint(tensors) != metadata.get("hash"):
        raise CheckpointError(f"{path}: the weights do not match their hash; the file is damaged, so copy it again")
    try:
        parsed = {key: json.loads(metadata[key]) for key in ("network", "vocabulary", "notes")}
    except (KeyError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path}: the description inside the checkpoint is damaged ({error})") from None
    return tensors, parsed


def load_checkpoint(path: str | Path) -> tuple[Network, dict[str, Any]]:
    """The network of a checkpoint, in eval mode, and the notes saved with it."""
    tensors, metadata = read_checkpoint(path)
    try:
        config = NetworkConfig.from_mapping(metadata["network"])
    except RecipeError as error:
        raise CheckpointError(f"{path}: a network this version of ink2tex does not know: {error}") from None
    network = Network(config, Vocabulary(metadata["vocabulary"]))
    fill(network, tensors, str(path))
    return network.eval(), metadata["notes"]


def averaged(paths: Sequence[str | Path], shares: Sequence[float] | None = None) -> tuple[Network, dict[str, Any]]:
    """The mean of the weights of several checkpoints of one network, and the notes of the last of them.

    Each counts by its share, or all the same. Meant for checkpoints that came from the same weights; whether the mean
    reads better has to be measured. Statistics of batch norms are averaged like weights; counters are the last one's.
    """
    if not paths:
        raise CheckpointError("there are no checkpoints to average; give one or more files")
    shares = shares or [1.0] * len(paths)
    if len(shares) != len(paths) or min(shares) < 0 or not sum(shares) > 0:
        raise CheckpointError(
            f"{len(paths)} checkpoints and the shares {', '.join(f'{share:g}' for share in shares)}; "
            "give one of 0 or more for each, not all 0"
        )
    network, notes = load_checkpoint(paths[-1])
    mean = {name: torch.zeros_like(tensor) for name, tensor in network.state_dict().items()}
    for path, share in zip(paths, shares, strict=True):
        other, _ = load_checkpoint(path)
        if other.config != network.config or other.vocabulary.symbols != network.vocabulary.symbols:
            raise CheckpointError(
                f"{path}: another network than that of {paths[-1]}; only weights of one can be averaged"
            )
        for name, tensor in other.state_dict().items():
            mean[name] = mean[name] + tensor * (share / sum(shares)) if tensor.is_floating_point() else tensor
    fill(network, mean, "the mean")
    return network, notes | {"mean_of": [share / sum(shares) for share in shares]}


def fill(network: Network, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load `tensors` into `network`, naming what is missing, left over or of another shape."""
    own = network.state_dict()
    missing = sorted(own.keys() - tensors.keys())
    extra = sorted(tensors.keys() - own.keys())
    shapes = sorted(
        f"{name} {tuple(tensors[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own.keys() & tensors.keys()
        if own[name].shape != tensors[name].shape
    )
    problems = [
        f"{what} {', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"
        for what, names in (("missing", missing), ("unexpected", extra), ("of another shape", shapes))
        if names
    ]
    if problems:
        raise CheckpointError(f"{where}: the weights do not fit the network: {'; '.join(problems)}")
    network.load_state_dict(dict(tensors))

"""Weights of the released ABM network, converted to a checkpoint of ours.

The release is a plain PyTorch state dict in a pickle. It is read with `weights_only`, which builds tensors and
nothing else: a file that wants more is refused, not run.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ink2tex.errors import CheckpointError
from ink2tex.model.checkpoint import fill
from ink2tex.model.config import NetworkConfig
from ink2tex.model.network import Network
from ink2tex.vocabulary import Vocabulary

#: Our name of each parameter of a branch: the released names it is made of, stacked along the first axis.
_BRANCH: dict[str, tuple[str, ...]] = {
    "embedding.weight": ("emb_model.embedding.weight",),
    "initial.weight": ("init_GRU_model.fc.weight",),
    "initial.bias": ("init_GRU_model.fc.bias",),
    "first.input.weight": ("gru_model.fc_Wyz.weight", "gru_model.fc_Wyr.weight", "gru_model.fc_Wyh.weight"),
    "first.input.bias": ("gru_model.fc_Wyz.bias", "gru_model.fc_Wyr.bias", "gru_model.fc_Wyh.bias"),
    "first.hidden.weight": ("gru_model.fc_Uhz.weight", "gru_model.fc_Uhr.weight", "gru_model.fc_Uhh.weight"),
    "attention.project.weight": ("gru_model.conv_Ua.weight",),
    "attention.project.bias": ("gru_model.conv_Ua.bias",),
    "attention.query.weight": ("gru_model.fc_Wa.weight",),
    "attention.coverage.0.weight": ("gru_model.conv_Q2.weight",),
    "attention.coverage.1.weight": ("gru_model.conv_Q.weight",),
    "attention.maps.0.weight": ("gru_model.fc_Uf2.weight",),
    "attention.maps.0.bias": ("gru_model.fc_Uf2.bias",),
    "attention.maps.1.weight": ("gru_model.fc_Uf.weight",),
    "attention.maps.1.bias": ("gru_model.fc_Uf.bias",),
    "attention.score.weight": ("gru_model.fc_va.weight",),
    "attention.score.bias": ("gru_model.fc_va.bias",),
    "second.input.weight": ("gru_model.fc_Wcz.weight", "gru_model.fc_Wcr.weight", "gru_model.fc_Wch.weight"),
    "second.hidden.weight": ("gru_model.fc_Uhz2.weight", "gru_model.fc_Uhr2.weight", "gru_model.fc_Uhh2.weight"),
    "second.hidden.bias": ("gru_model.fc_Uhz2.bias", "gru_model.fc_Uhr2.bias", "gru_model.fc_Uhh2.bias"),
    "from_context.weight": ("gru_prob_model.fc_Wct.weight",),
    "from_context.bias": ("gru_prob_model.fc_Wct.bias",),
    "from_hidden.weight": ("gru_prob_model.fc_Wht.weight",),
    "from_hidden.bias": ("gru_prob_model.fc_Wht.bias",),
    "from_token.weight": ("gru_prob_model.fc_Wyt.weight",),
    "from_token.bias": ("gru_prob_model.fc_Wyt.bias",),
    "output.weight": ("gru_prob_model.fc_W0.weight",),
    "output.bias": ("gru_prob_model.fc_W0.bias",),
}


def released_names(branch: int, name: str) -> list[str]:
    """The released names behind our parameter `name` of branch 0 (left to right) or 1 (right to left)."""
    suffix = "2" if branch else ""
    return [source.replace("_model.", f"_model{suffix}.", 1) for source in _BRANCH[name]]


def convert(state: Mapping[str, Tensor], where: str) -> Network:
    """The network of the paper with the released weights `state`."""
    network = Network(NetworkConfig(), Vocabulary())
    tensors: dict[str, Tensor] = {}
    missing: list[str] = []
    left = set(state)

    def take(sources: list[str], shape: torch.Size) -> Tensor | None:
        absent = [source for source in sources if source not in state]
        if absent:
            missing.extend(absent)
            return None
        left.difference_update(sources)
        value = torch.cat([state[source] for source in sources]) if len(sources) > 1 else state[sources[0]]
        # The released projection is a 1 × 1 convolution, ours the same matrix as a linear map.
        return value.reshape(shape) if value.numel() == shape.numel() else value

    for name, own in network.state_dict().items():
        if name.startswith("encoder."):
            sources = [name.replace("encoder.", "encoder1.", 1)]
        else:
            _, branch, rest = name.split(".", 2)
            sources = released_names(int(branch), rest)
        value = take(sources, own.shape)
        if value is not None:
            tensors[name] = value
    if missing or left:
        parts = [f"missing {', '.join(sorted(missing)[:4])}"] if missing else []
        parts += [f"unexpected {', '.join(sorted(left)[:4])}"] if left else []
        raise CheckpointError(f"{where}: not the state dict of the released ABM network: {'; '.join(parts)}")
    fill(network, tensors, where)
    return network.eval()


def import_abm(path: str | Path) -> Network:
    """Read the released pickle at `path` without executing anything in it."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such file; give the path of the released ABM state dict")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{path}: not a readable PyTorch state dict ({reason})") from None
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise CheckpointError(f"{path}: holds {type(state).__name__}, not a state dict of tensors")
    return convert(state, str(path))

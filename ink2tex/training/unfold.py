"""A model folder back to a network, so that training can go on from exported weights, the bundled ones included.

`ink2tex.training.export` folds what does not change while recognising: batch norms into convolutions, maps of tokens
into a table, biases into the keys. What was folded cannot be told apart again, but it need not be: any split that
computes the same will do. `recovered` makes one, with norms that do nothing; `settle` then gives the norms the
statistics of some data, without changing what the network computes, so that they do in training what they do after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from ink2tex.data.batches import Batch
from ink2tex.errors import CheckpointError, RecipeError
from ink2tex.model.config import NetworkConfig
from ink2tex.model.decoders import RecurrentDecoder
from ink2tex.model.masking import MaskedNorm
from ink2tex.model.network import Network
from ink2tex.runtime.bundle import ENCODER, Manifest, read_graph, read_manifest, step_file
from ink2tex.training.evaluation import to_tensors


class _Graph:
    """The weights of a graph by the nodes that read them, whose names tell the modules that were traced."""

    def __init__(self, folder: Path, name: str, manifest: Manifest) -> None:
        self.where = folder / name
        graph = onnx.load_from_string(read_graph(folder, name, manifest)).graph
        self.nodes = {node.name: node for node in graph.node if node.name}
        self._made = {output: node for node in graph.node for output in node.output}
        self._stored = {tensor.name: tensor for tensor in graph.initializer}

    def weight(self, name: str) -> Tensor:
        """A stored weight, or one that is computed from stored ones only, as shrunken weights are."""
        return torch.from_numpy(np.array(self._value(name), dtype=np.float32))

    def read_by(self, node: str, position: int) -> Tensor:
        """The weight that `node` reads at `position`."""
        if node not in self.nodes:
            raise CheckpointError(f"{self.where}: there is no {node} in this graph; export the model again")
        return self.weight(self.nodes[node].input[position])

    def fill(self, linear: nn.Linear, scope: str) -> None:
        """Give `linear` the weights of the linear map that was traced as `scope`."""
        weight, bias = self.linear(scope)
        linear.weight.copy_(weight)
        if linear.bias is not None:
            linear.bias.copy_(bias)

    def linear(self, scope: str) -> tuple[Tensor, Tensor]:
        """Weight (outputs, inputs) and bias, if it has one, of the linear map that was traced as `scope`."""
        if f"{scope}/Gemm" in self.nodes:
            return self.read_by(f"{scope}/Gemm", 1), self.read_by(f"{scope}/Gemm", 2)
        weight = self.read_by(f"{scope}/MatMul", 1).t()
        product = self.nodes[f"{scope}/MatMul"].output[0]
        sums = [node for node in self.nodes.values() if node.name == f"{scope}/Add" and product in node.input]
        biases = [self.weight(name) for node in sums for name in node.input if name != product]
        return weight, biases[0] if biases else torch.zeros(len(weight))

    def convolutions(self) -> list[tuple[Tensor, Tensor | None]]:
        """Kernel and bias of all convolutions, in the order in which they are computed."""
        nodes = [node for node in self.nodes.values() if node.op_type == "Conv"]
        return [
            (self.weight(node.input[1]), self.weight(node.input[2]) if len(node.input) > 2 else None) for node in nodes
        ]

    def _value(self, name: str) -> Any:
        if name in self._stored:
            return numpy_helper.to_array(self._stored[name])
        node = self._made.get(name)
        if node is None or node.op_type not in ("Cast", "Mul", "Add"):
            raise CheckpointError(f"{self.where}: {name} is no weight; export the model again")
        values = [self._value(part) for part in node.input]
        if node.op_type == "Cast":
            return values[0].astype(np.float32)
        return values[0] * values[1] if node.op_type == "Mul" else values[0] + values[1]


@torch.no_grad()
def recovered(folder: str | Path) -> Network:
    """A network in eval mode that computes what the model folder computes."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    try:
        config = NetworkConfig.from_mapping(manifest.network)
    except RecipeError as error:
        raise CheckpointError(f"{folder}: a network this version of ink2tex does not know: {error}") from None
    if config.mode == "aum":
        raise CheckpointError(f"{folder}: only one of the two branches was exported; begin with its checkpoint instead")
    network = Network(config, manifest.vocabulary).eval()
    encoder = _Graph(folder, ENCODER, manifest)
    _fill_encoder(network.encoder, encoder)
    for i, (direction, branch) in enumerate(zip(network.directions, network.branches, strict=True)):
        _fill_branch(cast(RecurrentDecoder, branch), i, encoder, _Graph(folder, step_file(direction), manifest))
    return network


def _fill_encoder(encoder: nn.Module, graph: _Graph) -> None:
    called: list[nn.Module] = []
    kinds = (nn.Conv2d, MaskedNorm)
    hooks = [
        m.register_forward_pre_hook(lambda m, _: called.append(m)) for m in encoder.modules() if isinstance(m, kinds)
    ]
    encoder(torch.zeros(1, 1, 64, 64), None)
    for hook in hooks:
        hook.remove()
    found = graph.convolutions()
    own = [m for m in called if isinstance(m, nn.Conv2d)]
    if [tuple(m.weight.shape) for m in own] != [tuple(kernel.shape) for kernel, _ in found]:
        raise CheckpointError(f"{graph.where}: the encoder is not the one that model.json describes; export it again")
    for conv, (kernel, bias) in zip(own, found, strict=True):
        conv.weight.copy_(kernel)
        after = called[called.index(conv) + 1 :][:1]
        if after and isinstance(after[0], MaskedNorm):
            norm = after[0]
            norm.reset_running_stats()
            norm.running_var.sub_(norm.eps)  # type: ignore[union-attr]
            norm.weight.fill_(1)
            norm.bias.copy_(torch.zeros_like(norm.bias) if bias is None else bias)


def _fill_branch(branch: RecurrentDecoder, index: int, encoder: _Graph, step: _Graph) -> None:
    attention = branch.attention
    if attention.folds:
        raise CheckpointError(
            f"{step.where}: its coverage kernels are folded into one; begin with its checkpoint instead"
        )
    n, gates = branch.config.hidden, branch.first.gates * branch.config.hidden
    suffix = f"_{index}" if index else ""
    # The encoder's share: what the features are mapped to. Keys are doubled and hold all biases of the energies.
    values, bias = encoder.linear(f"/to_values{suffix}")
    branch.second.input.weight.copy_(values[:gates])
    branch.from_context.weight.copy_(values[gates:])
    branch.from_context.bias.copy_(bias[gates:])
    encoder.fill(branch.initial, f"/initial{suffix}")
    encoder.fill(attention.project, f"/project{suffix}")
    attention.project.weight.div_(2)
    attention.project.bias.div_(2)
    # The step's.
    filters = step.weight("branch.filters").chunk(len(attention.maps))
    columns = step.weight("branch.mixing").chunk(len(attention.maps), dim=1)
    for conv, linear, kernel, weight in zip(attention.coverage, attention.maps, filters, columns, strict=True):
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(linear, nn.Linear)
        side = conv.kernel_size[0]
        margin = (kernel.shape[-1] - side) // 2
        conv.weight.copy_(kernel[..., margin : margin + side, margin : margin + side] / 2)
        linear.weight.copy_(weight)
        linear.bias.zero_()
    step.fill(attention.query, "/attention/query")
    attention.score.weight.copy_(step.read_by("/attention/MatMul_1", 0) / 2)
    attention.score.bias.zero_()
    step.fill(branch.first.hidden, "/first/hidden")
    step.fill(branch.second.hidden, "/second/hidden")
    step.fill(branch.from_hidden, "/from_hidden")
    step.fill(branch.output, "/output")
    _split_table(branch, step.weight("branch.decoder.embedding.weight"), n)


def _split_table(branch: RecurrentDecoder, table: Tensor, n: int) -> None:
    """Find E, W and b with E Wᵀ + b = table (K, gates + n), which has a rank of at most n without its mean."""
    bias = table.mean(0)
    left, strength, right = torch.linalg.svd(table - bias, full_matrices=False)
    rank = min(n, len(strength))
    root = strength[:rank].sqrt()
    turn, _ = torch.linalg.qr(torch.randn(n, rank, generator=torch.Generator().manual_seed(0)))
    tokens = (left[:, :rank] * root) @ turn.t()  # (K, n)
    maps = (right[:rank].t() * root) @ turn.t()  # (gates + n, n)
    # As large as a layer of this width usually is.
    size = maps.square().mean().sqrt() * n**0.5
    gates = len(maps) - n
    branch.embedding.weight.copy_(tokens * size)
    for linear, start, stop in ((branch.first.input, 0, gates), (branch.from_token, gates, gates + n)):
        linear.weight.copy_(maps[start:stop] / size)
        linear.bias.copy_(bias[start:stop])


@torch.no_grad()
def settle(network: Network, batches: Iterable[Batch]) -> None:
    """Give every norm the statistics of `batches` and every convolution before one its usual size; nothing else.

    What the network computes after training stays the same.
    """
    sums: dict[MaskedNorm, Tensor] = {}  # Σ1, Σx, Σx² of each channel: (3, C)
    order: list[nn.Module] = []

    def note(norm: nn.Module, inputs: tuple[Any, ...]) -> None:
        x, mask = inputs
        rows = x.permute(0, 2, 3, 1)[mask[:, 0] > 0].double()  # (N, C)
        found = torch.stack((torch.full_like(rows[0], len(rows)), rows.sum(0), rows.square().sum(0)))
        sums[cast(MaskedNorm, norm)] = sums.get(cast(MaskedNorm, norm), 0) + found

    kinds = (nn.Conv2d, MaskedNorm)
    modules = [m for m in network.encoder.modules() if isinstance(m, kinds)]
    hooks = [m.register_forward_pre_hook(note) for m in modules if isinstance(m, MaskedNorm)]
    hooks += [m.register_forward_pre_hook(lambda m, _: order.append(m)) for m in modules]
    was_training = network.training
    network.eval()
    for batch in batches:
        order.clear()
        network.encode(*to_tensors(batch))
    network.train(was_training)
    for hook in hooks:
        hook.remove()
    for before, norm in pairwise(order):
        if isinstance(norm, MaskedNorm) and isinstance(before, nn.Conv2d):
            _restate(before, norm, *sums[norm])


def _restate(conv: nn.Conv2d, norm: MaskedNorm, count: Tensor, total: Tensor, squares: Tensor) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    mean = total / count
    var = (squares / count - mean.square()).clamp_min(1e-8)
    slope = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    norm.bias.add_((mean - norm.running_mean.double()) * slope)
    # He's size: an optimiser's steps are large or small in comparison.
    size = (2 * len(conv.weight)) ** 0.5 / float(conv.weight.norm())
    conv.weight.mul_(size)
    mean, var = mean * size, var * size**2
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(var)
    norm.weight.copy_(slope / size * (var + norm.eps).sqrt())

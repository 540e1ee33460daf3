"""Checkpoint to ONNX: what `ink2tex.runtime` recognises with, without torch.

The graphs are traced from the network itself, after folding whatever does not change from picture to picture or
from step to step:

- batch norms go into the convolutions before them;
- a token enters a step through two linear maps only (into f1 and into the classifier), so the embedding becomes a
  table of their results;
- the context c_t = Σ α F does too (into f2 and into the classifier), and a linear map of a weighted mean is the
  weighted mean of the mapped features: the encoder maps them once, a step only mixes them;
- the coverage kernels are one convolution (`CoverageAttention.fold`).

`encoder.onnx` maps a picture (B, 1, H, W) to, for each branch, `values` (B, L, 4n), `keys` (B, L, d) and the first
state `h` (B, n); `step-<direction>.onnx` makes one step of k hypotheses of each of B images, which share them.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.onnx.utils import register_custom_op_symbolic

from ink2tex.data.readers import read_samples
from ink2tex.data.sample import Sample
from ink2tex.errors import CheckpointError
from ink2tex.model.attention import Memory
from ink2tex.model.checkpoint import load_checkpoint
from ink2tex.model.decoders import RecurrentDecoder, RecurrentState
from ink2tex.model.network import Network
from ink2tex.runtime.bundle import ENCODER, MANIFEST, DecodeDefaults, Manifest, read_manifest, step_file, write_manifest
from ink2tex.runtime.calibration import Calibration
from ink2tex.runtime.evaluation import Reader
from ink2tex.runtime.recognizer import MODES
from ink2tex.vocabulary import Direction

Precision = Literal["int8", "float16", "float24", "float32"]
OPSET = 17
#: Smaller tensors (biases) are not worth a cast.
_SMALL = 1024


class _Slice(nn.Module):
    """Takes the place of a linear map whose result is already there, at `start` to `stop` of the last axis."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop

    def forward(self, x: Tensor) -> Tensor:
        return x[..., self.start : self.stop]


class _Folded(nn.Module):
    """A branch whose token and context maps were applied beforehand.

    Its decoder is the original one, but tokens are embedded as [f1's share | the classifier's share], and the
    features of its memory are [f2's share | the classifier's share].
    """

    def __init__(self, decoder: RecurrentDecoder) -> None:
        super().__init__()
        decoder = copy.deepcopy(decoder)
        n = decoder.config.hidden
        gates = decoder.first.gates * n
        self.initial = decoder.initial
        self.project = copy.deepcopy(decoder.attention.project)
        self.to_values = nn.Linear(self.initial.in_features, gates + n)
        with torch.no_grad():
            tokens = decoder.embedding.weight
            table = torch.cat((decoder.first.input(tokens), decoder.from_token(tokens)), dim=1)
            self.to_values.weight.copy_(torch.cat((decoder.second.input.weight, decoder.from_context.weight)))
            bias = decoder.second.input.bias
            zero = torch.zeros(gates) if bias is None else bias
            # Keys are linear in the features: one map with all biases.
            self.project.bias.copy_(decoder.attention.keys_of(torch.zeros(1, self.project.in_features))[0])
            self.project.weight.mul_(2)
            # α sums to one, so a bias of the mapped features is a bias of the mapped context.
            self.to_values.bias.copy_(torch.cat((zero, decoder.from_context.bias)))
        decoder.embedding = nn.Embedding.from_pretrained(table)
        for owner, name, span in (
            (decoder.first, "input", (0, gates)),
            (decoder, "from_token", (gates, gates + n)),
            (decoder.second, "input", (0, gates)),
            (decoder, "from_context", (gates, gates + n)),
        ):
            setattr(owner, name, _Slice(*span))
        self.decoder = decoder
        filters, mixing = decoder.attention.fold()
        self.register_buffer("filters", filters.detach())
        self.register_buffer("mixing", mixing.detach())

    def image(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """values (B, L, 4n), keys (B, L, d) and the first state (B, n) from features (B, D, H, W)."""
        flat = features.flatten(2).transpose(1, 2)  # (B, L, D)
        return self.to_values(flat), self.project(flat), torch.tanh(self.initial(flat.mean(1)))


class _EncoderGraph(nn.Module):
    """A picture to what the branches read from it."""

    def __init__(self, encoder: nn.Module, branches: Sequence[_Folded]) -> None:
        super().__init__()
        self.encoder = encoder
        self.branches = nn.ModuleList(branches)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        features, _ = self.encoder(image, None)
        outputs: list[Tensor] = []
        for branch in self.branches:
            outputs += cast(_Folded, branch).image(features)
        return tuple(outputs)


class _StepGraph(nn.Module):
    """One step of a branch for k hypotheses of each image."""

    def __init__(self, branch: _Folded) -> None:
        super().__init__()
        self.branch = branch

    def forward(
        self, values: Tensor, keys: Tensor, bias: Tensor, tokens: Tensor, covered: Tensor, *cell: Tensor
    ) -> tuple[Tensor, ...]:
        h, w = covered.shape[2:]
        filters, mixing = cast(Tensor, self.branch.filters), cast(Tensor, self.branch.mixing)
        memory = Memory(values, keys, bias, filters, mixing, (h, w))
        before = RecurrentState(cell, covered.flatten(2))
        after, logits, attention = self.branch.decoder.step(memory, before, tokens)
        grid = attention.reshape_as(covered)
        return (torch.log_softmax(logits, dim=-1), grid, covered + grid, *after.cell)


def export(
    network: Network,
    folder: str | Path,
    precision: Precision = "float16",
    notes: Mapping[str, Any] | None = None,
    decode: DecodeDefaults | None = None,
    calibration: Mapping[str, Calibration] | None = None,
) -> Manifest:
    """Write `network` as a model folder."""
    if network.config.decoder.kind == "transformer":
        raise CheckpointError(
            "a network with a Transformer decoder cannot be exported; it runs from its checkpoint (.safetensors) only"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    network = copy.deepcopy(network).eval()
    directions = tuple(dict.fromkeys(network.directions))
    branches = [_Folded(cast(RecurrentDecoder, network.branches[network.directions.index(d)])) for d in directions]
    _write_encoder(network.encoder, branches, directions, folder / ENCODER, precision)
    for direction, branch in zip(directions, branches, strict=True):
        # Small, and what a step gets wrong the next one reads: 8 bits are for the encoder.
        _write_step(branch, folder / step_file(direction), "float16" if precision == "int8" else precision)
    return write_manifest(
        folder,
        Manifest(
            network=network.config.to_mapping(),
            vocabulary=network.vocabulary,
            directions=directions,
            input_scale=network.config.input_scale,
            precision=precision,
            decode=decode or DecodeDefaults(),
            calibration=calibration or {},
            notes=json.loads(json.dumps(dict(notes or {}), default=str)),
        ),
    )


def export_command(
    checkpoint: Path,
    folder: Path,
    precision: str,
    decode: DecodeDefaults,
    calibrate_on: Path | None = None,
    captions: Path | None = None,
    input_scale: float | None = None,
) -> Iterator[str]:
    """`ink2tex export`: write a checkpoint's network, fit its confidence if there is data for it; what to tell."""
    if precision not in get_args(Precision):
        known = ", ".join(get_args(Precision))
        raise CheckpointError(f"--precision is one of {known}, not {precision!r}")
    if decode.mode is not None and decode.mode not in MODES:
        raise CheckpointError(f"--decode is one of {', '.join(MODES)}, not {decode.mode!r}")
    if decode.views > 1 and decode.mode is None:
        raise CheckpointError(f"--views {decode.views} is for one way of decoding; say which with --decode")
    network, notes = load_checkpoint(checkpoint)
    if input_scale is not None:
        network.config = replace(network.config, input_scale=input_scale)
    manifest = export(network, folder, cast(Precision, precision), notes, decode)
    size = sum((folder / name).stat().st_size for name in (*manifest.files, MANIFEST))
    yield f"wrote {folder}: {len(manifest.files)} graphs, {size / 1e6:.1f} MB"
    if calibrate_on is not None:
        samples = read_samples(calibrate_on, captions, align=False)
        for name, line in calibrate(folder, samples).items():
            yield (
                f"calibrated {name} on {line.samples} expressions: error {100 * line.error:.1f} points "
                "(cross-validated)"
            )


def calibrate(folder: str | Path, samples: Sequence[Sample], modes: Sequence[str] = ()) -> dict[str, Calibration]:
    """Fit how sure each decoding mode may be on labelled samples, and write it into a model folder."""
    manifest = read_manifest(folder)
    if not modes:
        have = [direction.value for direction in manifest.directions]
        modes = [*have, "joint"] if len(have) > 1 else have
    found = dict(manifest.calibration)
    for mode in modes:
        found[mode] = Reader(folder, cast(Any, mode)).calibration(samples)
    write_manifest(Path(folder), replace(manifest, calibration=found))
    return found


def _write_encoder(
    encoder: nn.Module, branches: Sequence[_Folded], directions: Sequence[Direction], path: Path, precision: Precision
) -> None:
    names, axes = [], {"image": {0: "images", 2: "height", 3: "width"}}
    for direction in directions:
        for what in ("values", "keys", "h"):
            names.append(f"{direction.value}.{what}")
            axes[names[-1]] = {0: "images"} if what == "h" else {0: "images", 1: "cells"}
    picture = (torch.zeros(1, 1, 112, 144),)
    _trace(_EncoderGraph(encoder, branches), picture, path, ["image"], names, axes, precision)


def _write_step(branch: _Folded, path: Path, precision: Precision) -> None:
    b, k, h, w = 2, 3, 4, 5  # all different, so that no size is mistaken for another
    n = branch.decoder.config.hidden
    cells = ["h", "c"][: branch.decoder.first.states]
    inputs = (
        torch.zeros(b, h * w, branch.to_values.out_features),
        torch.zeros(b, h * w, branch.project.out_features),
        torch.zeros(b, h * w),
        torch.zeros(b, k, dtype=torch.int64),
        torch.zeros(b, k, h, w),
        *(torch.zeros(b, k, n) for _ in cells),
    )
    image, hypothesis = {0: "images"}, {0: "images", 1: "hypotheses"}
    grid = {**hypothesis, 2: "rows", 3: "columns"}
    axes: dict[str, dict[int, str]] = {name: {**image, 1: "cells"} for name in ("values", "keys", "bias")}
    axes |= dict.fromkeys(("tokens", "logprobs", *cells, *(f"new_{name}" for name in cells)), hypothesis)
    axes |= dict.fromkeys(("covered", "attention", "new_covered"), grid)
    outputs = ["logprobs", "attention", "new_covered", *(f"new_{name}" for name in cells)]
    names = ["values", "keys", "bias", "tokens", "covered", *cells]
    _trace(_StepGraph(branch), inputs, path, names, outputs, axes, precision)


def _trace(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    path: Path,
    input_names: list[str],
    output_names: list[str],
    axes: Mapping[str, Mapping[int, str]],
    precision: Precision,
) -> None:
    register_custom_op_symbolic("aten::lerp", _lerp, OPSET)
    with warnings.catch_warnings(), torch.no_grad():
        # The tracing exporter folds batch norms and leaves leaner graphs than its successor.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            inputs,
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=input_names,
            output_names=output_names,
            dynamic_axes=axes,
        )
    model = onnx.load(str(path))
    _share(model.graph)
    _fix_sizes(model)
    _shrink(model.graph, precision)
    for node in model.graph.node:
        node.ClearField("doc_string")
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def _lerp(graph: Any, start: Any, end: Any, weight: Any) -> Any:
    """start + weight · (end - start); the exporter's own form takes eight operators."""
    return graph.op("Add", start, graph.op("Mul", weight, graph.op("Sub", end, start)))


def _fix_sizes(model: Any) -> None:
    """Write sizes that are known as constants, where the trace asks for them at every step."""
    shapes = {
        value.name: value.type.tensor_type.shape.dim
        for value in onnx.shape_inference.infer_shapes(model).graph.value_info
    }
    graph = model.graph
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    constants |= {n.output[0]: numpy_helper.to_array(n.attribute[0].t) for n in graph.node if n.op_type == "Constant"}
    whose = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Shape"}
    for node in graph.node:
        if node.op_type != "Gather" or node.input[0] not in whose or node.input[1] not in constants:
            continue
        dims, which = shapes.get(whose[node.input[0]]), constants[node.input[1]]
        if dims is not None and which.size == 1 and dims[int(which.item())].HasField("dim_value"):
            size = np.full(which.shape, dims[int(which.item())].dim_value, dtype=np.int64)
            node.CopyFrom(helper.make_node("Constant", [], [node.output[0]], value=numpy_helper.from_array(size)))


def _share(graph: Any) -> None:
    """Keep one of equal initialisers, and no `Identity` between an initialiser and its readers."""
    first: dict[bytes, str] = {}
    renamed: dict[str, str] = {}
    kept = []
    for tensor in graph.initializer:
        content = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims).type.SerializeToString()
        key = content + numpy_helper.to_array(tensor).tobytes()
        if key in first:
            renamed[tensor.name] = first[key]
        else:
            first[key] = tensor.name
            kept.append(tensor)
    names = {tensor.name for tensor in kept} | set(renamed)
    outputs = {output.name for output in graph.output}
    nodes = []
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in names and node.output[0] not in outputs:
            renamed[node.output[0]] = renamed.get(node.input[0], node.input[0])
            names.add(node.output[0])
            continue
        nodes.append(node)
    for node in nodes:
        for i, name in enumerate(node.input):
            node.input[i] = renamed.get(name, name)
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _shrink(graph: Any, precision: Precision) -> None:
    """Store large weights in fewer bytes; ONNX Runtime computes their float32 once, when it loads the graph.

    float16 keeps 11 bits. float24 adds, in one more byte, what float16 lost, which is as good as float32. int8 keeps
    8 bits and a scale for each row.
    """
    if precision == "float32":
        return
    stored: list[Any] = []
    nodes: list[Any] = []
    for tensor in graph.initializer:
        weights = numpy_helper.to_array(tensor)
        if tensor.data_type != TensorProto.FLOAT or weights.size < _SMALL:
            stored.append(tensor)
        elif precision == "int8":
            codes, units = in_eight_bits(weights)
            _scaled(stored, nodes, tensor.name, codes, units, tensor.name)
        else:
            _halved(stored, nodes, tensor.name, weights, precision == "float24")
    del graph.initializer[:]
    graph.initializer.extend(stored)
    rest_of_graph = list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes + rest_of_graph)


def _halved(stored: list[Any], nodes: list[Any], name: str, weights: np.ndarray, fine: bool) -> None:
    """Make the tensor `name` from a float16 and, if `fine`, one byte more."""
    half = weights.astype(np.float16)
    if not np.isfinite(half).all():
        raise CheckpointError(f"{name} holds weights beyond the range of float16; export with --precision float32")
    stored.append(numpy_helper.from_array(half, f"{name}.half"))
    rough = f"{name}.rough" if fine else name
    nodes.append(helper.make_node("Cast", [f"{name}.half"], [rough], to=TensorProto.FLOAT))
    if fine:
        rest = weights - half.astype(np.float32)
        unit = np.float32(max(float(np.abs(rest).max()) / 127, 1e-30))
        codes = np.rint(rest / unit).astype(np.int8)
        _scaled(stored, nodes, name, codes, np.array(unit, np.float32), f"{name}.fine")
        nodes.append(helper.make_node("Add", [rough, f"{name}.fine"], [name]))


def _scaled(stored: list[Any], nodes: list[Any], name: str, codes: np.ndarray, units: np.ndarray, product: str) -> None:
    """Make the tensor `product` from int8 `codes` and their `units`."""
    stored.append(numpy_helper.from_array(codes, f"{name}.codes"))
    stored.append(numpy_helper.from_array(units, f"{name}.units"))
    # Not DequantizeLinear, which ONNX Runtime would compute at every run instead of once.
    nodes.append(helper.make_node("Cast", [f"{name}.codes"], [f"{name}.steps"], to=TensorProto.FLOAT))
    nodes.append(helper.make_node("Mul", [f"{name}.steps", f"{name}.units"], [product]))


def in_eight_bits(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes from -127 to 127 and their units, which broadcast: one for each index of the first axis or of the last.

    Kernels have their outputs on the first axis, maps of rows on the last; the axis that loses less is taken.
    """
    found = []
    for axis in {0, weights.ndim - 1}:
        others = tuple(other for other in range(weights.ndim) if other != axis)
        units = np.maximum(np.abs(weights).max(axis=others, keepdims=True) / 127, 1e-30).astype(np.float32)
        codes = np.rint(weights / units).astype(np.int8)
        found.append((float(np.square(codes * units - weights).sum()), codes, units))
    return min(found, key=lambda candidate: candidate[0])[1:]

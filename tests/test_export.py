"""Exported models: small, whole, and the same network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, numpy_helper

from ink2tex.data.sample import Sample
from ink2tex.errors import CheckpointError
from ink2tex.model.backend import TorchBackend
from ink2tex.model.checkpoint import load_checkpoint
from ink2tex.runtime.bundle import MANIFEST, read_manifest
from ink2tex.runtime.onnx_backend import OnnxBackend
from ink2tex.runtime.recognizer import Decode, Recognizer, load
from ink2tex.search import SearchOptions, rescore
from ink2tex.training.export import calibrate, export, in_eight_bits
from ink2tex.vocabulary import Direction
from tests.drawn import SAMPLES
from tests.tiny import BITMAPS, tiny_network

SEQUENCE = [5, 40, 7, 100, 9, 9, 13]


def scores(backend: object, direction: Direction) -> list[np.ndarray]:
    """Log-probabilities of one sequence under pictures of different sizes."""
    maps = [BITMAPS[i] for i in (0, 10, 22, 5)]
    stepper = backend.encode(maps).stepper(direction)  # type: ignore[attr-defined]
    return rescore(stepper, np.arange(4), [SEQUENCE[: 3 + i] for i in range(4)])


@pytest.mark.parametrize(
    ("kind", "mode", "channels", "encoder"),
    [
        ("gru", "bml", 4, "light-densenet"),
        ("lstm", "bml", 64, "densenet"),  # so many filters are folded into one kernel
        ("gru", "r2l", 4, "mobilenetv2"),
        ("gru", "aum", 4, "xception"),
    ],
)
def test_graphs_compute_what_the_network_computes(
    tmp_path: Path, kind: str, mode: str, channels: int, encoder: str
) -> None:
    torch.set_num_threads(1)
    network = tiny_network(kind, mode, channels, encoder)
    manifest = export(network, tmp_path / "m", "float32")
    backend, reference = OnnxBackend(tmp_path / "m"), TorchBackend(network)
    assert backend.directions == reference.directions == manifest.directions
    for direction in backend.directions:
        for ours, theirs in zip(scores(backend, direction), scores(reference, direction), strict=True):
            # Sums of some hundred in single precision, added up in another order by every processor.
            np.testing.assert_allclose(ours, theirs, atol=2e-3, rtol=3e-5)


def test_a_transformer_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"Transformer .* checkpoint"):
        export(tiny_network("transformer"), tmp_path)


def test_fewer_bytes_keep_the_answers(tiny_checkpoint: Path, tiny_model: Path, tmp_path: Path) -> None:
    network, _ = load_checkpoint(tiny_checkpoint)
    exact = scores(OnnxBackend(tiny_model), Direction.L2R)
    error = {}
    for precision in ("int8", "float16", "float24"):
        export(network, tmp_path / precision, precision)  # type: ignore[arg-type]
        found = scores(OnnxBackend(tmp_path / precision), Direction.L2R)
        error[precision] = max(float(np.abs(a - b).max()) for a, b in zip(exact, found, strict=True))
    assert error["float24"] < error["float16"] / 20
    assert error["float16"] < 0.1
    assert error["int8"] < 1

    def size(folder: Path) -> int:
        return sum(file.stat().st_size for file in folder.glob("*.onnx"))

    assert size(tmp_path / "int8") < size(tmp_path / "float16") < size(tmp_path / "float24") < size(tiny_model)


@given(
    weights=arrays(np.float32, st.tuples(*[st.integers(1, 6)] * 3), elements=st.floats(-8, 8, width=32)),
    first=st.booleans(),
)
def test_eight_bits_are_right_to_half_a_unit_of_their_row(weights: np.ndarray, first: bool) -> None:
    """Rows of very different size, along the first axis or the last, keep what a common unit would lose."""
    axis = 0 if first else 2
    sizes = np.expand_dims(10.0 ** np.arange(weights.shape[axis]), [a for a in range(3) if a != axis])
    weights = (weights * sizes).astype(np.float32)
    codes, units = in_eight_bits(weights)
    assert codes.dtype == np.int8
    assert np.abs(codes.astype(int)).max() <= 127
    assert (np.abs(codes * units - weights) <= 0.501 * units + 1e-30).all()
    rows = np.abs(weights).max(axis=tuple(a for a in range(3) if a != axis), keepdims=True)
    assert np.square(codes * units - weights).sum() <= np.square(rows / 127 * 0.501).sum() * weights.size + 1e-30


@pytest.mark.parametrize("precision", ["int8", "float16", "float24"])
def test_weights_are_unpacked_once_and_not_at_every_run(tiny_checkpoint: Path, tmp_path: Path, precision: str) -> None:
    export(load_checkpoint(tiny_checkpoint)[0], tmp_path, precision)  # type: ignore[arg-type]
    for path in tmp_path.glob("*.onnx"):
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "loaded")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        graph = onnx.load(str(tmp_path / "loaded")).graph
        assert not [t.name for t in graph.initializer if t.data_type in (TensorProto.FLOAT16, TensorProto.INT8)]


def test_no_weight_is_stored_twice_and_norms_are_folded(tiny_model: Path) -> None:
    for path in tiny_model.glob("*.onnx"):
        graph = onnx.load(str(path)).graph
        assert not {"BatchNormalization", "Identity"} & {node.op_type for node in graph.node}
        large = [numpy_helper.to_array(t) for t in graph.initializer]
        contents = [a.tobytes() for a in large if a.size > 100]
        assert len(contents) == len(set(contents))


def test_the_manifest_carries_the_network(tiny_checkpoint: Path, tiny_model: Path) -> None:
    network, notes = load_checkpoint(tiny_checkpoint)
    manifest = read_manifest(tiny_model)
    assert manifest.vocabulary == network.vocabulary
    assert manifest.network == network.config.to_mapping()
    assert manifest.input_scale == 0.8
    assert set(manifest.files) == {"encoder.onnx", "step-l2r.onnx", "step-r2l.onnx"}
    del notes


@pytest.mark.parametrize("name", ["encoder.onnx", "step-r2l.onnx"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "foreign"])
def test_damaged_graphs_are_named(tiny_model: Path, tmp_path: Path, name: str, damage: str) -> None:
    folder = tmp_path / "m"
    shutil.copytree(tiny_model, folder)
    file = folder / name
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "foreign":
        file.write_bytes((folder / "step-l2r.onnx").read_bytes())
    else:
        content[len(content) // 2] ^= 1
        file.write_bytes(content[: len(content) // 2] if damage == "truncated" else content)
    with pytest.raises(CheckpointError, match=name):
        load(folder).recognize(BITMAPS[0])


@pytest.mark.parametrize(
    ("content", "match"),
    [("{", "cannot be read"), ('{"format": "other"}', "'other'"), ('{"format": "ink2tex-onnx-1"}', "damaged")],
)
def test_damaged_manifests_are_named(tiny_model: Path, tmp_path: Path, content: str, match: str) -> None:
    folder = tmp_path / "m"
    shutil.copytree(tiny_model, folder)
    (folder / MANIFEST).write_text(content)
    with pytest.raises(CheckpointError, match=match):
        load(folder)


def test_what_is_no_model_at_all(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no model\.json"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="no such model"):
        load(tmp_path / "nothing")
    (tmp_path / "junk.safetensors").write_bytes(b"junk")
    with pytest.raises(CheckpointError, match="safetensors"):
        load(tmp_path / "junk.safetensors")


def test_calibration_is_written_into_the_model(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    shutil.copytree(tiny_model, folder)
    reader = load(folder, decode="l2r")
    answers = dict(reader.read_all(BITMAPS))
    truth = [tuple(reader.backend.vocabulary.decode(answers[i][0].tokens)) for i in range(len(BITMAPS))]
    samples = [  # every second label is right
        Sample(s.uid, tokens if i % 2 else ("x",), s.strokes)
        for i, (s, tokens) in enumerate(zip(SAMPLES, truth, strict=True))
    ]
    before = json.loads((folder / MANIFEST).read_text())
    found = calibrate(folder, samples, ["l2r"])
    after = json.loads((folder / MANIFEST).read_text())
    assert found["l2r"].samples == len(samples)
    assert after["calibration"]["l2r"]["samples"] == len(samples)
    assert {k: v for k, v in after.items() if k != "calibration"} == {
        k: v for k, v in before.items() if k != "calibration"
    }
    line = load(folder).backend.calibration["l2r"]
    sure = [line(answers[i][0].logprob) for i in range(len(BITMAPS))]
    assert np.mean(sure) == pytest.approx(0.5, abs=0.15)


def test_both_backends_under_the_whole_search(tiny_checkpoint: Path, tiny_model: Path) -> None:
    torch.set_num_threads(1)
    ours, theirs = load(tiny_model, threads=2), Recognizer(TorchBackend(tiny_checkpoint))
    maps = BITMAPS[::4]
    for mode, beam in (("l2r", 1), ("r2l", 3), ("joint", 3)):
        decode = Decode(mode, SearchOptions(beam=beam, nbest=beam, keep_attention=True))  # type: ignore[arg-type]
        a, b = dict(ours.read_all(maps, decode)), dict(theirs.read_all(maps, decode))
        for i in range(len(maps)):
            x, y = a[i][0], b[i][0]
            assert x.tokens == y.tokens, (mode, i)
            np.testing.assert_allclose(x.logprobs, y.logprobs, atol=1e-3)
            assert x.attention is not None
            assert y.attention is not None
            h, w = (min(x.attention.shape[k], y.attention.shape[k]) for k in (1, 2))
            np.testing.assert_allclose(x.attention[:, :h, :w], y.attention[:, :h, :w], atol=1e-3)

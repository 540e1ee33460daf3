"""Exported models back to networks that can be trained on."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_export import scores
from test_training import LABELS, tiny

from ink2tex.data.batches import Batch, BatchMaker, BatchSettings
from ink2tex.errors import CheckpointError
from ink2tex.model.backend import TorchBackend
from ink2tex.model.checkpoint import load_checkpoint
from ink2tex.model.encoders import DenseLayer, Transition
from ink2tex.model.masking import MaskedNorm
from ink2tex.model.network import Network
from ink2tex.training.evaluation import to_tensors
from ink2tex.training.export import export
from ink2tex.training.run import _start_from, train
from ink2tex.training.unfold import recovered, settle
from ink2tex.vocabulary import Vocabulary
from tests.drawn import SAMPLES, drawn
from tests.tiny import tiny_network


def batches() -> list[Batch]:
    maker = BatchMaker(SAMPLES, Vocabulary(), BatchSettings(size=6), input_scale=0.8)
    plan = maker.plan(0)
    return [maker.draw(plan, step) for step in range(len(plan))]


@pytest.mark.parametrize(
    ("kind", "mode", "encoder", "precision"),
    [
        ("gru", "bml", "light-densenet", "float32"),
        ("gru", "bml", "light-densenet", "float24"),
        ("lstm", "bml", "densenet", "float32"),
        ("gru", "r2l", "mobilenetv2", "float32"),
        ("gru", "l2r", "xception", "float32"),
    ],
)
def test_a_model_folder_becomes_the_network_that_it_was(
    tmp_path: Path, kind: str, mode: str, encoder: str, precision: str
) -> None:
    torch.set_num_threads(1)
    network = tiny_network(kind, mode, encoder=encoder)
    export(network, tmp_path, precision)  # type: ignore[arg-type]
    again = recovered(tmp_path)
    settled = recovered(tmp_path)
    settle(settled, batches())
    for direction in network.directions:
        wanted = scores(TorchBackend(network), direction)
        for other in (again, settled):
            for ours, theirs in zip(scores(TorchBackend(other), direction), wanted, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-3)


def test_settled_norms_do_in_training_what_they_do_after_it(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    export(tiny_network(), tmp_path, "float32")
    everything = BatchMaker(SAMPLES, Vocabulary(), BatchSettings(size=len(SAMPLES), ratio=4.0), input_scale=0.8)
    one = everything.draw(everything.plan(0), 0)

    def gap(network: Network) -> float:
        images = to_tensors(one)
        with torch.no_grad():
            after = network.eval().encode(*images)[0]
            return float((network.train().encode(*images)[0] - after).abs().max() / after.abs().max())

    network, settled = recovered(tmp_path), recovered(tmp_path)
    for module in (*network.modules(), *settled.modules()):
        if isinstance(module, DenseLayer | Transition):
            module.dropout = 0.0
    settle(settled, [one])
    assert gap(network) > 0.1
    assert gap(settled) < 0.01
    norms = [m for m in settled.modules() if isinstance(m, MaskedNorm)]
    assert norms
    assert all(float(m.running_var.min()) > 0 for m in norms)  # type: ignore[union-attr]


def test_training_goes_on_from_exported_weights(tmp_path: Path) -> None:
    """One step at a rate of nearly nothing leaves a network that still knows what it had learnt."""
    torch.set_num_threads(1)
    samples = [drawn(label) for label in LABELS[:8]]
    train(tiny(schedule={"kind": "cosine", "warmup": 5, "steps": 40}), samples, samples, tmp_path / "first")
    (best,) = (tmp_path / "first").glob("best-*.safetensors")
    exported = tmp_path / "exported"
    export(TorchBackend(best).network, exported, "float24")
    recipe = tiny(
        optimiser={"kind": "adamw", "rate": 1e-9},
        schedule={"kind": "hold", "steps": 1},
        run={"save_every": 1, "validate_every": 1},
    )
    for name, source in (("model", exported), ("nothing", None)):
        train(recipe, samples, samples, tmp_path / name, start_from=source)
    before, ours, theirs = (_wer(tmp_path / name) for name in ("first", "model", "nothing"))
    assert ours == pytest.approx(before, abs=10)  # the step's batch has moved the norms a little
    assert theirs > before + 50
    # What it began with is kept, in the same terms as what comes of it, and computes what was exported.
    assert not (tmp_path / "nothing" / "start.safetensors").exists()
    start, _ = load_checkpoint(tmp_path / "model" / "start.safetensors")
    (end,) = (tmp_path / "model").glob("best-*.safetensors")
    for (name, ours_then), ours_now in zip(start.named_parameters(), load_checkpoint(end)[0].parameters(), strict=True):
        torch.testing.assert_close(ours_then, ours_now, atol=1e-6, rtol=1e-5, msg=name)
    image = torch.rand(1, 1, 40, 60)
    with torch.no_grad():
        torch.testing.assert_close(start.encode(image)[0], recovered(exported).encode(image)[0], atol=1e-3, rtol=1e-3)


def _wer(run: Path) -> float:
    with open(run / "valid.csv", encoding="utf-8") as file:
        return float(list(csv.DictReader(file))[-1]["wer"])


def test_a_larger_network_begins_with_what_the_smaller_one_computes(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    small = tiny_network()
    export(small, tmp_path, "float32")
    encoder = replace(small.config.encoder, blocks=(2, 5))
    large = Network(replace(small.config, encoder=encoder), small.vocabulary).eval()
    _start_from(large, tmp_path)
    assert sum(p.numel() for p in large.parameters()) > sum(p.numel() for p in small.parameters())
    for direction in small.directions:
        for ours, theirs in zip(
            scores(TorchBackend(large), direction), scores(TorchBackend(small), direction), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-3)


def test_what_cannot_be_told_apart_again_is_refused_in_words(tmp_path: Path) -> None:
    export(tiny_network(channels=64), tmp_path / "folded", "float32")
    with pytest.raises(CheckpointError, match="folded into one; begin with its checkpoint"):
        recovered(tmp_path / "folded")
    export(tiny_network(mode="aum"), tmp_path / "aum", "float32")
    with pytest.raises(CheckpointError, match="one of the two branches"):
        recovered(tmp_path / "aum")

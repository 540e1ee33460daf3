"""Data that several tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ink2tex.data.audit import Audit, audit, read_inks
from ink2tex.data.captions import read_captions
from ink2tex.ink import Ink


@pytest.fixture(scope="session")
def crohme() -> Path:
    """The directory with the archives of CROHME; tests that need it are skipped without."""
    root = Path(__file__).parents[1]
    path = Path(os.environ.get("INK2TEX_CROHME", root.parent / "shared" / "crohme"))
    if not (path / "train_inkml.tar.xz").is_file():
        pytest.skip(f"no CROHME data in {path}; set INK2TEX_CROHME to the directory with its archives")
    return path


@pytest.fixture(scope="session")
def train_inks(crohme: Path) -> list[Ink]:
    return list(read_inks(crohme / "train_inkml.tar.xz"))


@pytest.fixture(scope="session")
def train_captions(crohme: Path) -> dict[str, list[str]]:
    return read_captions(crohme / "train_caption.txt")


@pytest.fixture(scope="session")
def train_audit(train_inks: list[Ink], train_captions: dict[str, list[str]]) -> Audit:
    return audit(train_inks, train_captions)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a tiny random network with both branches."""
    import torch

    from ink2tex.model.checkpoint import save_checkpoint
    from tests.tiny import tiny_network

    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("tiny") / "tiny.safetensors"
    save_checkpoint(tiny_network(), path, {"step": 1})
    return path


@pytest.fixture(scope="session")
def tiny_model(tiny_checkpoint: Path) -> Path:
    """The same network, exported (float32)."""
    from ink2tex.model.checkpoint import load_checkpoint
    from ink2tex.training.export import export

    folder = tiny_checkpoint.parent / "model"
    export(load_checkpoint(tiny_checkpoint)[0], folder, "float32")
    return folder

"""An exported model on disk: a folder of ONNX graphs and `model.json`, which says what they are.

Everything that recognising needs is in the folder, and nothing in it is executed. Hashes in `model.json` cover the
graphs, so that a damaged copy is an error here and not a strange result later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ink2tex.errors import CheckpointError, DataError, RecipeError
from ink2tex.runtime.calibration import Calibration
from ink2tex.settings import from_mapping, to_mapping
from ink2tex.vocabulary import Direction, Vocabulary

FORMAT: Final = "ink2tex-onnx-1"
MANIFEST: Final = "model.json"
ENCODER: Final = "encoder.onnx"


def step_file(direction: Direction) -> str:
    """The name of the graph with one step of the branch that writes in `direction`."""
    return f"step-{direction.value}.onnx"


@dataclass(frozen=True)
class DecodeDefaults:
    """How this model is searched unless the caller says otherwise; None leaves the choice to the program."""

    mode: str | None = None
    beam: int | None = None
    alpha: float = 1.0
    #: At how many sizes answers are judged.
    views: int = 1


@dataclass(frozen=True)
class Manifest:
    """What `model.json` says."""

    #: The network's configuration, as its checkpoint has it.
    network: Mapping[str, Any]
    vocabulary: Vocabulary
    #: The branches in the folder.
    directions: tuple[Direction, ...]
    #: The bitmap is resized to this multiple of the official size before the encoder sees it.
    input_scale: float
    #: How weights are stored.
    precision: str
    decode: DecodeDefaults = DecodeDefaults()
    #: For each decoding mode, how sure a score makes us.
    calibration: Mapping[str, Calibration] = field(default_factory=dict)
    #: Plain values that came along with the checkpoint.
    notes: Mapping[str, Any] = field(default_factory=dict)
    #: SHA-256 of each graph, by file name.
    files: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The text of `model.json`."""
        return json.dumps(
            {
                "format": FORMAT,
                "network": dict(self.network),
                "vocabulary": list(self.vocabulary.symbols),
                "directions": [direction.value for direction in self.directions],
                "input_scale": self.input_scale,
                "precision": self.precision,
                "decode": to_mapping(self.decode),
                "calibration": {mode: to_mapping(value) for mode, value in self.calibration.items()},
                "notes": dict(self.notes),
                "files": dict(self.files),
            },
            indent=1,
        )


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Hash the graphs in `folder` and write `model.json` beside them; the manifest with the hashes."""
    names = [ENCODER, *(step_file(direction) for direction in manifest.directions)]
    manifest = replace(manifest, files={name: _sha256(folder / name) for name in names})
    (folder / MANIFEST).write_text(manifest.to_json() + "\n", encoding="utf-8")
    return manifest


def read_manifest(folder: str | Path) -> Manifest:
    """What is in an exported model; its graphs are not read yet (see `read_graph`)."""
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        raise CheckpointError(f"{folder}: there is no {MANIFEST} in it; make a model folder with 'ink2tex export'")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); copy or export the model again") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        found = raw.get("format") if isinstance(raw, dict) else None
        raise CheckpointError(
            f"{path}: describes a model of format {found!r}, but this version of ink2tex reads {FORMAT!r}; "
            "export the checkpoint again"
        )
    try:
        manifest = Manifest(
            network=raw["network"],
            vocabulary=Vocabulary(raw["vocabulary"]),
            directions=tuple(Direction(name) for name in raw["directions"]),
            input_scale=float(raw["input_scale"]),
            precision=str(raw["precision"]),
            decode=from_mapping(DecodeDefaults, raw.get("decode", {}), "decode"),
            calibration={
                mode: from_mapping(Calibration, value, f"calibration.{mode}")
                for mode, value in raw.get("calibration", {}).items()
            },
            notes=raw.get("notes", {}),
            files={str(name): str(digest) for name, digest in raw["files"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecipeError, DataError) as error:
        raise CheckpointError(f"{path}: is damaged ({error!r}); copy or export the model again") from None
    return manifest


def read_graph(folder: str | Path, name: str, manifest: Manifest) -> bytes:
    """The bytes of one graph, checked against its hash."""
    path = Path(folder) / name
    wanted = manifest.files.get(name)
    if wanted is None:
        raise CheckpointError(f"{path}: {MANIFEST} does not list this graph; export the checkpoint again")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: a part of the model cannot be read ({error.strerror}); copy it again") from None
    if hashlib.sha256(content).hexdigest() != wanted:
        raise CheckpointError(
            f"{path}: does not match its hash in {MANIFEST} ({len(content):,} bytes); "
            "it is truncated, damaged or of another model, so copy or export the model again"
        )
    return content


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

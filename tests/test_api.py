"""The package as a Python user sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ink2tex
from tests.drawn import SAMPLES
from tests.tiny import BITMAPS

#: Imports that would make recognising heavy.
HEAVY = ("torch", "lightning", "matplotlib", "scipy", "onnx.")


def python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_public_names_are_there() -> None:
    for name in ink2tex.__all__:
        assert getattr(ink2tex, name) is not None
    assert set(ink2tex.__all__) <= set(dir(ink2tex))
    with pytest.raises(AttributeError, match="nonsense"):
        ink2tex.nonsense  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    loaded = python(
        "import sys; before = set(sys.modules); import ink2tex; print(*sorted(set(sys.modules) - before))"
    ).split()
    assert set(loaded) <= {"ink2tex", "__future__"}


def test_recognising_does_not_import_torch(tiny_model: Path, tmp_path: Path) -> None:
    picture = tmp_path / "x.png"
    Image.fromarray(BITMAPS[3]).save(picture)
    code = (
        "import sys, ink2tex; r = ink2tex.load(sys.argv[1]).recognize(sys.argv[2]); assert r.tokens; r.to_dict(); "
        f"print([m for m in sys.modules if m.startswith({HEAVY!r})])"
    )
    assert python(code, str(tiny_model), str(picture)).strip() == "[]"


def test_a_result_has_mathml(tiny_model: Path) -> None:
    result = ink2tex.load(tiny_model, beam=2).recognize(BITMAPS[3])
    assert result.mathml.startswith("<math")


def test_strokes_in_latex_out(tiny_model: Path) -> None:
    strokes = SAMPLES[0].strokes
    assert strokes is not None
    reader = ink2tex.load(tiny_model, threads=1, decode="l2r", beam=1)
    assert reader.recognize(list(strokes)).latex
    assert reader.recognize([stroke.tolist() for stroke in strokes]).latex
    assert isinstance(reader.recognize(np.stack([BITMAPS[0]] * 3, axis=-1)), ink2tex.Result)


def test_a_checkpoint_is_a_model_too(tiny_checkpoint: Path, tiny_model: Path) -> None:
    a = ink2tex.load(tiny_checkpoint, threads=1, beam=2).recognize(BITMAPS[3])
    b = ink2tex.load(tiny_model, threads=1, beam=2).recognize(BITMAPS[3])
    assert a.tokens == b.tokens
    assert a.confidence == pytest.approx(b.confidence, rel=1e-3)

"""The paper's experiments: variants are what they say, tables are filled from what was read, nothing is done twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from test_cli import as_inkml
from test_training import LABELS, TINY, drawn, tiny
from typer.testing import CliRunner

from ink2tex.app.cli import app
from ink2tex.errors import RecipeError
from ink2tex.experiments.features import collect, draw, frequent, separation
from ink2tex.experiments.plan import EXPERIMENTS, SAME, VARIANTS, experiment_of, recipe_of
from ink2tex.metrics import read_predictions, score
from ink2tex.model.network import Network
from ink2tex.training.recipe import read_recipe
from ink2tex.vocabulary import Vocabulary
from tests.tiny import tiny_network

PAPER = read_recipe(Path(__file__).parents[1] / "recipes" / "abm.yaml")


def changed(variant: str) -> set[str]:
    """The keys in which a variant differs from ABM as published."""
    return {line.split(":")[0] for line in PAPER.changes(recipe_of(variant, PAPER))}


def test_abm_is_the_papers_recipe_itself() -> None:
    assert recipe_of("abm", PAPER) == PAPER


@pytest.mark.parametrize(
    ("variant", "mode", "kernels"),
    [
        ("uni-l2r", "l2r", (11,)),
        ("uni-r2l", "r2l", (11,)),
        ("aam", "l2r", (5, 11)),
        ("bml", "bml", (11,)),
        ("aum-l2r", "aum", (5, 11)),
        ("aum-r2l", "aum-r2l", (5, 11)),
        ("lstm-abm", "bml", (5, 11)),
        ("xception", "l2r", (11,)),
        ("transformer-abm", "bml", (11,)),
    ],
)
def test_variants_are_what_the_paper_names(variant: str, mode: str, kernels: tuple[int, ...]) -> None:
    network = recipe_of(variant, PAPER).network
    assert (network.mode, network.decoder.attention.kernels) == (mode, kernels)


def test_only_what_is_compared_changes() -> None:
    assert changed("lambda-0.7") == {"loss.mutual"}
    assert changed("kernels-7-11") == {"network.decoder.attention.kernels"}
    assert changed("mobilenetv2-abm") == {"network.encoder.kind"}
    assert changed("lstm-abm") == {"network.decoder.kind"}


def test_names_of_the_same_thing_are_the_same_thing() -> None:
    for name, other in SAME.items():
        assert recipe_of(name, PAPER) == recipe_of(other, PAPER)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_line_can_be_read_by_its_variant(name: str) -> None:
    experiment = EXPERIMENTS[name]
    for line in experiment.lines:
        assert line.decode in recipe_of(line.variant, tiny()).network.directions
        assert len(line.paper) in (0, len(experiment.columns))
    assert set(experiment.variants) <= set(VARIANTS)


@pytest.mark.parametrize("variant", ["mobilenetv2-abm", "xception", "lstm-abm", "transformer-abm", "aum-r2l"])
def test_every_kind_of_network_can_be_built(variant: str) -> None:
    assert len(Network(recipe_of(variant, tiny()).network, Vocabulary()).branches) in (1, 2)


def test_steps_shorten_any_schedule() -> None:
    schedule = recipe_of("abm", PAPER, steps=50).schedule
    assert (schedule.kind, schedule.steps, schedule.decay) == ("hold", 50, 10)


def test_an_unknown_experiment_names_the_known_ones() -> None:
    with pytest.raises(RecipeError, match=r"did you mean 'ablation'.*directions.*features"):
        experiment_of("ablations")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ink of sixteen expressions, and a recipe that is done in no time."""
    folder = tmp_path_factory.mktemp("experiment")
    (folder / "ink").mkdir()
    for i, label in enumerate(LABELS):
        (folder / "ink" / f"e{i}.inkml").write_bytes(as_inkml(drawn(label), f"e{i}"))
    recipe = {**TINY, "run": {"save_every": 2, "validate_every": 2}}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    return folder


def test_an_experiment_trains_reads_and_tabulates_and_does_nothing_twice(written: Path) -> None:
    ink = str(written / "ink")
    command = ["experiment", "comparison", "--recipe", str(written / "tiny.yaml"), "--folder", str(written / "runs")]
    command += ["--data", ink, "--valid", ink, "--test", ink, "--steps", "4", "--beam", "2"]
    first = CliRunner().invoke(app, [*command, "-o", str(written / "table.md")])
    assert first.exit_code == 0, first.output
    assert "training uni-l2r" in first.stderr
    assert "training abm" in first.stderr
    table = first.stdout.strip()
    assert (written / "table.md").read_text().strip() == table
    references = {f"e{i}": tuple(label.split()) for i, label in enumerate(LABELS)}
    for label, variant in (("DWAP", "uni-l2r"), ("ABM", "abm")):
        (read,) = (written / "runs" / variant).glob("ink-l2r-beam2.txt")
        report = score(read_predictions(read, references), references)
        (row,) = [line for line in table.splitlines() if line.startswith(f"| {label} ")]
        assert row.split("|")[2].split()[0] == f"{report.exprate:.2f}"
        assert "(50.60)" in row or "(56.85)" in row
    again = CliRunner().invoke(app, command)
    assert again.stdout.strip() == table
    assert "training" not in again.stderr
    assert "reading" not in again.stderr


def test_a_training_that_fails_is_not_called_done(written: Path, tmp_path: Path) -> None:
    command = ["experiment", "comparison", "--recipe", str(written / "tiny.yaml"), "--folder", str(tmp_path)]
    command += ["--data", str(tmp_path / "nowhere"), "--valid", str(written / "ink"), "--test", str(written / "ink")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code != 0
    assert "uni-l2r ended with exit code 2" in str(result.exception)
    assert not list(tmp_path.glob("*/trained"))


def test_features_are_those_of_every_occurrence() -> None:
    samples = [drawn(label) for label in LABELS]
    network = tiny_network()
    features, which = collect(network, samples, ["x", "1", "+"])
    for i, symbol in enumerate(["x", "1", "+"]):
        assert int((which == i).sum()) == sum(sample.tokens.count(symbol) for sample in samples)
    assert features.shape == (len(which), network.config.decoder.hidden // 2)
    # The same feature whether its expression is read alone or with others.
    alone, _ = collect(network, samples[:1], ["x"])
    together = features[which == 0]
    assert np.abs(together - alone[0]).max(axis=1).min() < 1e-4


def test_separation_knows_apart_from_mixed() -> None:
    rng = np.random.default_rng(0)
    which = np.repeat([0, 1], 50)
    noise = rng.normal(size=(100, 4))
    assert separation(noise + 20 * which[:, None], which) > 0.8
    assert abs(separation(noise, which)) < 0.1


def test_the_figure_of_features(tmp_path: Path) -> None:
    samples = [drawn(label) for label in LABELS]
    lines = draw([("one", tiny_network()), ("two", tiny_network("lstm"))], samples, tmp_path / "features.png")
    assert [line.split(":")[0] for line in lines] == ["one", "two"]
    assert (tmp_path / "features.png").read_bytes().startswith(b"\x89PNG")
    assert len(frequent(samples)) == 10
    assert "{" not in frequent(samples)

"""The training loop: it learns, it weighs tokens rightly, and it survives being killed."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
import yaml
from drawn import drawn

from ink2tex.data.batches import BatchMaker, BatchSettings
from ink2tex.errors import CheckpointError, RecipeError
from ink2tex.metrics import score
from ink2tex.model.checkpoint import load_checkpoint
from ink2tex.model.losses import IGNORE
from ink2tex.model.network import Network
from ink2tex.training.console import Console
from ink2tex.training.evaluation import read_samples_with
from ink2tex.training.logs import Table
from ink2tex.training.recipe import Recipe, ScheduleSettings, parse_recipe, read_recipe
from ink2tex.training.run import STATE, train
from ink2tex.training.system import Averager, Rate, System, sequences
from ink2tex.vocabulary import Direction, Vocabulary

ROOT = Path(__file__).parents[1]
TINY = {
    "network": {
        "encoder": {"kind": "light-densenet", "growth": 12, "blocks": [3, 3], "stem": [8, 24, 48], "dropout": 0.0},
        "decoder": {"hidden": 64, "attention": {"width": 48, "channels": 4}},
    },
    "batch": {"size": 8},
    "loss": {"attention": [1.0, 1.0], "cells": 0.5},
    "optimiser": {"kind": "adamw", "rate": 4.0e-3, "clip": 5.0, "average": 0.9},
    "schedule": {"kind": "cosine", "warmup": 10, "steps": 150},
    "run": {"save_every": 25, "validate_every": 150},
}
LABELS = (
    "x + 1", "a = b", r"\frac { 1 } { 2 }", "x ^ { 2 }", "a _ { n }", r"\sqrt { 3 }", "( a + b )", "1 2 3",
    "y - 4", r"\frac { x } { y }", "b ^ { 3 } + 1", "a b", "2 x = y", r"x _ { 1 } ^ { 2 }", "n !", r"\pi + 1",
)  # fmt: skip


def tiny(**changes: object) -> Recipe:
    return parse_recipe({**TINY, **changes}, "test")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # threads that wait for each other crawl on a busy machine


def test_a_tiny_network_learns_sixteen_expressions_by_heart(tmp_path: Path) -> None:
    samples = [drawn(label) for label in LABELS]
    train(tiny(), samples, samples, tmp_path)
    (best,) = tmp_path.glob("best-*.safetensors")
    network, notes = load_checkpoint(best)
    references = {sample.uid: sample.tokens for sample in samples}
    assert notes["exprate"] == 100
    for decode in ("l2r", "r2l", "joint"):
        read = read_samples_with(network, samples, decode)  # type: ignore[arg-type]
        assert score(read, references).exprate == 100
    assert (tmp_path / "train.csv").read_text().splitlines()[0].startswith("step,epoch,l2r,r2l,mutual,attention,cells")
    assert list((tmp_path / "tensorboard").iterdir())


def test_the_log_holds_means_over_all_steps(tmp_path: Path) -> None:
    samples = [drawn(label) for label in LABELS[:6]]
    rows = []
    for every in (1, 3):
        recipe = tiny(schedule={"kind": "hold", "steps": 3}, run={"save_every": every}, batch={"size": 2})
        train(recipe, samples, [], tmp_path / str(every))
        rows.append(Table(tmp_path / str(every) / "train.csv", 99).rows)
    single, (whole,) = rows
    assert len(single) == 3
    for part in ("l2r", "mutual", "cells"):
        values = [float(row[part]) for row in single]
        assert max(values) > min(values)
        assert float(whole[part]) == pytest.approx(sum(values) / 3, rel=1e-4)


@pytest.mark.parametrize(
    ("encoder", "decoder"),
    [("light-densenet", "gru"), ("densenet", "lstm"), ("xception", "gru"), ("mobilenetv2", "transformer")],
)
def test_products_in_half_as_many_bits_change_gradients_a_little(encoder: str, decoder: str) -> None:
    sizes = {"growth": 12, "blocks": [3, 3, 3] if encoder == "densenet" else [3, 3], "width": 0.25, "dropout": 0.1}
    network = {"encoder": {"kind": encoder, **sizes}, "decoder": {"kind": decoder, "hidden": 64, "layers": 1}}
    samples = [drawn(label) for label in LABELS[:6]]
    maker = BatchMaker(samples, Vocabulary(), BatchSettings(size=6))
    batch = maker.draw(maker.plan(0), 0)
    values, gradients = [], []
    for precision in ("float32", "bfloat16"):
        recipe = tiny(network=network, run={"precision": precision}, optimiser={"kind": "muon", "rate": 1e-3})
        torch.manual_seed(5)
        system = System(Network(recipe.network, Vocabulary()), recipe).train()
        torch.manual_seed(6)
        loss, _ = system.losses(batch)
        loss.backward()
        values.append(float(loss.detach()))
        named = [(name, p.grad) for name, p in system.named_parameters() if "score.bias" not in name]  # always 0
        assert all(g is not None and g.dtype is torch.float32 for _, g in named)
        gradients.append(torch.cat([g.flatten() for _, g in named if g is not None]))
        assert all(b.dtype is torch.float32 for b in system.network.buffers() if b.is_floating_point())
        system.configure_optimizers().step()
        assert all(p.dtype is torch.float32 and p.isfinite().all() for p in system.parameters())
    assert values[1] == pytest.approx(values[0], rel=0.005)
    exact, rough = gradients
    assert (exact != rough).any()
    if "densenet" in encoder:  # the others, untrained and a fourth as wide, take any small change for a large one
        assert float(torch.nn.functional.cosine_similarity(exact, rough, 0)) > 0.95


def test_the_processor_decides_on_the_precision_if_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for tiles, vectors in ((False, False), (True, False), (False, True)):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda there=tiles: there)
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda there=vectors: there)
        for precision, half in (("auto", tiles or vectors), ("bfloat16", True), ("float32", False)):
            recipe = tiny(run={"precision": precision})
            assert System(Network(recipe.network, Vocabulary()), recipe).in_bfloat16 is half
    with pytest.raises(RecipeError, match=r"run\.precision"):
        tiny(run={"precision": "float16"})


def test_a_new_classifier_of_cells_learns_alone_at_first() -> None:
    samples = [drawn(label) for label in LABELS[:4]]
    maker = BatchMaker(samples, Vocabulary(), BatchSettings(size=4))
    batch = maker.draw(maker.plan(0), 0)

    def moved(step: int, **weights: float) -> tuple[list[torch.Tensor], torch.Tensor | None]:
        """The gradients of the encoder and of the classifier of cells at `step`."""
        torch.manual_seed(5)
        recipe = tiny(loss={"attention": [1.0, 1.0], "cells_alone": 3, **weights})
        system = System(Network(recipe.network, Vocabulary()), recipe).train()
        system.step = step
        system.losses(batch)[0].backward()
        mine = [p.grad for p in system.network.encoder.parameters() if p.grad is not None]
        return mine, None if system.cells is None else system.cells.weight.grad

    without, _ = moved(2)
    alone, classifier = moved(2, cells=0.5)
    together, _ = moved(3, cells=0.5)
    assert classifier is not None
    assert classifier.abs().sum() > 0
    assert len(alone) > 10
    assert all(torch.allclose(a, b) for a, b in zip(without, alone, strict=True))
    assert not any(torch.allclose(a, b) for a, b in zip(without, together, strict=True) if a.dim() > 1)


# -- resuming ----------------------------------------------------------------------------------------------------------

RUN = textwrap.dedent(
    """
    import sys, time, torch
    sys.path.insert(0, {tests!r})
    torch.set_num_threads(1)
    import test_training as t
    from ink2tex.training import run
    if {slow}:  # leave the parent time to kill this in the middle of a leg
        draw = run.BatchMaker.draw
        run.BatchMaker.draw = lambda *a: (time.sleep(0.15), draw(*a))[1]
    samples = [t.drawn(label) for label in t.LABELS[:6]]
    run.train(t.resumable(), samples, samples[:2], {folder!r})
    """
)


def resumable() -> Recipe:
    """A recipe with every source of chance: augmentation, dropout, token noise, shuffling."""
    network = {
        "encoder": {**TINY["network"]["encoder"], "dropout": 0.2},  # type: ignore[index,dict-item]
        "decoder": {"hidden": 16, "dropout": 0.2, "attention": {"width": 12, "channels": 2}},
    }
    return tiny(
        network=network,
        batch={"size": 2},
        augment={"scale": [0.8, 1.2], "swap": 0.3, "thickness": [2.0, 4.0]},
        loss={"attention": [1.0, 0.1], "cells": 0.5, "token_noise": 0.2},
        schedule={"kind": "cosine", "steps": 24, "warmup": 4},
        run={"save_every": 4, "validate_every": 8, "keep": 2},
    )


def run_in_process(folder: Path, slow: bool) -> subprocess.Popen[bytes]:
    code = RUN.format(tests=str(ROOT / "tests"), folder=str(folder), slow=slow)
    return subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def test_a_killed_run_reaches_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = run_in_process(tmp_path / "whole", slow=False)
    killed = run_in_process(tmp_path / "killed", slow=True)
    state = tmp_path / "killed" / STATE
    deadline = time.monotonic() + 120
    while not state.is_file() and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)  # somewhere in the next leg
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert killed.returncode == -signal.SIGKILL
    assert torch.load(state, weights_only=True)["step"] < 24
    again = run_in_process(tmp_path / "killed", slow=False)
    for process in (whole, again):
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors.decode()
    assert b"going on from step" in errors
    one, two = (torch.load(tmp_path / name / STATE, weights_only=True) for name in ("whole", "killed"))
    assert one["step"] == two["step"] == 24
    assert (one["epoch"], one["offset"]) == (two["epoch"], two["offset"])
    for part in ("network", "average", "cells"):
        for name, value in one[part].items():
            assert torch.equal(value, two[part][name]), f"{part} {name}"
    for table in ("train.csv", "valid.csv"):
        columns = [
            [(row["step"], row.get("l2r"), row.get("wer")) for row in Table(tmp_path / name / table, 99).rows]
            for name in ("whole", "killed")
        ]
        assert columns[0] == columns[1]


def test_a_run_folder_of_another_network_is_refused(tmp_path: Path) -> None:
    samples = [drawn("x + 1")]
    quick = tiny(schedule={"kind": "hold", "steps": 1}, run={"save_every": 1, "validate_every": 99})
    train(quick, samples, [], tmp_path)
    network = dataclasses.replace(quick.network, mode="l2r")
    with pytest.raises(RecipeError, match=r"mode: bml → l2r"):
        train(dataclasses.replace(quick, network=network), samples, [], tmp_path)
    larger = dataclasses.replace(quick.network, input_scale=2.0)  # the same weights read it
    assert train(dataclasses.replace(quick, network=larger), samples, [], tmp_path).config.input_scale == 2.0
    (tmp_path / STATE).write_bytes(b"half a state")
    with pytest.raises(CheckpointError, match="move it away"):
        train(quick, samples, [], tmp_path)


def test_a_resumed_run_takes_what_the_recipe_says_now(tmp_path: Path) -> None:
    samples = [drawn("x + 1")]

    def recipe(steps: int, decay: float, dropout: float) -> Recipe:
        before = tiny(schedule={"kind": "hold", "steps": steps}, run={"save_every": 1, "validate_every": 99})
        network = dataclasses.replace(
            before.network,
            encoder=dataclasses.replace(before.network.encoder, dropout=dropout),
            decoder=dataclasses.replace(before.network.decoder, dropout=dropout),
        )
        optimiser = dataclasses.replace(before.optimiser, weight_decay=decay)
        return dataclasses.replace(before, network=network, optimiser=optimiser)

    train(recipe(1, 0.01, 0.0), samples, [], tmp_path)
    network = train(recipe(2, 0.5, 0.25), samples, [], tmp_path)
    assert network.config.encoder.dropout == network.config.decoder.dropout == 0.25
    decays = [
        group["weight_decay"] for group in torch.load(tmp_path / STATE, weights_only=True)["optimiser"]["param_groups"]
    ]
    assert decays == [0.5, 0.0]  # matrices, vectors


def test_a_recipe_with_fewer_steps_an_epoch_goes_on_with_the_next_epoch(tmp_path: Path) -> None:
    samples = [drawn(label) for label in LABELS[:4]]

    def recipe(steps: int, size: int) -> Recipe:
        return tiny(
            batch={"size": size, "ratio": 4.0},
            schedule={"kind": "hold", "steps": steps},
            run={"save_every": 1, "validate_every": 99},
        )

    train(recipe(3, 1), samples, [], tmp_path)
    assert torch.load(tmp_path / STATE, weights_only=True)["offset"] == 3  # of four
    train(recipe(4, 2), samples, [], tmp_path)  # an epoch has two steps now
    state = torch.load(tmp_path / STATE, weights_only=True)
    assert (state["epoch"], state["offset"]) == (1, 1)


# -- one step ----------------------------------------------------------------------------------------------------------


def test_sequences_of_both_directions() -> None:
    tokens, lengths = torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([3, 1])
    inputs, targets = sequences(tokens, lengths, Direction.L2R)
    assert inputs.tolist() == [[0, 5, 6, 7], [0, 8, 0, 0]]
    assert targets.tolist() == [[5, 6, 7, 1], [8, 1, IGNORE, IGNORE]]
    inputs, targets = sequences(tokens, lengths, Direction.R2L)
    assert inputs.tolist() == [[1, 7, 6, 5], [1, 8, 0, 0]]
    assert targets.tolist() == [[7, 6, 5, 0], [8, 0, IGNORE, IGNORE]]


def gradients(recipe: Recipe, samples: list, size: int) -> list[torch.Tensor]:  # type: ignore[type-arg]
    """Gradients of a step over `samples`, which are cut into batches of `size` as processes would have them."""
    torch.manual_seed(0)
    network = Network(recipe.network, Vocabulary())
    system = System(network, recipe).eval()  # norms of fixed statistics, so that batches do not matter to them
    maker = BatchMaker(samples, Vocabulary(), BatchSettings(size=size, ratio=4.0))
    plan = maker.plan(0)
    batches = [maker.draw(plan, step) for step in range(len(plan))]
    counts = [float((batch.lengths + 1).sum()) for batch in batches]
    for batch, count in zip(batches, counts, strict=True):
        loss, _ = system.losses(batch)
        # A process alone divides by its own tokens; with others, by everybody's, times the average over processes.
        (loss * count / sum(counts)).backward()
    return [p.grad.clone() for p in network.parameters() if p.grad is not None]


def test_gradients_are_averaged_by_tokens() -> None:
    samples = [drawn("x"), drawn("a b + 1 2 - y = n"), drawn("1 2 3")]
    recipe = tiny()
    together, apart = gradients(recipe, samples, 3), gradients(recipe, samples, 1)
    assert len(together) == len(apart) > 10
    for a, b in zip(together, apart, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-3)


DDP = textwrap.dedent(
    """
    import sys, torch
    sys.path.insert(0, {tests!r})
    torch.set_num_threads(1)
    import test_training as t
    from ink2tex.training import run
    samples = [t.drawn(label) for label in ("x", "a b + 1 2 - y = n", "1 2 3", "a = b")]
    recipe = t.tiny(
        batch={{"size": {size}, "ratio": 4.0}},
        optimiser={{"kind": "muon", "rate": 0.1, "clip": 0.0}},  # a step that shows
        schedule={{"kind": "hold", "steps": 1}},
        run={{"save_every": 1, "validate_every": 1, "keep": 1}},
    )
    t.freeze_norms()
    run.train(recipe, samples, samples, {folder!r})
    """
)


def freeze_norms() -> None:
    """Norms with fixed statistics: then it does not matter how samples are spread over processes."""
    from ink2tex.model.masking import MaskedNorm

    MaskedNorm._masked = lambda self, x, mask: masked(self, x, mask)  # type: ignore[method-assign]

    def masked(norm: MaskedNorm, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)
        return (torch.relu(y) if norm.relu else y) * mask


def test_two_processes_make_the_step_of_one(tmp_path: Path) -> None:
    for name, processes, size in (("one", 1, 4), ("two", 2, 2)):
        script = tmp_path / f"{name}.py"
        script.write_text(DDP.format(tests=str(ROOT / "tests"), size=size, folder=str(tmp_path / name)))
        launcher = (
            ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
        )
        done = subprocess.run(
            [sys.executable, *launcher, str(script)],
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
    one, two = (torch.load(tmp_path / name / STATE, weights_only=True) for name in ("one", "two"))
    # Gradients of all processes meet in the optimiser's moments: these are linear in them.
    first, second = (state["optimiser"]["state"] for state in (one, two))
    assert first.keys() == second.keys()
    for key in first:
        moment = "exp_avg" if "exp_avg" in first[key] else "momentum"
        torch.testing.assert_close(first[key][moment], second[key][moment], atol=1e-6, rtol=2e-3)
    # The work on matrices is shared, and both processes have all of it: not one stays where it was.
    for name, weights in two["network"].items():
        if name.endswith("weight") and weights.dim() > 1 and weights.shape[0] > 1:
            near = torch.cosine_similarity(weights.flatten(), one["network"][name].flatten(), dim=0)
            assert near > 0.99, name
    assert len((tmp_path / "two" / "valid.csv").read_text().splitlines()) == 2


def test_the_log_says_how_long_it_will_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1000.0
    monkeypatch.setattr("ink2tex.training.console.time.monotonic", lambda: now)
    console = Console()
    console.begin(100, 1100, None)
    for passed, step, left in ((60, 101, "16 h 39 min"), (3540, 600, "0 h 59 min"), (7200, 605, "1 h 58 min")):
        now = 1000.0 + passed
        console.step(step, 1.0, {"l2r": 0.5}, 1e-3, 12.0)
        assert capsys.readouterr().err.rstrip().endswith(f"{left} left")


# -- schedule, average, recipes ----------------------------------------------------------------------------------------


def test_the_papers_rate_halves_on_a_plateau_and_ends_the_run() -> None:
    rate = Rate(ScheduleSettings(patience=2, halvings=3), base=1.0)
    rates = []
    for wer in [50, 40, 41, 42, 39, 39, 39, 38.5, 50, 50]:
        rate.observe(wer)
        rates.append(rate.at(123))
    assert rates == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125]
    assert rate.ended(0)
    again = Rate(rate.settings, 1.0)
    again.restore(rate.state())
    assert again.at(5) == 0.125


def test_rates_over_time() -> None:
    hold = Rate(ScheduleSettings(kind="hold", warmup=10, steps=100, decay=50), base=2.0)
    assert [hold.at(s) for s in (0, 9, 30, 50)] == [0.2, 2.0, 2.0, 2.0]
    assert hold.at(75) == pytest.approx(2 * (1 - 0.5**0.5))
    assert hold.at(100) == 0
    assert hold.ended(100)
    assert not hold.ended(99)
    cosine = Rate(ScheduleSettings(kind="cosine", steps=100), base=1.0)
    assert [round(cosine.at(s), 6) for s in (0, 50, 100)] == [1, 0.5, 0]


def test_the_average_follows_weights_and_statistics() -> None:
    network = Network(tiny().network, Vocabulary())
    average = Averager(network, 0.75)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.no_grad():
        for value in network.state_dict().values():
            if value.is_floating_point():
                value.add_(1.0)
    average.update(network, step=1000)
    for name, value in average.network.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, before[name] + 0.25)


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "recipes").glob("*.yaml")))
def test_recipes_that_come_along_are_valid_and_survive_a_round_trip(name: str) -> None:
    recipe = read_recipe(ROOT / "recipes" / name)
    assert parse_recipe(yaml.safe_load(yaml.safe_dump(recipe.to_mapping())), name) == recipe


def test_a_recipe_says_only_what_differs_from_its_base(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "one.yaml").write_text("loss: {mutual: 0.25, cells: 0.5}\nbatch: {size: 7, small_first: [0.5, 0.7]}")
    (tmp_path / "more" / "two.yaml").write_text("base: ../one.yaml\nloss: {cells: 0.125}\nseed: 3")
    (tmp_path / "three.yaml").write_text("base: more/two.yaml\nbatch: {small_first: []}\nloss: {smoothing: 0.1}")
    expected = parse_recipe(
        {"loss": {"mutual": 0.25, "cells": 0.125, "smoothing": 0.1}, "batch": {"size": 7}, "seed": 3}, "test"
    )
    assert read_recipe(tmp_path / "three.yaml") == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base: 3", r"r\.yaml: 'base' is 3"),
        ("base: away.yaml", r"away\.yaml: there is no such file; it is the 'base' of .*r\.yaml"),
        ("base: r.yaml", "based on this very recipe"),
        ("base: around.yaml", "based on this very recipe"),
        ("base: wrong.yaml", r"wrong\.yaml: unknown key 'sed' \(did you mean 'seed'\?\)"),
        ("base: good.yaml\nloss: 3", r"r\.yaml: .*loss"),
    ],
)
def test_a_wrong_base_says_where_and_what(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    (tmp_path / "around.yaml").write_text("base: r.yaml")
    (tmp_path / "wrong.yaml").write_text("sed: 3")
    (tmp_path / "good.yaml").write_text("seed: 3")
    with pytest.raises(RecipeError, match=words) as caught:
        read_recipe(tmp_path / "r.yaml")
    assert "\n" not in str(caught.value)


def test_the_papers_recipe_is_the_papers() -> None:
    recipe = read_recipe(ROOT / "recipes" / "abm.yaml")
    assert recipe.network == Recipe().network
    assert recipe.network.decoder.attention.kernels == (5, 11)
    assert (recipe.optimiser.kind, recipe.optimiser.rate) == ("adadelta", 1.0)
    assert (recipe.schedule.patience, recipe.schedule.halvings) == (15, 10)
    assert (recipe.batch.size, recipe.loss.mutual) == (16, 0.5)
    assert recipe.augment.is_off


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("optimizer: {}", r"unknown key 'optimizer' \(did you mean 'optimiser'\?\)"),
        ("loss: {mutal: 0.5}", r"'loss\.mutal' \(did you mean 'mutual'\?\)"),
        ("loss: {mutual: lots}", r"'loss\.mutual' is 'lots', but must be a number"),
        ("schedule: {kind: cosine}", "needs 'steps'"),
        ("batch: [1, 2]", "expected keys and values"),
        ("network: {mode: both}", "must be one of 'l2r'"),
        ("a: [", "not a YAML file"),
    ],
)
def test_a_wrong_recipe_says_where_and_what(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(RecipeError, match=words) as caught:
        read_recipe(tmp_path / "r.yaml")
    assert "r.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)

"""A training run: a folder, a recipe, and a loop that survives being killed.

The run advances in legs of `save_every` steps. After each leg everything that the next one depends on is written
to `state.pt` (to a temporary file first, then renamed), so a kill at any moment loses at most one leg, and starting
the same command again goes on from there. Batches and dropout are functions of the position alone: a resumed run
computes what an uninterrupted one computes.

The folder holds `recipe.yaml`, `state.pt`, `best-*.safetensors` (averaged weights, by validation WER), `train.csv`,
`valid.csv`, TensorBoard files and, if the run began with other weights, those (`start.safetensors`).
"""

from __future__ import annotations

import logging
import os
import pickle
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import lightning
import torch
import torch.distributed
import yaml
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy

from ink2tex.data.batches import Batch, BatchMaker, Plan
from ink2tex.data.sample import Sample
from ink2tex.errors import CheckpointError, RecipeError
from ink2tex.metrics import Report, score
from ink2tex.model.checkpoint import load_checkpoint, save_checkpoint
from ink2tex.model.config import NetworkConfig
from ink2tex.model.network import Network
from ink2tex.training.console import Console
from ink2tex.training.evaluation import read_samples_with
from ink2tex.training.logs import Logs
from ink2tex.training.recipe import Recipe, parse_recipe
from ink2tex.training.system import System
from ink2tex.training.unfold import recovered, settle
from ink2tex.vocabulary import Vocabulary

STATE = "state.pt"
#: The network that a run began with, if it was another's: its weights and those of the end may be averaged.
START = "start.safetensors"
#: Batches whose statistics the norms of an exported model begin with.
_SETTLING = 16


class Legs:
    """The batches of one process, leg after leg, from a position (epoch, step within it)."""

    def __init__(self, maker: BatchMaker, process: int, length: int) -> None:
        self.maker = maker
        self.process = process
        self.length = length
        self.epoch = 0
        self.offset = 0
        self._plan: tuple[int, Plan] | None = None

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(self.length):
            plan = self._current()
            if self.offset >= len(plan):  # a recipe that has changed since the position was saved makes fewer steps
                self.epoch, self.offset = self.epoch + 1, 0
                plan = self._current()
            batch = self.maker.draw(plan, self.offset, self.process)
            self.offset += 1
            if self.offset == len(plan):
                self.epoch, self.offset = self.epoch + 1, 0
            yield batch

    def __len__(self) -> int:
        return self.length

    def _current(self) -> Plan:
        if self._plan is None or self._plan[0] != self.epoch:
            shared = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
            plan = self.maker.plan(self.epoch, self.process, _exchanged if shared else None)
            if not len(plan):
                raise RecipeError("no sample is left to train on: 'max_pixels' or 'max_tokens' leaves all of them out")
            self._plan = (self.epoch, plan)
        return self._plan[1]

    def first(self, count: int) -> Iterator[Batch]:
        """The first batches of the epoch under way, the same in all processes; the position stays."""
        plan = self._current()
        return (self.maker.draw(plan, step) for step in range(min(count, len(plan))))

    @property
    def epochs(self) -> float:
        """The position. Nothing is planned for it: processes plan together, but ask for this one by one."""
        return self.epoch + (self.offset / len(self._current()) if self.offset else 0.0)


def _exchanged(mine: list[Any]) -> list[list[Any]]:
    """Everybody's part, by process; all processes call this at the same time."""
    parts = [mine] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, mine)
    return parts


class Keeper(Callback):
    """Saves, validates, logs and ends the run, at the end of every leg."""

    def __init__(
        self, folder: Path, legs: Legs, valid: Sequence[Sample], console: Console, minutes: float | None
    ) -> None:
        self.folder = folder
        self.legs = legs
        self.valid = valid
        self.console = console
        self.minutes = minutes
        self.logs: Logs | None = None
        self.seconds = 0.0  # spent in earlier sittings
        self.images = 0
        self.validated_at = 0
        self.validated_epoch = 0
        self.best: list[tuple[float, str]] = []  # WER and file name, best first
        self._began = time.monotonic()
        self._mark = (time.monotonic(), 0)
        self._parts: list[dict[str, float]] = []  # of the leg under way

    # -- the course of a run -------------------------------------------------------------------------------------

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        system = _system(pl_module)
        path = self.folder / STATE
        if path.is_file():
            self._restore(system, trainer, path)
        if trainer.is_global_zero:
            self.logs = Logs(self.folder, system.step)
            self.console.begin(system.step, system.recipe.schedule.steps, self.minutes)
        self._began = time.monotonic()
        self._mark = (self._began, self.images)

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        system = _system(pl_module)
        self.images += len(batch.uids) * trainer.world_size
        elapsed = time.monotonic() - self._mark[0]
        speed = (self.images - self._mark[1]) / max(elapsed, 1e-6)
        self._parts.append(system.parts)
        if trainer.is_global_zero:
            self.console.step(system.step, self.legs.epochs, system.parts, system.rate.at(system.step), speed)

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        system = _system(pl_module)
        now = time.monotonic()
        speed = (self.images - self._mark[1]) / max(now - self._mark[0], 1e-6)
        if self.logs is not None:
            means = {name: fmean(parts[name] for parts in self._parts) for name in system.parts}
            values = {"epoch": round(self.legs.epochs, 3), **means, "rate": system.rate.at(system.step)}
            self.logs.add("train", system.step, {**values, "images_per_second": round(speed, 2)})
        self._parts.clear()
        # The clock of process 0 decides, or processes could disagree on what comes next.
        if trainer.world_size > 1:
            _average_statistics(system)
        ended = system.rate.ended(system.step) or trainer.strategy.broadcast(self._out_of_time())
        if self.valid and (self._validation_due(system) or (ended and self.validated_at != system.step)):
            self._validate(trainer, system)
            ended = ended or system.rate.ended(system.step)
        self._save(trainer, system)
        self._mark = (time.monotonic(), self.images)
        trainer.should_stop = trainer.should_stop or ended

    def _out_of_time(self) -> bool:
        return self.minutes is not None and time.monotonic() - self._began > 60 * self.minutes

    # -- validation ----------------------------------------------------------------------------------------------

    def _validation_due(self, system: System) -> bool:
        every = system.recipe.run.validate_every
        if every:
            return system.step - self.validated_at >= every
        return self.legs.epoch > self.validated_epoch

    def _validate(self, trainer: lightning.Trainer, system: System) -> None:
        report = self._read(trainer, system)
        self.validated_at, self.validated_epoch = system.step, self.legs.epoch
        system.rate.observe(report.wer)
        if not trainer.is_global_zero:
            return
        values = {
            "epoch": round(self.legs.epochs, 3),
            "hours": round(self._hours(), 4),
            "images": self.images,
            "wer": report.wer,
            "exprate": report.exprate,
            "le1": report.le1,
            "le2": report.le2,
        }
        if self.logs is not None:
            self.logs.add("valid", system.step, values)
        self.console.validated(system.step, values)
        name = f"best-{system.step:07d}.safetensors"
        best = sorted([*self.best, (report.wer, name)])[: system.recipe.run.keep]
        if any(kept == name for _, kept in best):
            save_checkpoint(system.validated, self.folder / name, {"step": system.step, **values})
        for _, old in set(self.best) - set(best):
            (self.folder / old).unlink(missing_ok=True)
        self.best = best

    def _read(self, trainer: lightning.Trainer, system: System) -> Report:
        """Greedy decoding by the network's first branch; processes share the samples."""
        mine = self.valid[trainer.global_rank :: trainer.world_size]
        was_training = system.network.training
        read = read_samples_with(system.validated, mine, decode=system.network.directions[0].value)
        system.network.train(was_training)
        if trainer.world_size > 1:
            gathered: list[dict[str, list[str]]] = [{} for _ in range(trainer.world_size)]
            torch.distributed.all_gather_object(gathered, read)
            read = {uid: tokens for part in gathered for uid, tokens in part.items()}
        return score(read, {sample.uid: sample.tokens for sample in self.valid})

    def _hours(self) -> float:
        return (self.seconds + time.monotonic() - self._began) / 3600

    # -- saving --------------------------------------------------------------------------------------------------

    def _save(self, trainer: lightning.Trainer, system: System) -> None:
        if not trainer.is_global_zero:
            return
        state = {
            "step": system.step,
            "epoch": self.legs.epoch,
            "offset": self.legs.offset,
            "network": system.network.state_dict(),
            "average": system.averager.network.state_dict() if system.averager is not None else {},
            "cells": system.cells.state_dict() if system.cells is not None else {},
            "optimiser": trainer.optimizers[0].state_dict(),
            "rate": system.rate.state(),
            "hours": self._hours(),
            "images": self.images,
            "validated": [self.validated_at, self.validated_epoch],
            "best": [[wer, name] for wer, name in self.best],
        }
        temporary = self.folder / (STATE + ".part")
        torch.save(state, temporary)
        os.replace(temporary, self.folder / STATE)

    def _restore(self, system: System, trainer: lightning.Trainer, path: Path) -> None:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise CheckpointError(
                f"{path}: the saved state of the run cannot be read ({reason}); move it away to start again, or start "
                "a new run from its best-*.safetensors with --from"
            ) from None
        system.network.load_state_dict(state["network"])
        if system.averager is not None:
            system.averager.network.load_state_dict(state["average"] or state["network"])
        if system.cells is not None and state["cells"]:
            system.cells.load_state_dict(state["cells"])
        optimiser = trainer.optimizers[0]
        decays = [group["weight_decay"] for group in optimiser.param_groups]
        with suppress(ValueError):  # the recipe names another optimiser now, as was announced; it begins anew
            optimiser.load_state_dict(state["optimiser"])
        for group, decay in zip(optimiser.param_groups, decays, strict=True):
            group["weight_decay"] = decay  # the recipe's of now: the state brings back the one it was saved under
        system.rate.restore(state["rate"])
        system.step = state["step"]
        self.legs.epoch, self.legs.offset = state["epoch"], state["offset"]
        self.seconds, self.images = state["hours"] * 3600, state["images"]
        self.validated_at, self.validated_epoch = state["validated"]
        self.best = [(wer, name) for wer, name in state["best"]]


def _system(module: lightning.LightningModule) -> System:
    assert isinstance(module, System)
    return module


@torch.no_grad()
def _average_statistics(system: System) -> None:
    """Give all processes the mean of their norms' statistics, which each gathered from its own batches."""
    networks = [system.network] + ([system.averager.network] if system.averager is not None else [])
    statistics = [b for network in networks for b in network.buffers() if b.is_floating_point()]
    flat = torch.cat([value.flatten() for value in statistics])
    torch.distributed.all_reduce(flat)
    parts = (flat / torch.distributed.get_world_size()).split([value.numel() for value in statistics])
    for value, part in zip(statistics, parts, strict=True):
        value.copy_(part.view_as(value))


class _Leg(torch.utils.data.IterableDataset):
    """The legs as Lightning takes them: a new iteration is a new leg."""

    def __init__(self, legs: Legs) -> None:
        self.legs = legs

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.legs)

    def __len__(self) -> int:
        return len(self.legs)


def train(
    recipe: Recipe,
    samples: Sequence[Sample],
    valid: Sequence[Sample],
    folder: str | Path,
    vocabulary: Vocabulary | None = None,
    start_from: str | Path | None = None,
    minutes: float | None = None,
) -> Network:
    """Train, or go on training, in `folder`; the network that validation reads with is returned.

    Under `torchrun` (or `ink2tex train --processes N`) every process calls this with the same arguments.
    """
    folder = Path(folder)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # no greetings, no advertisements
    process = int(os.environ.get("RANK", "0"))
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    vocabulary = vocabulary or Vocabulary()
    console = Console(quiet=process > 0)
    folder.mkdir(parents=True, exist_ok=True)
    _note_recipe(folder, recipe, console, process)
    lightning.seed_everything(recipe.seed, verbose=False)
    network = Network(recipe.network, vocabulary).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    maker = BatchMaker(
        samples, vocabulary, recipe.batch, recipe.augment, recipe.network.input_scale, recipe.seed, processes
    )
    legs = Legs(maker, process, recipe.run.save_every)
    if start_from is not None and not (folder / STATE).is_file():
        _start_from(network, Path(start_from))
        if Path(start_from).is_dir():  # its norms were folded away
            settle(network, legs.first(_SETTLING))
        if process == 0:
            save_checkpoint(network, folder / START, {"from": str(start_from)})
    system = System(network, recipe)
    keeper = Keeper(folder, legs, valid, console, minutes)
    loader = torch.utils.data.DataLoader(_Leg(legs), batch_size=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=local,
            num_nodes=max(1, processes // local),
            # Statistics of norms are averaged once a leg (`Keeper`), not broadcast at every step.
            strategy=DDPStrategy(broadcast_buffers=False, gradient_as_bucket_view=True) if processes > 1 else "auto",
            max_epochs=-1,
            gradient_clip_val=recipe.optimiser.clip or None,
            callbacks=[keeper],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
        )
        try:
            trainer.fit(system, loader)
        finally:
            console.end()
    return system.validated


def _note_recipe(folder: Path, recipe: Recipe, console: Console, process: int) -> None:
    """Keep the recipe with the run; a resumed run may change anything but the network's weights and what they mean."""
    path = folder / "recipe.yaml"
    if path.is_file() and (folder / STATE).is_file():
        before = parse_recipe(yaml.safe_load(path.read_text(encoding="utf-8")), str(path))
        changes = before.changes(recipe)
        if _weights(before.network) != _weights(recipe.network):
            wrong = [change for change in changes if change.startswith("network.")]
            raise RecipeError(
                f"{folder} holds a run of another network ({'; '.join(wrong)}); "
                "give another folder, or begin there with --from and a checkpoint"
            )
        for change in changes:
            console.say(f"the recipe has changed since the last sitting: {change}")
    if process == 0:
        path.write_text(yaml.safe_dump(recipe.to_mapping(), sort_keys=False), encoding="utf-8")


def _weights(network: NetworkConfig) -> NetworkConfig:
    """What decides which weights there are: all but the size of the pictures and how much is dropped in training."""
    encoder, decoder = replace(network.encoder, dropout=0.0), replace(network.decoder, dropout=0.0)
    return replace(network, input_scale=1.0, encoder=encoder, decoder=decoder)


def _start_from(network: Network, path: Path) -> None:
    """Take over every weight of the checkpoint or model folder at `path` that has the same name and shape.

    Where only the inputs are more than they were (behind a dense block that has got more layers), the new ones begin
    with zero, so that the larger network begins by computing what the smaller one computed.
    """
    other = recovered(path) if path.is_dir() else load_checkpoint(path)[0]
    if other.vocabulary != network.vocabulary:
        raise CheckpointError(f"{path}: has another vocabulary than the data; train from the start instead")
    own, theirs = network.state_dict(), other.state_dict()
    fitting = {}
    for name in own.keys() & theirs.keys():
        value, wanted = theirs[name], own[name].shape
        more = wanted[1] - value.shape[1] if value.dim() == len(wanted) > 1 else 0
        if more > 0 and wanted[0] == value.shape[0] and wanted[2:] == value.shape[2:]:
            value = torch.cat((value, value.new_zeros(wanted[0], more, *wanted[2:])), 1)
        if value.shape == wanted:
            fitting[name] = value
    if not fitting:
        raise CheckpointError(f"{path}: not a single weight fits the network of the recipe")
    network.load_state_dict(fitting, strict=False)

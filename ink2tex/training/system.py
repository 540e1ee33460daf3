"""The Lightning module: what one optimisation step does, and nothing about files.

Steps draw their randomness (dropout, token noise) from a generator seeded by the step itself, so a resumed run
repeats what an uninterrupted one would have done.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import lightning
import torch
import torch.distributed
from torch import Tensor, nn

from ink2tex.data.batches import Batch
from ink2tex.model import losses
from ink2tex.model.masking import widen
from ink2tex.model.network import Network
from ink2tex.training.evaluation import to_tensors
from ink2tex.training.muon import Muon
from ink2tex.training.recipe import Recipe, ScheduleSettings
from ink2tex.vocabulary import Direction


def has_matrix_unit() -> bool:
    """Whether this processor multiplies matrices in bfloat16 several times as fast as in 32 bits."""
    return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())


def sequences(tokens: Tensor, lengths: Tensor, direction: Direction) -> tuple[Tensor, Tensor]:
    """Inputs and targets (B, T + 1) of one direction for `tokens` (B, T) written left to right.

    Inputs begin with the direction's start mark; targets end with its end mark and are `IGNORE` behind it.
    """
    ordered = ordered_steps(tokens, lengths, direction)
    steps = torch.arange(tokens.shape[1] + 1)
    start = torch.full((len(tokens), 1), direction.start, dtype=torch.long)
    inputs = torch.cat((start, ordered), 1)
    targets = torch.cat((ordered, start), 1)  # one column longer; its content is overwritten
    targets = targets.masked_fill(steps == lengths[:, None], direction.end)
    return inputs, targets.masked_fill(steps > lengths[:, None], losses.IGNORE)


def ordered_steps(values: Tensor, lengths: Tensor, direction: Direction) -> Tensor:
    """`values` (B, T, …) in the order in which `direction` writes; each row reversed within its own length."""
    if direction is Direction.L2R:
        return values
    steps = torch.arange(values.shape[1])
    index = torch.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)  # (B, T)
    return values[torch.arange(len(values))[:, None], index]


class Averager:
    """A moving average of weights and buffers, which validates better than the weights themselves."""

    def __init__(self, network: Network, decay: float) -> None:
        self.decay = decay
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self._shadow = list(self.network.state_dict().values())

    @torch.no_grad()
    def update(self, network: Network, step: int) -> None:
        """Move towards the weights after `step` steps; in the beginning, faster."""
        decay = min(self.decay, (1 + step) / (10 + step))
        ours = [t for t in self._shadow if t.is_floating_point()]
        theirs = [t for t in network.state_dict().values() if t.is_floating_point()]
        torch._foreach_lerp_(ours, theirs, 1 - decay)


class Rate:
    """The learning rate over time; its state is all that plateau halving has to remember."""

    def __init__(self, settings: ScheduleSettings, base: float) -> None:
        self.settings = settings
        self.base = base
        self.best = math.inf
        self.waited = 0
        self.halved = 0

    def at(self, step: int) -> float:
        """The rate of step `step`, counted from zero."""
        s = self.settings
        rate = self.base * 0.5**self.halved
        if s.warmup and step < s.warmup:
            rate *= (step + 1) / s.warmup
        if s.kind == "cosine":
            rate *= 0.5 * (1 + math.cos(math.pi * min(1.0, step / s.steps)))
        elif s.decay and step > s.steps - s.decay:
            rate *= 1 - math.sqrt(min(1.0, (step - (s.steps - s.decay)) / s.decay))
        return rate

    def observe(self, wer: float) -> None:
        """Take note of a validation; halve the rate if it is one too many without progress."""
        if self.settings.kind != "plateau":
            return
        if wer < self.best:
            self.best, self.waited = wer, 0
            return
        self.waited += 1
        if self.waited >= self.settings.patience:
            self.halved, self.waited = self.halved + 1, 0

    def ended(self, step: int) -> bool:
        """Whether the run is over after `step` steps."""
        s = self.settings
        return bool(s.steps and step >= s.steps) or (s.kind == "plateau" and self.halved >= s.halvings)

    def state(self) -> dict[str, Any]:
        """What a resumed run needs."""
        return {"best": self.best, "waited": self.waited, "halved": self.halved}

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of `state`."""
        self.best, self.waited, self.halved = state["best"], state["waited"], state["halved"]


class System(lightning.LightningModule):
    """A network under training."""

    def __init__(self, network: Network, recipe: Recipe) -> None:
        super().__init__()
        self.network = network
        self.recipe = recipe
        self.rate = Rate(recipe.schedule, recipe.optimiser.rate)
        self.averager = Averager(network, recipe.optimiser.average) if recipe.optimiser.average else None
        #: Classifier of feature cells; supervision only, it does not ship.
        self.cells = (
            nn.Linear(int(network.encoder.outputs), len(network.vocabulary))  # type: ignore[arg-type]
            if recipe.loss.cells
            else None
        )
        #: Products in bfloat16; weights, norms, attention and states in 32 bits.
        self.in_bfloat16 = recipe.run.precision == "bfloat16" or (recipe.run.precision == "auto" and has_matrix_unit())
        self.step = 0
        self.parts: dict[str, float] = {}

    @property
    def validated(self) -> Network:
        """The network that validation reads with and that is saved: the average, if there is one."""
        return self.averager.network if self.averager is not None else self.network

    def configure_optimizers(self) -> torch.optim.Optimizer:
        settings = self.recipe.optimiser
        if settings.kind == "adadelta":
            return torch.optim.Adadelta(
                self.parameters(), lr=settings.rate, rho=0.95, eps=1e-8, weight_decay=settings.weight_decay
            )
        if settings.kind == "muon":
            dtype = torch.bfloat16 if self.in_bfloat16 else torch.float32
            return Muon(self, len(self.network.vocabulary), settings.rate, settings.weight_decay, dtype)
        decayed = [p for p in self.parameters() if p.requires_grad and p.dim() > 1]
        plain = [p for p in self.parameters() if p.requires_grad and p.dim() <= 1]
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=settings.rate, weight_decay=settings.weight_decay)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Batches are numpy arrays; `losses` makes tensors of them."""
        return batch

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        torch.manual_seed((self.recipe.seed * 1_000_003 + self.step) * 64 + self.global_rank)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = self.rate.at(self.step)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss, self.parts = self.losses(batch)
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self.step += 1
        if self.averager is not None:
            self.averager.update(self.network, self.step)

    def losses(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The loss of a batch and its parts, each a mean over the tokens of the batch.

        The loss is scaled so that, after processes have averaged their gradients, every token of the step has the
        same weight, however unevenly tokens are spread over the processes.
        """
        settings = self.recipe.loss
        images, mask = to_tensors(batch)
        tokens, lengths = torch.from_numpy(batch.tokens), torch.from_numpy(batch.lengths)
        directions = self.network.directions
        pairs = [sequences(tokens, lengths, direction) for direction in directions]
        inputs = [self._noisy(given, settings.token_noise) for given, _ in pairs]
        with torch.autocast("cpu", torch.bfloat16, enabled=self.in_bfloat16):
            features, decoded = self.network(images, mask, inputs)
            seen = features.detach() if self.step < settings.cells_alone else features
            cell_logits = self.cells(seen.flatten(2).transpose(1, 2)) if self.cells is not None else None
        names = [f"{d.value}{'' if directions.count(d) == 1 else i + 1}" for i, d in enumerate(directions)]
        parts = {
            name: losses.recognition(out.logits, targets, settings.smoothing)
            for name, out, (_, targets) in zip(names, decoded, pairs, strict=True)
        }
        total = torch.stack(list(parts.values())).sum()
        if len(decoded) == 2 and settings.mutual:
            parts["mutual"] = losses.mutual(
                decoded[0].logits,
                decoded[1].logits,
                lengths,
                settings.temperature,
                reverse=directions[0] is not directions[1],
            )
            total = total + settings.mutual * parts["mutual"]
        cells = torch.from_numpy(batch.cells)
        weight = self._attention_weight()
        if weight:
            nothing = cells.new_zeros(len(cells), 1, *cells.shape[2:])
            ink = [
                losses.attention_to_ink(out, torch.cat((ordered_steps(cells, lengths, direction), nothing), 1))
                for out, direction in zip(decoded, directions, strict=True)
            ]
            parts["attention"] = torch.stack(ink).sum()
            total = total + weight * parts["attention"]
        if cell_logits is not None:
            parts["cells"] = losses.symbols_of_cells(widen(cell_logits), tokens, cells)
            total = total + settings.cells * parts["cells"]
        count = float((lengths + 1).sum())
        means = {name: float(value.detach()) / count for name, value in parts.items()}
        # Batches know their share of the step, so that processes need not ask each other before every backward.
        processes = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        return total * (processes * batch.share / count), means

    def _attention_weight(self) -> float:
        first, last = self.recipe.loss.attention
        return first + (last - first) * min(1.0, self.step / max(1, self.recipe.loss.attention_steps))

    def _noisy(self, inputs: Tensor, share: float) -> Tensor:
        """Some input tokens, never the start mark, replaced by random symbols."""
        if not share:
            return inputs
        strangers = torch.randint(2, len(self.network.vocabulary), inputs.shape)
        hit = torch.rand(inputs.shape) < share
        hit[:, 0] = False
        return torch.where(hit, strangers, inputs)

"""Muon: momentum made orthogonal before it is applied, for the matrices of a network; AdamW for everything else.

A step along the raw momentum moves a matrix mostly in its few strongest directions. Muon (Jordan et al., 2024) takes
the nearest orthogonal matrix instead, so that all directions move equally. PyTorch's own takes matrices only; here
kernels of convolutions count as matrices of one row an output channel, the gates of a recurrent unit as matrices of
their own, and processes share the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

#: Coefficients of the quintic iteration that drives singular values towards 1 (Jordan et al.).
QUINTIC = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
MOMENTUM = 0.95


def orthogonal(matrix: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """About the nearest matrix with singular values near 1 (between 0.7 and 1.2), for `matrix` (…, m, n).

    The iteration corrects itself, so products in bfloat16 serve where they are faster (`dtype`).
    """
    a, b, c = QUINTIC
    tall = matrix.shape[-2] > matrix.shape[-1]
    x = matrix.mT if tall else matrix
    x = (x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)).to(dtype)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(matrix.dtype)


def groups_of(module: nn.Module, classes: int) -> list[dict[str, Any]]:
    """The parameters by how they are treated.

    Matrices between layers; those of recurrent cells, gate by gate; tables (embeddings and whatever ends in `classes`),
    which have a row for each symbol; vectors. The last two kinds are AdamW's.
    """
    cells = [cell for cell in module.modules() if hasattr(cell, "gates")]
    gates: dict[Tensor, int] = {}
    for cell in cells:
        gates.update((p, int(cell.gates)) for p in cell.parameters())  # type: ignore[arg-type]
    embedded: set[Tensor] = {p for one in module.modules() if isinstance(one, nn.Embedding) for p in one.parameters()}
    matrices: dict[int, list[Tensor]] = {n: [] for n in (1, *gates.values())}
    tables: list[Tensor] = []
    vectors: list[Tensor] = []
    for p in module.parameters():
        if p.dim() < 2 or 1 in (p.shape[0], p[0].numel()):
            vectors.append(p)
        elif p in embedded or p.shape[0] == classes:
            tables.append(p)
        else:
            matrices[gates.get(p, 1)].append(p)
    return [
        *({"params": matrices[n], "orthogonal": True, "gates": n} for n in sorted(matrices)),
        {"params": tables, "orthogonal": False, "gates": 1},
        {"params": vectors, "orthogonal": False, "gates": 1, "weight_decay": 0.0},
    ]


class Muon(torch.optim.AdamW):
    """AdamW whose groups with `orthogonal` follow the orthogonal momentum.

    Updates are scaled to the size that AdamW's have (root mean square 0.2), so that one rate serves both.
    """

    def __init__(
        self, module: nn.Module, classes: int, lr: float, weight_decay: float, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(groups_of(module, classes), lr=lr, weight_decay=weight_decay)
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of both kinds."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        everything = self.param_groups
        matrices = [group for group in everything if group["orthogonal"]]
        self._orthogonal_step([(group, p) for group in matrices for p in group["params"] if p.grad is not None])
        self.param_groups = [group for group in everything if not group["orthogonal"]]
        try:
            super().step()
        finally:
            self.param_groups = everything
        return loss

    def _orthogonal_step(self, tasks: list[tuple[dict[str, Any], Tensor]]) -> None:
        processes = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        process = torch.distributed.get_rank() if processes > 1 else 0
        owners = _shares([_cost(p, group["gates"]) for group, p in tasks], processes)
        directions = []
        for (group, p), owner in zip(tasks, owners, strict=True):
            assert p.grad is not None
            state = self.state[p]
            if not state:  # 'step' is unused, but AdamW wants to see one when it is restored
                state.update(step=torch.tensor(0.0), momentum=torch.zeros_like(p))
            momentum = state["momentum"].lerp_(p.grad, 1 - MOMENTUM)
            if owner == process:
                matrix = p.grad.lerp(momentum, MOMENTUM).flatten(1).unflatten(0, (group["gates"], -1))  # (G, m, n)
                directions.append(orthogonal(matrix, self.dtype).reshape(p.shape))
            else:
                directions.append(torch.zeros_like(p))
        if processes > 1 and directions:
            flat = torch.cat([d.flatten() for d in directions])
            torch.distributed.all_reduce(flat)
            directions = [
                part.view_as(p) for part, (_, p) in zip(flat.split([p.numel() for _, p in tasks]), tasks, strict=True)
            ]
        for (group, p), direction in zip(tasks, directions, strict=True):
            rows, columns = p.shape[0] // group["gates"], p[0].numel()
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.add_(direction, alpha=-group["lr"] * 0.2 * max(rows, columns) ** 0.5)


def _cost(p: Tensor, gates: int) -> int:
    """Multiplications of an iteration, about."""
    short, long = sorted((p.shape[0] // gates, p[0].numel()))
    return gates * short * short * (2 * long + short)


def _shares(costs: list[int], processes: int) -> list[int]:
    """The process that does each task: the dearest first, always to whoever has least to do."""
    load = [0] * processes
    owners = [0] * len(costs)
    for task in sorted(range(len(costs)), key=lambda i: -costs[i]):
        owners[task] = load.index(min(load))
        load[owners[task]] += costs[task]
    return owners

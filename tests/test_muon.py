"""The optimiser that makes momentum orthogonal, against singular value decompositions."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from ink2tex.model.decoders import GruCell
from ink2tex.training.muon import MOMENTUM, Muon, groups_of, orthogonal

CLASSES = 7


class Small(nn.Module):
    """One parameter of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 6)
        self.kernel = nn.Conv2d(4, 8, 3)
        self.cell = GruCell(6, 5, input_bias=True)
        self.output = nn.Linear(5, CLASSES)


def polar(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest orthogonal matrix, exactly."""
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    return u @ v


@pytest.fixture
def small() -> Small:
    torch.manual_seed(3)
    return Small()


@pytest.mark.parametrize("shape", [(5, 5), (4, 30), (30, 4), (3, 6, 20)])
def test_singular_values_come_near_one_and_vectors_stay(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    matrix = torch.randn(shape) * 1e-3
    made = orthogonal(matrix)
    values = torch.linalg.svdvals(made)
    assert values.min() > 0.6
    assert values.max() < 1.3
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    diagonal = u.mT @ made @ v.mT  # the same directions: nothing beside the diagonal
    assert (diagonal - torch.diag_embed(diagonal.diagonal(dim1=-2, dim2=-1))).abs().max() < 1e-4


def test_products_in_half_as_many_bits_are_as_orthogonal() -> None:
    torch.manual_seed(2)
    matrix = torch.randn(12, 40)
    exact, rough = orthogonal(matrix), orthogonal(matrix, torch.bfloat16)
    assert rough.dtype is torch.float32
    assert torch.linalg.svdvals(rough).min() > 0.6
    assert torch.linalg.svdvals(rough).max() < 1.3
    assert 0 < float((exact - rough).norm() / exact.norm()) < 0.05


def test_nothing_to_follow_is_no_step() -> None:
    assert orthogonal(torch.zeros(3, 5)).abs().max() == 0


def test_every_parameter_is_in_one_group(small: Small) -> None:
    matrices, gates, tables, vectors = groups_of(small, CLASSES)
    assert matrices["params"] == [small.kernel.weight]
    assert gates["params"] == [small.cell.input.weight, small.cell.hidden.weight]
    assert gates["gates"] == 3
    assert tables["params"] == [small.embedding.weight, small.output.weight]
    assert len(vectors["params"]) == 3
    assert vectors["weight_decay"] == 0


def with_gradients(module: Small, seed: int) -> Small:
    torch.manual_seed(seed)
    for p in module.parameters():
        p.grad = torch.randn_like(p)
    return module


def test_a_step_goes_along_the_orthogonal_momentum_gate_by_gate(small: Small) -> None:
    before = copy.deepcopy(small)
    optimiser = Muon(with_gradients(small, 1), CLASSES, lr=0.01, weight_decay=0.1)
    optimiser.step()
    for new, old, pieces in (
        (small.kernel.weight, before.kernel.weight, 1),
        (small.cell.input.weight, before.cell.input.weight, 3),
    ):
        assert new.grad is not None
        momentum = (1 - MOMENTUM) * new.grad
        direction = (1 - MOMENTUM) * new.grad + MOMENTUM * momentum
        moved = ((new - 0.999 * old) / -0.01).flatten(1)
        for got, wanted in zip(moved.chunk(pieces), direction.flatten(1).chunk(pieces), strict=True):
            exact = 0.2 * max(wanted.shape) ** 0.5 * polar(wanted)
            likeness = torch.cosine_similarity(got.flatten(), exact.flatten(), dim=0)
            assert likeness > 0.95
            assert 0.6 < got.norm() / exact.norm() < 1.3


def test_the_rest_is_adamw(small: Small) -> None:
    other = copy.deepcopy(small)
    Muon(with_gradients(small, 1), CLASSES, lr=0.01, weight_decay=0.1).step()
    with_gradients(other, 1)
    plain = [p for p in other.parameters() if p.dim() == 1]
    torch.optim.AdamW(plain, lr=0.01, weight_decay=0.0).step()
    torch.optim.AdamW([other.embedding.weight, other.output.weight], lr=0.01, weight_decay=0.1).step()
    for name in ("embedding.weight", "output.weight", "output.bias", "kernel.bias", "cell.input.bias"):
        torch.testing.assert_close(small.get_parameter(name), other.get_parameter(name))


def test_its_memory_survives_saving(small: Small) -> None:
    first = Muon(with_gradients(small, 1), CLASSES, lr=0.01, weight_decay=0.1)
    first.step()
    other = copy.deepcopy(small)
    second = Muon(other, CLASSES, lr=0.01, weight_decay=0.1)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    with_gradients(small, 2)
    with_gradients(other, 2)
    first.step()
    second.step()
    for ours, theirs in zip(small.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)

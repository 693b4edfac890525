"""Branches that training drops at random: every one is seen in some pass, or kept whole and reported."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ranp
from ranp.reporting.causes import by_cause
from ranp.scoring.passes import REDRAWS


class Dropped(nn.Module):
    """Two layers beside a shortcut; training drops them, by a factor of zero or by leaving them out."""

    def __init__(self, kind: str, rate: float) -> None:
        super().__init__()
        self.kind, self.rate = kind, rate
        self.inside, self.out = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch, or not."""
        if self.training and self.kind == "left out" and random.random() < self.rate:
            return x
        out = self.out(F.relu(self.inside(x)))
        if self.training and self.kind == "factor":
            out = out * x.new_empty(len(x), 1, 1, 1).bernoulli_(1 - self.rate) / max(1 - self.rate, 0.5)
        return x + out


def network(kind: str, rate: float) -> nn.Module:
    torch.manual_seed(0)
    branches = [Dropped(kind, rate) for _ in range(3)]
    return nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), *branches, nn.Conv2d(8, 3, 1))


BATCHES = [(torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(0)), torch.zeros(1, 3, 6, 6))]


@pytest.mark.parametrize("kind", ["factor", "left out"])
def test_every_branch_is_seen_in_some_pass(kind: str) -> None:
    net = network(kind, 0.4)
    found = [ranp.score(net, BATCHES, F.mse_loss, seed=seed) for seed in range(8)]
    assert not any(scores.excluded for scores in found)
    assert {scores.batches for scores in found} > {1}  # most of them need more than the one pass
    again = ranp.score(net, BATCHES, F.mse_loss, seed=3)
    assert all(torch.equal(again[name], found[3][name]) for name in again)


@pytest.mark.parametrize("kind", ["factor", "left out"])
def test_a_branch_that_never_runs_is_kept_whole_in_the_end(kind: str) -> None:
    scores = ranp.score(network(kind, 1.0), BATCHES, F.mse_loss)
    assert set(scores.excluded) == {f"{at}.{layer}" for at in (2, 3, 4) for layer in ("inside", "out")}
    assert scores.batches == 1 + REDRAWS


def test_nothing_is_run_again_where_nothing_is_drawn() -> None:
    net = network("none", 0.0)
    with torch.no_grad():
        net[3].inside.bias.fill_(-1e6)
    scores = ranp.score(net, BATCHES, F.mse_loss)
    assert set(scores.excluded) == {"3.inside", "3.out"}
    assert scores.batches == 1


@pytest.mark.parametrize("kind", ["factor", "left out"])
def test_what_is_coupled_with_a_dropped_branch_can_go(kind: str) -> None:
    net = network(kind, 0.4)
    for seed in range(4):
        pruned = ranp.prune(net, BATCHES, F.mse_loss, sparsity=0.5, exact=True, seed=seed)
        assert pruned.verification.ok
        assert by_cause(pruned.report.pins) == {"output": 3}

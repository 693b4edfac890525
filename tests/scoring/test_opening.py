"""Branches that begin at zero: scored as if their gate were small, prunable, and at zero in the slim network."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ranp
from tests.support.oracles import assert_untouched, snapshot


class Branch(nn.Module):
    """Two layers beside a shortcut, behind something that begins at zero."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.inside, self.out, self.norm = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 8, 1), nn.BatchNorm2d(8)
        self.alpha = nn.Parameter(torch.zeros(1) if kind == "rezero" else torch.ones(1))
        zero = {"norm": self.norm.weight, "layer": self.out.weight}.get(kind)
        if zero is not None:
            nn.init.zeros_(zero)
        if kind == "layer":
            nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch."""
        out = self.out(F.relu(self.inside(x)))
        return x + self.alpha * (out if self.kind == "layer" else self.norm(out))


def network(kind: str) -> nn.Module:
    """Two such branches between a stem and a head."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), Branch(kind), Branch(kind), nn.Conv2d(8, 3, 1))


KINDS = ("rezero", "norm", "layer")
BATCHES = [(torch.randn(2, 2, 6, 6, generator=torch.Generator().manual_seed(0)), torch.zeros(2, 3, 6, 6))]
ZERO: dict[str, Callable[[nn.Module], Tensor]] = {
    "rezero": lambda net: net[2].alpha,
    "norm": lambda net: net[2].norm.weight,
    "layer": lambda net: net[2].out.weight,
}


@pytest.mark.parametrize("kind", KINDS)
def test_layers_behind_a_zero_have_scores_and_the_network_is_left_alone(kind: str) -> None:
    net = network(kind)
    before = snapshot(net)
    scores = ranp.score(net, BATCHES, F.mse_loss)
    assert not scores.excluded
    assert all(bool(scores[name].any()) for name in scores)
    assert_untouched(before, net)


@pytest.mark.parametrize("kind", KINDS)
def test_the_slim_network_begins_at_zero_too(kind: str) -> None:
    net = network(kind)
    pruned = ranp.prune(net, BATCHES, F.mse_loss, sparsity=0.5, exact=True)
    assert pruned.verification.ok
    assert pruned.plan.widths["2.inside"] < 16
    assert pruned.plan.widths["0"] < 8
    assert not ZERO[kind](pruned.model).any()


def test_a_batch_that_can_be_read_once_is_enough() -> None:
    again = ranp.score(network("norm"), iter(BATCHES * 2), F.mse_loss)
    assert again.batches == 2
    assert not again.excluded


def test_ordinary_networks_are_scored_as_ever() -> None:
    net = network("")
    one = ranp.score(net, BATCHES, F.mse_loss)
    nn.init.zeros_(net[2].inside.bias)
    nn.init.zeros_(net[2].norm.bias)
    assert not one.excluded
    assert not ranp.score(net, BATCHES, F.mse_loss).excluded


def test_a_network_that_begins_at_zero_altogether_is_scored() -> None:
    net = network("layer")
    nn.init.zeros_(net[4].weight)
    assert not ranp.score(net, BATCHES, F.mse_loss).excluded

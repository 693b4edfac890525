from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import ranp
from ranp.errors import PlanMismatchError
from ranp.slimming.pairing import share_weights


def network(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(2, width, 3),
        nn.BatchNorm3d(width),
        nn.ReLU(),
        nn.ConvTranspose3d(width, width, 2),
        nn.Conv3d(width, 3, 1),
    )


def test_the_first_channels_are_taken_and_rescaled_to_the_inputs() -> None:
    full, slim = network(8), network(4)
    nn.init.normal_(full[1].running_mean)
    share_weights(slim, full)
    assert torch.equal(slim[0].weight, full[0].weight[:4])  # it has as many inputs as before
    assert torch.equal(slim[1].running_mean, full[1].running_mean[:4])
    assert torch.allclose(slim[3].weight, math.sqrt(2) * full[3].weight[:4, :4])
    assert torch.allclose(slim[3].bias, math.sqrt(2) * full[3].bias[:4])
    assert torch.allclose(slim[4].weight, math.sqrt(2) * full[4].weight[:, :4])


def test_the_size_of_activations_is_kept() -> None:
    torch.manual_seed(0)
    full = nn.Sequential(nn.Conv3d(4, 256, 3, padding=1), nn.ReLU(), nn.Conv3d(256, 256, 3, padding=1))
    x = torch.randn(1, 4, 6, 6, 6)
    pruned = ranp.prune(full, [(x, torch.tensor(0.0))], lambda y, _: y.square().mean(), sparsity=0.75)
    share_weights(pruned.model, full)
    with torch.no_grad():
        assert pruned.model(x).std().item() == pytest.approx(full(x).std().item(), rel=0.1)


def test_another_network_is_refused() -> None:
    with pytest.raises(PlanMismatchError, match="does not come from this full network"):
        share_weights(network(9), network(8))
    with pytest.raises(PlanMismatchError, match="does not come from"):
        share_weights(nn.Sequential(nn.Linear(2, 2)), network(8))

"""The measurement itself: known allocations, an untouched model."""

from __future__ import annotations

import pytest
import torch

from ranp.costs.memory import measured_peak
from ranp.costs.memory.measuring import allocated_peak, allocations
from ranp.costs.step import TrainingStep
from ranp.errors import UnsupportedError
from tests.support.training_networks import network


def test_adds_up_what_lives_together() -> None:
    def run() -> torch.Tensor:
        first = torch.empty(1000)
        second = torch.empty(500)
        del first
        third = torch.empty(300)
        return second[:1] + third[:1]

    assert allocated_peak(run) == 1500 * 4
    assert list(allocations(run))[:4] == [4000, 2000, -4000, 1200]


def test_counts_what_exists_before_the_step() -> None:
    model = torch.nn.Linear(1000, 1, bias=False)
    x = torch.randn(1, 1000)
    peak = measured_peak(model, x, step=TrainingStep(optimiser="adam"))
    kept = 4 * (1000 * (1 + 1 + 2 + 1))  # weight, input, two moments, gradient; then Adam's two temporaries
    assert kept + 4000 <= peak <= kept + 2 * 4000 + 500


def test_leaves_the_model_alone() -> None:
    model, x = network("unet")
    model.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    drawn = torch.get_rng_state()
    measured_peak(model, x, step=TrainingStep(checkpointing=True))
    assert not model.training
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state())


def test_needs_data() -> None:
    model, x = network("unet")
    with pytest.raises(UnsupportedError, match="meta"):
        measured_peak(model.to("meta"), x)

"""Costs of a training step by layer: everything that is kept is somebody's, and the right one's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ranp
from ranp.costs.layers import kept_by_layer
from ranp.costs.measuring import measure
from ranp.costs.quantities import needs_loss
from ranp.costs.step import StepSetup, TrainingStep, trace_step


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.Conv3d(4, 6, 3, padding=1), nn.Conv3d(6, 2, 1)
    )


INPUTS = torch.zeros(2, 1, 4, 4, 4)


def test_what_each_layer_keeps_by_hand() -> None:
    model = network()
    kept = kept_by_layer(ranp.trace(model, INPUTS), trace_step(model, INPUTS, step=TrainingStep(optimiser="adam")))
    voxels = 2 * 4**3 * 4
    # the first output for the norm, the norm's statistics, the norm's output that ReLU keeps or ReLU's own
    copies = 4  # parameter, gradient, two moments of Adam
    assert kept["4"] >= copies * (2 * 6 + 2) * 4
    assert kept["3"] == pytest.approx(copies * (6 * 4 * 27 + 6) * 4 + 6 * voxels, rel=0.01)
    assert kept["0"] >= copies * (4 * 27 + 4) * 4 + 2 * 4 * voxels


def test_the_step_of_a_resource_is_traced_once_and_only_if_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    trace, setup = ranp.trace(model, INPUTS), StepSetup(model, INPUTS)
    made: list[nn.Module] = []
    honest = StepSetup.trace
    monkeypatch.setattr(StepSetup, "trace", lambda self, one, **how: made.append(one) or honest(self, one, **how))
    flops = measure(trace, "flops", setup=setup)
    assert not made
    costs, again = (measure(trace, ["flops", "train-memory"], setup=setup) for _ in range(2))
    assert made == [model]
    assert dict(costs) == dict(again)
    kept = kept_by_layer(trace, setup.full())
    for name, cost in costs.items():
        assert cost == pytest.approx((flops[name] / max(flops.values()) + kept[name] / max(kept.values())) / 2)
    assert needs_loss(["flops", "time"])
    assert not any(map(needs_loss, ("flops", "latency", None, lambda trace: {})))

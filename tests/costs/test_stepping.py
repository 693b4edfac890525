"""Costs of a training step by layer: everything that is kept is somebody's, and the right one's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ranp
from ranp.costs.measuring import measure
from ranp.costs.step import Rehearsal, TrainingStep, rehearse
from ranp.costs.stepping import kept_by_layer, needs_step, with_step


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.Conv3d(4, 6, 3, padding=1), nn.Conv3d(6, 2, 1)
    )


INPUTS = torch.zeros(2, 1, 4, 4, 4)


def test_what_each_layer_keeps_by_hand() -> None:
    model = network()
    kept = kept_by_layer(ranp.trace(model, INPUTS), rehearse(model, INPUTS, step=TrainingStep(optimiser="adam")))
    voxels = 2 * 4**3 * 4
    # the first output for the norm, the norm's statistics, the norm's output that ReLU keeps or ReLU's own
    copies = 4  # parameter, gradient, two moments of Adam
    assert kept["4"] >= copies * (2 * 6 + 2) * 4
    assert kept["3"] == pytest.approx(copies * (6 * 4 * 27 + 6) * 4 + 6 * voxels, rel=0.01)
    assert kept["0"] >= copies * (4 * 27 + 4) * 4 + 2 * 4 * voxels


def test_names_become_functions_only_where_they_are_needed() -> None:
    model = network()
    trace = ranp.trace(model, INPUTS)
    made: list[Rehearsal] = []

    def rehearsed() -> Rehearsal:
        made.append(rehearse(model, INPUTS))
        return made[-1]

    assert with_step("flops", rehearsed) == "flops"
    assert not made
    several = with_step(["flops", "train-memory"], rehearsed)
    costs, again = measure(trace, several), measure(trace, several)
    assert len(made) == 1
    assert dict(costs) == dict(again)
    flops, kept = measure(trace, "flops"), kept_by_layer(trace, made[0])
    for name, cost in costs.items():
        assert cost == pytest.approx((flops[name] / max(flops.values()) + kept[name] / max(kept.values())) / 2)
    assert needs_step(["flops", "time"])
    assert not needs_step("flops")
    assert not needs_step(None)
    assert not needs_step(lambda trace: {})

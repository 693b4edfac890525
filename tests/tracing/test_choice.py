"""A choice of channels: every form of it says the same, and a plan of another network is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import ranp
from ranp.errors import PlanMismatchError
from ranp.tracing.choice import Choice
from tests.support.oracles import random_plan
from tests.support.random_networks import Program, programs


@dataclass
class Decided:
    kept: dict[str, tuple[int, ...]]
    channels: dict[str, int]


def small() -> tuple[nn.Module, ranp.Trace]:
    model = nn.Sequential(nn.Conv3d(1, 4, 3), nn.BatchNorm3d(4), nn.Conv3d(4, 3, 1), nn.Conv3d(3, 2, 1))
    return model, ranp.trace(model, torch.zeros(2, 1, 5, 5, 5))


@settings(max_examples=20, derandomize=True, suppress_health_check=list(HealthCheck), deadline=None)
@given(programs(), st.sampled_from([0.2, 0.6, 0.99]), st.integers(0, 1000))
def test_a_plan_and_its_choice_say_the_same(program: Program, sparsity: float, seed: int) -> None:
    torch.manual_seed(seed)
    model, inputs = program.build(), program.inputs()
    trace = ranp.trace(model, inputs)
    plan = random_plan(trace, np.random.default_rng(seed), sparsity)
    choice = Choice.of_plan(trace, plan)
    assert choice.kept == plan.kept
    assert choice.removed == plan.sparsity.removed
    assert choice.cuts == {name: {d: (c.size, c.keep) for d, c in dims.items()} for name, dims in plan.cuts.items()}
    shapes = [tuple(parameter.shape) for parameter in choice.cut(model).parameters()]
    assert shapes == [tuple(parameter.shape) for parameter in ranp.slim(model, plan).parameters()]


def test_everything_stays_or_some_classes_go() -> None:
    _, trace = small()
    full = Choice.everything(trace)
    assert full.kept == {"0": (0, 1, 2, 3), "2": (0, 1, 2), "3": (0, 1)}
    assert (full.removed, full.cuts, full.gone.tolist()) == (0, {}, [])
    less = full.without(trace.layer("0").classes[[0, 2]])
    assert less.kept["0"] == (1, 3)
    assert less.gone.tolist() == sorted(trace.layer("0").classes[[0, 2]].tolist())
    assert less.over(trace.layer("0").classes).tolist() == [False, True, False, True]
    assert less.indices["1.running_mean"] == {0: (1, 3)}
    assert full.removed == 0


@pytest.mark.parametrize(
    ("kept", "channels", "message"),
    [
        ({"0": (0,)}, {"0": 4}, "layer '2' is not in the plan"),
        ({"0": (0,), "2": (0, 1, 2), "3": (0, 1)}, {"0": 5, "2": 3, "3": 2}, "layer '0' has 4 channels, the plan was"),
        ({"0": (0,), "2": (0, 1, 2), "3": (0,)}, {"0": 4, "2": 3, "3": 2}, "removes channels that this network needs"),
    ],
)
def test_decisions_about_another_network_are_refused(
    kept: dict[str, tuple[int, ...]], channels: dict[str, int], message: str
) -> None:
    with pytest.raises(PlanMismatchError, match=message):
        Choice.of_plan(small()[1], Decided(kept, channels))


def test_a_layer_that_stays_whole_may_have_any_size() -> None:
    _, trace = small()
    choice = Choice.of_plan(trace, Decided({"0": (0, 3), "2": tuple(range(9)), "3": (0,)}, {"0": 4, "2": 9, "3": 1}))
    assert choice.kept == {"0": (0, 3), "2": (0, 1, 2), "3": (0, 1)}

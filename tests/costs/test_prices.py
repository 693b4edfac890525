"""What a slim network will cost is what the slim network costs; ``test_topologies`` asks the same of every topology."""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import ranp
from ranp.costs.measuring import profile_of
from ranp.costs.prices import Prices
from ranp.tracing.choice import Choice
from tests.support.oracles import assert_priced, random_plan
from tests.support.random_networks import Program, programs


@settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck), deadline=None)
@given(programs(), st.sampled_from([0.2, 0.6, 0.99]), st.integers(0, 1000))
def test_random_networks(program: Program, sparsity: float, seed: int) -> None:
    torch.manual_seed(seed)
    model, inputs = program.build(), program.inputs()
    trace = ranp.trace(model, inputs)
    assert_priced(model, inputs, trace, random_plan(trace, np.random.default_rng(seed), sparsity))


def test_the_full_network_costs_what_its_trace_tells() -> None:
    model = nn.Sequential(
        nn.Conv3d(2, 6, 3, groups=2), nn.BatchNorm3d(6), nn.ReLU(), nn.ConvTranspose3d(6, 4, 2, groups=2), nn.Softmax(1)
    )
    trace = ranp.trace(model, torch.zeros(3, 2, 5, 5, 5))
    bill, full = Prices(trace).at(Choice.everything(trace)), profile_of(trace)
    assert (bill.flops, bill.macs, bill.memory) == (full.flops, full.macs, full.memory)
    assert bill.params == sum(map(prod, trace.parameters.values()))

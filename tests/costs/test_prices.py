"""What a slim network will cost is what the slim network costs; ``test_topologies`` asks the same of every topology."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import ranp
from benchmarks.judges import torch_flops
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
    everything = Choice.everything(trace)
    bill, full = Prices(trace, "paper").at(everything), profile_of(trace, convention="paper")
    assert (bill.flops, bill.macs, bill.memory) == (full.flops, full.macs, full.memory)
    assert bill.params == sum(map(prod, trace.parameters.values()))
    assert Prices(trace).at(everything).flops == torch_flops(model, torch.zeros(3, 2, 5, 5, 5))


class Attention(nn.Module):
    """Two products of matrices per head, and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(6, 12), nn.Linear(6, 12), nn.Linear(6, 24), nn.Linear(24, 10))
        self.last = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (make(x).view(batch, tokens, 3, -1).transpose(1, 2) for make in (self.q, self.k, self.v))
        mixed = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.last(self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1)))


@pytest.mark.parametrize("sparsity", [0.2, 0.5, 0.8])
def test_every_product_of_attention_is_priced_as_torch_counts_it(sparsity: float) -> None:
    model, inputs = Attention(), torch.randn(2, 7, 6)
    trace = ranp.trace(model, inputs)
    plan = random_plan(trace, np.random.default_rng(0), sparsity, scope="layer")
    assert plan.widths["v"] < 24
    assert Prices(trace).at(Choice.of_plan(trace, plan)).flops == torch_flops(ranp.slim(model, plan), inputs)

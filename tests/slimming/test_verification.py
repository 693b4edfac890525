"""The guard itself: what it accepts, what it refuses, and what it says when it cannot look."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import ranp
from ranp.choosing.plan import ChannelClasses, Cut
from ranp.slimming.verification import check
from ranp.tracing.tracer import Tracer
from tests.support.oracles import random_scores


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.Dropout3d(), nn.Conv3d(8, 8, 3, padding=1),
        nn.GroupNorm(2, 8), nn.PReLU(8), nn.Conv3d(8, 2, 1),
    )  # fmt: skip


X = torch.randn(1, 1, 5, 5, 5, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def case() -> tuple[nn.Sequential, ranp.Plan]:
    torch.manual_seed(0)
    model = network()
    trace = ranp.trace(model, X)
    return model, ranp.select(random_scores(trace, np.random.default_rng(0)), trace, sparsity=0.5)


def test_a_right_network_passes_both_checks(case) -> None:
    found = ranp.verify(*case, X)
    assert (found.ok, found.certificate, found.numeric, found.where) == (True, True, True, "")
    assert 0 <= found.max_error < 1e-9


def test_the_check_needs_no_data_in_model_or_example(case) -> None:
    _, plan = case
    with torch.device("meta"):
        model = network()
    found = ranp.verify(model, plan, X.to("meta"))
    assert found.ok
    assert found.numeric
    assert found.max_error < 1e-9


def test_trained_weights_are_told_from_copied_ones(case) -> None:
    model, plan = case
    slim = ranp.slim(model, plan)
    assert ranp.verify(model, plan, X, slim=slim).ok
    with torch.no_grad():
        slim[4].weight.mul_(1.01)
    found = ranp.verify(model, plan, X, slim=slim)
    assert not found.ok
    assert found.certificate
    assert "'4.weight' does not hold the kept weights" in found.where


def test_a_cut_that_misses_its_channels_is_named(case) -> None:
    model, plan = case
    cut = plan.cuts["1.running_var"][0]
    other = next(i for i in range(cut.size) if i not in cut.keep)
    wrong = Cut(cut.size, tuple(sorted([*cut.keep[1:], other])))
    cuts = {**plan.cuts, "1.running_var": {0: wrong}}
    found = ranp.verify(model, replace(plan, cuts=cuts, classes=ChannelClasses()), X)
    assert not found.ok
    assert not found.certificate
    assert "'1.running_var'" in found.where


def test_another_number_of_norm_groups_shows_in_the_numbers_alone(case) -> None:
    model, plan = case
    slim = ranp.slim(model, plan)
    slim[5].num_groups = 1
    found = ranp.verify(model, plan, X, slim=slim)
    assert (found.ok, found.certificate, found.numeric) == (False, True, False)
    assert found.max_error > 1e-6


def test_a_network_of_another_shape_is_refused(case) -> None:
    model, plan = case
    found = ranp.verify(model, plan, X, slim=network())
    assert not found.ok
    assert "has shape" in found.where


def test_a_large_network_is_compared_at_a_smaller_size(case) -> None:
    model, plan = case
    tracer = Tracer(model, torch.randn(2, 1, 24, 24, 24))
    tracer.start()
    found = check(tracer, plan, budget=sum(op.flops for op in tracer.ops.values()) / 20)
    assert found.ok
    assert found.max_error < 1e-9
    assert "smaller size [(1, 1, 6, 6, 6)]" in found.where


def test_the_global_random_state_and_the_model_are_left_alone(case) -> None:
    model, plan = case
    state, before = torch.get_rng_state(), {k: v.clone() for k, v in model.state_dict().items()}
    ranp.verify(model, plan, X)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_slim_with_an_example_refuses_a_plan_whose_cuts_disagree(case) -> None:
    """Without classes nothing in the plan itself tells; the network does."""
    model, plan = case
    assert isinstance(ranp.slim(model, plan, example=X), nn.Sequential)
    for name, dims in plan.cuts.items():
        for dim, cut in dims.items():
            other = next(i for i in range(cut.size) if i not in cut.keep)
            wrong = Cut(cut.size, tuple(sorted([*cut.keep[1:], other])))
            cuts = {**plan.cuts, name: {**dims, dim: wrong}}
            edited = replace(plan, cuts=cuts, classes=ChannelClasses())
            with pytest.raises(ranp.PlanMismatchError, match=r"does not fit the network: .*plan\.edited"):
                ranp.slim(model, edited, example=X)


class Halves(nn.Module):
    """The first half of some channels through a depthwise convolution with two outputs for each."""

    def __init__(self, transposed: bool) -> None:
        super().__init__()
        kind = nn.ConvTranspose3d if transposed else nn.Conv3d
        self.first, self.each, self.last = nn.Conv3d(1, 6, 1), kind(3, 6, 1, groups=3), nn.Conv3d(6, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.last(self.each(x.split(x.shape[1] // 2, 1)[0]))


@pytest.mark.parametrize("transposed", [False, True])
def test_a_depthwise_convolution_with_a_single_group_left_is_right(transposed: bool) -> None:
    torch.manual_seed(0)
    model, x = Halves(transposed), torch.randn(2, 1, 4, 4, 4)
    trace = ranp.trace(model, x)
    scores = ranp.Scores({layer.name: torch.arange(1.0, 1 + layer.channels) for layer in trace.layers})
    plan = ranp.select(scores, trace, sparsity=0.6, exact=True)
    assert plan.widths == {"first": 2, "each": 2, "last": 2}
    found = ranp.verify(model, plan, x)
    assert found.ok, found
    with torch.no_grad():  # by hand: the one group that is left
        kept = model.first(x)[:, plan.kept["first"][:1]]
        group = plan.kept["first"][0]
        weight, bias = (t[2 * group : 2 * group + 2] for t in (model.each.weight, model.each.bias))
        if transposed:
            weight = model.each.weight[group : group + 1].transpose(0, 1)
        each = nn.functional.conv3d(kept, weight, bias)
        wanted = nn.functional.conv3d(each, model.last.weight[:, 2 * group : 2 * group + 2], model.last.bias)
        assert torch.allclose(ranp.slim(model, plan)(x), wanted, atol=1e-6)

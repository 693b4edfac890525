"""Inputs of grouped convolutions that are numbered through all groups: cut group by group, or refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ranp
from ranp.choosing.plan import Cut, Plan
from ranp.errors import PlanMismatchError
from ranp.tracing.cutting import cut_copy, cut_tensor
from tests.support.oracles import random_scores
from tests.support.topologies import TOPOLOGIES


def test_each_group_keeps_inputs_of_its_own() -> None:
    weight = torch.randn(6, 4, 3)
    cut = cut_tensor(weight, {0: [0, 2, 3, 5], 1: [0, 3, 5, 6]})
    assert torch.equal(cut[:2], weight[[0, 2]][:, [0, 3]])
    assert torch.equal(cut[2:], weight[[3, 5]][:, [1, 2]])


def test_groups_that_keep_unequal_counts_are_refused() -> None:
    with pytest.raises(PlanMismatchError, match=r"keep \[1, 2\] inputs"):
        cut_tensor(torch.randn(6, 4, 3), {1: [0, 5, 6]})


def traced() -> tuple[nn.Module, Tensor, ranp.Trace]:
    topology = TOPOLOGIES["shuffle_across_groups"]
    torch.manual_seed(0)
    model, example = topology.build(), topology.inputs()
    return model, example, ranp.trace(model, example)


def test_inputs_are_numbered_through_only_where_a_shuffle_ties_them() -> None:
    _, _, trace = traced()
    assert len(trace.dims["expand.weight", 1]) == 24
    plain = nn.Sequential(nn.Conv2d(2, 12, 1), nn.Conv2d(12, 12, 1, groups=3), nn.Conv2d(12, 2, 1))
    assert len(ranp.trace(plain, torch.zeros(1, 2, 3, 3)).dims["1.weight", 1]) == 4


def test_a_weight_that_something_else_reads_keeps_its_own_numbers() -> None:
    model, example, _ = traced()
    model.expand.weight.requires_grad_(False)
    forward = model.forward
    model.forward = lambda x: forward(x) + model.expand.weight.sum()
    trace = ranp.trace(model, example)
    assert ("expand.weight", 1) not in trace.dims or len(trace.dims["expand.weight", 1]) == 8


def test_a_plan_is_read_again_and_one_that_disagrees_is_refused() -> None:
    model, example, trace = traced()
    plan = ranp.select(random_scores(trace, np.random.default_rng(0)), trace, sparsity=0.4, exact=True)
    cut = plan.cuts["expand.weight"][1]
    assert cut.size == 24
    assert Plan.from_json(plan.to_json()) == plan
    assert ranp.verify(model, plan, example).ok
    other = Cut(24, tuple(index for index in range(24) if index not in cut.keep))
    cuts = {**plan.cuts, "expand.weight": {**plan.cuts["expand.weight"], 1: other}}
    with pytest.raises(PlanMismatchError, match=r"stand or fall together"):
        Plan(plan.kept, plan.channels, cuts, plan.sparsity, classes=plan.classes)
    assert not ranp.verify(model, Plan(plan.kept, plan.channels, cuts, plan.sparsity), example).ok


@pytest.mark.parametrize("kept", [(0, 1, 2), (0, 1, 8, 9)])
def test_a_plan_that_forgets_a_group_is_refused(kept: tuple[int, ...]) -> None:
    model, _, trace = traced()
    plan = ranp.select(random_scores(trace, np.random.default_rng(0)), trace, sparsity=0.0)
    cuts = {"expand.weight": {1: Cut(24, kept)}}
    with pytest.raises(PlanMismatchError, match=r"groups of 'expand.weight' keep \[\d, \d, 0\] inputs"):
        ranp.slim(model, Plan(plan.kept, plan.channels, cuts, plan.sparsity))


def test_a_plan_that_names_the_inputs_of_all_groups_once_still_fits() -> None:
    model, example, trace = traced()
    plan = ranp.select(random_scores(trace, np.random.default_rng(0)), trace, sparsity=0.0)
    kept, cuts = dict(plan.kept), dict(plan.cuts)
    for name in ("stem", "expand", "again"):  # as earlier releases coupled them: the same places in every group
        kept[name] = (0, 1, 4, 5, 8, 9)
        cuts[f"{name}.weight"] = {0: Cut(12, kept[name])}
        cuts[f"{name}.bias"] = {0: Cut(12, kept[name])}
    for name in ("reduce", "inside"):
        cuts[f"{name}.weight"] = {1: Cut(4, (0, 1))}
    cuts["head.weight"] = {1: Cut(12, kept["stem"])}
    old = Plan(kept, plan.channels, cuts, plan.sparsity)
    assert ranp.verify(model, old, example).ok


def test_a_linear_weight_of_another_size_is_not_taken_for_a_grouped_one() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 4))
    with pytest.raises((IndexError, RuntimeError, PlanMismatchError)):
        cut_copy(model, {"1.weight": {1: (0, 9)}}, meta=False)


def test_a_sum_over_groups_counts_what_each_input_is_read_by() -> None:
    model, example, trace = traced()
    batches = [(example, None)]
    scores = ranp.score(model, batches, lambda output, _: output.square().mean(), trace=trace, criterion="mpmg-group")
    assert all(torch.isfinite(scores[layer.name]).all() for layer in trace.layers)
    assert len({round(float(value), 12) for value in scores["reduce"]}) == len(np.unique(trace.layers[1].classes))

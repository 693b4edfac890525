"""The widest network within every budget: never above, nothing more fits, and what is impossible is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import ranp
from ranp.choosing.budgets.budget import parse_all
from ranp.choosing.budgets.metering import CheckedMeter, counting_meter
from ranp.choosing.budgets.ranking import Steps, families_of
from ranp.choosing.budgets.solving import FULL, Limit, Solution, limits_of, longest, solve
from ranp.choosing.coupling import ALWAYS
from ranp.choosing.selection import Selection
from ranp.costs.step import StepSetup
from ranp.errors import InfeasibleError
from ranp.tracing.choice import Choice
from tests.support.oracles import random_scores
from tests.support.random_networks import Program, programs

COUNTED = ("flops", "macs", "params", "memory")
calm = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


class Bench:
    """A network with random scores, ready to be solved."""

    def __init__(
        self, model: nn.Module, inputs: object, *, scope: str = "network", seed: int = 0, **options: int
    ) -> None:
        self.model, self.inputs = model, inputs
        self.trace = ranp.trace(model, inputs)
        scores = random_scores(self.trace, np.random.default_rng(seed))
        self.selection = Selection.of(scores, self.trace, scope=scope, **options)  # type: ignore[arg-type]
        self.setup = StepSetup(model, inputs)

    def limits(self, *budgets: str) -> tuple[Limit, ...]:
        return limits_of(parse_all(budgets), self.meters(*budgets), self.selection.coupling.size)

    def meters(self, *budgets: str) -> list[CheckedMeter]:
        return [counting_meter(budget.quantity, self.setup, self.trace) for budget in parse_all(budgets)]

    def solved(self, *budgets: str) -> Solution:
        return solve(self.selection, self.meters(*budgets), self.limits(*budgets))

    def slim_costs(self, solution: Solution, *names: str) -> list[int]:
        """From the slim network itself, profiled."""
        slim = ranp.slim(self.model, self.selection.build(solution.stays))
        figures = ranp.profile(slim, self.inputs, convention="paper")
        params = sum(parameter.numel() for parameter in slim.parameters())
        return [params if name == "params" else getattr(figures, name) for name in names]


def unet_like() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 12, 3, padding=1), nn.BatchNorm3d(12), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(12, 24, 3, padding=1), nn.BatchNorm3d(24), nn.ReLU(),
        nn.ConvTranspose3d(24, 16, 2, stride=2), nn.ReLU(), nn.Conv3d(16, 3, 1),
    )  # fmt: skip


INPUTS = torch.zeros(1, 1, 8, 8, 8)


@pytest.mark.parametrize("share", [90, 50, 20, 5])
@pytest.mark.parametrize("names", [("flops",), ("macs",), ("params",), ("memory",), ("flops", "params", "memory")])
def test_met_by_the_slim_network_and_nothing_more_fits(share: int, names: tuple[str, ...]) -> None:
    bench = Bench(unet_like(), INPUTS)
    budgets = [f"{name}={share}%" for name in names]
    try:
        solution = bench.solved(*budgets)
    except InfeasibleError:
        assert ("memory" in names, share) == (True, 5)
        return
    limits = bench.limits(*budgets)
    costs = bench.slim_costs(solution, *names)
    assert costs == list(solution.after)
    assert all(cost <= limit.most for cost, limit in zip(costs, limits, strict=True))
    assert_nothing_more_fits(bench, solution, limits)


def assert_nothing_more_fits(bench: Bench, solution: Solution, limits: tuple[Limit, ...]) -> None:
    """Either a budget is used up, or every family's next step would exceed one."""
    used = max(figure / limit.most for figure, limit in zip(solution.after, limits, strict=True))
    if used >= FULL or bench.selection.fixed is None:
        return
    found = bench.selection.fixed[1].kept
    steps = Steps.of_needs(found, families_of(bench.selection.coupling), ALWAYS)
    left: dict[int, int] = {}
    for step in range(len(steps)):
        if not solution.stays[steps.of(step)].all():
            left.setdefault(int(steps.families[step]), step)
    for step in left.values():
        grown = solution.stays.copy()
        grown[steps.of(step)] = True
        bill = {meter.quantity.name: meter(grown) for meter in bench.meters(*(limit.budget.text for limit in limits))}
        assert any(bill[limit.budget.resource] > limit.most for limit in limits)


def test_it_begins_with_the_longest_beginning_of_the_ranking_that_fits() -> None:
    bench = Bench(unet_like(), INPUTS)
    (limit,) = bench.limits("flops=30%")
    solution = bench.solved("flops=30%")
    plans = [bench.selection.plan(k / 200, exact=True) for k in range(200) if k / 200 < bench.selection.max_share()]
    fitting = [
        plan
        for plan in plans
        if ranp.profile(ranp.slim(bench.model, plan), INPUTS, convention="paper").flops <= limit.most
    ]
    widest = bench.selection.build(solution.stays)
    best = min(fitting, key=lambda plan: plan.sparsity.removed)
    assert all(set(best.kept[name]) <= set(widest.kept[name]) for name in best.kept)


def test_an_impossible_budget_tells_the_smallest_that_is_possible_and_that_is_met() -> None:
    bench = Bench(unet_like(), INPUTS)
    with pytest.raises(InfeasibleError) as refusal:
        bench.solved("memory=0.1%", "flops=0.01%")
    possible = re.findall(r"((?:memory|flops)=\d+) \(([\d.]+%)", str(refusal.value))
    assert len(possible) == 2
    exact = bench.solved(*(text for text, _ in possible))
    shares = bench.solved(*(f"{text.split('=')[0]}={share}" for text, share in possible))
    assert exact.after == shares.after
    assert bench.slim_costs(exact, "memory", "flops") == [int(text.split("=")[1]) for text, _ in possible]
    with pytest.raises(InfeasibleError):
        bench.solved(f"memory={int(exact.after[0]) - 1}")


@pytest.mark.parametrize("scope", ["network", "layer", "random"])
@pytest.mark.parametrize("options", [{}, {"round_to": 8}, {"min_channels": 3}, {"round_to": 4, "min_channels": 5}])
def test_rounded_widths_and_other_scopes_hold_the_budget_too(scope: str, options: dict[str, int]) -> None:
    bench = Bench(unet_like(), INPUTS, scope=scope, **options)
    solution = bench.solved("flops=40%")
    (limit,) = bench.limits("flops=40%")
    assert bench.slim_costs(solution, "flops")[0] == solution.after[0] <= limit.most
    assert_nothing_more_fits(bench, solution, (limit,))
    widths = bench.selection.build(solution.stays).widths
    channels = {layer.name: layer.channels for layer in bench.trace.layers}
    for name, width in widths.items():
        assert width == channels[name] or width % options.get("round_to", 1) == 0
        assert width >= min(options.get("min_channels", 1), channels[name])


def test_coarse_widths_say_what_stands_in_the_way() -> None:
    solution = Bench(unet_like(), INPUTS, round_to=12).solved("flops=52%")
    assert re.fullmatch(
        r"the smallest step up, \d+ channels of '\d', would need 1\d\d\.\d% of flops=52%", solution.note
    )


def test_a_budget_of_everything_removes_nothing() -> None:
    bench = Bench(unet_like(), INPUTS)
    assert bench.solved("flops=100%").stays.all()


def test_the_same_twice() -> None:
    one, other = (Bench(unet_like(), INPUTS).solved("flops=20%", "params=30%") for _ in range(2))
    assert np.array_equal(one.stays, other.stays)


@settings(max_examples=40, derandomize=True, suppress_health_check=calm, deadline=None)
@given(
    programs(),
    st.sampled_from(["network", "layer", "random"]),
    st.lists(st.sampled_from(COUNTED), min_size=1, max_size=3, unique=True),
    st.sampled_from([70, 30, 10]),
    st.sampled_from([1, 1, 4]),
    st.integers(0, 100),
)
def test_random_networks(program: Program, scope: str, names: list[str], share: int, round_to: int, seed: int) -> None:
    torch.manual_seed(seed)
    bench = Bench(program.build(), program.inputs(), scope=scope, seed=seed, round_to=round_to)
    budgets = [f"{name}={share}%" for name in names]
    try:
        solution = bench.solved(*budgets)
    except InfeasibleError:
        smallest = bench.solved(*(f"{name}=100%" for name in names))
        assert smallest.stays.all()
        return
    limits = bench.limits(*budgets)
    costs = bench.slim_costs(solution, *names)
    assert costs == list(solution.after)
    assert all(cost <= limit.most for cost, limit in zip(costs, limits, strict=True))
    assert_nothing_more_fits(bench, solution, limits)


@given(st.integers(0, 300), st.integers(0, 300))
def test_longest(size: int, last: int) -> None:
    asked = []

    def holds(count: int) -> bool:
        asked.append(count)
        assert 0 < count <= size
        return count <= last

    assert longest(size, holds) == min(size, last)
    assert len(asked) <= 20


def test_what_is_cut_is_what_the_plan_keeps() -> None:
    bench = Bench(unet_like(), INPUTS)
    solution = bench.solved("flops=20%")
    shapes = [tuple(p.shape) for p in Choice(bench.trace, solution.stays).cut(bench.model).parameters()]
    slim = ranp.slim(bench.model, bench.selection.build(solution.stays))
    assert shapes == [tuple(p.shape) for p in slim.parameters()]

"""The widest network within every budget: never above, nothing more fits, and what is impossible is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

import ranp
from benchmarks.judges import parameters_of, saved_bytes, torch_flops
from ranp.choosing.budgets.budget import parse_all
from ranp.choosing.budgets.metering import CheckedMeter, meters_for
from ranp.choosing.budgets.ranking import Steps, families_of
from ranp.choosing.budgets.solving import FULL, Limit, Solution, limits_of, longest, solve
from ranp.choosing.coupling import ALWAYS
from ranp.choosing.selection import Selection
from ranp.costs.step import StepSetup
from ranp.errors import InfeasibleError
from ranp.tracing.choice import Choice
from tests.support.oracles import random_scores
from tests.support.random_networks import Node, Program, programs

COUNTED = ("flops", "macs", "params", "memory")
calm = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


class Bench:
    """A network with random scores, ready to be solved."""

    def __init__(
        self,
        model: nn.Module,
        inputs: object,
        *,
        scope: str = "network",
        seed: int = 0,
        convention: str = "true",
        **options: int,
    ) -> None:
        self.model, self.inputs = model, inputs
        self.trace = ranp.trace(model, inputs)
        scores = random_scores(self.trace, np.random.default_rng(seed))
        self.selection = Selection.of(scores, self.trace, scope=scope, **options)  # type: ignore[arg-type]
        self.setup = StepSetup(model, inputs)
        self.convention = convention

    def limits(self, *budgets: str) -> tuple[Limit, ...]:
        return limits_of(parse_all(budgets), self.meters(*budgets), self.selection.coupling.size)

    def meters(self, *budgets: str) -> list[CheckedMeter]:
        quantities = [budget.quantity for budget in parse_all(budgets)]
        return meters_for(quantities, self.setup, self.selection, convention=self.convention)

    def solved(self, *budgets: str) -> Solution:
        return solve(self.selection, self.meters(*budgets), self.limits(*budgets))

    def slim_costs(self, solution: Solution, *names: str) -> list[int]:
        """From the slim network itself, by torch's own count or profiled."""
        slim = ranp.slim(self.model, self.selection.build(solution.stays))
        if self.convention == "true":
            flops = torch_flops(slim, self.inputs)
            known = {"flops": flops, "macs": flops // 2, "memory": saved_bytes(slim, self.inputs)}
        else:
            figures = ranp.profile(slim, self.inputs, convention=self.convention)
            known = {"flops": figures.flops, "macs": figures.macs, "memory": figures.memory_bytes}
        return [{**known, "params": parameters_of(slim)}[name] for name in names]


def unet_like() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 12, 3, padding=1), nn.BatchNorm3d(12), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(12, 24, 3, padding=1), nn.BatchNorm3d(24), nn.ReLU(),
        nn.ConvTranspose3d(24, 16, 2, stride=2), nn.ReLU(), nn.Conv3d(16, 3, 1),
    )  # fmt: skip


INPUTS = torch.zeros(1, 1, 8, 8, 8)


@pytest.mark.parametrize("convention", ["true", "paper"])
@pytest.mark.parametrize("share", [90, 50, 20, 5])
@pytest.mark.parametrize("names", [("flops",), ("macs",), ("params",), ("memory",), ("flops", "params", "memory")])
def test_met_by_the_slim_network_and_nothing_more_fits(share: int, names: tuple[str, ...], convention: str) -> None:
    bench = Bench(unet_like(), INPUTS, convention=convention)
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


def test_it_begins_with_the_longest_beginning_of_the_ranking_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranp.choosing.budgets.solving._EXCHANGES", 0)
    bench = Bench(unet_like(), INPUTS)
    (limit,) = bench.limits("flops=30%")
    solution = bench.solved("flops=30%")
    plans = [bench.selection.plan(k / 200, exact=True) for k in range(200) if k / 200 < bench.selection.max_share()]
    fitting = [plan for plan in plans if torch_flops(ranp.slim(bench.model, plan), INPUTS) <= limit.most]
    widest = bench.selection.build(solution.stays)
    best = min(fitting, key=lambda plan: plan.sparsity.removed)
    assert all(set(best.kept[name]) <= set(widest.kept[name]) for name in best.kept)


def test_an_impossible_budget_tells_the_smallest_that_is_possible_and_that_is_met() -> None:
    bench = Bench(unet_like(), INPUTS)
    with pytest.raises(InfeasibleError) as refusal:
        bench.solved("memory=0.1%", "flops=0.01%")
    possible = re.findall(r"((?:memory|flops)=\d+B?) \(([\d.]+%)", str(refusal.value))
    assert len(possible) == 2
    exact = bench.solved(*(text for text, _ in possible))
    shares = bench.solved(*(f"{text.split('=')[0]}={share}" for text, share in possible))
    assert exact.after == shares.after
    assert bench.slim_costs(exact, "memory", "flops") == [int(text.split("=")[1].rstrip("B")) for text, _ in possible]
    with pytest.raises(InfeasibleError):
        bench.solved(f"memory={int(exact.after[0]) - 1}B")


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
    solution = Bench(unet_like(), INPUTS, round_to=12).solved("flops=65%")
    assert re.fullmatch(
        r"the smallest step up, \d+ channels of '\d', would need 1\d\d\.\d% of flops=65%", solution.note
    )


def test_a_budget_of_everything_removes_nothing() -> None:
    bench = Bench(unet_like(), INPUTS)
    assert bench.solved("flops=100%").stays.all()


def test_the_same_twice() -> None:
    one, other = (Bench(unet_like(), INPUTS).solved("flops=20%", "params=30%") for _ in range(2))
    assert np.array_equal(one.stays, other.stays)


drawn = given(
    programs(),
    st.sampled_from(["network", "layer", "random"]),
    st.lists(st.sampled_from(COUNTED), min_size=1, max_size=3, unique=True),
    st.sampled_from([70, 30, 10]),
    st.sampled_from([1, 1, 4]),
    st.integers(0, 100),
)
calmly = settings(suppress_health_check=calm, deadline=None)


def solve_random(program: Program, scope: str, names: list[str], share: int, round_to: int, seed: int) -> None:
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


POINT, CUBE = ((size, False, 1, "none", 1, "none") for size in (1, 3))
BRANCHES = Program(
    dims=3,
    in_channels=2,
    nodes=(Node("conv", (0,), 5, POINT), Node("conv", (1,), 2, CUBE), Node("conv", (1,), 10, POINT)),
    heads=((3,),),
    pooled=False,
)
"""Here an exchange leaves room for a single step, and the next one would take a little more than there is."""


@settings(calmly, max_examples=15, derandomize=True)
@example(BRANCHES, "network", ["flops"], 70, 1, 0)
@drawn
def test_random_networks(program: Program, scope: str, names: list[str], share: int, round_to: int, seed: int) -> None:
    solve_random(program, scope, names, share, round_to, seed)


@pytest.mark.slow
@settings(calmly, max_examples=150)
@drawn
def test_new_random_networks(
    program: Program, scope: str, names: list[str], share: int, round_to: int, seed: int
) -> None:
    solve_random(program, scope, names, share, round_to, seed)


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


class Steep(nn.Module):
    """A layer whose channels are dear, beside one whose channels are cheap."""

    def __init__(self) -> None:
        super().__init__()
        self.dear, self.mix = nn.Conv3d(1, 6, 5, padding=2), nn.Conv3d(6, 6, 3, padding=1)
        self.cheap, self.last = nn.Conv3d(6, 40, 1), nn.Conv3d(40, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.cheap(self.mix(self.dear(x))))


@pytest.mark.parametrize("share", [15, 25, 40, 60, 80])
@pytest.mark.parametrize("scope", ["network", "layer"])
def test_exchanges_use_what_single_steps_leave(share: int, scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(Steep(), INPUTS, scope=scope, seed=share)
    (limit,) = bench.limits(f"flops={share}%")
    after = bench.solved(f"flops={share}%")
    monkeypatch.setattr("ranp.choosing.budgets.solving._EXCHANGES", 0)
    before = bench.solved(f"flops={share}%")
    assert bench.slim_costs(after, "flops")[0] == after.after[0] <= limit.most
    assert before.after[0] <= after.after[0] >= 0.98 * limit.most
    best = best_pair(bench, after, limit)
    assert best <= after.after[0] or after.after[0] >= FULL * limit.most
    channels = bench.selection.build(after.stays).widths
    assert min(channels.values()) >= 1


def best_pair(bench: Bench, solution: Solution, limit: Limit) -> int:
    """The most FLOPs within the limit that any exchange of one channel of one layer for one of another gives."""
    widths, best = bench.selection.build(solution.stays).widths, 0
    names = [name for name in widths if name != "last"]
    for up in names:
        for down in names:
            wanted = {**widths, up: widths[up] + 1, down: widths[down] - 1}
            if up != down and wanted[up] <= bench.trace.layer(up).channels and wanted[down] >= 1:
                flops = by_hand(wanted)
                best = max(best, flops if flops <= limit.most else 0)
    return best


def by_hand(widths: dict[str, int]) -> int:
    """FLOPs of ``Steep`` with other widths."""
    dear, mix, cheap = widths["dear"], widths["mix"], widths["cheap"]
    return 2 * 8**3 * (125 * dear + 27 * dear * mix + mix * cheap + 2 * cheap)

"""Widths by a formula: as flat as they can be, the optimum of a geometric program, above a floor, budgets used up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ranp
from benchmarks.judges import torch_flops
from ranp.choosing.budgets import QUANTITIES, Budget, Limit, budget_lines, limits_of, parse_all, plan_within
from ranp.choosing.budgets.metering import meters_for
from ranp.choosing.budgets.planning import _priced_by_flops
from ranp.choosing.budgets.shaping import beginning, priced
from ranp.choosing.budgets.solving import Scale, smallest
from ranp.choosing.methods import METHODS, Method
from ranp.choosing.plan import Plan
from ranp.choosing.selection import Selection
from ranp.choosing.widths import ALPHA, is_dense, worths
from ranp.costs.step import StepSetup
from ranp.errors import InfeasibleError, UnsupportedError
from ranp.options import Options
from ranp.paper.models import build
from ranp.scoring.scores import Scores
from ranp.tracing.trace import Trace
from tests.support.oracles import random_scores


class Residual(nn.Module):
    """Blocks whose outputs are added, at two resolutions; a dense output."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 24, 3, padding=1), nn.Conv2d(24, 40, 2, stride=2)
        self.high = nn.ModuleList(_block(24, 32) for _ in range(2))
        self.low = nn.ModuleList(_block(40, 48) for _ in range(3))
        self.up, self.head = nn.ConvTranspose2d(40, 24, 2, stride=2), nn.Conv2d(48, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.high:
            x = x + block(x)
        y = self.down(x)
        for block in self.low:
            y = y + block(y)
        return self.head(torch.cat([x, self.up(y)], 1))


def _block(width: int, inner: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(width, inner, 3, padding=1), nn.ReLU(), nn.Conv2d(inner, width, 3, padding=1))


class Mobile(nn.Module):
    """A classifier with depthwise layers."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, stride=2, padding=1)]
        for before, width, stride in ((16, 24, 2), (24, 40, 1), (40, 64, 2), (64, 96, 1)):
            layers += [
                nn.Conv2d(before, 4 * before, 1), nn.BatchNorm2d(4 * before), nn.ReLU(),
                nn.Conv2d(4 * before, 4 * before, 3, stride=stride, padding=1, groups=4 * before), nn.ReLU(),
                nn.Conv2d(4 * before, width, 1),
            ]  # fmt: skip
        self.body, self.head = nn.Sequential(*layers), nn.Linear(96, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


def chain() -> nn.Module:
    widths = (1, 24, 32, 48, 64, 48, 32)
    layers = [nn.Conv3d(i, o, 3, padding=1) for i, o in pairwise(widths)]
    return nn.Sequential(*layers[:2], nn.MaxPool3d(2), *layers[2:], nn.Conv3d(32, 3, 1))


def unet() -> nn.Module:
    return build("unet3d-shapenet", widths=(16, 32, 64), classes=4)


NETWORKS = {"unet": unet, "residual": Residual, "mobile": Mobile, "chain": chain}
SIZES = {"unet": (1, 1, 16, 16, 16), "residual": (1, 3, 16, 16), "mobile": (1, 3, 32, 32), "chain": (1, 1, 8, 8, 8)}
BUDGETS = (["flops=30%"], ["params=25%", "memory=60%"])


class Bench:
    """A network, and its scores by criterion."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        self.model, self.example = NETWORKS[name](), torch.randn(SIZES[name])
        self.trace = ranp.trace(self.model, self.example)
        self.setup = StepSetup(self.model, self.example)

    @cache  # noqa: B019 -- benches live as long as the tests
    def scores(self, criterion: str) -> Scores:
        def loss(output: Tensor, _target: Any) -> Tensor:
            return output.square().mean()

        return ranp.score(self.model, [(self.example, None)], loss, trace=self.trace, criterion=criterion)

    def plan(self, budget: Sequence[str], method: str | Method, **options: Any) -> Plan:
        chosen = Options(method=method, budget=budget, **options)
        how = chosen.how
        scores = self.scores("snip" if how.criterion == "snip" else "magnitude")
        selection = chosen.selection(how.weigh(scores, how.costs(self.trace)), self.trace)
        return plan_within(selection, chosen.budgets, self.setup, floor=chosen.floor)


@cache
def bench(name: str) -> Bench:
    return Bench(name)


def used(plan: Plan) -> float:
    return max(entry["after"] / entry["limit"] for entry in plan.settings["budget"])


def free(trace: Trace) -> dict[str, int]:
    return {layer.name: layer.channels for layer in trace.layers if not layer.pinned}


@pytest.mark.parametrize("budget", BUDGETS, ids="+".join)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_uses_the_budget_and_keeps_four_channels(method: str, name: str, budget: list[str]) -> None:
    plan = bench(name).plan(budget, method)
    assert 0.995 <= used(plan) <= 1
    assert plan.settings["floor"] == plan.settings["min_channels"] == 4
    assert min(plan.widths[layer] for layer in free(bench(name).trace)) >= 4


@pytest.mark.parametrize("share", [50, 20, 8])
def test_flat_is_flat_as_far_as_layers_are_that_wide(share: int) -> None:
    plan = bench("unet").plan([f"flops={share}%"], "flat")
    full = free(bench("unet").trace)
    open_ended = {plan.widths[name] for name in full if plan.widths[name] < full[name]}
    assert max(open_ended) - min(open_ended) <= 1
    assert all(full[name] <= max(open_ended) for name in full if plan.widths[name] == full[name])
    assert used(plan) >= 0.995


def test_power_is_the_root_of_the_full_widths() -> None:
    plan = bench("unet").plan(["flops=10%"], "power")
    ratios = {name: plan.widths[name] / width**0.5 for name, width in free(bench("unet").trace).items()}
    middle = float(np.median(list(ratios.values())))
    for name, width in free(bench("unet").trace).items():
        assert abs(plan.widths[name] - middle * width**0.5) <= 1.5


@pytest.mark.parametrize("scope", ["flat", "power"])
def test_with_a_sparsity_they_remove_no_more_than_that(scope: str) -> None:
    trace = bench("unet").trace
    scores = random_scores(trace, np.random.default_rng(0))
    plan = ranp.select(scores, trace, sparsity=0.6, scope=scope)
    assert 0.6 * trace.channels - len(trace.layers) <= plan.sparsity.removed <= 0.6 * trace.channels + 1
    if scope == "flat":
        assert len({plan.widths[name] for name, full in free(trace).items() if plan.widths[name] < full}) == 1
    most = ranp.max_sparsity(scores, trace, scope=scope)
    assert min(ranp.select(scores, trace, sparsity=most, scope=scope).widths.values()) >= 1


def test_balanced_needs_a_budget() -> None:
    with pytest.raises(UnsupportedError, match=r"method='balanced' needs a budget.*budget='flops=5%'"):
        Options(method="balanced", sparsity=0.5)
    trace = bench("chain").trace
    with pytest.raises(UnsupportedError, match="scope 'balanced' needs a budget"):
        ranp.select(random_scores(trace, np.random.default_rng(0)), trace, sparsity=0.5, scope="balanced")


# ---------------------------------------------------------------- the geometric program


def two_layers(classes: int = 3) -> nn.Module:
    """A layer at full and one at half resolution; the output is dense."""
    return nn.Sequential(
        nn.Conv2d(2, 64, 3, padding=1, bias=False), nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, padding=1, bias=False),
        nn.Upsample(scale_factor=2), nn.Conv2d(64, classes, 1, bias=False),
    )  # fmt: skip


def planned(model: nn.Module, example: Tensor, budget: Sequence[str], **options: Any) -> tuple[Plan, Trace]:
    trace = ranp.trace(model, example)
    chosen = Options(method="balanced", budget=budget, **options)
    selection = chosen.selection(random_scores(trace, np.random.default_rng(0)), trace)
    return plan_within(selection, chosen.budgets, StepSetup(model, example), floor=chosen.floor), trace


def begun(model: nn.Module, example: Tensor, budget: Sequence[str]) -> Mapping[str, int]:
    """The widths before single channels are added to use the budget."""
    trace, setup, budgets = ranp.trace(model, example), StepSetup(model, example), parse_all(budget)
    selection = Selection.of(random_scores(trace, np.random.default_rng(0)), trace, scope="balanced")
    meters = meters_for([one.quantity for one in budgets], setup, selection)
    scale, least = Scale(meters, limits_of(budgets, meters, selection.coupling.size)), smallest(selection)
    return selection.build(beginning(priced(selection, least, scale), least, scale)).widths


@pytest.mark.parametrize("budget", [["flops=20%"], ["flops=3%"], ["params=10%"], ["flops=12%", "params=8%"]], ids=str)
def test_balanced_is_the_optimum_of_two_layers_by_brute_force(budget: list[str]) -> None:
    plan, trace = planned(two_layers(), torch.zeros(1, 2, 16, 16), budget, min_channels=1)
    worth = worths(trace)
    assert (worth["0"], worth["2"]) == (1.0, 0.5)  # a quarter of the voxels
    counts = {"flops": (2 * 9 * 256, 9 * 64, 3 * 256), "params": (2 * 9, 9, 3)}

    def share(first: Any, second: Any) -> Any:
        """Of the budget that is used most, counted by hand."""
        found = []
        for one in parse_all(budget):
            into, between, out = counts[one.resource]
            cost, full = (into * a + between * a * b + out * b for a, b in ((first, second), (64, 64)))
            found.append(cost / full / (one.share or 1))
        return np.max(found, axis=0)

    widths = np.linspace(1, 64, 64 * 16)
    first, second = np.meshgrid(widths, widths, indexing="ij")
    objective = worth["0"] * first ** (1 - ALPHA) + worth["2"] * second ** (1 - ALPHA)
    best = np.unravel_index(np.argmin(np.where(share(first, second) <= 1, objective, np.inf)), objective.shape)
    slim = plan.widths["0"], plan.widths["2"]
    assert share(*slim) == pytest.approx(used(plan))
    for width, wanted in zip(slim, widths[list(best)], strict=True):
        assert abs(width - wanted) <= 1.5 + wanted / 4
    exact = begun(two_layers(), torch.zeros(1, 2, 16, 16), budget)
    for width, wanted in zip((exact["0"], exact["2"]), widths[list(best)], strict=True):
        assert wanted - 1.5 <= width <= wanted + 1


def test_balanced_by_its_closed_form() -> None:
    """Layers that do not feed each other: w_l^ALPHA is in proportion to a_l / m_l."""

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.high, self.low = nn.Conv2d(4, 96, 3, padding=1), nn.Conv2d(4, 96, 3, padding=1)
            self.out, self.coarse = nn.Conv2d(96, 4, 1), nn.Conv2d(96, 4, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.out(self.high(x)), self.coarse(self.low(nn.functional.avg_pool2d(x, 4)))

    model, example = Branches(), torch.zeros(1, 4, 32, 32)
    plan, trace = planned(model, example, ["flops=40%"])
    worth, widths = worths(trace), begun(model, example, ["flops=40%"])
    ratio = (worth["low"] / worth["high"] * 16) ** (1 / ALPHA)  # a channel costs a sixteenth there
    assert ratio == pytest.approx(2**0.5)
    assert widths["low"] == pytest.approx(ratio * widths["high"], abs=1.5)
    assert plan.widths["low"] == pytest.approx(ratio * plan.widths["high"], rel=0.25)


def test_classifiers_are_balanced_by_cost_alone() -> None:
    assert set(worths(bench("mobile").trace).values()) == {1.0}
    assert len(set(worths(bench("unet").trace).values())) > 2


def test_a_classifier_is_a_pyramid() -> None:
    """Branches that do not feed each other: w_l^2 is in proportion to 1 / m_l, by the FLOPs counted by hand."""

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.high, self.low = (nn.Conv2d(4, 96, 3, padding=1, bias=False) for _ in range(2))
            self.head = nn.Linear(192, 5, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            ends = self.high(x).mean((2, 3)), self.low(nn.functional.avg_pool2d(x, 4)).mean((2, 3))
            return self.head(torch.cat(ends, 1))

    model, example = Branches(), torch.zeros(1, 4, 32, 32)
    assert not is_dense(ranp.trace(model, example))
    widths = begun(model, example, ["flops=30%"])
    high, low = 2 * 36 * 1024 + 10, 2 * 36 * 64 + 10
    assert widths["low"] == pytest.approx(widths["high"] * (high / low) ** 0.5, rel=0.1)


@pytest.mark.parametrize("method", ["flat", "power", "balanced"])
def test_memory_of_a_step_is_met_too(method: str) -> None:
    plan = bench("unet").plan(["train-memory=50%", "flops=60%"], method)
    assert 0.995 <= used(plan) <= 1


@pytest.mark.parametrize("method", ["snip", "ranp-f"])
def test_a_budget_is_used_where_groups_of_channels_stay_equal(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = (nn.Conv2d(i, o, 3, padding=1) for i, o in ((1, 32), (32, 64), (64, 48), (48, 40)))
    normed = [nn.Sequential(layer, nn.GroupNorm(4, layer.out_channels)) for layer in layers]
    monkeypatch.setitem(NETWORKS, "groups", lambda: nn.Sequential(*normed, nn.Conv2d(40, 3, 1)))
    monkeypatch.setitem(SIZES, "groups", (1, 1, 16, 16))
    plan = Bench("groups").plan(["flops=30%"], method)
    assert all(width % 4 == 0 for name, width in plan.widths.items() if name != "4")
    assert 0.95 <= used(plan) <= 1


@pytest.mark.parametrize("method", ["flat", "power", "balanced"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_budget_is_used_where_channels_are_few_and_large(name: str, method: str) -> None:
    """Some of the next channels of the formula are far above it; others come instead."""
    with pytest.raises(InfeasibleError) as refusal:
        bench(name).plan(["flops=1"], method)
    least = Budget.parse(str(refusal.value).split("The smallest possible is ")[1].split(" ")[0]).amount
    assert 0.98 <= used(bench(name).plan([f"flops={1.7 * least:.0f}"], method)) <= 1


def test_with_a_budget_of_time_channels_cost_their_flops() -> None:
    found = bench("unet")
    selection = Selection.of(found.scores("magnitude"), found.trace, scope="balanced")
    time = Limit(Budget.parse("step-time=20%"), 1.0, 0.2)
    meters = meters_for([QUANTITIES.get("flops")], found.setup, selection)
    limits, least = limits_of(parse_all("flops=20%"), meters, selection.coupling.size), smallest(selection)
    by_time, by_flops = _priced_by_flops(selection, [], [time], found.setup), Scale(meters, limits)
    same = priced(selection, least, by_flops)
    assert np.array_equal(beginning(by_time, least, by_flops), beginning(same, least, by_flops))
    flat = Selection.of(found.scores("magnitude"), found.trace, scope="flat")
    assert _priced_by_flops(flat, [], [time], found.setup) is flat


# ---------------------------------------------------------------- floors


def small() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(*(nn.Conv2d(i, o, 3, padding=1) for i, o in ((1, 16), (16, 16), (16, 16), (16, 2)))), (
        torch.zeros(1, 1, 8, 8)
    )


def floored(budget: str, method: str = "vanilla", **options: Any) -> Plan:
    model, example = small()
    trace = ranp.trace(model, example)
    chosen = Options(method=method, budget=budget, **options)
    selection = chosen.selection(random_scores(trace, np.random.default_rng(3)), trace)
    plan = plan_within(selection, chosen.budgets, StepSetup(model, example), floor=chosen.floor)
    entry = plan.settings["budget"][0]
    assert torch_flops(ranp.slim(model, plan), example) == entry["after"] <= entry["limit"]
    return plan


def cost_of(width: int) -> int:
    layers = ((1, width), (width, width), (width, width), (width, 2))
    return torch_flops(nn.Sequential(*(nn.Conv2d(i, o, 3, padding=1) for i, o in layers)), small()[1])


@pytest.mark.parametrize("floor", [4, 3, 2, 1])
def test_the_floor_gives_way_where_it_does_not_fit_and_says_so(floor: int) -> None:
    plan = floored(f"flops={cost_of(floor)}")
    assert list(plan.widths.values())[:3] == [floor] * 3
    assert plan.settings["floor"] == plan.settings["min_channels"] == floor
    note = f"{floor}, since 4 channels in every layer do not fit"
    assert plan.settings.get("floor_note") == (None if floor == 4 else note)
    assert (f"least width: {note}" in budget_lines(plan.settings)) == (floor < 4)


def test_what_no_floor_meets_is_refused() -> None:
    with pytest.raises(InfeasibleError, match="The smallest possible is"):
        floored(f"flops={cost_of(1) - 1}")


def test_a_floor_that_was_asked_for_is_hard_and_one_switches_it_off() -> None:
    tight = f"flops={cost_of(4) - 1}"
    assert floored(tight).settings["floor"] == 3
    with pytest.raises(InfeasibleError, match="min_channels"):
        floored(tight, min_channels=4)
    loose = floored(tight, min_channels=1)
    assert "floor" not in loose.settings
    assert min(loose.widths.values()) < 3


def test_a_method_may_have_another_floor() -> None:
    plan = bench("unet").plan(["flops=20%"], Method("mine", criterion="magnitude", floor=7))
    assert plan.settings["floor"] == 7
    assert min(plan.widths[layer] for layer in free(bench("unet").trace)) == 7

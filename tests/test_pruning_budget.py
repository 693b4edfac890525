"""``ranp.prune`` within budgets: from batches to a slim network that needs no more than it was allowed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ranp
from ranp.choosing.budgets import Budget
from ranp.choosing.plan import Plan
from ranp.costs.memory import peak
from ranp.costs.step import StepTrace, TrainingStep, trace_step
from ranp.errors import InfeasibleError, UnsupportedError
from ranp.reporting.report import Report
from ranp.tracing.trace import Trace


class Small(nn.Module):
    """A residual network of two resolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv3d(1, 16, 3, padding=1), nn.BatchNorm3d(16)
        self.down = nn.Conv3d(16, 32, 2, stride=2)
        self.residual = nn.Conv3d(32, 32, 3, padding=1)
        self.up = nn.ConvTranspose3d(32, 16, 2, stride=2)
        self.head = nn.Conv3d(32, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        y = self.down(x)
        y = torch.relu(y + self.residual(y))
        return self.head(torch.cat([x, self.up(y)], 1))


def batches(size: int = 8) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(2, 1, size, size, size), torch.randint(3, (2, size, size, size))) for _ in range(2)]


def pruned(**options: Any) -> ranp.Pruned:
    torch.manual_seed(0)
    return ranp.prune(Small(), batches(), F.cross_entropy, **options)


@pytest.mark.parametrize(
    "method", ["ranp-f", "ranp-m", "weighted", "vanilla", "layerwise", "random", "snip"], ids=lambda name: name
)
def test_every_method_meets_a_pair_of_budgets(method: str) -> None:
    result = pruned(budget=["flops=30%", "params=40%"], method=method)
    full, slim = (ranp.profile(m, batches()[0][0]) for m in (Small(), result.model))
    assert slim.flops <= 0.3 * full.flops
    assert slim.params <= 0.4 * full.params
    assert max(slim.flops / (0.3 * full.flops), slim.params / (0.4 * full.params)) > 0.9
    assert result.verification.ok


@pytest.mark.parametrize(
    "step",
    [
        TrainingStep(),
        TrainingStep(batch=3, optimiser="sgd"),
        TrainingStep(precision="amp-bfloat16"),
        TrainingStep(optimiser="momentum", checkpointing=True),
    ],
    ids=["adam", "sgd", "amp", "checkpointing"],
)
def test_training_memory(step: TrainingStep) -> None:
    result = pruned(budget="train-memory=60%", step=step)
    before, after = result.training_memory()
    assert after.peak <= 0.6 * before.peak
    inputs, target = batches()[0]
    target = target[:1].repeat(step.batch or 2, 1, 1, 1)
    again = peak(trace_step(result.model, inputs, step=step, loss=F.cross_entropy, target=target)).peak
    assert after.peak == again
    (entry,) = result.plan.settings["budget"]
    assert entry["after"] == after.peak
    assert entry["after"] > 0.9 * entry["limit"]
    assert result.plan.settings["step"]["optimiser"] == step.optimiser


def test_the_report_shows_the_budget_and_survives_its_file(tmp_path: Path) -> None:
    result = pruned(budget="flops=25%")
    line = next(line for line in str(result.report).splitlines() if line.startswith("budget"))
    assert line.startswith("budget flops=25%: ")
    assert "allowed" in line
    assert "% used), full network" in line
    result.report.save(tmp_path / "report.json")
    assert str(Report.load(tmp_path / "report.json")) == str(result.report)
    result.plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").settings["budget"] == result.plan.settings["budget"]


def test_costs_are_taken_at_the_example_which_may_be_larger_than_the_batches() -> None:
    example = torch.empty(4, 1, 16, 16, 16, device="meta")
    result = pruned(budget=["train-memory=50%", "macs=40%"], example=example)
    before, after = (peak(trace_step(m, example, loss=F.cross_entropy,
        target=torch.zeros(4, 16, 16, 16, dtype=torch.long, device="meta"))).peak
        for m in (Small(), result.model))  # fmt: skip
    assert after <= 0.5 * before
    assert result.plan.settings["step"]["inputs"] == ["4x1x16x16x16"]


def test_an_impossible_budget_is_refused_with_what_is_possible_and_that_works() -> None:
    with pytest.raises(InfeasibleError) as refusal:
        pruned(budget="train-memory=1%")
    possible = str(refusal.value).split("The smallest possible is ")[1].split(" ")[0]
    result = pruned(budget=possible)
    assert result.plan.settings["budget"][0]["after"] == Budget.parse(possible).amount


def flops_by_hand(trace: Trace) -> dict[str, float]:
    return dict(ranp.measure(trace, "flops"))


def test_reweighting_by_other_resources() -> None:
    by_flops = pruned(sparsity=0.5)
    by_hand = pruned(sparsity=0.5, resource=flops_by_hand)
    assert by_hand.plan.kept == by_flops.plan.kept
    by_memory = pruned(sparsity=0.5, resource="train-memory", strength=100)
    both = pruned(sparsity=0.5, resource=["flops", "train-memory"], strength=100)
    assert by_memory.plan.settings["resource"] == "train-memory"
    assert both.plan.settings["resource"] == "flops+train-memory"
    assert by_memory.plan.kept != both.plan.kept
    with pytest.raises(UnsupportedError, match="empty"):
        pruned(sparsity=0.5, resource=[])
    with pytest.raises(UnsupportedError, match="did you mean 'flops'"):
        pruned(sparsity=0.5, resource=["flop", "memory"])


def test_rounded_widths_hold_the_budget() -> None:
    result = pruned(budget="flops=40%", round_to=8)
    full = ranp.profile(Small(), batches()[0][0]).flops
    assert ranp.profile(result.model, batches()[0][0]).flops <= 0.4 * full
    assert all(width % 8 == 0 for name, width in result.plan.widths.items() if name != "head")


def test_a_network_that_needs_data_is_refused_a_budget_of_memory_but_not_of_flops() -> None:
    class Deciding(Small):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if float(x.mean()) < 10 else -x)

    def run(budget: str) -> ranp.Pruned:
        torch.manual_seed(0)
        return ranp.prune(Deciding(), batches(), F.cross_entropy, budget=budget)

    assert run("flops=30%").verification.ok
    with pytest.raises(UnsupportedError, match="data"):
        run("train-memory=50%")


class Clock:
    """A machine whose every operator takes as long as the bytes that it makes, and blocks of four channels at once."""

    covered = 0

    @classmethod
    def open(cls, device: str = "cpu") -> Clock:
        return cls()

    def cover(self, traced: StepTrace, *, progress: object = None) -> None:
        Clock.covered += 1

    def seconds(self, traced: StepTrace) -> float:
        return sum(self.by_module(traced).values())

    def by_module(self, traced: StepTrace) -> dict[str, float]:
        found: dict[str, float] = {}
        for call in traced.calls:
            for made in call.outputs:
                blocks = [-(-extent // 4) * 4 if dim == 1 else extent for dim, extent in enumerate(made.shape)]
                found[call.module] = found.get(call.module, 0.0) + math.prod(blocks) * 1e-8
        return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr("ranp.costs.time.Table", Clock)
    monkeypatch.setattr("ranp.costs.layers.Table", Clock)
    monkeypatch.setattr(Clock, "covered", 0)
    return Clock


@pytest.mark.parametrize("budget", ["step-time=80%", "step-time=1.5x", "latency=70%"])
@pytest.mark.parametrize("round_to", [1, "auto"])
def test_time(clock: type[Clock], budget: str, round_to: int | str) -> None:
    result = pruned(budget=budget, round_to=round_to)
    inputs, target = batches()[0]
    inference = budget.startswith("latency")
    before, after = (
        clock().seconds(trace_step(model, inputs, step=None))
        if inference
        else clock().seconds(trace_step(model, inputs, loss=F.cross_entropy, target=target))
        for model in (Small(), result.model)
    )
    (entry,) = result.plan.settings["budget"]
    assert (entry["before"], entry["after"]) == (pytest.approx(before), pytest.approx(after))
    assert after <= entry["limit"] * (1 + 1e-9)
    assert after > 0.8 * entry["limit"]
    assert clock.covered == 1
    again = pruned(budget=budget, round_to=round_to)
    assert again.plan.kept == result.plan.kept


def test_what_the_times_choose_leaves_no_fewer_flops(clock: type[Clock]) -> None:
    by_times, plain = (pruned(budget="step-time=75%", round_to=multiple) for multiple in ("auto", 1))
    assert by_times.report.flops.after >= plain.report.flops.after
    assert by_times.plan.settings["round_to"] in (1, 2, 4, 8, 16)


def test_time_as_the_resource(clock: type[Clock]) -> None:
    result = pruned(sparsity=0.5, resource="time", strength=100)
    assert result.plan.settings["resource"] == "time"
    assert clock.covered == 1

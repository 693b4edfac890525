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
from ranp.choosing.methods import METHODS
from ranp.choosing.plan import Plan
from ranp.costs.memory import peak
from ranp.costs.step import TrainingStep, trace_step
from ranp.costs.timing import Stepper
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


@pytest.mark.parametrize("method", METHODS)
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


def seconds_of(network: nn.Module) -> float:
    """On a machine that computes blocks of four channels at once, and takes as long as there are weights."""
    blocks = (math.prod(-(-extent // 4) * 4 for extent in tensor.shape[:2]) for tensor in network.parameters())
    return sum(blocks) * 1e-5


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that runs nothing; what it said last to each of two kinds of networks is in the list."""
    told: list[float] = []

    def clocked(run: Any, device: torch.device) -> float:
        if not isinstance(run, Stepper):
            run()
            return 1e-3
        told.append(seconds_of(run.network))
        return told[-1]

    monkeypatch.setattr("ranp.costs.timing.clocked", clocked)
    return told


@pytest.mark.parametrize(
    "budget",
    [
        "latency=70%",
        ["step-time=90%", "flops=30%"],
        *(pytest.param(text, marks=pytest.mark.slow) for text in ("step-time=80%", "step-time=1.5x")),
    ],
)
@pytest.mark.parametrize(
    ("fill", "method"),
    [
        ("none", "ranp-f"),
        ("time", "layerwise"),
        pytest.param("time", "ranp-f", marks=pytest.mark.slow),
        pytest.param("none", "layerwise", marks=pytest.mark.slow),
    ],
)
def test_time(clock: list[float], budget: Any, fill: str, method: str) -> None:
    result = pruned(budget=budget, fill=fill, method=method)
    for entry in result.plan.settings["budget"]:
        assert entry["after"] <= entry["limit"]
        if entry["resource"] != "flops":
            figures = entry["before"], entry["after"]
            assert figures == (pytest.approx(seconds_of(Small())), pytest.approx(seconds_of(result.model)))
    assert max(entry["after"] / entry["limit"] for entry in result.plan.settings["budget"]) > 0.8
    if isinstance(budget, list):
        assert pruned(budget=budget, fill=fill, method=method).plan.kept == result.plan.kept


@pytest.mark.slow
def test_free_channels_are_free(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranp.choosing.budgets.planning.blocks", lambda *_: (4,))
    for budget in ("step-time=50%", "memory=45%"):
        filled, plain = (pruned(budget=budget, fill=fill) for fill in ("time", "none"))
        assert sum(filled.plan.widths.values()) >= sum(plain.plan.widths.values())
        assert seconds_of(filled.model) <= max(seconds_of(plain.model), 0.5 * seconds_of(Small()))
        (entry,) = filled.plan.settings["budget"]
        assert entry["after"] <= entry["limit"]
    assert pruned(budget="step-time=50%", round_to="auto").plan.kept == pruned(budget="step-time=50%").plan.kept


def test_a_network_that_needs_data_is_timed_for_it_is_really_run(clock: list[float]) -> None:
    class Deciding(Small):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if float(x.mean()) < 10 else -x)

    torch.manual_seed(0)
    result = ranp.prune(Deciding(), batches(), F.cross_entropy, budget="step-time=60%")
    assert seconds_of(result.model) <= 0.6 * seconds_of(Small())


@pytest.mark.slow
def test_a_budget_of_time_holds_by_measurement_on_this_machine() -> None:
    (entry,) = pruned(budget="step-time=90%").plan.settings["budget"]
    assert 0 < entry["after"] <= entry["limit"]


def test_time_as_the_resource() -> None:
    result = pruned(sparsity=0.5, resource="time", strength=100)
    assert result.plan.settings["resource"] == "time"

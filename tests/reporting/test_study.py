"""Studies: every step costs what the slim network of its plan costs, and tells the same as pruning at that sparsity."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from itertools import pairwise
from math import ceil
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ranp
from ranp.choosing.methods import Method
from ranp.errors import DataError, InfeasibleError, PlanMismatchError, StorageError, UnsupportedError
from ranp.paper.models import I3D, MobileNetV2, PSMNet, UNet3d
from ranp.reporting.study import Step, Study, Sweep, study
from ranp.scoring.scores import Scores
from tests.support.topologies.blocks import BLOCKS
from tests.support.topologies.joins import JOINS
from tests.support.topologies.layers import LAYERS

FIGURES = ("params", "flops", "memory")
THRESHOLDS = ("ranp-f", "ranp-m", "weighted", "vanilla")


class Mixed(nn.Module):
    """A residual addition, a depthwise layer, a transposed one, a concatenation, and a layer whose scores are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv3d(2, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU())
        self.branch = nn.Conv3d(8, 8, 3, padding=1, bias=False)
        self.expand, self.filter = nn.Conv3d(8, 12, 1), nn.Conv3d(12, 12, 3, stride=2, padding=1, groups=12)
        self.up = nn.ConvTranspose3d(12, 6, 2, stride=2)
        self.dead = nn.Conv3d(8, 4, 1)
        self.join, self.head = nn.Conv3d(18, 7, 1), nn.Conv3d(7, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.branch(x)
        y = self.up(self.filter(self.expand(x).relu()).relu())
        return self.head(self.join(torch.cat([x, y, self.dead(0 * x)], 1)).relu())


class Deciding(nn.Module):
    """Code that looks at values, so that the network cannot run without data."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 9), nn.Linear(9, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        return self.second(y if float(y.detach().sum()) >= 0 else -y)


def mixed() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Mixed(), torch.randn(1, 2, 8, 8, 8)


def scored(model: nn.Module, example: Any, criterion: str = "mpmg-sum") -> tuple[ranp.Trace, Scores]:
    trace = ranp.trace(model, example)
    torch.manual_seed(1)
    return trace, ranp.score(model, [(example, None)], _loss, trace=trace, criterion=criterion)


def _loss(output: Any, _: None) -> Tensor:
    outputs = [output] if isinstance(output, Tensor) else list(output)
    return sum(value.pow(2).mean() for value in outputs)


def at(sweep: Sweep, sparsity: float) -> Step:
    return next(step for step in sweep.steps if step.sparsity == sparsity)


def assert_exact(model: nn.Module, example: Any, raw: Scores, trace: ranp.Trace, found: Study, **options: Any) -> None:
    """Every step against the real way: weigh, select, make the slim network, profile it."""
    convention, copies = options.pop("convention", "true"), options.pop("copies", 0)
    costs = {"ranp-f": "flops", "ranp-m": "memory"}
    scopes = {"layerwise": "layer", "random": "random", "snip": "weights"}
    for sweep in found.sweeps:
        scores = ranp.balance(raw) if sweep.method in ("ranp-f", "ranp-m", "weighted") else raw
        if sweep.method in costs:
            layers = ranp.measure(trace, costs[sweep.method], convention=convention)
            scores = ranp.reweight(scores, layers, found.strength)
        chosen = {"scope": scopes.get(sweep.method, "network"), **options}
        assert sweep.largest == ranp.max_sparsity(scores, trace, **chosen)
        for step in sweep.steps:
            if not step.feasible:
                assert step == Step(step.sparsity, False)
                assert step.sparsity > sweep.largest
                with pytest.raises(InfeasibleError):
                    ranp.select(scores, trace, sparsity=step.sparsity, **chosen)
                continue
            plan = ranp.select(scores, trace, sparsity=step.sparsity, **chosen)
            slim = ranp.slim(model, plan)
            assert step.widths == tuple(plan.widths.values())
            assert step.removed == pytest.approx(1 - sum(step.widths) / trace.channels, abs=1e-12)
            costs_of_slim = ranp.profile(slim, example, convention=convention)
            assert (step.params, step.flops) == (costs_of_slim.params, costs_of_slim.flops)
            assert 0 <= step.memory - costs_of_slim.memory_bytes <= copies


@pytest.mark.parametrize("convention", ["true", "paper"])
def test_costs_are_those_of_the_slim_network(convention: str):
    model, example = mixed()
    trace, raw = scored(model, example)
    assert set(raw.excluded) == {"dead"}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    methods = ("ranp-m", "vanilla", "layerwise", "random")
    found = study(model, example, raw, compare=methods, points=4, convention=convention)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [sweep.method for sweep in found.sweeps] == ["ranp-f", "ranp-m", "vanilla", "layerwise", "random"]
    assert (found.method, found.strength, found.criterion) == ("ranp-f", 11.0, "mpmg-sum")
    assert_exact(model, example, raw, trace, found, convention=convention)


@pytest.mark.parametrize("name", [*JOINS, *(pytest.param(name, marks=pytest.mark.slow) for name in (*LAYERS, *BLOCKS))])
def test_costs_of_many_topologies(name: str):
    topology = {**LAYERS, **JOINS, **BLOCKS}[name]
    torch.manual_seed(0)
    model, example = topology.build(), topology.inputs()
    trace, raw = scored(model, example, "random")
    found = study(model, example, raw, method="vanilla", points=3, trace=trace)
    # Where every group of a shuffle keeps one channel, torch needs no copy any more; its room is still counted.
    assert_exact(model, example, raw, trace, found, copies=576 if name == "channel_shuffle" else 0)


PAPER: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "unet": (lambda: UNet3d(1, 4, widths=(8, 16, 32)), torch.zeros(1, 1, 8, 8, 8)),
    "mobilenetv2": (lambda: MobileNetV2(5, width=0.25), torch.zeros(1, 3, 8, 32, 32)),
    "i3d": (lambda: I3D(5, width=0.125, window=(1, 1, 1)), torch.zeros(1, 3, 8, 32, 32)),
    "psm": (
        lambda: PSMNet(16, width=0.25, blocks=(1, 1, 1, 1), windows=(8, 4, 2, 1)),
        (torch.zeros(1, 3, 32, 64), torch.zeros(1, 3, 32, 64)),
    ),
}


@pytest.mark.parametrize(
    "name", ["unet", "psm", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mobilenetv2", "i3d"))]
)
def test_costs_of_the_papers_networks(name: str):
    build, example = PAPER[name]
    model = build()
    trace, raw = scored(model, example, "random")
    assert_exact(model, example, raw, trace, study(model, example, raw, compare=(), points=3))


def test_a_network_without_data_has_the_same_study():
    model, example = mixed()
    _, raw = scored(model, example)
    with torch.device("meta"):
        hollow = Mixed()
    assert study(hollow, example, raw, points=4) == study(model, example, raw, points=4)


def test_a_network_that_needs_data_is_run_for_real():
    torch.manual_seed(0)
    model, example = Deciding(), torch.randn(3, 5)
    trace, raw = scored(model, example)
    assert_exact(model, example, raw, trace, study(model, example, raw, points=4))


def test_snip_is_swept_by_single_weights():
    model, example = mixed()
    trace, raw = scored(model, example, "snip")
    found = study(model, example, raw, method="snip", compare=(), points=4)
    assert_exact(model, example, raw, trace, found)


def test_widths_that_follow_from_a_budget_are_swept_over_the_flops():
    model, example = mixed()
    trace, raw = scored(model, example)
    pruned = ranp.prune(model, [(example, None)], _loss, budget="flops=30%")
    (sweep, _) = study(model, example, raw, plan=pruned.plan, method="balanced", trace=trace, points=9).sweeps
    assert sweep.steps[0].widths == tuple(layer.channels for layer in trace.layers)
    assert [step.sparsity for step in sweep.steps] == sorted(step.removed for step in sweep.steps)
    assert sweep.steps[-1].sparsity == sweep.largest
    by_flops = sorted(sweep.steps, key=lambda step: -step.flops)
    full, least = by_flops[0].flops, by_flops[-1].flops
    for number, step in enumerate(by_flops):
        how = {"method": "balanced", "min_channels": pruned.plan.settings["min_channels"]}
        budget = f"flops={ceil(full * (least / full) ** (number / 8))}"
        slim = ranp.prune(model, [(example, None)], _loss, budget=budget, **how)
        assert step.widths == tuple(slim.plan.widths.values())
        assert step.flops == ranp.profile(slim.model, example).flops


def test_sparsities_rise_from_0_over_the_largest_to_the_ceiling():
    model, example = mixed()
    trace, raw = scored(model, example)
    told: list[tuple[int, int]] = []
    found = study(model, example, raw, points=7, trace=trace, progress=lambda *args: told.append(args))
    steps = [step for sweep in found.sweeps for step in sweep.steps]
    assert told == [(done, len(steps)) for done in range(1, len(steps) + 1)]
    for sweep in found.sweeps:
        sparsities = [step.sparsity for step in sweep.steps]
        assert sparsities == sorted(set(sparsities))
        assert (sparsities[0], sparsities[-1]) == (0.0, 0.99)
        assert [step.sparsity for step in sweep.steps if step.feasible][-1] == sweep.largest
        assert [step.feasible for step in sweep.steps] == [True] * 7 + [False] * 3
        for index, sparsity in enumerate(sparsities[:7]):
            assert sparsity == pytest.approx(sweep.largest * index / 6)
        assert sweep.steps[0].widths == tuple(layer.channels for layer in trace.layers)


@pytest.mark.parametrize("method", [*THRESHOLDS, "layerwise", "random"])
def test_costs_and_widths_never_rise_with_the_sparsity(method: str):
    model, example = mixed()
    trace, raw = scored(model, example)
    (sweep,) = study(model, example, raw, method=method, compare=(), points=12, trace=trace).sweeps
    steps = [step for step in sweep.steps if step.feasible]
    for earlier, later in pairwise(steps):
        assert later.removed >= earlier.removed
        assert all(a >= b >= 1 for a, b in zip(earlier.widths, later.widths, strict=True))
        assert all(getattr(earlier, name) >= getattr(later, name) for name in FIGURES)
    assert steps[-1].flops < steps[0].flops


@pytest.mark.parametrize(
    "options",
    [
        {"method": "ranp-f", "strength": 3.0},
        {"method": "ranp-m", "keep": ["stem.*"]},
        {"method": "ranp-f", "resource": "params", "tie": "union"},
        {"method": "weighted", "exact": True},
        {"method": "vanilla", "min_channels": 3, "round_to": 2},
        {"method": "random", "seed": 5},
        {"method": "layerwise"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_the_step_of_a_run_is_its_report(options: dict[str, Any]):
    model, example = mixed()
    pruned = ranp.prune(model, [(example, None)], _loss, sparsity=0.23, **options)
    found = study(model, example, pruned.raw, plan=pruned.plan, method=options["method"], points=4)
    sweep = found.sweeps[0]
    step = at(sweep, 0.23)
    assert step.feasible
    report = pruned.report
    assert [getattr(step, name) for name in FIGURES] == [getattr(report, name).after for name in FIGURES]
    assert (step.removed, step.widths) == (pruned.plan.sparsity.of_channels, tuple(pruned.plan.widths.values()))
    assert [getattr(sweep.steps[0], name) for name in FIGURES] == [getattr(report, name).before for name in FIGURES]
    rows = {row.name: row for row in report.layers}
    for layer in found.layers:
        row = rows[layer.name]
        assert (layer.kept, layer.note) == (pruned.plan.kept[layer.name], row.note)
        assert (layer.channels, layer.flops) == (row.channels.before, row.flops.before)
        assert layer.memory == ranp.measure(pruned.trace, "memory")[layer.name]
    assert sum(step.widths) == sum(len(layer.kept or ()) for layer in found.layers)


def test_an_exact_plan_is_swept_by_its_own_measure():
    model, example = mixed()
    pruned = ranp.prune(model, [(example, None)], _loss, sparsity=0.5, exact=True)
    found = study(model, example, pruned.raw, plan=pruned.plan, compare=(), points=5)
    (sweep,) = found.sweeps
    prunable = pruned.plan.sparsity.prunable
    for sparsity in (sweep.largest, sweep.largest + 1 / prunable):
        feasible = sparsity == sweep.largest
        try:
            ranp.select(pruned.scores, pruned.trace, sparsity=sparsity, exact=True)
        except InfeasibleError:
            assert not feasible
        else:
            assert feasible
    assert at(sweep, 0.5).widths == tuple(pruned.plan.widths.values())


def test_scores_are_told_stage_by_stage():
    model, example = mixed()
    trace, raw = scored(model, example)
    balanced = ranp.balance(raw)
    reweighted = ranp.reweight(balanced, ranp.measure(trace, "flops"), 4.0)
    found = study(model, example, raw, strength=4.0, compare=(), points=2)
    for layer in found.layers:
        assert list(layer.scores) == ["raw", "balanced", "reweighted"]
        for scores in (raw, balanced, reweighted):
            assert layer.scores[scores.stage] == tuple(scores[layer.name].tolist())
    for method, stages in (("vanilla", ["raw"]), ("weighted", ["raw", "balanced"]), ("random", ["raw"])):
        found = study(model, example, raw, method=method, compare=(), points=2, trace=trace)
        assert all(list(layer.scores) == stages for layer in found.layers)
    costly = Method("costly", resource="memory")
    found = study(model, example, raw, method=costly, compare=costly, points=2, trace=trace)
    assert [sweep.method for sweep in found.sweeps] == ["costly"]
    assert all(list(layer.scores) == ["raw", "reweighted"] for layer in found.layers)


def test_groups_and_notes():
    model, example = mixed()
    trace, raw = scored(model, example)
    found = study(model, example, raw, points=2, trace=trace)
    assert found.groups == (("stem.0", "branch"), ("expand", "filter"))
    notes = {layer.name: layer.note for layer in found.layers}
    assert [name for name, note in notes.items() if note] == ["dead", "head"]
    assert "all its scores are zero" in notes["dead"]
    assert "output" in notes["head"]
    assert all(layer.kept is None for layer in found.layers)
    for name in ("residual_chain_with_norms", "concatenation_of_additions", "residual_projected"):
        topology = JOINS[name]
        model, example = topology.build(), topology.inputs()
        trace, raw = scored(model, example, "random")
        groups = study(model, example, raw, points=2, trace=trace).groups
        assert all(any(set(names) <= set(group) for group in groups) for names in topology.together)


def test_a_network_of_which_nothing_can_go():
    model, example = nn.Sequential(nn.Linear(4, 3)), torch.randn(2, 4)
    _, raw = scored(model, example)
    found = study(model, example, raw, points=3)
    steps = [step for sweep in found.sweeps for step in sweep.steps]
    assert {step.widths for step in steps if step.feasible} == {(3,)}
    assert all(step.feasible == (step.sparsity == 0) for step in steps)
    assert found.groups == ()


def test_a_study_survives_json():
    model, example = mixed()
    pruned = ranp.prune(model, [(example, None)], _loss, sparsity=0.3)
    for plan in (None, pruned.plan):
        found = study(model, example, pruned.raw, plan=plan, points=3)
        assert Study.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found


def test_a_bad_study_is_refused():
    model, example = mixed()
    _, raw = scored(model, example)
    good = study(model, example, raw, points=3).to_dict()

    def spoilt(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(json.dumps(good))
        change(value)
        return value

    for change, reason in (
        (lambda v: v.pop("sweeps"), "'sweeps' is missing"),
        (lambda v: v["layers"][0].pop("kind"), "'kind' is missing"),
        (lambda v: v["layers"][0]["scores"]["raw"].pop(), "7 scores of stage 'raw' for 8 channels"),
        (lambda v: v["groups"].append(["stem.0", "nobody"]), "'nobody' is no layer"),
        (lambda v: v["sweeps"][0]["steps"][1]["widths"].pop(), "has 7 widths"),
        (lambda v: v["sweeps"][0]["steps"].reverse(), "do not rise"),
        (lambda v: v.update(strength="strong"), "could not convert"),
        (lambda v: v.update(layers=None), "not iterable"),
    ):
        with pytest.raises(StorageError, match=f"not a valid study: .*{reason}"):
            Study.from_dict(spoilt(change))


def test_what_does_not_belong_together_is_refused():
    model, example = mixed()
    trace, raw = scored(model, example)
    with pytest.raises(DataError, match="scores are balanced already"):
        study(model, example, ranp.balance(raw), trace=trace)
    for points in (1, 2.5, True):
        with pytest.raises(UnsupportedError, match="points="):
            study(model, example, raw, trace=trace, points=points)
    with pytest.raises(UnsupportedError, match="unknown method 'vanila'"):
        study(model, example, raw, trace=trace, compare=("vanila",))
    other = Scores({"0": torch.ones(3)})
    with pytest.raises(PlanMismatchError):
        study(model, example, other, trace=trace)
    plan = ranp.select(raw, trace, sparsity=0.1)
    longer = dataclasses.replace(plan, kept={**plan.kept, "more": (0, 1)}, channels={**plan.channels, "more": 2})
    with pytest.raises(PlanMismatchError, match="layer 'more' has no channels in the network and 2 in the plan"):
        study(model, example, raw, trace=trace, plan=longer)

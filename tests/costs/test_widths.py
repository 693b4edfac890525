"""A step at other widths, known from a few step traces, is the step that a step trace at those widths finds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import ranp
from ranp.choosing.budgets.probing import probes
from ranp.choosing.selection import Selection
from ranp.costs.step import StepTrace, TrainingStep, trace_step
from ranp.costs.widths import StepAtWidths
from ranp.errors import UnsupportedError
from ranp.tracing.choice import Choice
from ranp.tracing.layout import Flags
from tests.support.oracles import random_scores
from tests.support.random_networks import Program, programs

calm = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def prepared(model: nn.Module, inputs: object, seed: int = 0) -> Selection:
    trace = ranp.trace(model, inputs)
    return Selection.of(random_scores(trace, np.random.default_rng(seed)), trace)


def elastic(model: nn.Module, inputs: object, selection: Selection, step: TrainingStep | None) -> StepAtWidths:
    runs = [
        (stays, trace_step(Choice(selection.coupling.trace, stays).cut(model), inputs, step=step))
        for stays in probes(selection)
    ]
    return StepAtWidths(selection.coupling.layout, runs)


def choice(selection: Selection, share: float) -> Flags:
    plan = selection.plan(share * selection.max_share(), exact=True)
    return Choice.of_plan(selection.coupling.trace, plan).stays


def assert_same(one: StepTrace, other: StepTrace) -> None:
    assert len(one.calls) == len(other.calls)
    for a, b in zip(one.calls, other.calls, strict=True):
        assert (a.op, a.phase, a.module) == (b.op, b.phase, b.module)
        assert [x.shape for x in (*a.inputs, *a.outputs)] == [x.shape for x in (*b.inputs, *b.outputs)]
    assert [(s.bytes, s.born, s.dies, s.kind) for s in one.storages] == [
        (s.bytes, s.born, s.dies, s.kind) for s in other.storages
    ]


@pytest.mark.parametrize("step", [TrainingStep(), TrainingStep(optimiser="momentum", precision="amp-bfloat16"), None])
def test_a_network_with_joins_groups_and_views(step: TrainingStep | None) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv3d(1, 8, 3, padding=1)
            self.grouped = nn.Conv3d(8, 8, 3, padding=1, groups=2)
            self.norm = nn.GroupNorm(4, 8)
            self.depthwise = nn.Conv3d(8, 8, 3, padding=1, groups=8)
            self.joined = nn.Conv3d(16, 6, 1)
            self.head = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.first(x))
            y = self.depthwise(self.norm(self.grouped(x)))
            z = self.joined(torch.cat([x + y, y], 1))
            return self.head(z.flatten(2).mean(2))

    model, inputs = Block(), torch.zeros(2, 1, 4, 4, 4)
    selection = prepared(model, inputs)
    known = elastic(model, inputs, selection, step)
    for share in (0.0, 0.3, 0.6, 1.0):
        stays = choice(selection, share)
        assert_same(known.at(stays), trace_step(Choice(selection.coupling.trace, stays).cut(model), inputs, step=step))


@settings(max_examples=12, derandomize=True, suppress_health_check=calm, deadline=None)
@given(programs(), st.sampled_from([0.2, 0.5, 0.9]), st.integers(0, 1000))
def test_random_networks(program: Program, share: float, seed: int) -> None:
    torch.manual_seed(seed)
    model, inputs = program.build(), program.inputs()
    selection = prepared(model, inputs, seed)
    step = TrainingStep(optimiser="sgd")
    try:
        known = elastic(model, inputs, selection, step)
    except UnsupportedError:  # every candidate is traced by itself then
        return
    stays = choice(selection, share)
    expected = trace_step(Choice(selection.coupling.trace, stays).cut(model), inputs, step=step)
    # A group of a single channel has weights that count as contiguous, which spares a copy: hence not exactly.
    got, real = (sum(storage.bytes for storage in one.storages) for one in (known.at(stays), expected))
    assert got == pytest.approx(real, rel=0.02)


def test_other_operators_at_other_widths_are_refused() -> None:
    class Moody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv3d(1, 8, 1), nn.Conv3d(8, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return self.second(torch.relu(x) if x.shape[1] > 6 else torch.sigmoid(x))

    model, inputs = Moody(), torch.zeros(2, 1, 4, 4, 4)
    trace = ranp.trace(nn.Sequential(model.first, model.second), inputs)
    selection = Selection.of(random_scores(trace, np.random.default_rng(0)), trace)
    full, narrow = np.ones(selection.coupling.size, dtype=bool), np.ones(selection.coupling.size, dtype=bool)
    narrow[trace.layers[0].classes[:4]] = False
    plain = nn.Sequential(model.first, model.second)
    shallow = Choice(trace, narrow).cut(plain)
    other = Moody()
    other.first, other.second = shallow[0], shallow[1]
    step = TrainingStep(optimiser="none")
    runs = [(full, trace_step(model, inputs, step=step)), (narrow, trace_step(other, inputs, step=step))]
    with pytest.raises(UnsupportedError, match=r"aten\.relu"):
        StepAtWidths(selection.coupling.layout, runs)

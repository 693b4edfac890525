"""A solution is checked on a copy that is really cut; where the reckoning was wrong, the budget holds all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import ranp
from benchmarks.judges import torch_flops
from ranp.choosing.budgets import StepSetup, parse_all, plan_within
from ranp.choosing.selection import Selection
from ranp.costs.prices import Bill, Prices
from ranp.costs.step import StepTrace
from ranp.costs.widths import StepAtWidths
from ranp.errors import InfeasibleError, UnsupportedError
from ranp.tracing.choice import Choice
from ranp.tracing.layout import Flags
from tests.support.oracles import random_scores

INPUTS = torch.zeros(2, 1, 8, 8, 8)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 24, 3, padding=1), nn.ReLU(), nn.Conv3d(24, 2, 1)
    )


def prepared() -> tuple[nn.Module, Selection, StepSetup]:
    model = network()
    trace = ranp.trace(model, INPUTS)
    selection = Selection.of(random_scores(trace, np.random.default_rng(0)), trace)
    return model, selection, StepSetup(model, INPUTS)


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.3])
def test_wrong_prices_do_not_break_a_budget(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model, selection, setup = prepared()
    honest = Prices.at

    def wrong(self: Prices, choice: Choice) -> Bill:
        bill = honest(self, choice)
        cheaper = bill.flops if choice.stays.all() else int(bill.flops * factor)
        return replace(bill, flops=cheaper)

    monkeypatch.setattr(Prices, "at", wrong)
    plan = plan_within(selection, parse_all("flops=40%"), setup)
    full, slim = (torch_flops(m, INPUTS) for m in (model, ranp.slim(model, plan)))
    assert slim <= 0.4 * full
    assert plan.settings["budget"][0]["after"] == slim


def test_where_sizes_do_not_tell_every_candidate_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    _, selection, setup = prepared()
    expected = plan_within(selection, parse_all("train-memory=60%"), setup)

    def refuse(self: StepAtWidths, *_: object) -> None:
        raise UnsupportedError("no count of channels")

    monkeypatch.setattr(StepAtWidths, "__init__", refuse)
    assert plan_within(selection, parse_all("train-memory=60%"), setup).kept == expected.kept


def test_wrong_sizes_do_not_break_a_budget_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    _, selection, setup = prepared()
    real = plan_within(selection, parse_all("train-memory=60%"), setup)
    narrow = np.ones(selection.coupling.size, dtype=bool)
    narrow[selection.coupling.classes[selection.coupling.movable]] = False
    for layer in selection.coupling.trace.layers[:2]:
        narrow[layer.classes[0]] = True
    honest = StepAtWidths.at

    def always_narrow(self: StepAtWidths, stays: Flags) -> StepTrace:
        return honest(self, stays if stays.all() else narrow)

    monkeypatch.setattr(StepAtWidths, "at", always_narrow)
    assert plan_within(selection, parse_all("train-memory=60%"), setup).kept == real.kept


def test_a_refusal_tells_what_a_copy_that_is_really_cut_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    _, selection, setup = prepared()
    honest = Prices.at
    with pytest.raises(InfeasibleError) as expected:
        plan_within(selection, parse_all("flops=0.01%"), setup)
    monkeypatch.setattr(
        Prices, "at", lambda self, one: Bill(1, 1, 1, 1000 if not one.stays.all() else honest(self, one).flops, 1)
    )
    with pytest.raises(InfeasibleError) as refusal:
        plan_within(selection, parse_all("flops=0.01%"), setup)
    assert str(refusal.value) == str(expected.value)

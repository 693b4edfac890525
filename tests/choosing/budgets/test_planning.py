"""A solution is checked on a copy that is really cut; where the reckoning was wrong, the budget holds all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import ranp
from ranp.choosing.budgets import Scene, parse_all, plan_within
from ranp.choosing.selection import Selection
from ranp.costs.prices import Bill, Prices
from ranp.costs.step import Rehearsal, TrainingStep
from ranp.costs.widths import Elastic
from ranp.errors import InfeasibleError, UnsupportedError
from ranp.tracing.layout import Flags
from tests.support.oracles import random_scores

INPUTS = torch.zeros(2, 1, 8, 8, 8)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 24, 3, padding=1), nn.ReLU(), nn.Conv3d(24, 2, 1)
    )


def prepared() -> tuple[nn.Module, Selection, Scene]:
    model = network()
    trace = ranp.trace(model, INPUTS)
    selection = Selection.of(random_scores(trace, np.random.default_rng(0)), trace)
    return model, selection, Scene(model, INPUTS, TrainingStep())


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.3])
def test_wrong_prices_do_not_break_a_budget(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model, selection, scene = prepared()
    honest = Prices.at

    def wrong(self: Prices, stays: Flags) -> Bill:
        bill = honest(self, stays)
        cheaper = bill.flops if stays.all() else int(bill.flops * factor)
        return replace(bill, flops=cheaper)

    monkeypatch.setattr(Prices, "at", wrong)
    plan = plan_within(selection, parse_all("flops=40%"), scene)
    full, slim = (ranp.profile(m, INPUTS, convention="paper").flops for m in (model, ranp.slim(model, plan)))
    assert slim <= 0.4 * full
    assert plan.settings["budget"][0]["after"] == slim


def test_where_sizes_do_not_tell_every_candidate_is_rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, selection, scene = prepared()
    expected = plan_within(selection, parse_all("train-memory=60%"), scene)

    def refuse(self: Elastic, *_: object) -> None:
        raise UnsupportedError("no count of channels")

    monkeypatch.setattr(Elastic, "__init__", refuse)
    assert plan_within(selection, parse_all("train-memory=60%"), scene).kept == expected.kept


def test_wrong_sizes_do_not_break_a_budget_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    _, selection, scene = prepared()
    real = plan_within(selection, parse_all("train-memory=60%"), scene)
    narrow = np.ones(selection.coupling.size, dtype=bool)
    narrow[selection.coupling.classes[selection.coupling.movable]] = False
    for layer in selection.coupling.trace.layers[:2]:
        narrow[layer.classes[0]] = True
    honest = Elastic.at

    def always_narrow(self: Elastic, stays: Flags) -> Rehearsal:
        return honest(self, stays if stays.all() else narrow)

    monkeypatch.setattr(Elastic, "at", always_narrow)
    assert plan_within(selection, parse_all("train-memory=60%"), scene).kept == real.kept


def test_a_refusal_tells_what_a_copy_that_is_really_cut_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    _, selection, scene = prepared()
    honest = Prices.at
    with pytest.raises(InfeasibleError) as expected:
        plan_within(selection, parse_all("flops=0.01%"), scene)
    monkeypatch.setattr(
        Prices, "at", lambda self, stays: Bill(1, 1, 1, 1000 if not stays.all() else honest(self, stays).flops, 1)
    )
    with pytest.raises(InfeasibleError) as refusal:
        plan_within(selection, parse_all("flops=0.01%"), scene)
    assert str(refusal.value) == str(expected.value)

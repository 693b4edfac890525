"""Budgets of what is measured: met with care, by few candidates, on noisy machines, and refused where nothing fits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import ranp
from ranp.choosing.budgets import parse_all
from ranp.choosing.budgets.measured import SAFE, Path, solve_measured
from ranp.choosing.budgets.metering import CheckedMeter, counting_meter
from ranp.choosing.budgets.solving import limits_of
from ranp.choosing.selection import Selection
from ranp.costs.quantities import QUANTITIES
from ranp.costs.step import StepSetup
from ranp.errors import InfeasibleError
from ranp.tracing.choice import Choice
from ranp.tracing.layout import Flags
from ranp.tracing.trace import Trace
from tests.support.oracles import random_scores

INPUTS = torch.zeros(2, 1, 8, 8, 8)


def network() -> nn.Module:
    layers = [nn.Conv3d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv3d(24, 40, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv3d(40, 32, 3, padding=1), nn.ReLU(), nn.Conv3d(32, 2, 1))


class Machine(CheckedMeter):
    """One channel above a multiple of four costs more than the next multiple; what is asked once is disturbed."""

    def __init__(self, trace: Trace, noise: float = 0.0, bias: float = 1.0) -> None:
        super().__init__(QUANTITIES.get("latency"), self._disturbed, self.honest)
        self._trace, self._noise, self._bias = trace, noise, bias
        self._draw = np.random.default_rng(0)
        self.asked = 0

    def honest(self, stays: Flags) -> float:
        widths = [len(kept) for kept in Choice(self._trace, stays).kept.values()]
        blocks = [-(-width // 4) * 4 + (1 if width % 4 else 0) for width in widths]
        return sum(a * b for a, b in pairwise(blocks)) * 1e-5

    def _disturbed(self, stays: Flags) -> float:
        self.asked += 1
        if stays.all():
            return self.honest(stays)
        return self.honest(stays) * self._bias * float(np.exp(self._noise * self._draw.standard_normal()))


def prepared(scope: str = "network", **options: int) -> tuple[nn.Module, Selection, Trace]:
    model = network()
    trace = ranp.trace(model, INPUTS)
    scores = random_scores(trace, np.random.default_rng(0))
    return model, Selection.of(scores, trace, scope=scope, **options), trace  # type: ignore[arg-type]


@pytest.mark.parametrize("scope", ["network", "layer"])
@pytest.mark.parametrize(("noise", "bias"), [(0.0, 1.0), (0.03, 1.0), (0.0, 0.9), (0.0, 1.1), (0.05, 0.93)])
@pytest.mark.parametrize("share", [80, 50, 25, 12])
@pytest.mark.parametrize("multiples", [(), (4, 8)])
def test_it_is_met_with_care_and_nearly_used(
    scope: str, noise: float, bias: float, share: int, multiples: tuple[int, ...]
) -> None:
    _, selection, trace = prepared(scope)
    meter = Machine(trace, noise, bias)
    limits = limits_of(parse_all(f"latency={share}%"), [meter], selection.coupling.size)
    solution = solve_measured(selection, [meter], limits, multiples=multiples)
    assert meter.honest(solution.stays) == solution.after[0] <= SAFE * limits[0].most
    assert solution.after[0] > (0.6 if noise or bias != 1 else 0.8) * limits[0].most  # a network of few channels
    assert meter.asked <= 15 * (2 + len(multiples))


def test_free_channels() -> None:
    _, selection, trace = prepared()
    meter = Machine(trace)
    limits = limits_of(parse_all("latency=30%"), [meter], selection.coupling.size)
    filled, plain = (solve_measured(selection, [meter], limits, multiples=several) for several in ((4,), ()))
    counts = [int(solution.stays[selection.coupling.classes].sum()) for solution in (filled, plain)]
    assert counts[0] > counts[1]


def test_exact_budgets_stay_exact() -> None:
    model, selection, trace = prepared()
    budgets = parse_all(["latency=40%", "params=15%"])
    meters = [counting_meter(budgets[1].quantity, StepSetup(model, INPUTS), trace), Machine(trace, 0.02)]
    limits = limits_of(budgets, meters, selection.coupling.size)
    solution = solve_measured(selection, meters, limits, multiples=(4, 8))
    slim = ranp.slim(model, selection.build(solution.stays))
    assert sum(parameter.numel() for parameter in slim.parameters()) == solution.after[1] <= limits[1].most


def test_what_is_impossible_is_refused_with_what_is_possible_and_that_works() -> None:
    _, selection, trace = prepared()
    meter = Machine(trace)
    with pytest.raises(InfeasibleError) as refusal:
        solve_measured(selection, [meter], limits_of(parse_all("latency=1us"), [meter], selection.coupling.size))
    possible = str(refusal.value).split("The smallest possible is ")[1].split(" ")[0]
    limits = limits_of(parse_all(possible), [meter], selection.coupling.size)
    assert solve_measured(selection, [meter], limits).after[0] <= limits[0].most


@pytest.mark.parametrize("scope", ["network", "layer"])
def test_a_path_grows_from_the_smallest_to_the_full_network(scope: str) -> None:
    _, selection, _ = prepared(scope)
    path = Path.of(selection)
    sizes = [int(path.at(number).sum()) for number in range(path.size + 1)]
    assert sizes == sorted(sizes)
    assert path.at(path.size).all()

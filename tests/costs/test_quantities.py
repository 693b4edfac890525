"""One table of quantities: a registered one is a resource, a budget and a name in help texts at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ranp
from ranp.choosing.budgets import Budget
from ranp.costs.quantities import QUANTITIES, Quantity, budget_examples, find, register, resources
from ranp.costs.step import StepSetup
from ranp.errors import UnsupportedError

BATCHES = [(torch.randn(2, 1, 6, 6, 6), torch.randint(2, (2, 6, 6, 6)))]


@pytest.fixture
def mine() -> Iterator[Quantity]:
    yield register(
        Quantity(
            "mine",
            unit="channels",
            description="channels of all layers",
            by_layer=lambda trace, convention: {layer.name: layer.channels for layer in trace.layers},
            of_choice=lambda choice, convention: sum(map(len, choice.kept.values())),
        )
    )
    del QUANTITIES._values["mine"]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv3d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 12, 1), nn.Conv3d(12, 2, 1))


@pytest.mark.usefixtures("mine")
def test_a_quantity_of_ones_own_is_a_resource_and_a_budget() -> None:
    pruned = ranp.prune(network(), BATCHES, F.cross_entropy, budget="mine=50%", resource="mine")
    assert pruned.plan.settings["resource"] == "mine"
    assert sum(pruned.plan.widths.values()) == 15
    assert pruned.report.budget_lines() == [
        "budget mine=50%: 15 channels of 15 channels allowed (100.0% used), full network 30 channels"
    ]
    assert dict(ranp.measure(pruned.trace, "mine")) == {"0": 16, "2": 12, "3": 2}


@pytest.mark.usefixtures("mine")
def test_it_is_named_in_help_texts_and_refusals() -> None:
    assert "mine" in resources()
    assert "mine=50%" in budget_examples()
    with pytest.raises(UnsupportedError, match=r"unknown resource of a budget 'min'; did you mean 'mine'\?"):
        Budget.parse("min=50%")


def test_the_command_line_lists_quantities_without_torch() -> None:
    code = (
        "import sys\n"
        "from ranp.costs.quantities import Quantity, register\n"
        "register(Quantity('mine', 'things', 'a test', lambda trace, _: {}, lambda choice, _: 1.0))\n"
        "sys.argv = ['ranp', 'prune', '--help']\n"
        "from ranp.cli import main\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules\n"
    )
    environment = {**os.environ, "COLUMNS": "300", "NO_COLOR": "1"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    assert "mine=50%" in run.stdout
    assert "time, mine, code" in run.stdout


def test_the_short_name_of_a_resource_is_understood_in_budgets_too() -> None:
    assert Budget.parse("time=4x") == Budget.parse("step-time=4x")
    assert find("time", "resource", resources()) is find("step-time", "resource", resources())
    trace, setup = ranp.trace(network(), BATCHES[0][0]), StepSetup(network(), BATCHES[0][0])
    kept = ranp.measure(trace, "train-memory", setup=setup)
    assert kept.resource == "train-memory"
    assert min(kept.values()) > 0
    assert resources() == ("flops", "params", "memory", "train-memory", "time")
    assert resources(of_step=False) == ("flops", "params", "memory")


def test_a_step_that_nobody_described_is_asked_for() -> None:
    trace = ranp.trace(network(), BATCHES[0][0])
    with pytest.raises(UnsupportedError, match=r"resource 'time' is about a training step\. Pass setup="):
        ranp.measure(trace, "time")


def test_an_expected_number_of_parameters_per_convention() -> None:
    trace = ranp.trace(network(), BATCHES[0][0])
    assert ranp.measure(trace, "flops", convention="true").total == 2 * ranp.measure(
        trace, "flops", convention="paper"
    ).total - 2 * sum(call.output[1] * 2 * 6**3 for call in trace.calls if call.weight)

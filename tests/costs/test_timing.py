"""Real steps, in turn; what runs, what is said where nothing does, and that nothing of the user's is changed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ranp
from ranp.costs import timing
from ranp.costs.step import StepSetup, TrainingStep
from ranp.costs.timing import Care, Stepper, ratio, seconds
from ranp.errors import UnsupportedError


def network() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.Conv3d(4, 3, 1))


INPUTS, TARGET = torch.zeros(2, 1, 5, 5, 5), torch.zeros(2, 5, 5, 5, dtype=torch.long)


@pytest.mark.parametrize(
    "step",
    [
        TrainingStep(),
        TrainingStep(batch=3, optimiser="momentum"),
        TrainingStep(optimiser="none", precision="float64"),
        TrainingStep(precision="amp-bfloat16"),
        TrainingStep(checkpointing=True),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_steps_run_and_change_nothing(step: TrainingStep, device: str) -> None:
    model, inputs = network(), INPUTS.to(device)
    before, drawn = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    setup = StepSetup(model.to(device), inputs, step, F.cross_entropy, TARGET.to("meta"))
    with Stepper(setup, model) as stepper:
        assert seconds(stepper, Care(2, 2, 0.0, 0.0)) > 0
        assert sum(stepper.seconds_by_module(1).values()) > 0
    with Stepper(setup, model, inference=True) as stepper:
        assert ratio(stepper, stepper, Care(2, 2, 0.0, 0.0)) > 0
    assert torch.equal(torch.get_rng_state(), drawn)
    if device == "cpu":
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert all(parameter.grad is None for parameter in model.parameters())


def test_a_loss_that_does_not_take_made_up_targets_gets_a_stand_in() -> None:
    def picky(output: Tensor, target: Tensor) -> Tensor:
        raise ValueError("only real targets")

    model = network()
    with Stepper(StepSetup(model, INPUTS, TrainingStep(), picky, TARGET), model) as stepper:
        stepper()


def test_where_train_mode_refuses_a_batch_of_one_there_are_two() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    assert ranp.step_time(model, torch.zeros(1, 3)) > 0
    assert ranp.latency(model, torch.zeros(1, 3)) > 0


def test_what_does_not_run_is_refused_in_one_sentence() -> None:
    with pytest.raises(UnsupportedError, match="cannot be measured"):
        ranp.step_time(network(), torch.zeros(2, 3, 5, 5, 5))


def test_the_median_of_rounds_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    asked: list[Stepper] = []
    with Stepper(StepSetup(model, INPUTS), model) as one, Stepper(StepSetup(model, INPUTS), model) as other:
        disturbed: Iterator[float] = iter([1.0, 1.0, 9.0, *[1.0] * 99])

        def clocked(run: Any, device: torch.device) -> float:
            asked.append(run)
            return next(disturbed) * (3.0 if run is one else 6.0)

        monkeypatch.setattr(timing, "clocked", clocked)
        assert ratio(one, other, Care(3, 9, 0.01, 60.0)) == 0.5
        assert ratio(one, other, Care(1, 1, 0.0, 0.0)) == 0.5
    assert asked[2:6] == [one, other, other, one]
    assert len(asked) < 2 * 9 + 4


def test_seconds_of_layers_are_of_the_layers() -> None:
    model = network()
    costs = ranp.measure(ranp.trace(model, INPUTS), "time", setup=StepSetup(model, INPUTS))
    assert list(costs) == ["0", "3"]
    assert all(cost > 0 for cost in costs.values())


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_inputs_keep_their_memory_format(device: str) -> None:
    seen: list[bool] = []

    class Watching(nn.Conv3d):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.is_contiguous(memory_format=torch.channels_last_3d) and x.shape[0] == 3)
            return super().forward(x)

    inputs = torch.zeros(2, 4, 5, 5, 5, device=device).to(memory_format=torch.channels_last_3d)
    model = Watching(4, 2, 3)
    with Stepper(StepSetup(model, inputs, TrainingStep(batch=3)), model):
        pass
    assert seen
    assert all(seen)

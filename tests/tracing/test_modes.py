"""One run serves for both modes only where train mode runs what eval mode runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ranp
from ranp.tracing.tracer import Tracer

X = torch.zeros(1, 1, 6, 6, 6)


def block(*more: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv3d(1, 8, 3), *more, nn.Conv3d(8, 2, 1))


class Helped(nn.Module):
    """Has a head in training that evaluation never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.out, self.help = nn.Conv3d(1, 8, 3), nn.Conv3d(8, 2, 1), nn.Conv3d(8, 2, 1)

    def forward(self, x: Tensor) -> object:
        x = self.body(x)
        return (self.out(x), self.help(x)) if self.training else self.out(x)


class Dropped(nn.Module):
    """Says nothing of modes itself: it hands itself to a function."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.out = nn.Conv3d(1, 8, 3), nn.Conv3d(8, 2, 1)

    def forward(self, x: Tensor) -> object:
        return self.out(dropped(self, self.body(x)))


def dropped(module: nn.Module, x: Tensor) -> Tensor:
    return F.dropout(x, 0.5, module.training)


class Outside(nn.Module):
    """Says nothing of modes itself, nor of numbers: it hands itself, or a layer, to a function."""

    def __init__(self, function: Callable[[nn.Module, Tensor], Tensor], handed: str) -> None:
        super().__init__()
        self.body, self.norm, self.out = nn.Conv3d(1, 8, 3), nn.BatchNorm3d(8), nn.Conv3d(8, 2, 1)
        self.function, self.handed = function, handed

    def forward(self, x: Tensor) -> object:
        return self.out(self.function(self.get_submodule(self.handed), self.norm(self.body(x))))


def scaled(module: nn.Module, x: Tensor) -> Tensor:
    """By one, until channels go and only in evaluation."""
    return x * (1.0 if module.training else 8 / x.shape[1])


def scaled_in_training(module: nn.Module, x: Tensor) -> Tensor:
    """By one, until channels go and only in training."""
    return x * (8 / x.shape[1] if module.training is True else 1.0)


def checked(module: nn.Module, x: Tensor) -> Tensor:
    assert module.training or x.shape[1] == 8
    return x


class Switched(nn.Module):
    """Takes note of the mode when it is set, under another name."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.out, self.late = nn.Conv3d(1, 8, 3), nn.Conv3d(8, 2, 1), False

    def train(self, mode: bool = True) -> Switched:
        self.late = not mode
        return super().train(mode)

    def forward(self, x: Tensor) -> object:
        x = self.body(x)
        return self.out(x * (8 / x.shape[1] if self.late else 1.0))


class Counted(nn.Module):
    """Counts its channels in training alone, with the operators of evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.out = nn.Conv3d(1, 8, 3), nn.Conv3d(8, 2, 1)

    def forward(self, x: Tensor) -> object:
        x = self.body(x)
        return self.out(x * (8 / x.shape[1] if self.training else 1.0))


class Squeezed(nn.Module):
    """A batch of one loses its dimension, one of two does not."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.out = nn.Conv3d(1, 8, 6), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> object:
        return self.out(self.body(x).squeeze())


@pytest.mark.parametrize(
    "model",
    [block(nn.ReLU()), block(nn.BatchNorm3d(8), nn.Dropout(0.5)), block(nn.GroupNorm(4, 8)), block(nn.Dropout3d(0.1))],
)
def test_train_mode_is_not_written_down_where_it_runs_the_same(model: nn.Module) -> None:
    tracer = Tracer(model, X)
    found = tracer.trace(both=False)
    assert list(tracer.runs) == [False]
    assert str(found) == str(Tracer(model, X).trace())
    assert found.prunable == 8


@pytest.mark.parametrize("model", [Helped(), Dropped(), Squeezed(), block(nn.InstanceNorm3d(8))])
def test_both_modes_run_where_they_differ(model: nn.Module) -> None:
    tracer = Tracer(model, X)
    found = tracer.trace(both=False)
    assert list(tracer.runs) == [False, True]
    assert str(found) == str(Tracer(model, X).trace())
    assert found.prunable == 8


OUTSIDE = [
    Outside(function, handed) for function in (scaled, scaled_in_training, checked) for handed in ("", "body", "norm")
]


@pytest.mark.parametrize("model", [Switched(), Counted(), *OUTSIDE])
def test_what_one_mode_alone_counts_is_seen_wherever_code_asks_for_it(model: nn.Module) -> None:
    assert ranp.trace(model, X).prunable == 0


def test_the_network_keeps_its_modes() -> None:
    model = block(nn.BatchNorm3d(8), nn.Dropout(0.5)).eval()
    Tracer(model, X).trace(both=False)
    assert not any(module.training for module in model.modules())
    assert model[1].num_batches_tracked == 0
    assert model[2].p == 0.5

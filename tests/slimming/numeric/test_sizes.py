"""The size of a comparison: no dearer than allowed where the network takes such a size, else the cheapest it takes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ranp.slimming.numeric.sizes import affordable
from ranp.tracing.tracer import Tracer


def started(model: nn.Module, *shape: int) -> Tracer:
    tracer = Tracer(model, torch.zeros(shape, device="meta"))
    tracer.start()
    return tracer


def flops(tracer: Tracer) -> float:
    return float(sum(op.flops for op in tracer.ops.values()))


class Halving(nn.Module):
    """Five levels whose skips only fit if the size is a multiple of sixteen."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(1 if i == 0 else 4, 4, 3, padding=1) for i in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = []
        for layer in self.layers:
            seen.append(layer(x))
            x = nn.functional.max_pool2d(seen[-1], 2)
        x = seen.pop()
        while seen:
            x = nn.functional.interpolate(x, scale_factor=2) + seen.pop()
        return x


PLAIN = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))


def test_the_example_is_taken_where_it_is_cheap() -> None:
    tracer = started(PLAIN, 2, 1, 40, 40)
    for budget in (None, flops(tracer)):
        assert affordable(tracer, budget) == (tracer.example, "", True)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_what_is_taken_costs_no_more_than_allowed(share: float) -> None:
    tracer = started(PLAIN, 2, 1, 120, 120)
    smaller, note, cheap = affordable(tracer, share * flops(tracer))
    assert cheap
    assert str(tuple(smaller.shape)) in note
    assert 3 * flops(started(PLAIN, *smaller.shape)) <= share * flops(tracer)  # one sample in eval mode, two in train


def test_a_network_that_halves_its_input_is_run_at_a_size_that_it_takes() -> None:
    tracer = started(Halving(), 1, 1, 96, 80)
    smaller, _, cheap = affordable(tracer, 0.5 * flops(tracer))
    assert cheap
    assert all(size % 16 == 0 for size in smaller.shape[2:])


def test_a_network_of_one_size_is_run_at_that_size_on_one_sample() -> None:
    model = nn.Sequential(*PLAIN, nn.Flatten(), nn.Linear(2 * 64, 3))
    tracer = started(model, 3, 1, 8, 8)
    smaller, note, cheap = affordable(tracer, 1.0)
    assert tuple(smaller.shape) == (1, 1, 8, 8)
    assert "(1, 1, 8, 8)" in note
    assert not cheap

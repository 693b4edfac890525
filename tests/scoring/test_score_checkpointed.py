"""Scores with checkpointing against scores without: the same numbers, from less memory, and the model untouched."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from benchmarks.pairs import peak_bytes
from ranp.paper import models
from ranp.scoring.score import score, score_many
from ranp.scoring.scores import Scores

CRITERIA = ("mpmg-sum", "mpmg-mean", "mpmg-max", "mnmg-sum", "mnmg-max", "neuron-mask", "snip")


def unit(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, 3, padding=1), nn.BatchNorm3d(outputs), nn.ReLU(inplace=True), nn.Dropout(0.3)
    )


class Segments(nn.Module):
    """Blocks one after the other, one of them used twice, with dropout and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(unit(1, 4), unit(4, 6))
        self.twice = nn.Sequential(unit(6, 6), unit(6, 6))
        self.normed = nn.Sequential(weight_norm(nn.Conv3d(6, 5, 1)), nn.GroupNorm(1, 5), nn.LeakyReLU(inplace=True))
        self.head = nn.Conv3d(5, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.normed(self.twice(self.twice(self.first(x)))))


class WritesToItsWeights(nn.Module):
    """Writes to its parameters and its inputs while it runs: doing so twice would change the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = unit(1, 4), nn.Sequential(unit(4, 4), unit(4, 4))
        self.third = nn.Sequential(unit(4, 4), Shrinking(4, 4, 1), unit(4, 4))
        self.head = nn.Conv3d(4, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x.mul_(0.5)
        return self.head(self.third(self.second(self.first(x))))


class Shrinking(nn.Conv3d):
    def forward(self, x: Tensor) -> Tensor:
        self.weight.data.mul_(0.9)
        return super().forward(x)


def batches(dtype: torch.dtype = torch.float64, size: int = 6, count: int = 3) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (
            torch.randn(2, 1, size, size, size, generator=generator, dtype=dtype),
            torch.randint(3, (2, size, size, size), generator=generator),
        )
        for _ in range(count)
    ]


def same(found: Scores, wanted: Scores) -> None:
    assert found.excluded == wanted.excluded
    assert found.batches == wanted.batches
    assert list(found) == list(wanted)
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-12, atol=1e-18)
    for name, values in wanted.weights.items():
        torch.testing.assert_close(found.weights[name], values, rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("build", [Segments, WritesToItsWeights])
def test_scores_are_those_of_an_ordinary_pass(build: type[nn.Module], mode: str) -> None:
    torch.manual_seed(0)
    model = build().double()
    before, data = copy.deepcopy(model.state_dict()), batches()
    plain = score_many(model, data, F.cross_entropy, CRITERIA, mode=mode)
    less = score_many(model, data, F.cross_entropy, CRITERIA, mode=mode, checkpointing=True)
    for name in CRITERIA:
        same(less[name], plain[name])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for (inputs, _), (untouched, _) in zip(data, batches(), strict=True):
        assert torch.equal(inputs, untouched)
    assert not any("forward" in vars(module) for module in model.modules())


def test_one_criterion_alone() -> None:
    model = Segments().double()
    same(
        score(model, batches(), F.cross_entropy, checkpointing=True, seed=4),
        score(model, batches(), F.cross_entropy, seed=4),
    )


def test_random_numbers_go_on_as_if_nothing_had_been_scored() -> None:
    model = Segments().double()
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    score(model, batches(), F.cross_entropy, checkpointing=True)
    assert torch.equal(torch.rand(3), wanted)


def test_it_takes_less_memory() -> None:
    model = models.build("unet3d-shapenet", widths=(8, 16, 32), classes=3)
    data = batches(torch.float32, 32, 1)

    def peak(checkpointing: bool) -> int:
        return peak_bytes(lambda: score(model, data, F.cross_entropy, checkpointing=checkpointing))

    assert peak(True) < 0.8 * peak(False)

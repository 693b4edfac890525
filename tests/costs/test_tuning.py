"""The fastest way to run a network: the same numbers, nothing of the user's changed, and only what really pays."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ranp
from ranp.costs.drop_ins import HalvedConv3d, PointwiseConv3d
from ranp.costs.timing import Stepper
from ranp.costs.tuning import Tuned
from ranp.errors import UnsupportedError
from ranp.paper.recipe import Recipe


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv3d(2, 6, 3, padding=1), nn.BatchNorm3d(6), nn.ReLU(), nn.Conv3d(6, 3, 1))


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last_3d"])
@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("pointwise", [False, True])
def test_the_same_numbers_from_an_ordinary_module(memory_format: str, halved: bool, pointwise: bool) -> None:
    way = Tuned(memory_format, halved, pointwise)
    model, x = network(), torch.randn(1, 2, 6, 6, 6)
    before = copy.deepcopy(model.state_dict())
    other = way.apply(model)
    assert other is not model
    assert list(other.state_dict()) == list(before)
    assert torch.allclose(other(x), model(x), atol=1e-5)
    assert torch.allclose(copy.deepcopy(other)(x), other(x), atol=1e-5)
    other.load_state_dict(before)
    torch.save(other.state_dict(), io.BytesIO())
    assert type(model[0]) is nn.Conv3d
    assert model[0].weight.is_contiguous()
    assert not model._forward_pre_hooks


WAYS = [
    "contiguous",
    "contiguous+halved",
    "channels_last_3d",
    "channels_last_3d+halved",
    "channels_last_3d+halved+pointwise",
]


@pytest.mark.parametrize("fast", WAYS)
def test_the_fastest_is_taken_if_it_pays(fast: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def clocked(run: Stepper, device: torch.device) -> float:
        model = run._model
        name = "channels_last_3d" if model._forward_pre_hooks else "contiguous"
        name += "+halved" if isinstance(model[0], HalvedConv3d) else ""
        name += "+pointwise" if isinstance(model[3], PointwiseConv3d) else ""
        return 0.5 if name == fast else 0.99 if name.startswith("ch") else 1.0

    monkeypatch.setattr("ranp.costs.timing.clocked", clocked)
    found = ranp.tune(network(), torch.zeros(1, 2, 6, 6, 6))
    assert found.name == fast
    assert Tuned.named(fast) == found
    assert list(found.ratios) == WAYS
    assert found.ratios["contiguous"] == 1.0
    assert str(found).count("fastest") == 1
    recipe = Recipe(network="unet3d-shapenet", size=16, epochs=1, batch=1, optimiser="adam", learning_rate=0.01)
    assert recipe.but([f"memory_format={found.name}"]).memory_format == fast


def test_a_way_that_does_not_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: HalvedConv3d, *_: Any) -> Tensor:
        raise RuntimeError("not here")

    monkeypatch.setattr(HalvedConv3d, "_conv_forward", broken)
    assert list(ranp.tune(network(), torch.zeros(1, 2, 6, 6, 6)).ratios) == ["contiguous", "channels_last_3d"]
    assert list(ranp.tune(nn.Linear(3, 2), torch.zeros(1, 3)).ratios) == ["contiguous"]


@pytest.mark.slow
def test_real_runs() -> None:
    model, x = network(), torch.zeros(1, 2, 6, 6, 6)
    for step in (ranp.TrainingStep(batch=2), None):
        found = ranp.tune(model, x, step, loss=F.cross_entropy, target=torch.zeros(1, 6, 6, 6, dtype=torch.long))
        assert found.memory_format in ("contiguous", "channels_last_3d")
        assert found.apply(model)(x).shape == (1, 3, 6, 6, 6)
    image = ranp.tune(nn.Conv2d(1, 2, 3), torch.zeros(1, 1, 8, 8))
    assert set(image.ratios) == {"contiguous", "channels_last"}


def test_inputs_that_are_no_single_tensor_are_brought_into_the_format() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv3d(1, 2, 3)

        def forward(self, pair: dict[str, Tensor], *, scale: Tensor) -> Tensor:
            assert pair["a"].is_contiguous(memory_format=torch.channels_last_3d)
            return self.conv(pair["a"]) * scale

    out = Tuned("channels_last_3d").apply(Two())({"a": torch.zeros(1, 1, 5, 4, 3)}, scale=torch.ones(1))
    assert out.shape == (1, 2, 3, 2, 1)


def test_what_does_not_run_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="cannot be measured"):
        ranp.tune(network(), torch.zeros(1, 3, 6, 6, 6))

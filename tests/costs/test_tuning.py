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
from ranp.costs.timing import Stepper
from ranp.costs.tuning import HalvedConv3d, Tuned
from ranp.errors import UnsupportedError


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv3d(2, 6, 3, padding=1), nn.BatchNorm3d(6), nn.ReLU(), nn.Conv3d(6, 3, 1))


@pytest.mark.parametrize("kernel", [1, 3, (2, 3, 1), (5, 3, 1)])
@pytest.mark.parametrize("stride", [1, 2, (3, 1, 2)])
@pytest.mark.parametrize("padding", [0, 1, (2, 1, 0), "same"])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("shape", [(1, 2, 9, 10, 9), (1, 2, 10, 9, 9), (2, 2, 9, 9, 9), (2, 9, 9, 9)])
def test_halves_are_the_convolution(
    kernel: Any, stride: Any, padding: Any, dilation: int, shape: tuple[int, ...]
) -> None:
    if padding == "same" and (stride != 1 or kernel == (2, 3, 1)):
        pytest.skip("torch has no such convolution, or warns of it")
    torch.manual_seed(0)
    plain = nn.Conv3d(2, 3, kernel, stride, padding, dilation)
    halved, x = HalvedConv3d.of(copy.deepcopy(plain)), torch.randn(shape)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outs = [module(one) for module, one in zip((plain, halved), inputs, strict=True)]
    for out in outs:
        out.square().sum().backward()
    weights, biases = ([getattr(m, name).grad for m in (plain, halved)] for name in ("weight", "bias"))
    for one, other in (outs, [one.grad for one in inputs], weights, biases):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last_3d"])
@pytest.mark.parametrize("halved", [False, True])
def test_the_same_numbers_from_an_ordinary_module(memory_format: str, halved: bool) -> None:
    way = Tuned(memory_format, halved)
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


def test_shared_modules_stay_shared() -> None:
    conv = nn.Conv3d(2, 2, 3, padding=1)
    found = Tuned(halved=True).apply(nn.Sequential(conv, nn.ReLU(), conv))
    assert isinstance(found[0], HalvedConv3d)
    assert found[0] is found[2]
    assert isinstance(Tuned(halved=True).apply(conv), HalvedConv3d)


@pytest.mark.parametrize("fast", ["contiguous", "channels_last_3d", "contiguous+halved", "channels_last_3d+halved"])
def test_the_fastest_is_taken_if_it_pays(fast: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def clocked(run: Stepper, device: torch.device) -> float:
        model = run._model
        name = "channels_last_3d" if model._forward_pre_hooks else "contiguous"
        name += "+halved" if isinstance(model[0], HalvedConv3d) else ""
        return 0.5 if name == fast else 0.99 if name.startswith("ch") else 1.0

    monkeypatch.setattr("ranp.costs.timing.clocked", clocked)
    found = ranp.tune(network(), torch.zeros(1, 2, 6, 6, 6))
    assert found.name == fast
    assert len(found.ratios) == 4
    assert found.ratios["contiguous"] == 1.0
    assert str(found).count("fastest") == 1


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

"""Drop-in convolutions give the numbers and gradients of torch's, wherever they may stand."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ranp.costs.drop_ins import DropIn, HalvedConv3d, PointwiseConv3d
from ranp.costs.tuning import Tuned


def assert_same(plain: nn.Conv3d, other: DropIn, x: Tensor) -> Tensor:
    """Outputs and gradients agree; what the drop-in returns."""
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outs = [module(one) for module, one in zip((plain, other), inputs, strict=True)]
    for out in outs:
        out.square().sum().backward()
    weights, biases = ([getattr(m, name).grad for m in (plain, other)] for name in ("weight", "bias"))
    for one, two in (outs, [one.grad for one in inputs], weights, biases):
        assert torch.allclose(one, two, rtol=1e-3, atol=1e-3)
    return outs[1]


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
    assert_same(plain, HalvedConv3d.of(copy.deepcopy(plain)), torch.randn(shape))


@pytest.mark.parametrize("shape", [(1, 4, 5, 4, 3), (2, 4, 5, 4, 3), (4, 5, 4, 3)])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last_3d])
def test_products_are_the_convolution(shape: tuple[int, ...], memory_format: torch.memory_format) -> None:
    torch.manual_seed(0)
    plain = nn.Conv3d(4, 3, 1)
    x = torch.randn(shape)
    x = x.contiguous(memory_format=memory_format) if x.dim() == 5 else x
    out = assert_same(plain, PointwiseConv3d.of(copy.deepcopy(plain)), x)
    if memory_format is torch.channels_last_3d and x.dim() == 5 and (len(x) == 1 or torch.get_num_threads() == 1):
        assert out.is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize(
    ("module", "halved", "pointwise"),
    [
        (nn.Conv3d(2, 2, 3), True, False),
        (nn.Conv3d(2, 2, (1, 3, 3)), True, False),
        (nn.Conv3d(2, 2, 1), False, True),
        (nn.Conv3d(2, 2, 1, padding="same"), False, True),
        (nn.Conv3d(2, 2, 1, padding=1), False, False),
        (nn.Conv3d(2, 2, 1, stride=2), False, False),
        (nn.Conv3d(2, 2, 1, groups=2), False, False),
        (nn.Conv3d(2, 2, 3, padding=1, padding_mode="reflect"), False, False),
        (nn.Conv2d(2, 2, 1), False, False),
    ],
)
def test_they_replace_what_they_can_compute(module: nn.Module, halved: bool, pointwise: bool) -> None:
    assert (HalvedConv3d.serves(module), PointwiseConv3d.serves(module)) == (halved, pointwise)
    assert isinstance(HalvedConv3d.replace_in(module), HalvedConv3d) is halved


@pytest.mark.parametrize(("kind", "kernel"), [(HalvedConv3d, 3), (PointwiseConv3d, 1)])
def test_shared_modules_stay_shared(kind: type[DropIn], kernel: int) -> None:
    conv = nn.Conv3d(2, 2, kernel)
    found = Tuned(halved=True, pointwise=True).apply(nn.Sequential(conv, nn.ReLU(), conv))
    assert isinstance(found[0], kind)
    assert found[0] is found[2]

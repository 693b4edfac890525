"""Shapes worked out directly, against what torch really computes, and the same refusals."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ranp.running.dataless import MetaMode

MODULES = {
    "conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2), (2, 4, 13)),
    "conv2d": (nn.Conv2d(4, 6, (3, 1), stride=(2, 1), padding=(1, 0), groups=2), (2, 4, 9, 7)),
    "conv3d": (nn.Conv3d(4, 6, 3, bias=False), (2, 4, 5, 6, 7)),
    "same padding": (nn.Conv3d(4, 6, 3, padding="same", dilation=2), (2, 4, 5, 6, 7)),
    "depthwise": (nn.Conv3d(4, 8, 3, groups=4), (2, 4, 5, 6, 7)),
    "transposed1d": (nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 5)),
    "transposed3d": (nn.ConvTranspose3d(4, 6, 2, stride=2, groups=2, dilation=2), (2, 4, 3, 4, 5)),
    "batch norm": (nn.BatchNorm3d(4), (2, 4, 3, 3, 3)),
    "batch norm without statistics": (nn.BatchNorm3d(4, track_running_stats=False), (2, 4, 3, 3, 3)),
    "instance norm": (nn.InstanceNorm3d(4, affine=True), (2, 4, 3, 3, 3)),
    "group norm": (nn.GroupNorm(2, 4), (2, 4, 3, 3, 3)),
    "layer norm": (nn.LayerNorm((3, 3)), (2, 4, 3, 3)),
    "relu": (nn.ReLU(inplace=True), (2, 4, 3)),
    "relu6": (nn.ReLU6(), (2, 4, 3)),
    "leaky": (nn.LeakyReLU(), (2, 4, 3)),
    "gelu": (nn.GELU(), (2, 4, 3)),
    "silu": (nn.SiLU(inplace=True), (2, 4, 3)),
    "hardswish": (nn.Hardswish(), (2, 4, 3)),
    "prelu": (nn.PReLU(4), (2, 4, 3)),
    "nearest": (nn.Upsample(scale_factor=2), (2, 4, 3, 3, 3)),
    "trilinear": (nn.Upsample(size=(4, 5, 6), mode="trilinear", align_corners=True), (2, 4, 3, 3, 3)),
    "bilinear": (nn.Upsample(scale_factor=1.5, mode="bilinear"), (2, 4, 3, 3)),
    "dropout": (nn.Dropout3d(), (2, 4, 3, 3, 3)),
}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_modules_come_out_in_the_shape_torch_gives(name: str, train: bool) -> None:
    module, shape = MODULES[name]
    module = module.train(train)
    with torch.no_grad():
        real = module(torch.rand(shape))
        with MetaMode():
            empty = module.to("meta")(torch.empty(shape, device="meta"))
    module.to_empty(device="cpu")
    assert empty.shape == real.shape
    assert empty.dtype == real.dtype
    assert empty.is_contiguous() == real.is_contiguous()


PAIRS = [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((2, 3), ())]


@pytest.mark.parametrize("op", [torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.lt, torch.pow])
@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.parametrize("types", ["float32 float32", "float32 float64", "int64 float32"])
def test_pairs(op, a, b, types) -> None:
    x, y = (torch.ones(shape, dtype=getattr(torch, t)) for shape, t in zip((a, b), types.split(), strict=True))
    with MetaMode():
        empty = op(x.to("meta"), y.to("meta"))
    real = op(x, y)
    assert (empty.shape, empty.dtype) == (real.shape, real.dtype)


@pytest.mark.parametrize("value", [2, 2.5, True])
def test_numbers_beside_tensors(value) -> None:
    for dtype in (torch.float32, torch.int64):
        x = torch.ones(3, dtype=dtype)
        with MetaMode():
            empty = x.to("meta") + value, x.to("meta") * value
        assert [e.dtype for e in empty] == [(x + value).dtype, (x * value).dtype]


REFUSED = {
    "channels of a convolution": lambda d: F.conv3d(
        torch.zeros(1, 3, 5, 5, 5, device=d), torch.zeros(2, 4, 3, 3, 3, device=d)
    ),
    "groups of a convolution": lambda d: F.conv1d(
        torch.zeros(1, 4, 5, device=d), torch.zeros(3, 2, 1, device=d), groups=2
    ),
    "bias of a convolution": lambda d: F.conv1d(
        torch.zeros(1, 4, 5, device=d), torch.zeros(3, 4, 1, device=d), torch.zeros(2, device=d)
    ),
    "input smaller than a kernel": lambda d: F.conv1d(torch.zeros(1, 4, 2, device=d), torch.zeros(3, 4, 5, device=d)),
    "channels of a batch norm": lambda d: F.batch_norm(
        torch.zeros(2, 3, 4, device=d), torch.zeros(2, device=d), torch.ones(2, device=d)
    ),
    "weight of a batch norm": lambda d: F.batch_norm(
        torch.zeros(2, 3, 4, device=d), None, None, torch.zeros(2, device=d), training=True
    ),
    "groups of a norm": lambda d: F.group_norm(torch.zeros(2, 3, 4, device=d), 2),
    "weight of a group norm": lambda d: F.group_norm(torch.zeros(2, 4, 4, device=d), 2, torch.zeros(3, device=d)),
    "shape of a layer norm": lambda d: F.layer_norm(torch.zeros(2, 3, device=d), (4,)),
    "an addition": lambda d: torch.zeros(2, 3, device=d) + torch.zeros(2, 4, device=d),
    "an addition in place": lambda d: torch.zeros(2, 3, device=d).add_(torch.zeros(4, 2, 3, device=d)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_shapes_are_refused_as_torch_does(name: str) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        REFUSED[name]("cpu")
    with pytest.raises((RuntimeError, ValueError)), MetaMode():
        REFUSED[name]("meta")

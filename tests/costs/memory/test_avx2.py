"""OneDNN's kernels with AVX2 against what was measured of them: figures of one machine, arithmetic for every one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from ranp.costs.memory.transients import transient
from ranp.costs.step import Call, Sized
from ranp.costs.step.cpu import Cpu

PASSES = {"forward": None, "data": [True, False, False], "weight": [False, True, False]}
MEASURED = [
    # kernel, pass, (batch, into, out), space, kernel, stride, padding, more, bytes
    ("unrolled", "forward", (4, 9, 9), (8, 8, 16), 1, 2, 0, {}, 295936),
    ("unrolled", "data", (2, 64, 64), (8, 23), 4, 1, 0, {}, 407552),
    ("unrolled", "data", (3, 5, 17), (23, 32), 3, 1, 1, {}, 289536),
    ("unrolled", "weight", (4, 9, 9), (8, 8, 16), 1, 2, 0, {}, 295936),
    ("unrolled", "weight", (3, 25, 33), (12, 12, 12), 7, 4, 0, {}, 2888060),
    ("stepping", "data", (4, 9, 9), (8, 8, 16), 1, 2, 0, {}, 442368),
    ("stepping", "data", (3, 32, 9), (16, 16, 8), 3, 2, 0, {}, 2359296),
    ("stepping", "data", (4, 9, 1), (9, 9, 9), 1, 2, 0, {"threads": 2}, 314928),
    ("stepping", "forward", (2, 32, 8), (16, 2, 4), 4, 4, 0, {"is_transposed": True}, 1572864),
    ("stepping", "forward", (2, 48, 24), (23, 23), 3, 3, 0, {"is_transposed": True, "threads": 2}, 2742336),
    ("unrolled", "forward", (2, 40, 5), (16, 16, 16), 3, 1, 1, {"is_transposed": True}, 1607424),
    ("unrolled", "data", (4, 64, 5), (13, 2, 16), 3, 2, 1, {"is_transposed": True}, 851968),
    ("unrolled", "weight", (4, 1, 9), (12, 23), 2, 4, 1, {"is_transposed": True}, 1028608),
    ("by points", "data", (3, 64, 1), (16, 4, 13), 1, 1, 0, {"threads": 2}, 1277952),
    ("by products", "forward", (4, 24, 33), (2, 4, 6), 1, 1, 1, {"threads": 2}, 202752),
    ("by products", "data", (2, 48, 48), (8, 9, 9), 4, 3, 0, {"dilation": 2}, 497664),
    ("by products", "data", (3, 16, 8), (12, 13, 9), 3, 2, 1, {"groups": 4}, 539136),
    ("by products", "weight", (2, 48, 48), (8, 9, 9), 4, 3, 0, {"dilation": 2}, 2961664),
    ("by products", "weight", (2, 20, 24), (13, 12, 13), 5, 2, 1, {"dilation": 2, "threads": 2}, 2400256),
    ("by products", "weight", (1, 48, 48), (13, 13, 13), 7, 2, 1, {"groups": 48}, 363836),
    ("depthwise", "data", (3, 20, 20), (32, 32), 7, 1, 3, {"groups": 20, "threads": 2}, 594528),
    ("depthwise", "weight", (4, 12, 12), (12, 32), 2, 1, 0, {"groups": 12, "threads": 2}, 185856),
    ("depthwise, last", "forward", (4, 5, 5), (12, 16, 12), 4, 1, 2, {"groups": 5, "threads": 2}, 689520),
    ("all last", "weight", (2, 25, 50), (9, 9, 9), 4, 2, 0, {"last": ("x", "weight")}, 1098752),
    ("all last", "data", (2, 16, 32), (16, 12, 13), 2, 2, 1, {"last": ("x", "weight")}, 442392),
    ("all last", "weight", (3, 17, 50), (6, 6, 6), 4, 3, 2, {"last": ("x", "weight")}, 1142240),
    ("data last", "weight", (2, 25, 50), (9, 9, 9), 4, 2, 0, {"last": ("x",)}, 1418752),
    ("data last", "data", (2, 16, 32), (16, 12, 13), 2, 2, 1, {"last": ("x",)}, 458776),
    ("data last", "weight", (3, 17, 50), (6, 6, 6), 4, 3, 2, {"last": ("x",)}, 1359840),
]


def convolution(
    wanted: list[bool] | None,
    channels: tuple[int, int, int],
    space: tuple[int, ...],
    kernel: int,
    stride: int,
    padding: int,
    *,
    dilation: int = 1,
    groups: int = 1,
    is_transposed: bool = False,
    last: tuple[str, ...] = (),
) -> Call:
    batch, into, out = channels
    dims = len(space)
    extent = dilation * (kernel - 1) + 1
    reach = tuple(
        (size - 1) * stride - 2 * padding + extent if is_transposed else (size + 2 * padding - extent) // stride + 1
        for size in space
    )
    matrix = (into, out // groups) if is_transposed else (out, into // groups)
    x, y = (Sized(shape, torch.float32, "x" in last) for shape in ((batch, into, *space), (batch, out, *reach)))
    weight = Sized((*matrix, *[kernel] * dims), torch.float32, "weight" in last)
    shared: list[Any] = [[stride] * dims, [padding] * dims, [dilation] * dims, is_transposed, [0] * dims, groups]
    if wanted is None:
        settings = json.dumps([["T", "T", None, *shared]])
        return Call("aten.convolution.default", (x, weight), (y,), settings, "forward", "")
    made = tuple(tensor for tensor, is_wanted in zip((x, weight), wanted, strict=False) if is_wanted)
    settings = json.dumps([["T", "T", "T", [0], *shared, wanted]])
    return Call("aten.convolution_backward.default", (y, x, weight), made, settings, "backward", "")


@pytest.mark.parametrize(
    ("kernel", "step", "channels", "space", "size", "stride", "padding", "more", "measured"), MEASURED
)
def test_is_what_was_measured(
    kernel: str,
    step: str,
    channels: tuple[int, int, int],
    space: tuple[int, ...],
    size: int,
    stride: int,
    padding: int,
    more: dict[str, Any],
    measured: int,
) -> None:
    options = {name: value for name, value in more.items() if name != "threads"}
    call = convolution(PASSES[step], channels, space, size, stride, padding, **options)
    made = sum(tensor.bytes for tensor in call.outputs)
    assert made + transient(call, Cpu("avx2", more.get("threads", 1))) == measured, kernel


def test_padding_in_depth_sends_the_weights_to_matrix_products() -> None:
    plain, padded = (convolution(PASSES["weight"], (2, 16, 16), (20, 20, 20), 3, 1, pad) for pad in (0, 1))
    weight = 4 * 16 * 16 * 27
    operands = 2 * 4 * 16 * (20**3 + 18**3)
    assert transient(plain, Cpu("avx2")) == operands  # both in blocks, and the weight, which is left
    patches = 4 * 16 * 27 * 20 * 20
    assert transient(padded, Cpu("avx2")) == patches + 4 * weight + 256


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_scratchpad_of_matrix_products_is_bounded_by_the_operands(threads: int) -> None:
    call = convolution(PASSES["weight"], (2, 2, 2), (40, 40, 40), 7, 1, 3)
    operands = sum(tensor.bytes for tensor in call.inputs)
    assert transient(call, Cpu("avx2", threads)) <= 15 * threads * operands

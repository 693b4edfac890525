"""Rules for what operators allocate, against what they allocate."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import pytest
import torch

from ranp.costs.memory.measuring import allocated_peak
from ranp.costs.memory.transients import is_estimate, transient
from ranp.costs.step import Call, Sized, TrainingStep, trace_step
from ranp.costs.step.cpu import Cpu, this_cpu
from tests.support.rerunning import rerun
from tests.support.training_networks import NETWORKS, network

LAYOUTS = ["plain", "last"] if this_cpu().isa == "avx2" else ["plain"]
"""Channels-last kernels were surveyed with AVX2; ``make test`` runs this file with it wherever it can."""


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """As many as the environment says, up to the two for which rules were checked."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(2, before))
    yield
    torch.set_num_threads(before)


def measured(call: Call) -> int:
    """Bytes at the worst moment of an operator, its results among them."""
    thunk = rerun(call)
    thunk()
    return allocated_peak(thunk)


def predicted(call: Call, made: int) -> int:
    return made + transient(call)


def tolerance(call: Call) -> float:
    """Wider where a prediction says of itself that it is an estimate; with AMX, of whose kernels nothing is known, any.

    ``make hardware`` runs these tests without it.
    """
    if not is_estimate(call, this_cpu()):
        return 1.0
    return math.inf if this_cpu().level == "other" and call.inputs[0].dtype == torch.bfloat16 else 4.0


@pytest.mark.hardware
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("precision", ["float32", "amp-bfloat16"])
def test_every_operator_of_small_networks(name: str, precision: str) -> None:
    model, x = network(name)
    seen = trace_step(model, x, step=TrainingStep(precision=precision, optimiser="none"))
    for index, call in enumerate(seen.calls):
        if any(tensor.scattered for tensor in call.inputs):
            continue  # rerun makes another view than the one there was
        fresh = {y.storage: y.bytes for y in call.outputs if seen.storages[y.storage].born == index}
        got, want = predicted(call, sum(fresh.values())), measured(call)
        touched = sum(tensor.bytes for tensor in (*call.inputs, *call.outputs))
        share = 0.05 if precision == "float32" else 0.12
        assert got == pytest.approx(want, abs=tolerance(call) * (20_000 + share * (touched + want))), call


def convolution(rng: random.Random, dtype: torch.dtype, *, last: bool = False) -> tuple[Call, Call]:
    """A random convolution, forward and backward."""
    dims = rng.choice([2, 3, 3])
    batch, into, out = rng.choice([1, 2, 3]), rng.choice([1, 3, 8, 16, 20, 32]), rng.choice([2, 13, 16, 32, 50])
    size = rng.choice([6, 9, 12, 16])
    kernel, stride, padding = rng.choice([(3, 1, 1), (3, 1, 1), (1, 1, 0), (3, 2, 1), (2, 2, 0), (5, 1, 2)])
    is_transposed = kernel == 2 and rng.random() < 0.7
    groups = 1
    if not is_transposed and rng.random() < 0.2:
        groups = out = into
    reach = size * 2 if is_transposed else (size + 2 * padding - kernel) // stride + 1
    weight = (into, out, *[kernel] * dims) if is_transposed else (out, into // groups, *[kernel] * dims)
    shapes = ((batch, into, *[size] * dims), weight, (batch, out, *[reach] * dims))
    # A tensor of one channel, or of one point, lies both ways.
    x, w, y = (Sized(shape, dtype, last and shape[1] > 1 and prod(shape[2:]) > 1) for shape in shapes)
    shared: list[Any] = [[stride] * dims, [padding] * dims, [1] * dims, is_transposed, [0] * dims, groups]
    settings = json.dumps([["T", "T", None, *shared]])
    forward = Call("aten.convolution.default", (x, w), (y,), settings, "forward", "")
    settings = json.dumps([["T", "T", "T", [0], *shared, [True, True, False]]])
    return forward, Call("aten.convolution_backward.default", (y, x, w), (x, w), settings, "backward", "")


@pytest.mark.hardware
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(3))
def test_random_convolutions(dtype: torch.dtype, layout: str, seed: int) -> None:
    rng = random.Random(seed)
    errors = []
    for _ in range(8):
        for call in convolution(rng, dtype, last=layout == "last"):
            got, want = predicted(call, sum(y.bytes for y in call.outputs)), measured(call)
            wide = tolerance(call)
            assert got == pytest.approx(want, rel=0.25 * wide, abs=60_000 * wide), call
            errors.append(abs(got - want) / want / wide**2 if want > 200_000 else 0.0)
    assert sorted(errors)[len(errors) * 3 // 4] < 0.03


def single(into: int, out: int, dtype: torch.dtype = torch.float32, edge: int = 16) -> Call:
    """A forward convolution of two samples by a padded kernel of three."""
    x, w = Sized((2, into, edge, edge, edge), dtype), Sized((out, into, 3, 3, 3), dtype)
    settings = json.dumps([["T", "T", None, [1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 1]])
    y = Sized((2, out, edge, edge, edge), dtype)
    return Call("aten.convolution.default", (x, w), (y,), settings, "forward", "")


@pytest.mark.parametrize(("isa", "block"), [("avx512", 16), ("avx2", 8), ("other", 8)])
@pytest.mark.parametrize(("into", "out"), [(17, 33), (16, 16), (40, 9)])
def test_onednn_pads_channels_to_the_blocks_of_the_instructions(isa: str, block: int, into: int, out: int) -> None:
    points = 2 * 16**3
    wide_in, wide_out = (-(-channels // block) * block for channels in (into, out))
    running = points * (wide_in + wide_out) + 27 * wide_in * wide_out
    leaving = points * (wide_out + out)
    assert transient(single(into, out), Cpu(isa)) == 4 * (max(running, leaving) - points * out)


def test_torch_does_without_onednn_where_it_has_none_or_the_type_is_not_its() -> None:
    columns = 2 * 20 * 27 * 16**3
    assert transient(single(20, 9), Cpu("none")) == 4 * columns
    assert transient(single(20, 9, torch.float64), Cpu("avx512")) == 8 * columns
    assert transient(single(20, 9, torch.bfloat16), Cpu("avx2")) == 2 * columns
    assert transient(single(20, 9, torch.bfloat16), Cpu("avx512", 1, (torch.bfloat16,))) < columns


def test_another_number_of_threads_is_another_question() -> None:
    x, w = Sized((4, 8, 8, 8, 8), torch.float32), Sized((16, 8, 3, 3, 3), torch.float32)
    shared = [[1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 1]
    settings = json.dumps([["T", "T", "T", [0], *shared, [False, True, False]]])
    y = Sized((4, 16, 8, 8, 8), torch.float32)
    call = Call("aten.convolution_backward.default", (y, x, w), (w,), settings, "backward", "")
    patches, sums = 8 * 27 * 8 * 8 * 4, 4 * w.bytes
    for threads in (1, 2, 1):
        assert transient(call, Cpu("avx2", threads)) == threads * (patches + sums) + 256


def test_own_instructions_for_16_bits_compute_depthwise_channels_last() -> None:
    x, w = Sized((1, 16, 16, 16, 16), torch.bfloat16), Sized((16, 1, 5, 5, 5), torch.bfloat16)
    settings = json.dumps([["T", "T", None, [1] * 3, [2] * 3, [1] * 3, False, [0] * 3, 16]])
    call = Call("aten.convolution.default", (x, w), (x,), settings, "forward", "")
    assert x.bytes + transient(call, Cpu("avx512", 1, (torch.bfloat16,), "bf16")) == 393_216  # as measured


def test_says_which_kernels_were_not_surveyed() -> None:
    small, large = single(4, 4), single(64, 4, edge=256)
    for isa in ("avx2", "avx512", "none"):
        assert not is_estimate(small, Cpu(isa))
    assert is_estimate(small, Cpu("other"))
    assert is_estimate(large, Cpu("avx2"))
    assert is_estimate(large, Cpu("avx512"))
    half = single(4, 4, torch.bfloat16)
    assert is_estimate(half, Cpu("avx2", 1, (torch.bfloat16,)))
    for level, unknown in (("core", False), ("bf16", False), ("other", True)):
        assert is_estimate(half, Cpu("avx512", 1, (torch.bfloat16,), level)) == unknown
        assert is_estimate(single(4, 4, torch.float16), Cpu("avx512", 1, (torch.float16,), level))
    last = replace(small, inputs=tuple(replace(x, channels_last=True) for x in small.inputs))
    assert is_estimate(last, Cpu("avx512"))
    assert not is_estimate(last, Cpu("avx2"))
    assert not is_estimate(single(4, 4, torch.float64), Cpu("other"))
    size = Sized((1 << 30,), torch.float32)
    assert not is_estimate(Call("aten.relu.default", (size,), (size,), '[["T"]]', "forward", ""), Cpu("other"))


def test_pointwise_operators_of_mixed_precision_copy_the_narrower() -> None:
    shape = (3, 5, 7)
    narrow, wide = Sized(shape, torch.bfloat16), Sized(shape, torch.float32)
    mixed = Call("aten.add.Tensor", (narrow, wide), (wide,), '[["T","T"]]', "forward", "")
    assert transient(mixed) == prod(shape) * 4
    assert measured(mixed) == predicted(mixed, wide.bytes)
    assert transient(Call("aten.add.Tensor", (wide, wide), (wide,), '[["T","T"]]', "forward", "")) == 0


@pytest.mark.hardware
@pytest.mark.parametrize("axes", [(0, 2, 3), (2, 3), (0, 1)])
@pytest.mark.parametrize("shape", [(2, 16, 8, 8), (1, 16, 8, 8), (2, 1, 8, 8)])
def test_sums_of_half_precision_over_axes_apart_copy_what_they_sum(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x = Sized(shape, torch.bfloat16)
    y = Sized(tuple(extent for axis, extent in enumerate(shape) if axis not in axes), torch.bfloat16)
    call = Call("aten.sum.dim_IntList", (x,), (y,), json.dumps([["T", list(axes)]]), "forward", "")
    assert predicted(call, y.bytes) == pytest.approx(measured(call), abs=200)


def test_unknown_operators_allocate_nothing_else() -> None:
    size = Sized((3,), torch.float32)
    assert transient(Call("nobody.knows.this", (size,), (size,), '[["T"]]', "forward", "")) == 0

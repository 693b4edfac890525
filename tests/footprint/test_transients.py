"""Rules for what operators allocate, against what they allocate."""

from __future__ import annotations

import random
from math import prod
from typing import Any

import pytest
import torch

from ranp.footprint.measuring import allocated_peak
from ranp.footprint.transients import transient
from ranp.rehearsal import Call, Sized, TrainingStep, rehearse, rerun
from training_networks import NETWORKS, network


@pytest.fixture(autouse=True)
def _one_thread() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def measured(call: Call) -> int:
    """Bytes at the worst moment of an operator, its results among them."""
    thunk = rerun(call)
    thunk()
    return allocated_peak(thunk)


def predicted(call: Call, made: int) -> int:
    return made + transient(call)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("precision", ["float32", "amp-bfloat16"])
def test_every_operator_of_small_networks(name: str, precision: str) -> None:
    model, x = network(name)
    seen = rehearse(model, x, step=TrainingStep(precision=precision, optimiser="none"))
    for index, call in enumerate(seen.calls):
        if any(tensor.scattered for tensor in call.inputs):
            continue  # rerun makes another view than the one there was
        fresh = {y.storage: y.bytes for y in call.outputs if seen.storages[y.storage].born == index}
        got, want = predicted(call, sum(fresh.values())), measured(call)
        touched = sum(tensor.bytes for tensor in (*call.inputs, *call.outputs))
        share = 0.05 if precision == "float32" else 0.12
        assert got == pytest.approx(want, abs=20_000 + share * (touched + want)), call


def convolution(rng: random.Random, dtype: torch.dtype) -> tuple[Call, Call]:
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
    x, w, y = (Sized(shape, dtype) for shape in ((batch, into, *[size] * dims), weight, (batch, out, *[reach] * dims)))
    shared: list[Any] = [[stride] * dims, [padding] * dims, [1] * dims, is_transposed, [0] * dims, groups]
    text = str(shared).replace("True", "true").replace("False", "false")[1:-1]
    forward = Call("aten.convolution.default", (x, w), (y,), f'[["T","T",null,{text}]]', "forward", "")
    settings = f'[["T","T","T",[0],{text},[true,true,false]]]'
    return forward, Call("aten.convolution_backward.default", (y, x, w), (x, w), settings, "backward", "")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_random_convolutions(dtype: torch.dtype, seed: int) -> None:
    rng = random.Random(seed)
    errors = []
    for _ in range(8):
        for call in convolution(rng, dtype):
            got, want = predicted(call, sum(y.bytes for y in call.outputs)), measured(call)
            assert got == pytest.approx(want, rel=0.25, abs=60_000), call
            errors.append(abs(got - want) / want if want > 200_000 else 0.0)
    assert sorted(errors)[len(errors) * 3 // 4] < 0.03


def test_pointwise_operators_of_mixed_precision_copy_the_narrower() -> None:
    shape = (3, 5, 7)
    narrow, wide = Sized(shape, torch.bfloat16), Sized(shape, torch.float32)
    mixed = Call("aten.add.Tensor", (narrow, wide), (wide,), '[["T","T"]]', "forward", "")
    assert transient(mixed) == prod(shape) * 4
    assert measured(mixed) == predicted(mixed, wide.bytes)
    assert transient(Call("aten.add.Tensor", (wide, wide), (wide,), '[["T","T"]]', "forward", "")) == 0


def test_unknown_operators_allocate_nothing_else() -> None:
    size = Sized((3,), torch.float32)
    assert transient(Call("nobody.knows.this", (size,), (size,), '[["T"]]', "forward", "")) == 0

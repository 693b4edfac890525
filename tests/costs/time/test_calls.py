"""The place of a call in the tables: the same table at every width, and a resized call is what a slim network runs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod

import pytest
import torch
from torch import Tensor, nn

import ranp
from ranp.costs.step import Call, Sized, StepTrace, rerun, trace_step
from ranp.costs.time.calls import Heavy, Light, kernel_of, placed, pointwise_amounts, pointwise_at, resized, thinned


class Block(nn.Module):
    """Depthwise, grouped, strided, dilated and transposed convolutions, norms of two kinds, a joint and a head."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv3d(2, width, 3, padding=1)
        self.depthwise = nn.Conv3d(width, width, 3, padding=1, groups=width, bias=False)
        self.norm = nn.BatchNorm3d(width)
        self.down = nn.Conv3d(width, 2 * width, 3, stride=2, padding=2, dilation=2)
        self.mix = nn.Conv3d(2 * width, 2 * width, 1, groups=2)
        self.group = nn.GroupNorm(2, 2 * width)
        self.up = nn.ConvTranspose3d(2 * width, width, 2, stride=2)
        self.head = nn.Linear(2 * width, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = torch.relu(self.norm(self.depthwise(self.stem(x))))
        deep = torch.relu(self.group(self.mix(self.down(first))))
        joined = torch.cat([first, self.up(deep)], 1)
        return self.head(nn.functional.max_pool3d(joined, 2).mean((2, 3, 4)))


EXAMPLE = torch.zeros(2, 2, 4, 4, 4)


def steps(model: Callable[[int], nn.Module] = Block, *widths: int) -> list[StepTrace]:
    return [trace_step(model(width), EXAMPLE) for width in widths]


@pytest.fixture(scope="module")
def full_and_thin() -> list[StepTrace]:
    return steps(Block, 16, 6)


def test_the_table_of_a_heavy_call_is_the_same_at_every_width(full_and_thin: list[StepTrace]) -> None:
    full, thin = full_and_thin
    seen = 0
    for one, other in zip(full.calls, thin.calls, strict=True):
        here, there = placed(one), placed(other)
        assert type(here) is type(there)
        if isinstance(here, Heavy):
            assert isinstance(there, Heavy)
            assert here.key == there.key
            assert all(a >= b for a, b in zip(here.widths, there.widths, strict=True))
            seen += here.widths != there.widths
    assert seen >= 12


def test_a_resized_call_is_the_call_of_the_thin_network(full_and_thin: list[StepTrace]) -> None:
    for one, other in zip(*(traced.calls for traced in full_and_thin), strict=True):
        place = placed(other)
        if isinstance(place, Heavy):
            made = resized(one, place.widths)
            assert made.settings == other.settings
            assert [tensor.shape for tensor in made.inputs] == [tensor.shape for tensor in other.inputs]
            assert [tensor.shape for tensor in made.outputs] == [tensor.shape for tensor in other.outputs]


def test_resized_calls_run(full_and_thin: list[StepTrace]) -> None:
    for call in full_and_thin[0].calls:
        place = placed(call)
        if isinstance(place, Heavy):
            least = tuple(
                2 if axis == 0 and low < most and len(place.widths) == 3 else low
                for axis, (low, most) in enumerate(zip(place.least, place.widths, strict=True))
            )
            half = tuple(max(low, most // 2 + 1) for low, most in zip(least, place.widths, strict=True))
            for widths in (least, half):
                made = resized(call, widths)
                again = placed(made)
                assert isinstance(again, Heavy)
                assert (again.key, again.widths) == (place.key, widths)
                results = rerun(made)()
                results = [r for r in (results if isinstance(results, tuple) else (results,)) if r is not None]
                shapes = [tensor.shape for tensor in made.outputs if tensor.shape or made.op.endswith("mm.default")]
                assert [tuple(r.shape) for r in results if r.numel()] == shapes


def test_light_calls_keep_their_curve_where_channels_are_the_second_extent(full_and_thin: list[StepTrace]) -> None:
    for one, other in zip(*(traced.calls for traced in full_and_thin), strict=True):
        here, there = placed(one), placed(other)
        if isinstance(here, Light):
            assert isinstance(there, Light)
            assert here.kind == there.kind
            if "batch_norm" in one.op or "pool" in one.op or "cat" in one.op:
                assert here.key == there.key
                assert here.amount > there.amount


def test_views_are_free() -> None:
    size = Sized((2, 6), torch.float32)
    assert placed(Call("aten.t.default", (size,), (size,), '[["T"]]', "forward", "")) is None
    assert placed(Call("aten.detach.default", (size,), (size,), '[["T"]]', "forward", "")) is None
    assert isinstance(placed(Call("aten.clone.default", (size,), (size,), '[["T"]]', "forward", "")), Light)
    assert isinstance(placed(Call("aten.relu_.default", (size,), (size,), '[["T"]]', "forward", "")), Light)


def test_pointwise_calls_of_any_shape_share_a_curve() -> None:
    def add(*shape: int) -> Call:
        size = Sized(shape, torch.float32)
        return Call("aten.add.Tensor", (size, size), (size,), '[["T","T"]]', "forward", "")

    one, other = placed(add(4, 6)), placed(add(2, 3, 8))
    assert isinstance(one, Light)
    assert isinstance(other, Light)
    assert (one.key, one.amount, one.is_pointwise) == (other.key, 24, True)
    assert other.amount == 48
    assert rerun(pointwise_at(add(4, 6), 1000))().shape == (1000,)


def test_numbers_among_the_settings_do_not_make_a_new_curve() -> None:
    size = Sized((8,), torch.float32)
    places = [
        placed(Call("aten.mul_.Tensor", (size,), (size,), f'[["T",{factor}]]', "optimiser", ""))
        for factor in (0.9, 0.999)
    ]
    assert places[0] == places[1]


def test_a_thinned_call_runs_and_moves_less_data(full_and_thin: list[StepTrace]) -> None:
    thin_calls = 0
    for call in full_and_thin[0].calls:
        place = placed(call)
        if isinstance(place, Light) and not place.is_pointwise and "batch_norm" in call.op:
            thin = thinned(call, 4)
            assert thin is not None
            there = placed(thin)
            assert isinstance(there, Light)
            assert there.key == place.key
            assert there.amount * 4 == pytest.approx(place.amount, rel=0.01)
            rerun(thin)()
            thin_calls += 1
    assert thin_calls == 2
    odd = Sized((1, 7, 4), torch.float32)
    assert thinned(Call("aten.cumsum.default", (odd,), (odd,), '[["T",2]]', "forward", ""), 4) is None


def test_torch_tells_which_kernel_it_takes() -> None:
    call = next(call for call in trace_step(nn.Conv3d(64, 8, 3, padding=1), torch.zeros(1, 64, 32, 32, 32)).calls)
    names = [kernel_of(call, (width, 8)) for width in range(1, 65)]
    assert names == [
        str(
            torch._C._select_conv_backend(
                torch.empty(1, width, 32, 32, 32),
                torch.empty(8, width, 3, 3, 3),
                None,
                *[[1] * 3] * 3,
                False,
                [0] * 3,
                1,
            )
        ).rpartition(".")[2]
        for width in range(1, 65)
    ]


def test_a_network_pruned_by_ranp_stays_in_the_tables() -> None:
    model, batch = Block(16), (torch.randn(2, 2, 4, 4, 4), torch.tensor([0, 2]))
    slim = ranp.prune(model, [batch], nn.functional.cross_entropy, sparsity=0.4, method="layerwise").model
    full, thin = trace_step(model, EXAMPLE), trace_step(slim, EXAMPLE)
    for one, other in zip(full.calls, thin.calls, strict=True):
        here, there = placed(one), placed(other)
        if isinstance(here, Heavy):
            assert isinstance(there, Heavy)
            assert here.key == there.key
    elements = [sum(prod(t.shape) for call in traced.calls for t in call.inputs) for traced in (full, thin)]
    assert elements[1] < elements[0]


@pytest.mark.parametrize("amount", [1, 5, 1024, 1025, 4**10, 4**10 + 1, 10**8])
def test_pointwise_operators_are_measured_up_to_what_is_needed_and_no_further(amount: int) -> None:
    amounts = pointwise_amounts(amount, -1)
    assert amounts == sorted(set(amounts))
    assert amounts[0] == 1
    assert max(amounts) >= amount
    assert max(amounts) == amount or max(amounts) <= 4**10
    assert all(after <= 4 * before for before, after in pairwise(amounts[1:]))
    assert pointwise_amounts(amount, max(amounts)) == [number for number in amounts if number < amount]

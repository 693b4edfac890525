"""Attention's blocks against what torch's kernel allocates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from ranp.costs.memory.measuring import allocated_peak
from ranp.costs.memory.transients import transient
from ranp.costs.step import Call, Sized
from ranp.costs.step.cpu import Cpu

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


@pytest.fixture(params=[1, 2], autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.hardware
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (64, 64), (200, 300), (800, 600)])
@pytest.mark.parametrize("heads_inside", [False, True])
def test_is_what_the_kernel_allocates(
    dtype: torch.dtype, queries: int, keys: int, heads_inside: bool, threads: int
) -> None:
    def drawn(length: int) -> torch.Tensor:
        if heads_inside:
            return torch.randn(2, length, 3, 8, dtype=dtype).transpose(1, 2)
        return torch.randn(2, 3, length, 8, dtype=dtype)

    query, key, value = drawn(queries), drawn(keys), drawn(keys)
    result, sums = FORWARD(query, key, value)
    grad = drawn(queries)
    sized = [Sized(tuple(x.shape), dtype, False, -1, heads_inside) for x in (grad, query, key, value, result)]
    lengths = Sized(tuple(sums.shape), sums.dtype)
    there = Call(str(FORWARD), tuple(sized[1:4]), (sized[4], lengths), '[["T","T","T"]]', "forward", "")
    back = Call(str(BACKWARD), (*sized, lengths), tuple(sized[1:4]), "[[]]", "backward", "")
    made = result.nbytes + sums.nbytes
    assert transient(there, Cpu("avx2", threads)) == allocated_peak(lambda: FORWARD(query, key, value)) - made
    made = query.nbytes + key.nbytes + value.nbytes
    ran = allocated_peak(lambda: BACKWARD(grad, query, key, value, result, sums, 0.0, False))
    assert transient(back, Cpu("avx2", threads)) == ran - made

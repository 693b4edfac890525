"""Calls written as text and run again."""

from __future__ import annotations

import pytest
import torch

from ranp.costs.step import Call, Sized, TrainingStep, trace_step
from ranp.errors import UnsupportedError
from ranp.running.operators import flat_tensors
from tests.support.rerunning import rerun
from tests.support.training_networks import NETWORKS, network


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("precision", ["float32", "amp-bfloat16"])
def test_every_call_runs_again(name: str, precision: str) -> None:
    model, x = network(name)
    for call in trace_step(model, x, step=TrainingStep(precision=precision)).calls:
        if any(tensor.scattered for tensor in call.inputs) and "view" in call.op:
            continue  # a view of a transposed tensor needs the very same strides
        made = [(tuple(tensor.shape), tensor.dtype) for tensor in flat_tensors(rerun(call)())]
        assert made == [(tensor.shape, tensor.dtype) for tensor in call.outputs], call


def test_layouts_are_made_again() -> None:
    shape = (2, 3, 4, 5)
    seen = []
    settings = '[["T"]]'
    for size in (
        Sized(shape, torch.float32),
        Sized(shape, torch.float32, True),
        Sized(shape, torch.float32, False, -1, True),
    ):
        seen.append(rerun(Call("aten.detach.default", (size,), (size,), settings, "forward", ""))())
    plain, last, scattered = seen
    assert plain.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert not scattered.is_contiguous()
    assert not scattered.is_contiguous(memory_format=torch.channels_last)
    assert all(tuple(x.shape) == shape for x in seen)


def test_unknown_operators_and_arguments_are_refused() -> None:
    size = Sized((2,), torch.float32)
    with pytest.raises(UnsupportedError, match=r"has no operator 'aten\.nonsense\.default'"):
        rerun(Call("aten.nonsense.default", (size,), (), '[["T"]]', "forward", ""))
    with pytest.raises(UnsupportedError, match="Generator"):
        rerun(Call("aten.relu.default", (size,), (), '[["T",{"unknown":"Generator"}]]', "forward", ""))

"""Data-free stand-ins on the device that they stand for, so that autocast and kernels decide as they would there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils._pytree import tree_leaves, tree_map

from ranp.running import calling, copies
from ranp.running.operators import flat_tensors


def device_of(model: nn.Module, example: Any) -> torch.device:
    """Where a step would run: on the device of the network, else of its inputs; on the CPU if they hold no data."""
    for tensor in (*model.parameters(), *model.buffers(), *calling.tensors_in(example)):
        if tensor.device.type != "meta":
            return tensor.device
    return torch.device("cpu")


def stand_in(
    tensor: Tensor, mode: FakeTensorMode, device: torch.device, dtype: torch.dtype | None, shape: Any = None
) -> Tensor:
    """A data-free tensor like this one, perhaps of another precision, perhaps of another (contiguous) shape."""
    kind = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    with mode:
        if shape is not None or tensor.layout is not torch.strided:
            return torch.empty(tensor.shape if shape is None else shape, dtype=kind, device=device)
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=kind, device=device)


def stand_in_network(
    model: nn.Module, mode: FakeTensorMode, device: torch.device, dtype: torch.dtype | None
) -> nn.Module:
    """A copy of a network without its data. Integer buffers keep theirs, since code may index channels with them."""
    twins: dict[int, Tensor] = {}
    for _, tensor in calling.named_tensors(model):
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer) or not calling.is_floating(tensor):
            continue
        twin = stand_in(tensor, mode, device, dtype)
        is_parameter = isinstance(tensor, nn.Parameter)
        twins[id(tensor)] = nn.Parameter(twin, requires_grad=tensor.requires_grad) if is_parameter else twin
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor | list | tuple):
                for tensor in flat_tensors(value):
                    if id(tensor) not in twins and calling.is_floating(tensor):
                        twins[id(tensor)] = stand_in(tensor, mode, device, dtype)
    return copies.copy_model(model, meta=True, twins=twins)


def batch_of(inputs: Any) -> int | None:
    """The extent of the first axis of the first tensor that has one."""
    return next((x.shape[0] for x in tree_leaves(inputs) if isinstance(x, Tensor) and x.dim() > 0), None)


def stand_in_inputs(
    inputs: Any,
    mode: FakeTensorMode,
    device: torch.device,
    dtype: torch.dtype | None,
    *,
    batch: tuple[int | None, int | None] = (None, None),
    keep_integers: bool = False,
) -> Any:
    """The same inputs without data, their batch changed from one number to another.

    With ``keep_integers`` integer tensors keep their values, for networks and losses that ask for them.
    """
    before, after = batch

    def convert(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        resize = after is not None and before != after and x.dim() > 0 and x.shape[0] == before
        if keep_integers and not calling.is_floating(x) and x.device.type != "meta":
            plain = x.detach().as_subclass(Tensor)
            return plain[torch.arange(int(after or 0)) % int(before or 1)] if resize else plain.clone()
        return stand_in(x, mode, device, dtype, (after, *x.shape[1:]) if resize else None)

    return tree_map(convert, inputs)

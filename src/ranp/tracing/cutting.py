"""Cutting tensors out of a copy, and the module attributes that mirror their sizes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from ranp.errors import PlanMismatchError
from ranp.running.calling import named_modules, named_tensors
from ranp.running.copies import copy_model
from ranp.running.recording import weight_of
from ranp.tracing.attributes import plain_tensors

logger = logging.getLogger(__name__)

Keeps = Mapping[str, Mapping[int, Sequence[int]]]
"""Tensor name -> dimension -> indices that stay."""


def cut_tensor(tensor: torch.Tensor, keeps: Mapping[int, Sequence[int]]) -> torch.Tensor:
    """The tensor with only the kept indices along each dimension that is cut, in its own memory format."""
    return _cut(tensor, keeps, partial(torch.as_tensor, dtype=torch.long))


def _cut(tensor: torch.Tensor, keeps: Mapping[int, Sequence[int]], index: Callable[..., torch.Tensor]) -> torch.Tensor:
    result = tensor.detach()
    groups = {dim: _groups(tensor, dim, keep) for dim, keep in keeps.items()}
    for dim in sorted(keeps, key=lambda dim: (groups[dim] == 1, dim)):  # while the rows of each group are still there
        if groups[dim] == 1:
            result = result.index_select(dim, index(keeps[dim], device=tensor.device))
        else:
            each = np.reshape(np.asarray(keeps[dim]) % tensor.shape[dim], (groups[dim], -1))
            rows = zip(result.chunk(groups[dim]), torch.from_numpy(each).to(tensor.device), strict=True)
            result = torch.cat([part.index_select(dim, keep) for part, keep in rows])
    return result.contiguous(memory_format=_format_of(tensor)) if keeps else result


def _groups(tensor: torch.Tensor, dim: int, keep: Sequence[int]) -> int:
    """How many groups the indices are numbered through: the inputs of a grouped convolution may be, else it is one."""
    size = int(tensor.shape[dim])
    if dim != 1 or tensor.dim() < 3 or not len(keep) or keep[-1] < size:  # every group keeps something, the last too
        return 1
    groups = keep[-1] // size + 1
    while tensor.shape[0] % groups and groups < tensor.shape[0]:  # outputs come in as many groups, without a rest
        groups += 1
    check_groups("a convolution", keep, size, groups)
    return groups


def check_groups(weight: str, keep: Sequence[int], inputs: int, groups: int) -> None:
    """Refuses inputs numbered through all groups of a convolution of which some group keeps more than another.

    Raises:
        PlanMismatchError: With the name of the weight, and what each group keeps.
    """
    counts = np.bincount(np.asarray(keep) // inputs, minlength=groups)
    if (counts != counts[0]).any():
        raise PlanMismatchError(
            f"the groups of {weight} keep {counts.tolist()} inputs. Keep as many in each, or make the plan again."
        )


def left_of(tensor: torch.Tensor, keeps: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """The shape of a tensor with only the kept indices along each dimension that is cut."""
    return tuple(
        len(keeps[dim]) // _groups(tensor, dim, keeps[dim]) if dim in keeps else size
        for dim, size in enumerate(tensor.shape)
    )


def _format_of(tensor: torch.Tensor) -> torch.memory_format:
    if tensor.dim() == 5 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last_3d):
        return torch.channels_last_3d
    if tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return torch.contiguous_format


def cut_copy(model: nn.Module, keeps: Keeps, *, meta: bool) -> nn.Module:
    """A copy of a network with its tensors cut, and the attributes that mirror them; what goes is never copied.

    A tensor that several modules share is cut once and stays shared. With ``meta`` the copy holds no data but that of
    plain attributes.
    """
    known = dict(named_tensors(model))
    held = {} if keeps.keys() <= known.keys() else dict(plain_tensors(model))
    known = {**held, **known}
    twins: dict[int, torch.Tensor] = {}
    indices: dict[tuple[int, torch.device], torch.Tensor] = {}  # the same cut is made in many tensors

    def index(keep: Sequence[int], *, device: torch.device) -> torch.Tensor:
        key = (id(keep), device)
        if key not in indices:
            indices[key] = torch.as_tensor(keep, dtype=torch.long, device=device)
        return indices[key]

    for name, by_dim in keeps.items():
        tensor = known.get(name)
        if tensor is None:  # a width that a module keeps in an attribute
            continue
        if meta and name not in held:
            cut = torch.empty(left_of(tensor, by_dim), dtype=tensor.dtype, device="meta")
        else:
            cut = _cut(tensor, by_dim, index)
        if isinstance(tensor, nn.Parameter):
            cut = nn.Parameter(cut, requires_grad=tensor.requires_grad)
        twins[id(tensor)] = cut.requires_grad_(tensor.requires_grad)
    copy = copy_model(model, meta=meta, twins=twins)
    fresh = {id(twins[id(known[name])]): by_dim for name, by_dim in keeps.items() if name in known}
    with torch.no_grad():  # a weight may be computed when it is asked for
        for _, module in named_modules(copy):
            if not fresh.keys().isdisjoint(map(id, (*module._parameters.values(), *module._buffers.values()))):
                if isinstance(module, nn.GroupNorm) and id(module.weight) in fresh:
                    module.num_groups = _groups_left(module, fresh[id(module.weight)][0])
                _mirror(module)
        for name, by_dim in keeps.items():
            if name not in known:
                _cut_attribute(copy, name, by_dim)
        _mirror_parametrised(copy, keeps)
    return copy


def _cut_attribute(model: nn.Module, name: str, by_dim: Mapping[int, Sequence[int]]) -> None:
    """Writes new widths into an attribute: of a norm that holds no tensor, or of a module whose code knows a width."""
    owner, _, attribute = name.rpartition(".")
    module: Any = dict(named_modules(model)).get(owner)
    if module is None or numbers_in(module, attribute) is None:
        raise PlanMismatchError(
            f"the plan cuts {name!r}, which this network does not have. Use the network the plan was made for."
        )
    if isinstance(module, nn.GroupNorm):
        module.num_groups = _groups_left(module, by_dim[0])
    value = getattr(module, attribute)
    cut = [len(by_dim[at]) if at in by_dim else part for at, part in enumerate(_parts(value))]
    if isinstance(value, partial):
        named = zip(value.keywords, cut[len(value.args) :], strict=True)
        setattr(module, attribute, partial(value.func, *cut[: len(value.args)], **dict(named)))
    elif isinstance(value, list | tuple):
        setattr(module, attribute, cut if isinstance(value, list) else tuple(cut))
    else:
        setattr(module, attribute, cut[0])


def _groups_left(norm: nn.GroupNorm, kept: Sequence[int]) -> int:
    """In how many of its groups a norm keeps channels."""
    return len({channel * norm.num_groups // norm.num_channels for channel in kept})


def numbers_in(module: nn.Module | None, attribute: str) -> tuple[int, ...] | None:
    """The whole numbers that an attribute holds, alone or among others; -1 in place of anything else."""
    parts = _parts(vars(module).get(attribute)) if module is not None else ()
    return tuple(part if type(part) is int else -1 for part in parts) if any(type(p) is int for p in parts) else None


def _parts(value: Any) -> tuple[Any, ...]:
    """The members of a list or tuple, the arguments of a partial function, or the value alone."""
    if isinstance(value, partial):
        return (*value.args, *value.keywords.values())
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def sizes_of(model: nn.Module, names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Full sizes of what a plan cuts: tensors, and widths in attributes."""
    known = {name: tuple(tensor.shape) for name, tensor in named_tensors(model)}
    names = set(names) - known.keys()
    modules = dict(named_modules(model)) if names else {}
    known |= {name: tuple(tensor.shape) for name, tensor in plain_tensors(model) if name in names} if names else {}
    for name in names:
        owner, _, attribute = name.rpartition(".")
        numbers = None if name in known else numbers_in(modules.get(owner), attribute)
        if numbers is not None:
            known[name] = numbers
    return known


def grouped_weights(model: nn.Module) -> dict[str, int]:
    """Weights of convolutions in groups, and how many groups they have: inputs may be numbered through all of them."""
    names = {id(tensor): name for name, tensor in named_tensors(model)}
    found: dict[str, set[int]] = {}
    for _, module in named_modules(model):
        if isinstance(module, _ConvNd) and (weight := module._parameters.get("weight")) is not None:
            found.setdefault(names[id(weight)], set()).add(1 if isinstance(module, _ConvTransposeNd) else module.groups)
    return {name: groups for name, (groups, *others) in found.items() if groups > 1 and not others}


def sizes_along(shape: Sequence[int], dim: int, groups: int) -> tuple[int, ...]:
    """Full sizes that a cut may be made for along a dimension: its own, or that of all groups together."""
    size = shape[dim] if dim < len(shape) else 0
    return (size, size * groups) if dim == 1 else (size,)


def _mirror_parametrised(model: nn.Module, keeps: Keeps) -> None:
    """Layers whose weight is computed (weight norm and the like) mirror the sizes of what is computed."""
    owners = {key.split(".parametrizations.")[0] for key in keeps if ".parametrizations." in key}
    owners |= {key.rpartition(".")[0] for key in keeps if key.endswith((".weight_v", ".weight_orig"))}
    for owner in owners:
        _mirror(model.get_submodule(owner))


def _mirror(module: nn.Module) -> None:
    """Makes the attributes of a module agree with its tensors."""
    for name, value in _mirrored(module):
        if getattr(module, name, value) != value:
            logger.debug("%s.%s: %s -> %s", type(module).__name__, name, getattr(module, name), value)
            setattr(module, name, value)


def _mirrored(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Attribute names and the values the module's tensors ask for, by kind of module."""
    weight = weight_of(module)
    weight = weight if isinstance(weight, torch.Tensor) else None
    if isinstance(module, _ConvNd) and weight is not None:
        yield from _conv(module, weight)
    elif isinstance(module, nn.Linear) and weight is not None:
        yield from (("out_features", weight.shape[0]), ("in_features", weight.shape[1]))
    elif isinstance(module, _NormBase):
        per_channel = [module.weight, module.running_mean]
        sizes = [int(t.shape[0]) for t in per_channel if isinstance(t, torch.Tensor)]
        if sizes:
            yield "num_features", sizes[0]
    elif isinstance(module, nn.GroupNorm) and weight is not None:
        yield "num_channels", weight.shape[0]
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm) and weight is not None:
        yield "normalized_shape", tuple(weight.shape)
    elif isinstance(module, nn.PReLU) and weight is not None:
        yield "num_parameters", weight.shape[0]
    elif isinstance(module, nn.Embedding) and weight is not None:
        yield from (("num_embeddings", weight.shape[0]), ("embedding_dim", weight.shape[1]))
    elif isinstance(module, nn.Bilinear) and weight is not None:
        yield from zip(("out_features", "in1_features", "in2_features"), weight.shape, strict=True)
    elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
        yield from _recurrent(module)


def _conv(module: _ConvNd, weight: torch.Tensor) -> Iterator[tuple[str, int]]:
    """With one input or one output for each group, a convolution's groups shrink with its channels."""
    alone = (module.in_channels,) if isinstance(module, _ConvTransposeNd) else (module.in_channels, module.out_channels)
    depthwise = module.groups > 1 and module.groups in alone
    if isinstance(module, _ConvTransposeNd):
        groups = int(weight.shape[0]) if depthwise else module.groups
        inputs, outputs = int(weight.shape[0]), int(weight.shape[1]) * groups
    else:
        groups = int(weight.shape[0]) * module.groups // module.out_channels if depthwise else module.groups
        inputs, outputs = int(weight.shape[1]) * groups, int(weight.shape[0])
    yield from (("groups", groups), ("in_channels", inputs), ("out_channels", outputs))


def _recurrent(module: nn.RNNBase | nn.RNNCellBase) -> Iterator[tuple[str, int]]:
    """The first layer's inputs, and the states, whose width all layers and directions share."""
    first = "_l0" if isinstance(module, nn.RNNBase) else ""
    inputs, states = getattr(module, f"weight_ih{first}"), getattr(module, f"weight_hh{first}")
    projected = getattr(module, f"weight_hr{first}", None)
    yield "input_size", int(inputs.shape[1])
    yield "hidden_size", int((states if projected is None else projected).shape[1])
    if projected is not None:
        yield "proj_size", int(projected.shape[0])

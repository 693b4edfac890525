"""Judges that know nothing of the package's rules: is a slim network the full one without the removed channels?

Removing a channel means that nothing reads it any more. So in a copy of the full network every weight that would read a
removed channel is set to zero there, and that copy must give what the slim network gives, in float64, in eval and in
training mode. Norms that mix channels are told which ones exist, and so is the default scale of fused attention.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode

import ranp
from ranp.choosing.plan import Plan
from ranp.costs.prices import Prices
from ranp.scoring.scores import Scores
from ranp.tracing.choice import Choice
from ranp.tracing.trace import Trace


def call(model: nn.Module, inputs: Any) -> Any:
    """One call: a tuple is splatted, a dict passed as keywords."""
    if isinstance(inputs, tuple):
        return model(*inputs)
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def tensors(value: Any) -> list[Tensor]:
    """All tensors in nested lists, tuples, dicts and dataclasses, in order."""
    if isinstance(value, Tensor):
        return [value]
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for item in value for tensor in tensors(item)] if isinstance(value, list | tuple) else []


def in_float64(value: Any) -> Any:
    """The same inputs with every floating-point tensor in float64."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: in_float64(item) for key, item in value.items()}
    return type(value)(in_float64(item) for item in value) if isinstance(value, list | tuple) else value


def drawn_like(value: Any, seed: int) -> Any:
    """Inputs of the same shapes with other values."""
    generator = torch.Generator().manual_seed(seed)

    def draw(item: Any) -> Any:
        if isinstance(item, Tensor):
            is_float = item.is_floating_point()
            return torch.randn(item.shape, generator=generator, dtype=item.dtype) if is_float else item
        if isinstance(item, dict):
            return {key: draw(entry) for key, entry in item.items()}
        return type(item)(draw(entry) for entry in item) if isinstance(item, list | tuple) else item

    return draw(value)


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Everything about a model that nobody may change behind its owner's back."""
    return {
        "state": {name: value.clone() for name, value in model.state_dict().items()},
        "identity": {name: id(value) for name, value in (*model.named_parameters(), *model.named_buffers())},
        "versions": {name: value._version for name, value in (*model.named_parameters(), *model.named_buffers())},
        "gradients": {name: value.grad for name, value in model.named_parameters()},
        "trainable": {name: value.requires_grad for name, value in model.named_parameters()},
        "training": {name: module.training for name, module in model.named_modules()},
        "hooks": {
            name: [len(module._forward_hooks), len(module._forward_pre_hooks), len(module._backward_hooks)]
            for name, module in model.named_modules()
        },
        "repr": repr(model),
    }


def assert_untouched(before: Mapping[str, Any], model: nn.Module) -> None:
    """Fails if the model differs in anything from its snapshot."""
    after = snapshot(model)
    for name, value in before["state"].items():
        assert torch.equal(value, after["state"][name]), f"{name} has other values"
    for aspect in before.keys() - {"state"}:
        assert before[aspect] == after[aspect], f"{aspect} changed"


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Draws biases, norm parameters and running statistics in place, so that none of them is 0 or 1 by default."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(tensor: Tensor, low: float, high: float) -> None:
        tensor.copy_(torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * (high - low) + low)

    with torch.no_grad():
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            if not value.is_floating_point() or "parametrizations" in name:
                continue
            if name.endswith("var"):
                uniform(value, 0.5, 2.0)
            elif name.endswith("running_mean"):
                uniform(value, -0.5, 0.5)
            elif value.dim() <= 1 and name.endswith("weight"):
                uniform(value, 0.3, 1.5)
            elif value.dim() <= 1:
                uniform(value, -0.6, 0.6)
    return model


class NormOfKept(nn.Module):
    """A group or layer norm at full width whose statistics are taken over the kept channels; the others become 0."""

    def __init__(self, norm: nn.GroupNorm | nn.LayerNorm, kept: tuple[int, ...], dim: int) -> None:
        super().__init__()
        self.dim, self.eps, self.weight, self.bias = dim, norm.eps, norm.weight, norm.bias
        grouped = isinstance(norm, nn.GroupNorm)
        channels = norm.num_channels if grouped else norm.normalized_shape[-1]
        size = channels // norm.num_groups if grouped else channels
        self.groups = [[c for c in kept if start <= c < start + size] for start in range(0, channels, size)]

    def forward(self, x: Tensor) -> Tensor:
        """Each original group by itself, over what is left of it."""
        out = torch.zeros_like(x)
        for group in filter(None, self.groups):
            part = x[:, group] if self.dim == 1 else x[..., group]
            axes = tuple(range(1, x.dim())) if self.dim == 1 else (x.dim() - 1,)
            shape = [-1, *[1] * (x.dim() - 2)] if self.dim == 1 else [-1]
            deviation = part - part.mean(axes, keepdim=True)
            part = deviation / (deviation.square().mean(axes, keepdim=True) + self.eps).sqrt()
            if self.weight is not None:
                part = part * self.weight[group].view(shape)
            if self.bias is not None:
                part = part + self.bias[group].view(shape)
            index = torch.tensor(group, device=x.device)
            out = out.index_copy(1 if self.dim == 1 else x.dim() - 1, index, part)
        return out


class ScaleOfKept(TorchFunctionMode):
    """While active, fused attention without a scale takes that of the features whose queries are not silenced."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count them and say so."""
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention and kwargs.get("scale") is None:
            query = args[0] if args else kwargs["query"]
            kwargs["scale"] = int(query.flatten(0, -2).any(0).sum()) ** -0.5
        return func(*args, **kwargs)


def masked(
    model: nn.Module,
    plan: Plan,
    *,
    consumers: Mapping[str, int] | None = None,
    silenced: tuple[str, ...] = (),
    statistics: Mapping[str, str] | None = None,
) -> nn.Module:
    """A copy at full width in which nothing reads a removed channel.

    Args:
        model: The full network.
        plan: What is removed.
        consumers: Weights outside of conv and linear modules, with their input dimension.
        silenced: Layers whose removed outputs are set to zero where they are made, since no weight reads them.
        statistics: Norms without parameters, with the layer whose kept channels they see.
    """
    twin = copy.deepcopy(model)
    named = dict(twin.named_parameters(remove_duplicate=False))
    readers = [(weight, dim) for weight, dim in (consumers or {}).items()]
    for name, module in twin.named_modules():
        if isinstance(module, _ConvNd | nn.Linear):
            readers.append((f"{name}.weight", 0 if isinstance(module, _ConvTransposeNd) else 1))
    with torch.no_grad():
        for name, dim in readers:
            cut = plan.cuts.get(name, {}).get(dim)
            if cut is not None:
                # Inputs of a grouped convolution may be numbered through all groups: each reads its own part of them.
                groups = getattr(twin.get_submodule(name.rpartition(".")[0]), "groups", 1)
                parts = named[name].chunk(groups if cut.size > named[name].shape[dim] else 1)
                size = named[name].shape[dim]
                assert len(parts) * size == cut.size, f"{name} has another size than its cut"
                for index in sorted(set(range(cut.size)) - set(cut.keep)):
                    parts[index // size].select(dim, index % size).zero_()
        for name in silenced:
            layer = twin.get_submodule(name)
            removed = torch.tensor(sorted(set(range(plan.channels[name])) - set(plan.kept[name])), dtype=torch.long)
            layer.weight.index_fill_(0, removed, 0.0)
            if layer.bias is not None:
                layer.bias.index_fill_(0, removed, 0.0)
    for name, module in list(twin.named_modules()):
        if isinstance(module, nn.GroupNorm | nn.LayerNorm):
            kept = _kept_by_norm(plan, name, statistics or {})
            if kept is not None:
                parent, _, leaf = name.rpartition(".")
                dim = 1 if isinstance(module, nn.GroupNorm) else -1
                setattr(twin.get_submodule(parent), leaf, NormOfKept(module, kept, dim))
    return twin


def _kept_by_norm(plan: Plan, name: str, statistics: Mapping[str, str]) -> tuple[int, ...] | None:
    if name in statistics:
        return plan.kept[statistics[name]]
    cut = plan.cuts.get(f"{name}.weight", {}).get(0)
    return None if cut is None else cut.keep


def slim_error(
    model: nn.Module, plan: Plan, inputs: Any, *, seed: int = 0, training: bool = True, **options: Any
) -> float:
    """The largest relative difference between slim and masked in float64: eval, training, and eval once more.

    The last run sees the running statistics that the training run has moved. Dropout modules are switched off in both.
    ``options`` go to ``masked``; ``training=False`` leaves out the training run.
    """
    full = randomise(copy.deepcopy(model).double(), seed)
    for module in full.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
    expected, slim = masked(full, plan, **options), ranp.slim(full, plan)
    inputs = drawn_like(in_float64(inputs), seed + 1)
    worst = 0.0
    for mode in (False, True, False) if training else (False,):
        with torch.no_grad():
            got = tensors(call(slim.train(mode), copy.deepcopy(inputs)))
            with ScaleOfKept():
                wanted = tensors(call(expected.train(mode), copy.deepcopy(inputs)))
        assert len(wanted) == len(got) > 0
        for a, b in zip(wanted, got, strict=True):
            assert a.shape == b.shape, f"the output has shape {tuple(b.shape)} instead of {tuple(a.shape)}"
            assert torch.isfinite(a).all(), "the masked network gives infinite values"
            scale = float(a.abs().max())
            assert scale > 0, "the masked network gives nothing but zeros"
            worst = max(worst, float((a - b).abs().max()) / scale)
    return worst


def forward_backward(model: nn.Module, inputs: Any) -> set[str]:
    """Trains one step on a copy without an optimiser; returns the parameters that got a gradient.

    Fails if an output or a gradient is not finite, or if no gradient arrives anywhere.
    """
    twin = copy.deepcopy(model).train()
    outputs = [tensor for tensor in tensors(call(twin, inputs)) if tensor.is_floating_point()]
    assert outputs, "the network returns no floating-point tensor"
    assert all(torch.isfinite(tensor).all() for tensor in outputs), "an output is not finite"
    sum(F.softplus(tensor).sum() for tensor in outputs).backward()
    reached = {name for name, value in twin.named_parameters() if value.grad is not None}
    assert reached, "no parameter gets a gradient"
    for name, value in twin.named_parameters():
        assert value.grad is None or torch.isfinite(value.grad).all(), f"the gradient of {name} is not finite"
    return reached


def random_scores(trace: Trace, rng: np.random.Generator) -> Scores:
    """Uniform scores for every layer."""
    channels = {layer.name: torch.from_numpy(rng.random(layer.channels) + 0.01) for layer in trace.layers}
    return Scores(channels, criterion="random")


def random_plan(trace: Trace, rng: np.random.Generator, sparsity: float, scope: str = "network") -> Plan:
    """A plan from random scores, at the sparsity or the largest feasible one if that is smaller."""
    scores = random_scores(trace, rng)
    largest = ranp.max_sparsity(scores, trace) if scope == "network" else sparsity
    return ranp.select(scores, trace, sparsity=min(sparsity, largest) if trace.prunable else 0.0, scope=scope)


def assert_priced(model: nn.Module, inputs: object, trace: Trace, plan: Plan) -> None:
    """What the trace says that a slim network will cost is what it costs."""
    slim = ranp.slim(model, plan)
    counted = ranp.profile(slim, inputs, convention="paper")
    choice = Choice.of_plan(trace, plan)
    bill = Prices(trace, "paper").at(choice)
    assert bill.params == sum(parameter.numel() for parameter in slim.parameters())
    assert bill.module_params == counted.params
    assert (bill.macs, bill.flops, bill.memory) == (counted.macs, counted.flops, counted.memory)
    true = ranp.profile(slim, inputs)
    bill = Prices(trace).at(choice)
    if 1 in plan.widths.values() and "bmm" in {op.op.rpartition(".")[2] for op in trace.ops}:
        assert bill.flops >= true.flops  # of a single channel, torch.einsum makes no product that torch counts
    else:
        assert (bill.flops, bill.macs) == (true.flops, true.macs)

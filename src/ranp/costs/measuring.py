"""Step 3 of 6: trace -> costs. What each layer and the whole network cost, in one of three named conventions.

==============  ============================  ===============================  =======================================
convention      ``flops``                     ``macs``                         ``memory``
==============  ============================  ===============================  =======================================
``paper``       what the paper's tables       multiply-adds of convolutions    output elements of every call of a
                print: one per multiply-add   and linear layers, on the        module without children, in eval mode,
                and bias, norms 4 per         output size                      4 bytes each
                element, and so on
``equation``    the paper's equation: two     as above                         as above
                per multiply-add, less one
``true``        ``torch.utils.flop_counter``  half of ``flops``                what autograd keeps for the backward
                on the same (meta) tensors                                     pass of a training step, each storage
                                                                               once, at its real size
==============  ============================  ===============================  =======================================

``counting.py`` holds the rules of the first two. Params: in ``paper`` and ``equation`` the parameters of modules
without children, 4 bytes each, in ``true`` all, at their real size; shared ones once, running statistics never.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ranp import arguments
from ranp.costs import quantities
from ranp.costs.counting import CONVENTIONS, FLOAT32, call_flops, call_macs, call_memory
from ranp.costs.layers import leaves_of, owner, row_of
from ranp.costs.memory import kept_by_module
from ranp.costs.profiles import Profile, ProfileRow
from ranp.costs.step import StepSetup, trace_step
from ranp.costs.step.running import brief
from ranp.errors import DataError, RanpError, UnsupportedError
from ranp.running import calling, copies, dataless, randomness
from ranp.running.flops import OpCall, OpRecorder
from ranp.running.recording import Kept, LeafCall, LeafRecorder, ModuleStack, SavedRecorder
from ranp.tracing.trace import Trace

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

Costing = Callable[[Trace], Mapping[str, float]]
"""A function that returns one cost per layer of the trace."""

Resource = str | Costing | Sequence[str | Costing]
"""A name of ``ranp.costs.quantities``, a function that returns one cost per layer of the trace, or several."""


@dataclass(frozen=True, slots=True, eq=False)
class Costs(Mapping[str, float]):
    """What each layer costs: a mapping from layer name to a number, in layer order (tau of the paper).

    Attributes:
        resource: What is counted.
        convention: How it is counted.
    """

    values_by_layer: Mapping[str, float]
    resource: str = "custom"
    convention: str = "custom"

    def __post_init__(self) -> None:
        costs = arguments.kind("values_by_layer", self.values_by_layer, Mapping, "a mapping from layer name to cost")
        for name, value in costs.items():
            if math.isnan(arguments.amount(value)):
                raise UnsupportedError(
                    f"resource {self.resource!r} gives layer {name!r} the cost {arguments.shown(value)}; a cost is a "
                    "finite number >= 0"
                )
        object.__setattr__(self, "values_by_layer", dict(costs))

    def __getitem__(self, name: str) -> float:
        return self.values_by_layer[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_layer)

    def __len__(self) -> int:
        return len(self.values_by_layer)

    @property
    def total(self) -> float:
        """All layers together."""
        return sum(self.values_by_layer.values())


def measure(
    trace: Trace, resource: Resource = "flops", *, convention: str = "true", setup: StepSetup | None = None
) -> Costs:
    """Counts what each layer costs by itself, its norm and activation left out.

    The calls of a shared module are summed; a layer that the run never called costs 0.

    Args:
        trace: The network at the size to be counted.
        resource: ``"flops"`` of the layer, ``"memory"``: its output elements, ``"params"``: its weight and bias, any
            other name of ``ranp.costs.quantities``, or a function of the trace that returns one finite number >= 0 for
            every layer. Several are averaged, each as a share of its costliest layer.
        convention: For FLOPs: ``"true"`` counts as ``torch.utils.flop_counter``, ``"paper"`` as the paper's tables do,
            ``"equation"`` as tau in its text. Output elements and parameters are the same in all three.
        setup: What a training step of the network is, for ``"train-memory"`` and ``"time"``.

    Raises:
        UnsupportedError: Unknown resource or convention, or a function that does not cover the layers.
    """
    _check(convention)
    arguments.kind("trace", trace, Trace, "what ranp.trace returns")
    if isinstance(resource, str) or (not callable(resource) and not isinstance(resource, Sequence)):
        if setup is None and quantities.needs_loss(resource):
            raise UnsupportedError(
                f"resource {resource!r} is about a training step. Pass setup=ranp.costs.step.StepSetup(model, example)."
            )
        quantity = quantities.find(resource, "resource", quantities.resources(of_step=setup is not None))
        source: Any = convention
        if setup is not None and quantity.needs_step:
            source = setup if quantity.is_measured else setup.full(part=quantity.part)
        by_layer = quantity.by_layer and quantity.by_layer(trace, source)
        return Costs(_complete(trace, by_layer, str(resource)), str(resource), convention)
    if callable(resource):
        label = getattr(resource, "__name__", type(resource).__name__)
        with arguments.blamed(f"resource {label!r}"):
            given = resource(trace)
        return Costs(_complete(trace, given, label), label, "custom")
    several = [measure(trace, one, convention=convention, setup=setup) for one in resource]
    if not several:
        raise UnsupportedError("the list of resources is empty. Pass at least one, such as 'flops'.")
    tops = [max(costs.values(), default=0.0) or 1.0 for costs in several]
    means = {
        layer.name: sum(costs[layer.name] / top for costs, top in zip(several, tops, strict=True)) / len(several)
        for layer in trace.layers
    }
    return Costs(means, "+".join(costs.resource for costs in several), several[0].convention)


def _complete(trace: Trace, given: object, label: str) -> dict[str, float]:
    """One cost for every layer, in layer order."""
    if not isinstance(given, Mapping):
        raise DataError(
            f"resource {label!r} returned {arguments.shown(given)}; a cost for every layer is needed. "
            "Return a mapping from layer names."
        )
    names = [layer.name for layer in trace.layers]
    wrong = sorted(map(str, set(names) ^ set(given)))
    if wrong:
        raise UnsupportedError(
            f"resource {label!r} must return one cost for each of the {len(names)} layers of the trace;"
            f" missing or unknown: {', '.join(wrong[:5])}"
        )
    return {name: given[name] for name in names}


def profile(model: nn.Module, example: Any, *, convention: str = "true") -> Profile:
    """Counts parameters, FLOPs and memory of a network on one example, without its weights or activations.

    A data-free copy is run in eval mode and, for the ``true`` memory, another one in train mode. Only a network whose
    Python code asks for the values of tensors is copied and run for real. The model itself is never touched.

    ``true`` memory is what the autograd graph keeps when the forward pass of a training step ends: the inputs, which
    exist anyway, parameters, buffers and the loss are not in it. A batch of one that train-mode norms refuse is
    measured as half of a batch of two.

        >>> net = nn.Sequential(nn.Conv3d(1, 2, 3, bias=False), nn.ReLU())
        >>> figures = profile(net, torch.zeros(1, 1, 4, 4, 4), convention="paper")
        >>> figures.params, figures.flops, figures.memory
        (54, 432, 32)

    Args:
        model: The network. DataParallel, DistributedDataParallel and compiled models are unwrapped.
        example: The inputs of one call; may live on the meta device.
        convention: ``"paper"``, ``"equation"`` or ``"true"``, see the top of this module.

    Raises:
        UnsupportedError: Unknown convention, or the network does not run on the example.
    """
    _check(convention)

    kept = kept_for_backward(model, example) if convention == "true" else {}

    def observed(copy: nn.Module, inputs: Any, mode: AbstractContextManager[Any]) -> Profile:
        return _observe(copy, inputs, mode, convention, kept)

    return _on_a_copy(model, example, observed)


def kept_for_backward(model: nn.Module, example: Any) -> dict[str, Kept]:
    """What a training step of the network keeps for its backward pass, by module: the ``true`` memory of ``profile``.

    Raises:
        UnsupportedError: The network does not run on the example.
    """
    refusal = UnsupportedError("")
    for inputs, share in ((example, 1), (calling.at_least_two(example), 2)):
        try:
            found = kept_by_module(trace_step(model, inputs, step=None, training=True))
        except UnsupportedError as error:
            refusal = error
            continue
        if share > 1:
            logger.info("train mode refuses a batch of one (%s); memory is half of that of a batch of two", refusal)
        return {name: Kept(item.elements // share, item.bytes // share) for name, item in found.items()}
    return _on_a_copy(model, example, _training_memory)


def _on_a_copy(
    model: nn.Module, example: Any, act: Callable[[nn.Module, Any, AbstractContextManager[Any]], Result]
) -> Result:
    """Acts on a copy without data, or, where the network's code asks for values, on a real one."""
    model = calling.unwrap(model)
    with randomness.untouched_rng():
        try:
            return act(copies.copy_model(model, meta=True), dataless.to_meta(example), dataless.MetaMode())
        except RanpError:
            raise
        except Exception as error:  # The network's own code may raise anything.
            if any(tensor.device.type == "meta" for tensor in calling.tensors_in((example, list(model.parameters())))):
                raise UnsupportedError(
                    f"{type(model).__name__} does not run on this example without data"
                    f" ({arguments.described(error)}); pass a model and an example that hold data,"
                    " or an example of the right shape"
                ) from error
            logger.info("%s needs data to run (%s); running a copy for real", type(model).__name__, brief(error))
        inputs = tree_map(lambda x: x.detach().clone() if isinstance(x, Tensor) else x, example)
        try:
            return act(copies.copy_model(model, meta=False), inputs, nullcontext())
        except Exception as error:
            raise UnsupportedError(
                f"{type(model).__name__} does not run on the example ({arguments.described(error)}); pass the inputs"
                " of one call: a tensor, a tuple of arguments or a dict of keywords"
            ) from error


def profile_of(trace: Trace, *, convention: str = "true", kept: Mapping[str, Kept] | None = None) -> Profile:
    """Counts what ``profile`` counts from a trace, so that nothing runs twice. Parameters count as 4 bytes each.

    Args:
        trace: The network at the size to be counted.
        convention: As in ``profile``.
        kept: What a training step keeps, by module; a trace does not know it, so ``"true"`` needs it.

    Raises:
        UnsupportedError: Unknown convention, or ``"true"`` without ``kept``.
    """
    _check(convention)
    if convention == "true" and kept is None:
        raise UnsupportedError("a trace does not hold training memory; use ranp.profile for convention='true'")
    parameters = {name: Kept(prod(shape), prod(shape) * FLOAT32) for name, shape in trace.parameters.items()}
    return _assemble(convention, leaves_of(trace), trace.calls, trace.ops, kept or {}, parameters)


def _check(convention: str) -> None:
    arguments.choice("convention", convention, CONVENTIONS)


def _observe(
    model: nn.Module, inputs: Any, mode: AbstractContextManager[Any], convention: str, kept: Mapping[str, Kept]
) -> Profile:
    """Runs a copy and counts. The copy is left in whatever state the runs leave it in."""
    model.eval()
    with torch.no_grad(), ModuleStack(model) as stack, LeafRecorder(model) as leaves, mode, OpRecorder(stack) as ops:
        calling.call(model, inputs)
    parameters = {name: Kept(p.numel(), p.numel() * p.element_size()) for name, p in model.named_parameters()}
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    return _assemble(convention, leaves.kinds, leaves.calls, ops.ops, kept, parameters, kinds)


def _training_memory(model: nn.Module, inputs: Any, mode: AbstractContextManager[Any]) -> dict[str, Kept]:
    """The same of a network that asks for values in train mode, or does not run in it."""
    try:
        return _kept(model, inputs, mode, training=True)
    except Exception as error:  # The network's own code may raise anything.
        found = _kept(model, inputs, mode, training=False)
        logger.warning(
            "%s does not run in train mode on this example (%s); memory is that of eval mode with gradients",
            type(model).__name__,
            brief(error),
        )
        return found


def _kept(model: nn.Module, inputs: Any, mode: AbstractContextManager[Any], *, training: bool) -> dict[str, Kept]:
    model.train(training)
    known = [*model.parameters(), *model.buffers(), *calling.tensors_in(inputs)]
    with torch.enable_grad(), ModuleStack(model) as stack, mode, SavedRecorder(stack, known) as saved:
        output = calling.call(model, inputs)
    kept = saved.kept()
    del output  # Until here it held the graph, and with it everything that was counted.
    return kept


def _assemble(
    convention: str,
    leaves: Mapping[str, str],
    calls: Sequence[LeafCall],
    ops: Sequence[OpCall],
    kept: Mapping[str, Kept],
    parameters: Mapping[str, Kept],
    kinds: Mapping[str, str] | None = None,
) -> Profile:
    """Sums what was seen into one row per module."""
    rows: dict[str, Counter[str]] = {}

    def add(name: str, **amounts: int) -> None:
        rows.setdefault(name, Counter()).update(amounts)

    for call in calls:
        add(call.module)
        if convention != "true":
            elements = call_memory(call)
            flops, macs = call_flops(call, convention), call_macs(call)
            add(call.module, flops=flops, macs=macs, memory=elements, memory_bytes=elements * FLOAT32)
    if convention == "true":
        for op in ops:
            add(row_of(op.module, leaves), flops=op.flops, macs=op.flops // 2)
        for name, item in kept.items():
            add(row_of(name, leaves), memory=item.elements, memory_bytes=item.bytes)
    for name, item in parameters.items():
        row = row_of(owner(name), leaves)
        if convention == "true":
            add(row, params=item.elements, params_bytes=item.bytes)
        elif row in leaves:
            add(row, params=item.elements, params_bytes=item.elements * FLOAT32)
    names = {**(kinds or {}), **leaves}
    figures = ("params", "macs", "flops", "memory", "params_bytes", "memory_bytes")
    made = (ProfileRow(name, names.get(name, ""), *(row[figure] for figure in figures)) for name, row in rows.items())
    return Profile(tuple(made), convention)

"""What each layer costs by itself: FLOPs, parameters and outputs from the trace, memory and seconds from a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod

from ranp.costs.counting import call_flops, call_memory
from ranp.costs.step import StepSetup, StepTrace
from ranp.costs.timing import Stepper
from ranp.running import ranks
from ranp.running.flops import OpCall
from ranp.running.recording import LeafCall
from ranp.tracing.trace import Trace


def flops_by_layer(trace: Trace, convention: str) -> dict[str, float]:
    """FLOPs of the layer, its norm and activation left out."""
    if convention == "true":
        leaves = leaves_of(trace)
        return _summed(trace, ((op.weight or row_of(op.module, leaves), op.flops) for op in trace.ops))
    by_function = (lambda op: op.flops // 2) if convention == "paper" else (lambda op: op.flops - op.output)
    return _called(trace, lambda call: call_flops(call, convention), by_function)


def memory_by_layer(trace: Trace, _convention: str) -> dict[str, float]:
    """Elements of the layer's output."""
    return _called(trace, call_memory, lambda op: op.output)


def params_by_layer(trace: Trace, _convention: str) -> dict[str, float]:
    """The layer's weight and bias."""
    leaves = leaves_of(trace)
    # A layer's weight may be tied to another's, or be a parameter of a module that is more than this layer.
    own = {layer.name: {layer.weight} & set(trace.parameters) for layer in trace.layers}
    for name in trace.parameters:
        own.get(row_of(owner(name), leaves), set()).add(name)
    return {layer: sum(prod(trace.parameters[name]) for name in names) for layer, names in own.items()}


def kept_by_layer(trace: Trace, step: StepTrace) -> dict[str, float]:
    """Bytes that each layer makes a training step hold when its backward pass begins.

    Activations that live into the backward pass, parameters, their gradients and the state of the optimiser. What
    norms, activations and other code keep counts for the layer that ran last before them.
    """
    names = {layer.name for layer in trace.layers}
    turn = next((at for at, call in enumerate(step.calls) if call.phase == "backward"), len(step.calls))
    owners, latest = [], ""
    for call in step.calls[:turn]:
        latest = _within(call.module, names) or latest
        owners.append(latest)
    costs: Counter[str] = Counter()
    for storage in step.storages:
        if storage.kind in ("parameter", "gradient", "state"):
            costs[_within(storage.module, names)] += storage.bytes
        elif storage.kind == "activation" and 0 <= storage.born < turn <= storage.dies:
            costs[owners[storage.born]] += storage.bytes
    return {layer.name: costs[layer.name] for layer in trace.layers}


def seconds_by_layer(trace: Trace, setup: StepSetup) -> dict[str, float]:
    """Seconds that each layer takes in real steps on this machine, forward and backward, norm and activation left out.

    Raises:
        UnsupportedError: The network does not run on the example of the setup.
    """
    names = {layer.name for layer in trace.layers}
    with Stepper(setup, setup.model) as stepper:
        taken = stepper.seconds_by_module()
    found = _summed(trace, ((_within(module, names), seconds) for module, seconds in taken.items()))
    return {name: ranks.agreed(seconds) for name, seconds in found.items()}


def _called(trace: Trace, by_call: Callable[[LeafCall], int], by_op: Callable[[OpCall], int]) -> dict[str, float]:
    """Of the calls of the layer's module, and of operators that use its weight where no module is called."""
    calls = ((call.module, by_call(call)) for call in trace.calls)
    return _summed(trace, (*calls, *((op.weight, by_op(op)) for op in trace.ops if op.weight)))


def _summed(trace: Trace, found: Iterable[tuple[str, float]]) -> dict[str, float]:
    costs: dict[str, float] = {layer.name: 0 for layer in trace.layers}
    for name, cost in found:
        if name in costs:
            costs[name] += cost
    return costs


def _within(module: str, names: set[str]) -> str:
    """The layer that a module is, or is part of; empty if none."""
    return next((name for name in (module, *_ancestors(module)) if name in names), "")


def owner(parameter: str) -> str:
    """The module that a parameter belongs to."""
    return parameter.rpartition(".")[0]


def _ancestors(module: str) -> Iterator[str]:
    """The names of the modules around a module, from the inside out."""
    while module:
        module = owner(module)
        yield module


def row_of(module: str, leaves: Mapping[str, str]) -> str:
    """The leaf that a module is part of (what computes a parametrised weight is part of its layer), or itself."""
    return next((name for name in (module, *_ancestors(module)) if name in leaves), module)


def leaves_of(trace: Trace) -> dict[str, str]:
    """Kind by name of the leaf modules of a trace: those called, layers never called, other owners of parameters."""
    leaves = {call.module: call.kind for call in trace.calls}
    for layer in trace.layers:
        if layer.kind != "parameter" and layer.name not in leaves:
            dims = len(trace.parameters.get(layer.weight, ())) - 2
            kinds = {"conv": f"Conv{dims}d", "transposed": f"ConvTranspose{dims}d", "linear": "Linear"}
            leaves[layer.name] = kinds.get(layer.kind, "")
    owners = {owner(name) for name in trace.parameters}
    containers = {outer for name in (*leaves, *owners) for outer in _ancestors(name)}
    for name in sorted(owners - containers):
        if row_of(name, leaves) not in leaves:
            leaves[name] = ""
    return leaves


def owned_by_leaves(trace: Trace) -> set[str]:
    """The parameters of modules without children, which the paper's convention counts."""
    leaves = leaves_of(trace)
    return {name for name in trace.parameters if row_of(owner(name), leaves) in leaves}

"""What each layer costs in a real training step: the memory that it makes the step keep, the time that it takes.

These are resources by which scores can be reweighted, as the paper does by FLOPs and by activations. They need more
than a trace, namely the network and what a step of it is, so they are made into functions of the trace here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ranp.costs.measuring import Costing, Resource
from ranp.costs.step import Rehearsal
from ranp.costs.time import Table
from ranp.tracing.trace import Trace

NEED_A_STEP = ("train-memory", "time")
"""Resources of a step."""


def needs_step(resource: Resource | None) -> bool:
    """True if the resource, or one of several, is one of a step."""
    if resource is None or callable(resource):
        return False
    if isinstance(resource, str):
        return resource in NEED_A_STEP
    return isinstance(resource, Sequence) and any(map(needs_step, resource))


def with_step(resource: Resource, rehearsed: Callable[[], Rehearsal]) -> Resource:
    """The resource with names of ``NEED_A_STEP`` made into functions of the trace.

    Args:
        resource: One or several.
        rehearsed: Makes the rehearsal of the full network's step; called at most once, and only if it is needed.
    """
    known: list[Rehearsal] = []

    def step() -> Rehearsal:
        if not known:
            known.append(rehearsed())
        return known[0]

    def made(one: str | Costing) -> str | Costing:
        if one == "train-memory":
            return _Function(one, lambda trace: kept_by_layer(trace, step()))
        if one == "time":
            return _Function(one, lambda trace: seconds_by_layer(trace, step()))
        return one

    if isinstance(resource, str) or callable(resource):
        return made(resource)
    return [made(one) for one in resource] if isinstance(resource, Sequence) else resource


class _Function:
    """A cost by layer with the name of its resource; that of the same trace is taken once."""

    def __init__(self, name: str, function: Costing) -> None:
        self.__name__ = name
        self._function = function
        self._latest: tuple[Trace, Mapping[str, float]] | None = None

    def __call__(self, trace: Trace) -> Mapping[str, float]:
        if self._latest is None or self._latest[0] is not trace:
            self._latest = (trace, self._function(trace))
        return self._latest[1]


def kept_by_layer(trace: Trace, rehearsal: Rehearsal) -> dict[str, float]:
    """Bytes that each layer makes a training step hold when its backward pass begins.

    Activations that live into the backward pass, parameters, their gradients and the state of the optimiser. What
    norms, activations and other code keep counts for the layer that ran last before them.
    """
    turn = next((at for at, call in enumerate(rehearsal.calls) if call.phase == "backward"), len(rehearsal.calls))
    owners = _owners(trace, [call.module for call in rehearsal.calls[:turn]])
    names = {layer.name for layer in trace.layers}
    costs: Counter[str] = Counter()
    for storage in rehearsal.storages:
        if storage.kind in ("parameter", "gradient", "state"):
            costs[_within(storage.module, names)] += storage.bytes
        elif storage.kind == "activation" and 0 <= storage.born < turn <= storage.dies:
            costs[owners[storage.born]] += storage.bytes
    return {layer.name: float(costs[layer.name]) for layer in trace.layers}


def seconds_by_layer(trace: Trace, rehearsal: Rehearsal) -> dict[str, float]:
    """Seconds that each layer takes on this machine, forward and backward, its norm and activation left out."""
    table = Table.open()
    table.cover(rehearsal)
    names = {layer.name for layer in trace.layers}
    costs: Counter[str] = Counter()
    for module, seconds in table.by_module(rehearsal).items():
        costs[_within(module, names)] += seconds  # type: ignore[assignment]
    return {layer.name: float(costs[layer.name]) for layer in trace.layers}


def _within(module: str, names: set[str]) -> str:
    """The layer that a module is, or is part of; empty if none."""
    while module and module not in names:
        module = module.rpartition(".")[0]
    return module


def _owners(trace: Trace, modules: Sequence[str]) -> list[str]:
    """For each call the layer that it is part of, or else the layer before it."""
    names, latest, owners = {layer.name for layer in trace.layers}, "", []
    for module in modules:
        latest = _within(module, names) or latest
        owners.append(latest)
    return owners

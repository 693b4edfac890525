"""What a slim network will cost, from the trace alone: FLOPs, multiply-adds and parameters of any choice of channels.

Every figure is a sum of products of sizes, and every size is a count of classes of channels that stay. So the cost of a
choice is a few array operations, and a search may ask for thousands of them. What torch counts is asked of torch: the
formula of each operator, given the sizes that it has in the slim network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import Any

import numpy as np
from torch.utils._pytree import tree_map

from ranp import arguments
from ranp.costs.counting import CONVENTIONS, FLOAT32, fan_in, is_softmax, rates
from ranp.costs.layers import owned_by_leaves
from ranp.running.flops import OpCall, Shape, flops_at
from ranp.running.recording import LAYER_KIND, LeafCall
from ranp.tracing.choice import Choice
from ranp.tracing.layout import Flags, Ints, Layout
from ranp.tracing.trace import Layer, Trace


@dataclass(frozen=True, slots=True)
class Bill:
    """Costs of a network in one convention; parameters are all of them.

    Attributes:
        params: Parameters, those of no leaf module included.
        module_params: Those of leaf modules, which the paper's convention counts.
        macs: Multiply-adds.
        flops: FLOPs.
        memory: Elements of activations as the paper's convention counts them; 0 in ``"true"``, where a trace alone
            does not tell what a training step keeps.
    """

    params: int
    module_params: int
    macs: int
    flops: int
    memory: int

    @property
    def memory_bytes(self) -> int:
        """The memory at 4 bytes per element."""
        return FLOAT32 * self.memory


class Prices:
    """Costs of what stays, by choice of channels.

    >>> from torch import nn, zeros
    >>> from ranp import trace
    >>> found = trace(nn.Sequential(nn.Conv3d(1, 4, 3, bias=False), nn.Conv3d(4, 2, 1)), zeros(1, 1, 5, 5, 5))
    >>> everything = Choice.everything(found)
    >>> prices = Prices.of(found)
    >>> prices.at(everything).params, prices.at(everything.without(found.layers[0].classes[:1])).params
    (118, 89)

    Args:
        trace: Of the full network.
        convention: ``"true"``, ``"paper"`` or ``"equation"``: how FLOPs are counted.
    """

    def __init__(self, trace: Trace, convention: str = "true") -> None:
        arguments.choice("convention", convention, CONVENTIONS)
        layout = Layout.of(trace)
        self._counted = _Counted()
        dims = dict(zip(trace.dims, layout.dim_classes(), strict=True))
        cuts: dict[str, dict[int, Ints]] = {}
        for (name, dim), classes in dims.items():
            cuts.setdefault(name, {})[dim] = classes
        params = [_sizes(shape, cuts.get(name, {}), self._counted) for name, shape in trace.parameters.items()]
        self._params = _Products(params)
        owned = owned_by_leaves(trace)
        self._owned = np.asarray([name in owned for name in trace.parameters], dtype=np.int64)
        if convention == "true":
            self._counts: _ByOperator | _ByModule = _ByOperator(trace, layout, self._counted)
        else:
            self._counts = _ByModule(trace, layout, self._counted, convention)
        self._latest: tuple[bytes, Bill] | None = None

    @classmethod
    def of(cls, trace: Trace, convention: str = "true") -> Prices:
        """Prices of a trace; the latest are remembered, since searches come back with the same."""
        for known, how, prices in _LATEST:
            if known is trace and how == convention:
                return prices
        prices = cls(trace, convention)
        _LATEST[:] = [(trace, convention, prices)]
        return prices

    def at(self, choice: Choice) -> Bill:
        """What the network costs with only these channels."""
        key = choice.stays.tobytes()
        if self._latest is None or self._latest[0] != key:
            counts = self._counted.of(choice.stays)
            params = self._params.of(counts)
            own = int((params * self._owned).sum())
            self._latest = (key, Bill(int(params.sum()), own, *self._counts.of(counts)))
        return self._latest[1]


class _ByOperator:
    """What ``torch.utils.flop_counter`` counts, operator by operator."""

    def __init__(self, trace: Trace, layout: Layout, counted: _Counted) -> None:
        self._fixed = 0
        self._ops: list[tuple[OpCall, tuple[tuple[tuple[int, int], int], ...], dict[tuple[int, ...], int]]] = []
        spans: Sequence[Mapping[tuple[int, int], Ints]] = layout.op_spans or [{}] * len(trace.ops)
        for op, span in zip(trace.ops, spans, strict=True):
            held = tuple((at, counted.number(classes)) for at, classes in span.items() if classes.any())
            if op.call is None or not held:
                self._fixed += op.flops
            else:
                self._ops.append((op, held, {}))

    def of(self, counts: Ints) -> tuple[int, int, int]:
        """Multiply-adds, FLOPs and memory."""
        sizes, flops = counts.tolist(), self._fixed
        for op, held, known in self._ops:
            key = tuple(sizes[number] for _, number in held)
            if key not in known:
                known[key] = flops_at(op.op, _resized(op.call, {at: sizes[number] for at, number in held}))
            flops += known[key]
        return flops // 2, flops, 0


def _resized(call: Any, sizes: Mapping[tuple[int, int], int]) -> Any:
    """The call of an operator with other extents of its tensor arguments."""
    numbers = count()

    def changed(value: Any) -> Any:
        if not isinstance(value, Shape):
            return value
        tensor = next(numbers)
        return Shape(tuple(sizes.get((tensor, dim), size) for dim, size in enumerate(value.sizes)))

    return tree_map(changed, call)


class _ByModule:
    """What the paper counts, module by module."""

    def __init__(self, trace: Trace, layout: Layout, counted: _Counted, convention: str) -> None:
        layers = {layer.name: layer for layer in trace.layers}
        dims = dict(zip(trace.dims, layout.dim_classes(), strict=True))
        results, priced, fans, shared, by_fan, flat, weighs = [], [], [], [], [], [], []
        self._extra = 0
        for call, span in zip(trace.calls, layout.spans, strict=True):
            results.append(_sizes(call.output, span, counted))
            if is_softmax(call):
                priced.append(_sizes(call.output[:2], span, counted))
                rate = (0, 3)
                self._extra -= call.output[0]
            else:
                priced.append(results[-1])
                rate = rates(call, convention)
            fan, divisor = _fan(call, layers.get(call.module), dims, trace, counted)
            fans.append(fan)
            shared.append(divisor)
            by_fan.append(rate[0])
            flat.append(rate[1])
            weighs.append(bool(LAYER_KIND.fullmatch(call.kind)))
        self._results, self._priced, self._fans = map(_Products, (results, priced, fans))
        arrays = (np.asarray(values, dtype=np.int64) for values in (shared, by_fan, flat, weighs))
        self._shared, self._by_fan, self._flat, self._weighs = arrays

    def of(self, counts: Ints) -> tuple[int, int, int]:
        """Multiply-adds, FLOPs and memory."""
        fans, results = self._fans.of(counts) // self._shared, self._results.of(counts)
        each = self._by_fan * fans + self._flat
        flops = int((self._priced.of(counts) * each).sum()) + self._extra
        return int((results * fans * self._weighs).sum()), flops, int(results.sum())


_LATEST: list[tuple[Trace, str, Prices]] = []


class _Counted:
    """Distinct arrays of classes, each with a number; counts of those that stay, all at once. Number 0 is always 1."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._arrays: list[Ints] = []
        self._joined: tuple[Ints, Ints] | None = None

    def number(self, classes: Ints) -> int:
        key = np.ascontiguousarray(classes).tobytes()
        if key not in self._numbers:
            self._arrays.append(classes)
            self._numbers[key] = len(self._arrays)
        return self._numbers[key]

    def of(self, stays: Flags) -> Ints:
        if self._joined is None:
            lengths = [len(array) for array in self._arrays]
            starts = np.concatenate([[0], np.cumsum(lengths)])[:-1].astype(np.int64)
            self._joined = (np.concatenate(self._arrays) if self._arrays else np.zeros(0, np.int64), starts)
        joined, starts = self._joined
        counts = np.add.reduceat(stays[joined].astype(np.int64), starts) if len(starts) else np.zeros(0, np.int64)
        return np.concatenate([[1], counts])


Factors = tuple[int, tuple[int, ...]]
"""A constant, and the numbers of the counts that it is multiplied with."""


class _Products:
    """Products of constants and counts, all at once."""

    def __init__(self, factors: Iterable[Factors]) -> None:
        known = list(factors)
        most = max((len(numbers) for _, numbers in known), default=0)
        self._constants = np.asarray([constant for constant, _ in known], dtype=np.int64)
        padded = [numbers + (0,) * (most - len(numbers)) for _, numbers in known]
        self._numbers = np.asarray(padded, dtype=np.int64).reshape(len(known), most)

    def of(self, counts: Ints) -> Ints:
        products: Ints = self._constants * counts[self._numbers].prod(axis=1)
        return products


def _sizes(shape: Sequence[int], classes: Mapping[int, Ints], counted: _Counted) -> Factors:
    """The number of elements of a tensor of that shape whose dimensions hold these classes."""
    held = {dim: array for dim, array in classes.items() if dim < len(shape) and array.any()}
    rigid = prod(size for dim, size in enumerate(shape) if dim not in held)
    # Inputs that are numbered through all groups of a convolution are as many in each: the first stands for all.
    return rigid, tuple(counted.number(array[: shape[dim]]) for dim, array in held.items())


def _fan(
    call: LeafCall, layer: Layer | None, dims: Mapping[tuple[str, int], Ints], trace: Trace, counted: _Counted
) -> tuple[Factors, int]:
    """Multiplications behind one output element, kernel times inputs that stay, and how many groups share those."""
    if not LAYER_KIND.fullmatch(call.kind):
        return (0, ()), 1
    whole = fan_in(call)
    reads = None if layer is None else dims.get((_weight(layer, call, trace), layer.in_dim))
    if layer is None or reads is None:
        return (whole, ()), 1
    if layer.in_dim == 1:
        reads = reads[: call.weight[1]]
        return (whole // len(reads), (counted.number(reads),)), 1
    if call.groups == call.weight[0]:  # depthwise: its groups shrink with its inputs
        return (whole, ()), 1
    return (whole * call.groups // len(reads), (counted.number(reads),)), call.groups


def _weight(layer: Layer, call: LeafCall, trace: Trace) -> str:
    """The parameter that has the weight's shape: the weight, or what it is computed from; empty if none has."""
    inside = (f"{layer.name}.weight_", f"{layer.name}.parametrizations.weight.")
    computed = (name for name in trace.parameters if name.startswith(inside))
    return next((name for name in (layer.weight, *computed) if trace.parameters.get(name) == call.weight), "")

"""What a slim network will cost, from the trace alone: FLOPs, multiply-adds, parameters and memory of any choice.

Every figure of the paper's convention is a sum of products of sizes, and every size is a count of classes of channels
that stay. So the cost of a choice is a few array operations, and a search may ask for thousands of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ranp.costs.counting import fan_in, is_softmax, rates
from ranp.costs.layers import owned_by_leaves
from ranp.errors import UnsupportedError
from ranp.running.recording import LAYER_KIND, LeafCall
from ranp.tracing.choice import Choice
from ranp.tracing.layout import Flags, Ints, Layout
from ranp.tracing.trace import Layer, Trace


@dataclass(frozen=True, slots=True)
class Bill:
    """Costs of a network in the paper's convention; parameters are all of them.

    Attributes:
        params: Parameters, those of no leaf module included.
        module_params: Those of leaf modules, which the paper's convention counts.
        macs: Multiply-adds of convolutions and linear layers.
        flops: FLOPs.
        memory: Elements of activations.
    """

    params: int
    module_params: int
    macs: int
    flops: int
    memory: int


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
        convention: ``"paper"`` or ``"equation"``: how FLOPs are counted.

    Raises:
        UnsupportedError: The convention has no rules by module.
    """

    def __init__(self, trace: Trace, convention: str = "paper") -> None:
        if convention not in ("paper", "equation"):
            raise UnsupportedError(f"convention={convention!r} has no prices. Pass 'paper' or 'equation'.")
        layout = Layout.of(trace)
        counted = _Counted()
        dims = dict(zip(trace.dims, layout.dim_classes(), strict=True))
        layers = {layer.name: layer for layer in trace.layers}

        cuts: dict[str, dict[int, Ints]] = {}
        for (name, dim), classes in dims.items():
            cuts.setdefault(name, {})[dim] = classes
        params = [_sizes(shape, cuts.get(name, {}), counted) for name, shape in trace.parameters.items()]
        owned = owned_by_leaves(trace)
        self._owned = np.asarray([name in owned for name in trace.parameters], dtype=np.int64)
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
        self._counted = counted
        self._params, self._results, self._priced, self._fans = map(_Products, (params, results, priced, fans))
        arrays = (np.asarray(values, dtype=np.int64) for values in (shared, by_fan, flat, weighs))
        self._shared, self._by_fan, self._flat, self._weighs = arrays

        self._latest: tuple[bytes, Bill] | None = None

    @classmethod
    def of(cls, trace: Trace, convention: str = "paper") -> Prices:
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
            self._latest = (key, self._at(choice.stays))
        return self._latest[1]

    def _at(self, stays: Flags) -> Bill:
        counts = self._counted.of(stays)
        fans, results = self._fans.of(counts) // self._shared, self._results.of(counts)
        each = self._by_fan * fans + self._flat
        params = self._params.of(counts)
        return Bill(
            params=int(params.sum()),
            module_params=int((params * self._owned).sum()),
            macs=int((results * fans * self._weighs).sum()),
            flops=int((self._priced.of(counts) * each).sum()) + self._extra,
            memory=int(results.sum()),
        )


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
    return rigid, tuple(counted.number(array) for array in held.values())


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
        return (whole // len(reads), (counted.number(reads),)), 1
    if call.groups == call.weight[0]:  # depthwise: its groups shrink with its inputs
        return (whole, ()), 1
    return (whole * call.groups // len(reads), (counted.number(reads),)), call.groups


def _weight(layer: Layer, call: LeafCall, trace: Trace) -> str:
    """The parameter that has the weight's shape: the weight, or what it is computed from; empty if none has."""
    inside = (f"{layer.name}.weight_", f"{layer.name}.parametrizations.weight.")
    computed = (name for name in trace.parameters if name.startswith(inside))
    return next((name for name in (layer.weight, *computed) if trace.parameters.get(name) == call.weight), "")

"""Figures before and after pruning, layer by layer, and how they are written in a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ranp.choosing.plan import Plan
from ranp.costs.profiles import Profile
from ranp.reporting.format import scaled
from ranp.tracing.trace import Trace

OTHERS = "(other modules)"
"""Name of the row that holds what is no layer: norms, activations, pooling."""
COUNTED = ("params", "flops", "memory_bytes")
"""What rows and totals are compared in; the names are those of ``Profile`` and of its rows."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A figure before and after pruning.

    >>> Amount(200, 50).removed
    0.75
    """

    before: int
    after: int

    @property
    def ratio(self) -> float:
        """After over before; 1 where there was nothing."""
        return self.after / self.before if self.before else 1.0

    @property
    def removed(self) -> float:
        """The fraction that is gone."""
        return 1.0 - self.ratio


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One layer before and after, in the convention of the report.

    Attributes:
        name: The ``named_modules`` name, or ``OTHERS``.
        kind: ``"conv"``, ``"transposed"``, ``"linear"`` or ``"parameter"``; empty for ``OTHERS``.
        channels: Output channels.
        params: Parameters of the layer itself.
        flops: FLOPs of the layer itself.
        memory: Bytes of its own that a step keeps for the backward pass; in the paper's convention all of its output.
        note: Why it was kept whole or in part; empty if it was free.
    """

    name: str
    kind: str
    channels: Amount
    params: Amount
    flops: Amount
    memory: Amount
    note: str = ""


def compared(
    trace: Trace,
    plan: Plan,
    before: Profile,
    after: Profile,
    shapes: Mapping[str, tuple[int, ...]],
    notes: Mapping[str, str],
) -> tuple[LayerReport, ...]:
    """One row per layer, and one for the rest.

    Args:
        trace: Of the full network.
        plan: What was removed.
        before: Costs of the full network.
        after: Costs of the slim one.
        shapes: Of the slim network's parameters.
        notes: Layer name to why channels of it were kept.
    """
    old, new = ({row.name: row for row in found.rows} for found in (before, after))
    rows = []
    for layer in trace.layers:
        pairs = dict.fromkeys(COUNTED, Amount(0, 0))
        if layer.kind != "parameter":  # A weight used by function call is part of its module, whose row is no layer.
            for name in COUNTED:
                pairs[name] = Amount(getattr(old.get(layer.name), name, 0), getattr(new.get(layer.name), name, 0))
        elif layer.weight in shapes and layer.weight.rpartition(".")[0] in old:  # else it is in no total either
            pairs["params"] = Amount(math.prod(trace.parameters[layer.weight]), math.prod(shapes[layer.weight]))
        channels = Amount(layer.channels, len(plan.kept[layer.name]))
        params, flops, memory = pairs.values()
        rows.append(LayerReport(layer.name, layer.kind, channels, params, flops, memory, notes.get(layer.name, "")))
    rest = []
    for name in COUNTED:
        known = total(getattr(row, name.removesuffix("_bytes")) for row in rows)
        rest.append(Amount(getattr(before, name) - known.before, getattr(after, name) - known.after))
    params, flops, memory = rest
    return (*rows, LayerReport(OTHERS, "", Amount(0, 0), params, flops, memory))


def total(figures: Iterable[Amount]) -> Amount:
    """Their sum."""
    pairs = [(figure.before, figure.after) for figure in figures]
    return Amount(sum(before for before, _ in pairs), sum(after for _, after in pairs))


def both(amount: Amount) -> dict[str, Any]:
    """An amount as plain values."""
    return {**asdict(amount), "removed": amount.removed}


def amount_from(value: Mapping[str, Any]) -> Amount:
    """The amount that ``both`` described."""
    before, after = value["before"], value["after"]
    if any(type(figure) is not int or abs(figure) >= 2**63 for figure in (before, after)):
        raise ValueError(f"{before!r} and {after!r} are not both whole numbers of 64 bits")
    return Amount(before, after)


def row_from(entry: Mapping[str, Any], *, memory_scale: int = 1) -> LayerReport:
    """The row that ``asdict`` described, its memory in other units."""
    channels, params, flops, memory = (amount_from(entry[name]) for name in ("channels", "params", "flops", "memory"))
    memory = Amount(memory.before * memory_scale, memory.after * memory_scale)
    return LayerReport(str(entry["name"]), str(entry["kind"]), channels, params, flops, memory, str(entry["note"]))


def change(amount: Amount, scale: float) -> str:
    """Before and after in one cell."""
    if not amount.before and not amount.after:
        return ""
    return f"{scaled(amount.before, scale)} -> {scaled(amount.after, scale)}"

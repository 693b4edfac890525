"""What cannot be pruned and why: channels that must stay, gathered by cause, with the operator and module to blame.

The tracer notes a cause for every channel that must stay, the plan one for every layer that was kept for another reason
(by request, for lack of scores). Here both become one list that a reader can act on: how many channels of which layers,
held by what, and where in the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ranp.choosing.coupling import COUPLED, REQUESTED
from ranp.tracing.groups import listed, pattern
from ranp.tracing.trace import MAKES_OUTPUT, PINNED, Cause, ClassIds, Layer, Pin, Trace

__all__ = ["HeldChannels", "by_cause", "describe", "listed", "what_stays"]

TOGETHER = "all channels of a layer or tensor stand or fall together, and some must stay"
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class HeldChannels:
    """Channels that stay whatever their scores, for one cause.

    Attributes:
        cause: Its kind, the value of a ``ranp.tracing.Cause``.
        reason: What is in the way, in words.
        where: Module in which it arose; empty for the network's own code.
        op: Operator to blame, if one is.
        layers: Layer name to the number of its channels that stay, in layer order.
    """

    cause: str
    reason: str
    where: str = ""
    op: str = ""
    layers: Mapping[str, int] = field(default_factory=dict)

    @property
    def channels(self) -> int:
        """How many there are."""
        return sum(self.layers.values())

    def __str__(self) -> str:
        return sentence(self.cause, self.reason, self.op, self.where)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**asdict(self), "channels": self.channels}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> HeldChannels:
        """Those that ``to_dict`` described."""
        layers = {str(name): int(count) for name, count in value.get("layers", {}).items()}
        reason = str(value["reason"])
        usual = Cause.OUTPUT if reason == MAKES_OUTPUT else Cause.OTHER  # the first reports named no causes
        cause = str(value.get("cause", usual))
        return cls(cause, reason, str(value["where"]), str(value.get("op", "")), layers)


Obstacle = HeldChannels
"""Its name in earlier releases."""


def what_stays(trace: Trace, notes: Iterable[str] = ()) -> tuple[HeldChannels, ...]:
    """Every cause for which channels stay, with the channels of each layer; the one that holds most comes first.

    Args:
        trace: Of the full network.
        notes: Those of a plan, ``"layer: why"``: layers kept for reasons that are not a property of the network.
    """
    found: dict[tuple[Cause, str, str, str], dict[str, int]] = {}

    def hold(layer: Layer, pin: Pin) -> None:
        counts = found.setdefault((pin.cause, pin.reason, pin.where, pin.op), {})
        counts[layer.name] = counts.get(layer.name, 0) + pin.channels

    own = {layer.name: {layer.reason or "must stay", *map(str, layer.pins), COUPLED} for layer in trace.layers}
    whys = dict(note.split(": ", 1) for note in notes if ": " in note)
    asked = {name: why for name, why in whys.items() if why not in own.get(name, ())}
    held = [layer.classes for layer in trace.layers if layer.name in asked]
    whole = np.unique(np.concatenate([*held, np.zeros(1, np.int64)]))
    filling = np.setdiff1d(_indivisible(trace), whole)
    for layer in trace.layers:
        for pin in _pins(layer):
            hold(layer, pin)
        loose = layer.classes[layer.classes != PINNED]
        tied = int(np.isin(loose, whole).sum())
        if layer.name in asked:
            why = asked[layer.name]
            cause = Cause.REQUEST if why.startswith(REQUESTED) else Cause.GRADIENT  # without scores
            hold(layer, Pin(why, "", len(loose), cause=cause))
        elif whys.get(layer.name) == COUPLED:
            hold(layer, Pin(COUPLED, "", len(loose), cause=Cause.COUPLING))
        else:
            hold(layer, Pin(COUPLED, "", tied, cause=Cause.COUPLING))
            hold(layer, Pin(TOGETHER, "", int(np.isin(loose, filling).sum()), cause=Cause.COUPLING))
    made = (
        HeldChannels(cause.value, reason, where, op, {name: n for name, n in counts.items() if n})
        for (cause, reason, where, op), counts in found.items()
    )
    return tuple(sorted((one for one in made if one.layers), key=lambda one: -one.channels))


def _indivisible(trace: Trace) -> ClassIds:
    """Classes that fill a whole layer, or a whole dimension of a tensor: they can only go with all of it."""
    arrays = [layer.classes for layer in trace.layers] + list(trace.dims.values())
    return np.unique([int(array[0]) for array in arrays if len(array) > 1 and (array == array[0]).all()]).astype(
        np.int64
    )


def _pins(layer: Layer) -> tuple[Pin, ...]:
    stuck = int(np.count_nonzero(layer.classes == PINNED))
    if layer.pins or not stuck:
        return layer.pins
    return (Pin(layer.reason or "must stay", "", stuck),)


def sentence(cause: str, reason: str, op: str = "", where: str = "") -> str:
    """What is in the way, with the operator and the module, as one clause."""
    place = f"in {where}" if where else "in the network's own code"
    if cause == Cause.OPERATOR:
        return f"no rule for operator {op} {place}" if op else reason
    if cause == Cause.CODE:
        return f"code around {op} {place} {reason.removeprefix('code ')}" if op else reason
    if cause == Cause.UNUSED:
        return "did not run on this example: kept, but what feeds it may be cut, so that it could no longer run"
    if cause == Cause.UNSEEN:
        return f"{reason} (code that leaves torch, such as numpy, cannot be followed)"
    return f"{reason} ({op} {place})" if op else f"{reason} {place}" if where else reason


def by_cause(stays: Iterable[HeldChannels]) -> dict[str, int]:
    """Channels that stay, by kind of cause."""
    totals: dict[str, int] = {}
    for one in stays:
        totals[one.cause] = totals.get(one.cause, 0) + one.channels
    return totals


def describe(stays: Iterable[HeldChannels], channels: int) -> str:
    """The list for a reader: one line for each cause, equal ones in modules that differ by a number in one line.

    Args:
        stays: What stays.
        channels: All channels of the network.
    """
    groups: dict[str, list[HeldChannels]] = {}
    for one in stays:
        text = sentence(one.cause, one.reason, one.op, pattern(one.where))
        groups.setdefault(text, []).append(one)
    stay = sum(one.channels for group in groups.values() for one in group)
    if not groups:
        return f"all {channels:,} channels can go"
    lines = [f"{stay:,} of {channels:,} channels must stay, {channels - stay:,} can go:"]
    ranked = sorted(groups.items(), key=lambda item: -sum(one.channels for one in item[1]))
    for text, group in ranked[:_SHOWN]:
        names = dict.fromkeys(name for one in group for name in one.layers)
        count = sum(one.channels for one in group)
        lines.append(f"  {count:,} of {listed(names)}: {text}")
    if len(ranked) > _SHOWN:
        rest = sum(one.channels for _, group in ranked[_SHOWN:] for one in group)
        lines.append(f"  {rest:,} for {len(ranked) - _SHOWN} more causes (all in the JSON report)")
    return "\n".join(lines)

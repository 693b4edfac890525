"""Changing a plan so that it stays one: whatever stands or falls with an edited channel moves with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import index
from typing import Any

import numpy as np

from ranp.choosing.plan.classes import Flags, choice
from ranp.choosing.plan.notation import parse_indices
from ranp.choosing.plan.value import Cut, Plan
from ranp.errors import PlanMismatchError, brief, unknown_name

Keep = int | str | Iterable[int]
"""Channels to keep, as indices or as the text of ranges, or how many."""


def edit(plan: Plan, changes: Mapping[str, Keep]) -> Plan:
    """The plan in which several layers keep other channels, checked once all of them are changed.

    Args:
        plan: What to start from; it is not changed.
        changes: Layer name to what it keeps, see ``Plan.edited``.

    Raises:
        PlanMismatchError: See ``Plan.edited``; also if two layers ask for different channels of one class.
    """
    if not plan.classes:
        raise PlanMismatchError(
            "the plan does not know which channels stand or fall together. Edit one that ranp.select or prune made."
        )
    stays = choice(plan)
    asked: dict[int, tuple[str, bool]] = {}
    for layer, keep in changes.items():
        for at, (number, flag) in enumerate(_wish(plan, layer, keep, stays)):
            channel = f"channel {at} of {layer!r}"
            other, before = asked.setdefault(number, (channel, flag))
            if before != flag:
                goes, remains = (other, channel) if flag else (channel, other)
                raise PlanMismatchError(
                    f"{channel} and {other} stand or fall together (class {number}), but {remains} is to stay and "
                    f"{goes} to go. Ask for the same of both."
                )
            stays[number] = flag
    kept = dict(plan.kept)
    for layer, classes in plan.classes.layers.items():
        kept[layer] = _left(f"layer {layer!r}", stays[list(classes)])
    cuts: dict[str, dict[int, Cut]] = {}
    for name, by_dim in plan.classes.dims.items():
        for dim, classes in by_dim.items():
            left = _left(f"dimension {dim} of {name!r}", stays[list(classes)])
            if len(left) < len(classes):
                cuts.setdefault(name, {})[dim] = Cut(len(classes), left)
    removed = plan.sparsity.channels - sum(map(len, kept.values()))
    return replace(plan, kept=kept, cuts=cuts, sparsity=replace(plan.sparsity, removed=removed), altered=True)


def _left(place: str, flags: Flags) -> tuple[int, ...]:
    if not flags.any():
        raise PlanMismatchError(f"the edit leaves nothing of {place}. Keep at least one of its {len(flags)} channels.")
    return tuple(np.flatnonzero(flags).tolist())


def _wish(plan: Plan, layer: str, keep: Keep, stays: Flags) -> Iterable[tuple[int, bool]]:
    """Of each channel of the layer its class, and whether it is to stay."""
    if layer not in plan.kept:
        raise PlanMismatchError(unknown_name("layer", layer, plan.kept))
    classes, size = plan.classes.layers.get(layer), plan.channels[layer]
    if classes is None:
        raise PlanMismatchError(f"layer {layer!r} must stay whole: 'ranp plan show' says why. Edit another layer.")
    if isinstance(keep, str):
        try:
            indices = parse_indices(keep, size)
        except ValueError as error:
            raise PlanMismatchError(f"for layer {layer!r}, {error}.") from error
    elif isinstance(keep, int | np.integer) and not isinstance(keep, bool):
        indices = _first(plan, layer, int(keep), stays)
    else:
        indices = _whole(keep)
    if not indices or indices[0] < 0 or indices[-1] >= size:
        raise PlanMismatchError(
            f"layer {layer!r} cannot keep {brief(keep)}. Give at least one channel, whole numbers from 0 to {size - 1}."
        )
    flags = np.zeros(size, dtype=bool)
    flags[list(indices)] = True
    for at in np.flatnonzero(~flags & (np.asarray(classes) == 0)).tolist():
        raise PlanMismatchError(f"channel {at} of layer {layer!r} must stay. Keep it too.")
    return zip(classes, flags.tolist(), strict=True)


def _whole(keep: Any) -> tuple[int, ...]:
    """The indices in order, of Python's or numpy's kind; empty if one is anything else, a flag for instance."""
    try:
        return tuple(sorted({index(value) if not isinstance(value, bool) else -1 for value in keep}))
    except TypeError:
        return ()


def _first(plan: Plan, layer: str, width: int, stays: Flags) -> tuple[int, ...]:
    """The channels that stay if so many do: what must, then the lowest kept, then the lowest removed ones."""
    classes, size = plan.classes.layers[layer], plan.channels[layer]
    if not 1 <= width <= size:
        raise PlanMismatchError(f"layer {layer!r} cannot keep {width!r} channels. Give a number from 1 to {size}.")
    counts = Counter(classes)
    order = sorted(counts, key=lambda number: not stays[number])  # a sort leaves equals in the layer's order
    part_of = {
        number: (at, part)
        for at, entry in enumerate(plan.classes.equal)
        for part, numbers in enumerate(entry)
        for number in numbers
    }
    place: dict[int, int] = {}
    met: Counter[tuple[int, int] | None] = Counter()
    for number in order:  # its place in its own part, so that all parts that must stay equal are drawn from alike
        part = part_of.get(number)
        place[number] = met[part]
        met[part] += 1
    room, chosen = width, set()
    for number in sorted(order, key=lambda number: (number != 0, place[number])):
        if room >= counts[number]:
            room -= counts[number]
            chosen.add(number)
        elif number == 0:
            raise PlanMismatchError(f"{counts[0]} channels of layer {layer!r} must stay. Keep at least as many.")
    if room:
        more = width - room + min(count for number, count in counts.items() if number not in chosen)
        possible = f"{width - room} or {more}" if room < width else str(more)
        raise PlanMismatchError(
            f"layer {layer!r} cannot keep {width} channels, since some stand or fall together. Ask for {possible}, or "
            "name the channels."
        )
    return tuple(at for at, number in enumerate(classes) if number in chosen)

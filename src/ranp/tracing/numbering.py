"""Inputs of a grouped convolution, numbered through all its groups: then each group may keep others of its own.

The weight of a grouped convolution holds one dimension for the inputs of every group. As a rule all groups keep the
same places in it. Where a shuffle deals channels over groups whose size they do not divide, that ties a whole layer
together: a channel lies in one group at one place and in the next at another. So there the inputs are numbered through
all groups, each of which keeps equally many, wherever they are; the weight is cut group by group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ranp.tracing.cutting import grouped_weights
from ranp.tracing.labels import without_repeats

if TYPE_CHECKING:
    from ranp.tracing.tracer import Tracer


def number_through_groups(tracer: Tracer) -> None:
    """Numbers the inputs of grouped convolutions through all groups where that leaves more classes of channels."""
    grouped = {name: groups for name, groups in grouped_weights(tracer.model).items() if (name, 1) in tracer.births}
    # Only weights of which is known that nothing but these convolutions reads them, on whatever path.
    if not grouped or not tracer.meta or any(run.ledger.drew for run in tracer.runs.values()):
        return
    classes = tracer.space.resolve()
    found = {name: groups for name, groups in grouped.items() if _is_tied(tracer, classes.roots, name, groups)}
    if found:
        tracer.lessons.through |= found
        tracer.run_full()
        if len(without_repeats(tracer.space.resolve().ids)) <= len(without_repeats(classes.ids)):
            tracer.lessons.through.clear()
            tracer.run_full()


def _is_tied(tracer: Tracer, roots: np.ndarray, name: str, groups: int) -> bool:
    """Whether several inputs of a group are of one class, in a weight that only convolutions of so many groups read."""
    places = tracer.births[name, 1]
    if len(without_repeats(roots[places])) == len(places):
        return False
    records = (record for run in tracer.runs.values() for record in run.ledger.records)
    reading = [record for record in records if any(vector is places for _, _, vector in record.inputs)]
    return all(record.name == "convolution" and _groups(record.shapes) == groups for record in reading)


def _groups(shapes: tuple[tuple[int, ...] | None, ...]) -> int:
    """In how many groups a convolution of an input and a weight of these shapes reads its channels."""
    x, weight = shapes[:2]
    return 0 if x is None or weight is None else x[1] // weight[1]

"""Widths that must agree: code that cuts one tensor by the width of another, or writes one number for both.

``reshape(b, n, 3, heads, c // heads)`` takes ``c`` from the residual stream and cuts the queries by it; a first state
of ``torch.zeros(b, x.shape[1])`` meets channels of another layer. Nothing couples these channels one by one: they need
only keep the same share. Which widths belong together can be guessed, since a guess is tried at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ranp.tracing.labels import Classes, EqualCounts, Vector
from ranp.tracing.ledger import OpRecord

REASON = "widths that code takes from each other"
REACH = 60
"""Operators to look at, before and after."""

Seen = tuple[int, int, int]
"""How many operators on, which of its tensors, and which dimension."""


def once_each(vector: Vector, roots: Vector) -> Vector | None:
    """One index of every channel, in their order; None if some stand there more often than others."""
    _, firsts, counts = np.unique(roots[vector], return_index=True, return_counts=True)
    return vector[np.sort(firsts)] if (counts == counts[0]).all() else None


def same_share(one: Vector, other: Vector, roots: Vector, where: str) -> EqualCounts | None:
    """The note that two sets of channels keep the same share of what they have; None where there is no such cut.

    The larger one is a multiple of the smaller one, and cut into pieces of that size: all of them keep equal counts.
    """
    few, many = once_each(one, roots), once_each(other, roots)
    if few is None or many is None:
        return None
    few, many = sorted((few, many), key=len)
    if len(few) < 2 or len(many) % len(few) or np.isin(roots[many], roots[few]).any():
        return None
    return EqualCounts((few, *many.reshape(-1, len(few))), REASON, where)


def within(where: str, scope: str) -> bool:
    """True for a module and those inside it; everything is inside the network itself."""
    return not scope or where == scope or where.startswith(f"{scope}.")


def widths_near(records: Sequence[OpRecord], at: int, classes: Classes) -> Iterator[tuple[Seen, Vector]]:
    """Channels that can go which operators around this one read, in its module or the one around it; nearest first."""
    inner, known = records[at].where, set[bytes]()
    outer = inner.rpartition(".")[0]
    for step in (0, *range(-1, -REACH, -1), *range(1, REACH)):
        if not 0 <= at + step < len(records) or not within(records[at + step].where, outer if step <= 0 else inner):
            continue
        for number, dim, vector in records[at + step].inputs:
            key = np.unique(classes.roots[vector]).tobytes()
            if len(vector) and key not in known and classes.ids[vector].all():
                known.add(key)
                yield (step, number, dim), vector

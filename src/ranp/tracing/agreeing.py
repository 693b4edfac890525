"""Widths that must agree: code that cuts one tensor by the width of another, or writes one number for both.

``reshape(b, n, 3, heads, c // heads)`` takes ``c`` from the residual stream and cuts the queries by it; a first state
of ``torch.zeros(b, x.shape[1])`` meets channels of another layer. Nothing couples these channels one by one: they need
only keep the same share. Which widths belong together can be guessed, since a guess is tried at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ranp.tracing.labels import EqualCounts, Vector
from ranp.tracing.ledger import OpRecord

REASON = "widths that code takes from each other"
CANDIDATES = 4
"""Widths to try at one failure: the one that code read is seldom far."""
REACH = 60
"""Operators to look back at."""

Seen = tuple[int, int, int]
"""How many operators before, which of its tensors, and which dimension."""


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


def widths_before(
    records: Sequence[OpRecord], at: int, ids: Vector, roots: Vector, avoid: Sequence[Vector]
) -> Iterator[tuple[Seen, Vector]]:
    """Channels that can go which operators before this one read, in its module or the one around it; nearest first."""
    scope = records[at].where.rpartition(".")[0]
    known = {np.unique(roots[vector]).tobytes() for vector in avoid}
    for back in range(1, min(at, REACH) + 1):
        record = records[at - back]
        if scope and not (record.where == scope or record.where.startswith(f"{scope}.")):
            continue
        for number, dim, vector in record.inputs:
            key = np.unique(roots[vector]).tobytes()
            if key in known or not ids[vector].all():
                continue
            known.add(key)
            yield (back, number, dim), vector

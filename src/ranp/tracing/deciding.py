"""Values that reach Python: a head whose output only decides which branch is taken has no consumer that a run shows.

An early exit returns its logits when they are sure enough. On an example where they are not, all that a run sees is a
maximum turned into a plain number; the channels it was taken over look as if nobody needed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ranp.running.operators import flat_tensors
from ranp.tracing.labels import FILLER, LabelSpace, Vector
from ranp.tracing.ledger import Ledger
from ranp.tracing.operation import labels_of
from ranp.tracing.rules.contraction import CONVOLUTIONS, PRODUCTS
from ranp.tracing.rules.losses import DISTANCES, ELEMENTWISE
from ranp.tracing.rules.reduction import EXTREMES, PLAIN, POSITIONS
from ranp.tracing.trace import Cause

REDUCED = "_ranp_reduced"
_SUMS_WITH_WEIGHTS = frozenset((*CONVOLUTIONS, *PRODUCTS))
_REDUCTIONS = frozenset((*PLAIN, *EXTREMES, *POSITIONS, *ELEMENTWISE, *DISTANCES))

TO_PYTHON = frozenset("_local_scalar_dense item is_nonzero equal allclose nonzero".split())
"""Operators whose result the code sees as a number, a truth value or a shape."""


def reduced_into(tensor: torch.Tensor) -> list[Vector]:
    """Channels that the values of a tensor were reduced over, and those it still has."""
    found: list[Vector] = getattr(tensor, REDUCED, None) or []
    return [*found, *labels_of(tensor).values()]


def remember_reduced(name: str, ins: list[torch.Tensor], out: Any) -> None:
    """Lets the results of an operator remember the channels that it, or one before it, reduced over.

    Weights end the trail: behind them, fewer channels are just fewer summands.
    """
    if name in _SUMS_WITH_WEIGHTS:
        return
    trail: dict[int, Vector] = {}
    for tensor in ins:
        for vector in getattr(tensor, REDUCED, None) or []:
            trail[id(vector)] = vector
        if name in _REDUCTIONS:
            trail.update({id(vector): vector for vector in labels_of(tensor).values()})
    if trail:
        for tensor in flat_tensors(out):
            setattr(tensor, REDUCED, list(trail.values()))


def keep_what_decides(space: LabelSpace, ledgers: Sequence[Ledger]) -> None:
    """Pins channels that no weight reads, but whose values decided something in the code."""
    deciding = [found for ledger in ledgers for found in ledger.decided_by]
    if not deciding:
        return
    roots = space.resolve().roots
    read = {int(root) for vector in space.contracted for root in roots[vector]}
    for vector, where in deciding:
        alone = vector[[int(root) not in read for root in roots[vector]]]
        reason = "code decides by its values what to do next"
        space.pin(alone[alone != FILLER], reason, where, op="item", cause=Cause.CODE)

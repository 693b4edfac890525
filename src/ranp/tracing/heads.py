"""Heads of an attention: which views make them, and what becomes of their channels.

A view cuts a width into heads and places inside heads. Places can go, the same number in every head, or whole heads. A
scale that code works out from the size of a head changes with the places, and not with the heads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from torch import nn

from ranp.tracing.agreeing import within
from ranp.tracing.ledger import OpRecord
from ranp.tracing.reshaping import HEADS, INNERMOST
from ranp.tracing.rules.contraction import ATTENTIONS
from ranp.tracing.siblings import Place, Siblings, pattern_of
from ranp.tracing.trace import Cause

if TYPE_CHECKING:
    from ranp.tracing.tracer import Tracer

WHOLE, DIMS, BOTH = ATTENTION = ("heads", "dims", "both")
"""What an attention may lose: whole heads, places inside heads, or places where they can go and else heads."""
ATTENDING = frozenset(["bmm", "baddbmm", *ATTENTIONS])
"""Operators by which queries meet keys."""
VIEWS = 4
"""Views of one attention that may be turned back."""


def turn(tracer: Tracer, places: Iterable[Place], carrier: int) -> None:
    """Lets another part carry the channels of views that split them."""
    found = [(mode, index) for mode, index in places if index in tracer.runs[mode].ledger.splits]
    tracer.lessons.carriers |= dict.fromkeys(found, carrier)
    tracer.run_full()


def alike(model: nn.Module, records: Sequence[OpRecord], where: str) -> set[str]:
    """Patterns of the names of modules of the same class that ran."""
    modules = dict(model.named_modules())
    return {
        pattern_of(other)
        for other in {record.where for record in records}
        if type(modules[other]) is type(modules[where])
    }


def turn_to_heads(tracer: Tracer, modules: Collection[str], siblings: Siblings) -> None:
    """Lets whole heads carry the channels of the views of an attention.

    A view that tells queries, keys and values from each other holds no heads: with it the first that leaves nothing
    to prune, and so on, is turned back.
    """
    tracer.lessons.forget(modules)
    turn(tracer, [place for place, part in siblings.parts.items() if part[0] in modules], HEADS)
    for _ in range(VIEWS):
        carriers = tracer.lessons.carriers
        stuck = tracer.stuck(p for p, at in carriers.items() if at == HEADS and siblings.parts[p][0] in modules)
        if not stuck:
            return
        firsts = {siblings.parts[place][0]: place for place in sorted(stuck, reverse=True)}
        for first in firsts.values():
            carriers |= dict.fromkeys(siblings.of(first), INNERMOST)
        tracer.run_full()


def in_attention(records: Sequence[OpRecord], index: int) -> bool:
    """True if an operator stands in a module in which tensors that are no weights are multiplied with each other."""
    return any(record.name in ATTENDING and within(record.where, records[index].where) for record in records)


def start_with_heads(tracer: Tracer) -> None:
    """Turns the views of every attention to whole heads, before anything is tried."""
    runs = {mode: run.ledger for mode, run in tracer.runs.items() if not run.failed}
    siblings = Siblings({mode: ledger.records for mode, ledger in runs.items()})
    found = {
        siblings.parts[mode, i][0]
        for mode, ledger in runs.items()
        for i in ledger.splits
        if in_attention(ledger.records, i)
    }
    if found:
        turn_to_heads(tracer, found, siblings)


def keep_places(tracer: Tracer) -> None:
    """Pins what is multiplied in an attention and is no head, where whole heads are asked for."""
    for run in tracer.runs.values():
        for record in run.ledger.records:
            for number, dim, vector in record.inputs if record.name in ATTENDING else ():
                if dim >= len(record.shapes[number] or (0,) * 3) - 2:
                    reason = "only whole heads were to go"
                    tracer.space.pin(vector, reason, record.where, op=record.name, cause=Cause.REQUEST)

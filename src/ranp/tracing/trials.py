"""Trial runs: a cut copy runs beside the full network's records, and the first operator that departs is returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from ranp.running.calling import first_line, tensors_in
from ranp.running.copies import holdings
from ranp.tracing.cutting import cut_copy
from ranp.tracing.labels import Classes, LabelSpace
from ranp.tracing.ledger import Ledger
from ranp.tracing.probing import (
    Comparison,
    Failure,
    LooseComparison,
    Mask,
    MisalignedError,
    finished,
    keeps_of,
)
from ranp.tracing.running import give_birth

if TYPE_CHECKING:
    from ranp.tracing.tracer import Tracer


def probe(tracer: Tracer, classes: Classes, keep: Mask) -> Failure | None:
    """Runs a cut copy in each mode beside the full records; None if they agree at every operator."""
    keeps = keeps_of({**tracer.births, **tracer.attributes}, keep)
    modes = [train for train, run in tracer.runs.items() if not (run.failed or (train and trains_alike(tracer)))]
    copy = before = None
    for train in modes:
        if copy is None or not tracer.meta or holdings(copy) != before:
            copy = cut_copy(tracer.model, keeps, meta=tracer.meta)
            before = holdings(copy) if len(modes) > 1 else None
        failure = compare(tracer, copy, classes, keep, train)
        if failure is not None:
            return failure
    return None


def trains_alike(tracer: Tracer) -> bool:
    """True if train mode runs the operators of eval mode on the same channels, but for what norms and dropout add.

    Then a trial cut that runs in one mode runs in the other.
    """
    one, other = (
        [record for record in tracer.runs[mode].ledger.records if record.inputs and record.where not in tracer.dropouts]
        for mode in (False, True)
    )
    return len(one) == len(other) and all(
        a.name == b.name
        and a.where == b.where
        and len(a.inputs) == len(b.inputs)
        and all(
            x[:2] == y[:2] and (x[2] is y[2] or np.array_equal(x[2], y[2]))
            for x, y in zip(a.inputs, b.inputs, strict=True)
        )
        for a, b in zip(one, other, strict=True)
    )


def compare(tracer: Tracer, slim: nn.Module, classes: Classes, keep: Mask, train: bool) -> Failure | None:
    """Runs a cut copy beside the full network's records; None if they agree at every operator."""
    expected = tracer.runs[train].ledger.records
    return _compare(tracer, slim, Comparison(expected, classes.roots, keep, numbers=tracer.meta), train)


def compare_loosely(
    tracer: Tracer, slim: nn.Module, classes: Classes, keep: Mask, train: bool
) -> tuple[bool | None, Failure | None]:
    """The same for a copy with single channels: whether they agree (None: nobody can tell), and what differs."""
    expected = tracer.runs[train].ledger.records
    comparison = LooseComparison(expected, classes.roots, keep, numbers=tracer.meta)
    failure = _compare(tracer, slim, comparison, train)
    return (False if failure is not None else None if comparison.lost else True), failure


def _compare(tracer: Tracer, slim: nn.Module, comparison: Comparison, train: bool) -> Failure | None:
    births = {key: comparison.left(labels) for key, labels in tracer.births.items()}
    scratch, ledger = LabelSpace(size=tracer.space.size), Ledger()
    give_birth(slim, scratch, births)
    try:
        out = tracer.run(slim, scratch, ledger, births, train, full=False, before=comparison)
        finished(comparison, len(ledger.records))
    except MisalignedError as error:
        return Failure(train, error.index, str(error), error.reason)
    except Exception as error:
        at = len(ledger.records) - (1 if ledger.in_flight else 0)
        reason = f"code assumes a size: {first_line(error)}"
        return Failure(train, at, reason, reason)
    shapes, wanted = [tuple(tensor.shape) for tensor in tensors_in(out)], tracer.runs[train].shapes
    if shapes == wanted:
        return None
    last = min(len(ledger.records), len(comparison.expected)) - 1
    detail = f"the outputs have shapes {shapes}, not {wanted}"
    return Failure(train, last, detail, "code gives outputs of another shape when channels go")

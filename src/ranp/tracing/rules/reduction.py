"""Reductions: a dimension disappears, or mixes. What the slim network reduces over is what it kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ranp.running.operators import Operator, flat_tensors
from ranp.tracing.constants import VALUE
from ranp.tracing.masked import MaskedOp
from ranp.tracing.operation import Labels, Op, labels_of, others, taint, wrap
from ranp.tracing.rules.movement import note_layout
from ranp.tracing.rules.table import masked, rule

PLAIN = (
    "sum mean var std amax amin prod norm linalg_vector_norm logsumexp any all nansum var_mean std_mean count_nonzero "
    "nanmean aminmax _aminmax linalg__powsum _is_all_true _is_any_true native_norm"
).split()
EXTREMES = tuple("max min median nanmedian mode".split())
POSITIONS = ("argmax", "argmin")


def reduced_dims(op: Operator, rank: int) -> set[int]:
    """Dimensions an operator reduces over; all of them if it names none."""
    dims = op["dim"] if op["dim"] is not None else op["dims"]
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        return set(range(rank))
    return {wrap(d, rank) for d in ([dims] if isinstance(dims, int) else dims)}


def remaining(op: Op) -> Labels:
    """Labels of the dimensions that stay, at their new places."""
    x = op["self"] if op["self"] is not None else op["input"]
    gone = reduced_dims(op, x.dim())
    if op["keepdim"]:
        return others(x, gone)
    kept = [d for d in range(x.dim()) if d not in gone]
    return {new: labels_of(x).get(old) for new, old in enumerate(kept)}


@rule(*PLAIN)
def reduce(op: Op) -> None:
    """Sums, means and the like: right for whatever channels there are."""
    op.emit(remaining(op))
    for out in flat_tensors(op.out) if op["keepdim"] else ():
        note_layout(out)


@rule(*EXTREMES)
def extreme(op: Op) -> None:
    """Extremes with their positions: the value follows the channels there are, the position is a channel's number."""
    x = op["self"]
    gone = reduced_dims(op, x.dim())
    op.emit(remaining(op))
    for positions in flat_tensors(op.out)[1:]:
        taint(positions, [v for d, v in labels_of(x).items() if d in gone])


@masked(*PLAIN, *EXTREMES)
def masked_reduction(op: MaskedOp) -> Any:
    """Over the channels that stay; a constant counts all that it has."""
    name = "self" if op["self"] is not None else "input"
    x = op[name]
    if not isinstance(x, torch.Tensor) or getattr(x, VALUE, None) is not None:
        return op.run()
    return op.run({name: op.taken(x, sorted(reduced_dims(op, x.dim())))})


SOFTMAX = ("_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax")


@rule(*SOFTMAX)
def softmax(op: Op) -> None:
    """Softmax: shares among whatever channels there are."""
    op.emit(labels_of(op["self"]))


@masked(*SOFTMAX)
def masked_softmax(op: MaskedOp) -> Any:
    """Shares among the channels that stay."""
    x = op["self"]
    dims = op.cut(x, [wrap(op["dim"], x.dim())])
    return op.put_back(op.run({"self": op.taken(x, dims)}), x, dims) if dims else op.run()


@rule(*POSITIONS)
def position(op: Op) -> None:
    """The result is a channel's number: channels along that dimension must stay."""
    x = op["self"]
    op.pin_tensor(x, "channels are addressed by number", sorted(reduced_dims(op, x.dim())))
    op.emit(remaining(op))


@rule("sort", "topk", "kthvalue", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "argsort", "msort")
def ordered(op: Op) -> None:
    """Order along a dimension is data, not channels: they must stay there."""
    x = op["self"]
    dim = op.dim(x.dim(), -1)
    op.pin_tensor(x, "channels are put in an order", [dim])
    for out in flat_tensors(op.out):
        if out.dim() == x.dim():
            op.emit(others(x, [dim]), out)


@rule("glu")
def glu(op: Op) -> None:
    """The first half gated by the second: both keep the same positions."""
    x = op["self"]
    dim = op.dim(x.dim(), -1)
    labels, vector = others(x, [dim]), labels_of(x).get(dim)
    if vector is not None:
        labels[dim] = op.space.unite(*np.split(vector, 2))
    op.emit(labels)

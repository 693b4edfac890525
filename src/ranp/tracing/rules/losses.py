"""Losses and distances inside networks: two tensors meet element by element, then what is left is reduced."""

from __future__ import annotations

from typing import Any

import torch

from ranp.running.operators import Operator
from ranp.tracing.masked import MaskedOp
from ranp.tracing.operation import Labels, Op, labels_of
from ranp.tracing.rules.pointwise import broadcast
from ranp.tracing.rules.table import masked, rule

FIXED = "meets a tensor of fixed size"

ELEMENTWISE = tuple(
    "mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy binary_cross_entropy_with_logits "
    "kl_div dist".split()
)
"""Losses of element by element, reduced over everything unless asked not to."""
DISTANCES = ("_cdist_forward", "_euclidean_dist", "cdist")


def unreduced(op: Operator) -> bool:
    """True if a loss gives one value for each element."""
    return bool(op["reduction"] == 0)


@rule(*ELEMENTWISE)
def elementwise(op: Op) -> None:
    """What is compared lines up; the mean or sum is right for whatever channels there are."""
    tensors = op.tensors
    shape = tuple(torch.broadcast_shapes(*(t.shape for t in tensors)))  # type: ignore[no-untyped-call]
    labels = broadcast(op, tensors, shape, FIXED)
    op.emit(labels if unreduced(op) else {})


@masked(*ELEMENTWISE)
def masked_elementwise(op: MaskedOp) -> Any:
    """A loss over all elements is one over those that stay."""
    if unreduced(op):
        return op.run()
    names = [name for name, value in op.arguments.items() if isinstance(value, torch.Tensor)]
    changes: dict[str, Any] = {name: op[name] for name in names}
    for back in range(1, max(op[name].dim() for name in names) + 1):
        changes = op.aligned({name: op[name].dim() - back for name in names if op[name].dim() >= back}, changes)
    return op.run(changes)


@rule(*DISTANCES)
def distances(op: Op) -> None:
    """Every row of one table against every row of another: columns line up and are reduced, rows come out."""
    a, b = op["x1"], op["x2"]
    if a.shape[-1] != 1:
        op.merge([labels_of(a).get(a.dim() - 1), labels_of(b).get(b.dim() - 1)], FIXED)
    rank = op.out.dim()
    labels: Labels = {rank - 2: labels_of(a).get(a.dim() - 2), rank - 1: labels_of(b).get(b.dim() - 2)}
    for dim in range(rank - 2):
        mine = [t for t in (a, b) if t.dim() - rank + dim >= 0 and t.shape[t.dim() - rank + dim] != 1]
        if mine:
            labels[dim] = op.merge([labels_of(t).get(t.dim() - rank + dim) for t in mine], FIXED)
    op.emit(labels)


@masked(*DISTANCES)
def masked_distances(op: MaskedOp) -> Any:
    """Along the columns that stay."""
    return op.run(op.aligned({name: op[name].dim() - 1 for name in ("x1", "x2")}))


@rule("_pdist_forward", "pdist")
def distances_within(op: Op) -> None:
    """Every row of a table against every later one: pairs of rows are numbered, columns are reduced."""
    op.pin_tensor(op["self"], "pairs of channels are addressed by number", [0])
    op.emit({})


@masked("_pdist_forward")
def masked_distances_within(op: MaskedOp) -> Any:
    """Along the columns that stay."""
    return op.run({"self": op.taken(op["self"], [1])})


@rule(
    "nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss", "multilabel_margin_loss_forward", "_ctc_loss",
    "nll_loss", "nll_loss2d", "nll_loss_nd", "cross_entropy_loss", "_cudnn_ctc_loss",
)  # fmt: skip
def classes(op: Op) -> None:
    """Targets name classes by number: whatever scores them must stay."""
    for tensor in op.tensors:
        op.pin_tensor(tensor, "classes of a loss are addressed by number")
    op.emit({})

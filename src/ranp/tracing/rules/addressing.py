"""Places given by data: indices, masks, tables. Channels addressed by number must stay; other dimensions pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ranp.tracing.labels import Vector, has_filler
from ranp.tracing.operation import Labels, Op, labels_of, others, wrap
from ranp.tracing.rules.pointwise import broadcast
from ranp.tracing.rules.table import rule

FIXED = "meets a tensor of fixed size"
TAKEN, WRITTEN = "channels are taken by an index", "channels are written by an index"
BY_DATA = "channels are addressed by data"


def _is_mask(index: torch.Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def _by_values(index: Any) -> Vector | None:
    """Positions an index tensor asks for, where its values can be read."""
    if not isinstance(index, torch.Tensor) or index.device.type == "meta" or _is_mask(index):
        return None
    return index.detach().cpu().numpy().astype(np.int64)


def pick(op: Op, vector: Vector, index: Any) -> Vector | None:
    """Labels at the positions of a one-dimensional index; channels addressed by number must all stay.

    A constant index (a fixed permutation of channels) names channels by number, so it cannot follow a cut.
    """
    positions = _by_values(index)
    if vector.any():
        op.pin(vector, TAKEN)
    return None if positions is None or positions.ndim != 1 else vector[positions]


@rule("index_select")
def index_select(op: Op) -> None:
    """Gathers along one dimension by an index tensor."""
    x = op["self"]
    dim = wrap(op["dim"], x.dim())
    labels = others(x, [dim])
    if (vector := labels_of(x).get(dim)) is not None:
        labels[dim] = pick(op, vector, op["index"])
    op.emit(labels)


class Places:
    """Where advanced indexing reads or writes: dimensions that are indexed, and where the others end up.

    A mask covers as many dimensions as it has and leaves one; number tensors cover one each and broadcast together.
    """

    def __init__(self, rank: int, indices: Sequence[torch.Tensor | None]) -> None:
        self.masks: dict[int, torch.Tensor] = {}
        self.numbers: dict[int, torch.Tensor] = {}
        covered: list[int] = []
        at = 0
        for index in indices:
            width = 1
            if index is not None:
                width = index.dim() if _is_mask(index) else 1
                (self.masks if _is_mask(index) else self.numbers)[at] = index
                covered += range(at, at + width)
            at += width
        self.covered = covered
        self.free = [d for d in range(rank) if d not in covered]
        self.depth = max([i.dim() for i in self.numbers.values()] + [1] * bool(self.masks), default=0)
        together = covered == list(range(covered[0], covered[-1] + 1)) if covered else True
        self.first = covered[0] if covered and together else 0

    def moved(self, dim: int) -> int:
        """Where a dimension that is not indexed lies in what the index takes out."""
        before = sum(d < dim for d in self.free)
        return before if before < self.first or (self.first == 0 and not self.covered) else before + self.depth

    def alone(self) -> tuple[int, torch.Tensor] | None:
        """The mask, if nothing but one mask indexes."""
        return next(iter(self.masks.items())) if len(self.masks) == 1 and not self.numbers else None


@rule("index", "_unsafe_index")
def index(op: Op) -> None:
    """Advanced indexing: dimensions that are not indexed keep their labels, number tensors hand on theirs."""
    x = op["self"]
    places = Places(x.dim(), op["indices"])
    op.pin_tensor(x, TAKEN, places.covered)
    for mask in places.masks.values():
        op.pin_tensor(mask, "a mask decides what is taken")
    labels = {places.moved(dim): labels_of(x).get(dim) for dim in places.free}
    if places.numbers and not places.masks:
        numbers = list(places.numbers.values())
        shape = tuple(op.out.shape[places.first : places.first + places.depth])
        for dim, vector in broadcast(op, numbers, shape, FIXED).items():
            labels[places.first + dim] = vector
    op.emit(labels)


@rule("index_put", "_index_put_impl", "_unsafe_index_put")
def index_put(op: Op) -> None:
    """Writes at an index; along channels by number, elsewhere what is written lines up with what is there."""
    x, values = op["self"], op["values"]
    places = Places(x.dim(), op["indices"])
    target = target_of(op)
    alone = places.alone()
    if alone is not None and values.numel() == 1:  # a masked fill
        start, mask = alone
        covers = {start + d: labels_of(mask).get(d) for d in range(mask.dim()) if mask.shape[d] != 1}
        op.write(target, dict(covers))
        return
    op.pin_tensor(x, WRITTEN, places.covered)
    for index in (*places.masks.values(), *places.numbers.values()):
        op.pin_tensor(index, WRITTEN)
    rank = len(places.free) + places.depth
    written: Labels = dict.fromkeys(places.covered)
    mine = dict(labels_of(values))
    for dim in places.free:
        at = places.moved(dim) - rank + values.dim()
        if at >= 0 and values.shape[at] != 1:
            written[dim] = mine.pop(at, None)
    for vector in mine.values():
        op.pin(vector, WRITTEN)
    op.write(target, written)


def target_of(op: Op) -> torch.Tensor:
    """The tensor that is written into: the first argument, or the result that starts as a copy of it."""
    if op.in_place:
        return op["self"]  # type: ignore[no-any-return]
    op.emit({d: v.copy() if has_filler(v) else v for d, v in labels_of(op["self"]).items()})
    return op.out  # type: ignore[no-any-return]


@rule("slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter")
def scatter_part(op: Op) -> None:
    """Writes a tensor into a copy of another: not understood along channels, aligned elsewhere."""
    x, src = op["self"], op["src"]
    if op["dim"] is None:
        for tensor in (x, src):
            op.pin_tensor(tensor, "channels are overwritten by number")
        op.emit({})
        return
    dim = wrap(op["dim"] or 0, x.dim())
    op.pin_tensor(x, "channels are overwritten by number", [dim])
    labels = others(x, [dim])
    source = dict(labels_of(src))
    if op.name.startswith("select"):
        source = {d + (d >= dim): v for d, v in source.items()}
    op.pin(source.pop(dim, None), "channels are overwritten by number")
    for d in range(x.dim()):
        if d != dim and x.shape[d] != 1:
            labels[d] = op.merge([labels.get(d), source.get(d)], FIXED)
    op.emit(labels)


def _lined_up(op: Op, tensors: Sequence[torch.Tensor], dim: int, size: Sequence[int]) -> Labels:
    """Labels of tensors that are read side by side but along one dimension; of a longer one, the rest is not read."""
    labels: Labels = {}
    for d in range(len(size)):
        if d == dim:
            continue
        if any(t.shape[d] != size[d] for t in tensors):
            for tensor in tensors:
                op.pin_tensor(tensor, "only the first channels are read", [d])
            labels[d] = None
        elif size[d] != 1:
            labels[d] = op.merge([labels_of(t).get(d) for t in tensors], FIXED)
    return labels


@rule("gather", "take_along_dim")
def gather(op: Op) -> None:
    """Data decides what is read along one dimension: channels there must stay, others line up with the index."""
    x, index = op["self"], op["index"] if op["index"] is not None else op["indices"]
    dim = wrap(op["dim"], x.dim()) if isinstance(op["dim"], int) else None
    if dim is None or x.dim() != index.dim():
        for tensor in (x, index):
            op.pin_tensor(tensor, BY_DATA)
        op.emit({})
        return
    op.pin_tensor(x, BY_DATA, [dim])
    labels = _lined_up(op, [x, index], dim, index.shape)
    labels[dim] = labels_of(index).get(dim)
    op.emit(labels)


@rule("scatter", "scatter_add", "scatter_reduce")
def scatter(op: Op) -> None:
    """Data decides what is written where along one dimension: channels there must stay, others line up."""
    x, index, source = op["self"], op["index"], op["src"]
    dim = wrap(op["dim"], x.dim())
    parts = [index, source] if isinstance(source, torch.Tensor) and source.dim() == x.dim() else [index]
    for tensor in (x, *parts):
        op.pin_tensor(tensor, BY_DATA, [dim])
    labels = _lined_up(op, parts, dim, index.shape)
    for d in list(labels):
        if index.shape[d] != x.shape[d]:
            op.pin(labels[d], "only the first channels are written")
            labels[d] = None
    op.write(target_of(op), {**labels, dim: None})


@rule("index_add", "index_copy", "index_fill", "index_reduce")
def write_rows(op: Op) -> None:
    """Writes whole slices at numbers along one dimension: channels there must stay, others line up."""
    x, source = op["self"], op["source"]
    dim = wrap(op["dim"], x.dim())
    op.pin_tensor(x, BY_DATA, [dim])
    labels: Labels = {}
    if isinstance(source, torch.Tensor) and source.dim() == x.dim():
        op.pin_tensor(source, BY_DATA, [dim])
        labels = {d: labels_of(source).get(d) for d in range(x.dim()) if d != dim and x.shape[d] != 1}
    op.write(target_of(op), {**labels, dim: None})


@rule("embedding")
def embedding(op: Op) -> None:
    """Rows of a table taken by number: its columns come out last, and lie behind the dimensions of the numbers."""
    weight, numbers = op["weight"], op["indices"]
    op.pin_tensor(weight, "rows of a table are addressed by number", [0])
    op.emit({**labels_of(numbers), numbers.dim(): labels_of(weight).get(1)})


@rule("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(op: Op) -> None:
    """Sums, means or extremes of rows of a table: its columns pass."""
    weight = op["weight"]
    op.pin_tensor(weight, "rows of a table are addressed by number", [0])
    for name in ("indices", "per_sample_weights"):
        op.pin_tensor(op[name], "rows of a table are addressed by number")
    for out in op.out:
        op.emit({1: labels_of(weight).get(1)} if out.dim() == 2 else {}, out)


@rule("bucketize", "isin")
def looked_up(op: Op) -> None:
    """Every element is looked up by itself in a table that must stay."""
    x = op["self"] if op["self"] is not None else op["elements"]
    for tensor in op.tensors:
        if tensor is not x:
            op.pin_tensor(tensor, "a table in which values are looked up")
    op.emit(labels_of(x))

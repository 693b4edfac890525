"""Data movement: the labels are moved as the data is, dimension by dimension."""

from __future__ import annotations

import numpy as np
import torch

from ranp.tracing.labels import Vector
from ranp.tracing.operation import Labels, Op, labels_of, others, wrap
from ranp.tracing.reshaping import INNERMOST, reshape_labels
from ranp.tracing.rules.table import rule

PROPORTIONAL = 8
"""A slice of 1/2, 1/3, ... or 1/8 of the channels at a multiple of its length is taken for a share, not for a count.

An eighth is what temporal shifts take. Whether the code means a share or a count, a trial cut shows.
"""


LAYOUT = "_ranp_layout"
Layout = tuple[tuple[int, ...], tuple[int, ...], int]


def note_layout(tensor: torch.Tensor) -> None:
    """Remembers how a tensor lies in memory, so that a later in-place change of its strides can be judged."""
    setattr(tensor, LAYOUT, (tuple(tensor.shape), tensor.stride(), tensor.storage_offset()))


def layout_of(tensor: torch.Tensor) -> Layout | None:
    """How a tensor lay in memory when it was made, if that was remembered and nothing has changed it since."""
    found: Layout | None = getattr(tensor, LAYOUT, None)
    setattr(tensor, LAYOUT, None)
    return found


@rule(
    "view", "_unsafe_view", "reshape", "_reshape_alias", "_view_copy", "view_copy", "flatten", "unflatten",
    "_reshape_copy", "_reshape_alias_copy",
)  # fmt: skip
def view(op: Op) -> None:
    """Splits and merges dimensions; a change of data type alone moves nothing."""
    x = op["self"]
    if op.out.shape == x.shape:
        op.emit(labels_of(x))
        return
    noted = len(op.space.left)
    op.emit(reshape_labels(op.space, labels_of(x), tuple(x.shape), tuple(op.out.shape), op.pin, carrier=op.carrier))
    op.split = len(op.space.left) > noted or op.carrier != INNERMOST


@rule("permute", "permute_copy")
def permute(op: Op) -> None:
    """Reorders dimensions."""
    x = op["self"]
    op.emit({new: labels_of(x).get(wrap(old, x.dim())) for new, old in enumerate(op["dims"])})


@rule("transpose", "t", "swapaxes", "transpose_copy", "t_copy", "mT", "numpy_T")
def transpose(op: Op) -> None:
    """Swaps two dimensions."""
    x = op["self"]
    a, b = (0, x.dim() - 1) if op["dim0"] is None else (wrap(op["dim0"], x.dim()), wrap(op["dim1"], x.dim()))
    swap = {a: b, b: a}
    layout_of(x)
    op.emit({swap.get(d, d): v for d, v in labels_of(x).items()})


@rule("unsqueeze", "unsqueeze_copy")
def unsqueeze(op: Op) -> None:
    """Inserts a dimension of size one."""
    x = op["self"]
    at = wrap(op["dim"], op.out.dim())
    layout_of(x)
    op.emit({d + (d >= at): v for d, v in labels_of(x).items()})


@rule("squeeze", "squeeze_copy")
def squeeze(op: Op) -> None:
    """Drops dimensions of size one: all, or those named."""
    x = op["self"]
    named = op["dim"]
    if op.in_place:
        op.pin_tensor(x, "dimensions are dropped in place")  # which ones they were is not known any more
        op.emit({})
        return
    dims = range(x.dim()) if named is None else [named] if isinstance(named, int) else named
    gone = {wrap(d, x.dim()) for d in dims if x.shape[d] == 1}
    kept = [d for d in range(x.dim()) if d not in gone]
    op.emit({new: labels_of(x).get(old) for new, old in enumerate(kept)})


@rule("expand", "broadcast_to", "expand_copy")
def expand(op: Op) -> None:
    """Repeats size-one dimensions; the copies are fillers, since they hold the same value wherever they end."""
    x = op["self"]
    shift = op.out.dim() - x.dim()
    labels: Labels = {d + shift: v for d, v in labels_of(x).items()}
    for dim, size in enumerate(op.out.shape):
        if size > 1 and (dim < shift or x.shape[dim - shift] == 1):
            labels[dim] = np.zeros(size, np.int64)
    op.emit(labels)


@rule("repeat", "tile")
def repeat(op: Op) -> None:
    """Repeats whole dimensions, labels with them."""
    x = op["self"]
    times = list(op["repeats"] if op["repeats"] is not None else op["dims"])
    times = [1] * (op.out.dim() - len(times)) + times
    shift = op.out.dim() - x.dim()
    mine = labels_of(x)
    labels: Labels = {}
    for dim, count in enumerate(times):
        if dim < shift or x.shape[dim - shift] == 1:
            labels[dim] = np.zeros(count, np.int64)
        elif (vector := mine.get(dim - shift)) is not None:
            labels[dim] = np.tile(vector, count)
    op.emit(labels)


@rule("flip")
def flip(op: Op) -> None:
    """Reverses dimensions."""
    x = op["self"]
    dims = {wrap(d, x.dim()) for d in op["dims"]}
    op.emit({d: v[::-1].copy() if d in dims else v for d, v in labels_of(x).items()})


@rule("roll")
def roll(op: Op) -> None:
    """Rotates dimensions: along channels the shift is a number in the code, so they must stay."""
    x = op["self"]
    dims = [wrap(d, x.dim()) for d in op["dims"]] or list(range(x.dim()))
    op.pass_beside(x, dims, "channels are rotated by a fixed count")


def note_slice(op: Op, vector: Vector, start: int, stop: int, from_end: bool) -> None:
    """Notes what a contiguous slice along channels asks of the slim network.

    Python code slices either by a share of the channels (``x[:, : c // 2]``) or by a count (``x[:, :3]``). A share
    asks for equal counts in every piece; a count asks for the channels before it to stay. The probe after the run finds
    out if the guess was wrong.
    """
    size, length = len(vector), stop - start
    if not vector.any() or length == size or length == 0:
        return
    for share in (length, start, size - stop):
        if share and size % share == 0 and size // share <= PROPORTIONAL and start % share == 0 and stop % share == 0:
            op.space.require_equal_counts(vector, size // share, f"sliced into shares ({op.name})", op.where)
            return
    op.pin(vector[start:] if from_end else vector[: stop if stop < size else start], "sliced at a fixed channel")


@rule("slice", "narrow", "slice_copy", "narrow_copy")
def slice_(op: Op) -> None:
    """Takes a range of one dimension; the labels taken are a view, so that later writes reach the original."""
    x = op["self"]
    dim = op.dim(x.dim())
    size = x.shape[dim]
    if op.name.startswith("narrow"):
        start, stop, step = op["start"], op["start"] + op["length"], 1
    else:
        start, stop, step = op["start"] or 0, size if op["end"] is None else op["end"], op["step"] or 1
    from_end = start < 0
    start, stop = (min(max(v + size if v < 0 else v, 0), size) for v in (start, stop))
    labels, vector = others(x, [dim]), labels_of(x).get(dim)
    if vector is not None:
        if step == 1:
            note_slice(op, vector, start, stop, from_end)
        elif vector.any():
            op.pin(vector, "sliced with a step")
        labels[dim] = vector[start:stop:step]
    op.emit(labels)


@rule("select", "select_copy")
def select(op: Op) -> None:
    """Takes one index of one dimension and drops the dimension."""
    x = op["self"]
    dim, index = wrap(op["dim"], x.dim()), op["index"]
    vector = labels_of(x).get(dim)
    if vector is not None and vector.any():
        op.pin(vector[index:] if index < 0 else vector[: index + 1], "one channel is taken by its number")
    op.emit({d - (d > dim): v for d, v in others(x, [dim]).items()})


@rule(
    "split", "split_with_sizes", "chunk", "split_copy", "split_with_sizes_copy", "unsafe_split", "unsafe_chunk",
    "unsafe_split_with_sizes",
)  # fmt: skip
def split(op: Op) -> None:
    """Cuts one dimension into pieces; equal pieces must keep equal counts, unequal ones are numbers in the code."""
    x = op["self"]
    dim = op.dim(x.dim())
    vector = labels_of(x).get(dim)
    sizes = [piece.shape[dim] for piece in op.out]
    if vector is not None and vector.any() and len(sizes) > 1:
        if len(set(sizes)) == 1:
            op.space.require_equal_counts(vector, len(sizes), f"split into equal pieces ({op.name})", op.where)
        else:
            op.pin(vector, "split into unequal pieces")
    start = 0
    for piece, size in zip(op.out, sizes, strict=True):
        op.emit({**others(x, [dim]), dim: None if vector is None else vector[start : start + size]}, piece)
        start += size


@rule("unbind", "unbind_copy")
def unbind(op: Op) -> None:
    """Takes a dimension apart; along channels the code counts them, so they must stay."""
    x = op["self"]
    dim = op.dim(x.dim())
    op.pin_tensor(x, "channels are taken apart one by one", [dim])
    op.emit({d - (d > dim): v for d, v in others(x, [dim]).items()})


@rule("cat", "concatenate", "concat")
def cat(op: Op) -> None:
    """Joins along one dimension, lines up along the others."""
    tensors = [t for t in op["tensors"] if t.dim() > 1 or t.numel()]
    rank = op.out.dim()
    dim = op.dim(rank)
    labels = _aligned(op, tensors, rank, [dim])
    parts = [labels_of(t).get(dim) if t.shape[dim] != 1 else None for t in tensors]
    if any(part is not None for part in parts):
        labels[dim] = np.concatenate(
            [op.rigid(t.shape[dim]) if part is None else part for t, part in zip(tensors, parts, strict=True)]
        )
    op.emit(labels)


@rule("stack", "_stack")
def stack(op: Op) -> None:
    """Lines tensors up along a new dimension."""
    tensors = op["tensors"]
    dim = op.dim(op.out.dim())
    labels = _aligned(op, tensors, tensors[0].dim(), [])
    op.emit({d + (d >= dim): v for d, v in labels.items()})


def _aligned(op: Op, tensors: list[torch.Tensor], rank: int, skip: list[int]) -> Labels:
    return {
        d: op.merge([labels_of(t).get(d) for t in tensors], "joined with a tensor of fixed size")
        for d in range(rank)
        if d not in skip and tensors[0].shape[d] != 1
    }


@rule("constant_pad_nd")
def constant_pad(op: Op) -> None:
    """Pads with constants; along channels the padding is filler (the zero-padded shortcut)."""
    x, pad = op["self"], list(op["pad"])
    labels: Labels = dict(labels_of(x))
    for i in range(len(pad) // 2):
        dim = x.dim() - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        vector = labels.get(dim)
        if vector is None or (before == 0 and after == 0):
            continue
        if before < 0 or after < 0:
            op.pin(vector, "channels are cropped by a fixed count")
            labels[dim] = None
        else:
            labels[dim] = np.concatenate([np.zeros(before, np.int64), vector, np.zeros(after, np.int64)])
    op.emit(labels)

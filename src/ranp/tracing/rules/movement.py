"""Data movement: the labels are moved as the data is, dimension by dimension."""

from __future__ import annotations

import numpy as np
import torch

from ranp.tracing.labels import Vector
from ranp.tracing.operation import Op, labels_of
from ranp.tracing.reshaping import reshape_labels
from ranp.tracing.rules.table import rule

PROPORTIONAL = 8
"""A slice of 1/2, 1/3, ... or 1/8 of the channels at a multiple of its length is taken for a share, not for a count.

An eighth is what temporal shifts take. Whether the code means a share or a count, a trial cut tells.
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


def wrap(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    return dim + rank if dim < 0 else dim


@rule(
    "view", "_unsafe_view", "reshape", "_reshape_alias", "_view_copy", "view_copy", "flatten", "unflatten",
    "_reshape_copy", "_reshape_alias_copy",
)  # fmt: skip
def view(op: Op) -> None:
    """Splits and merges dimensions; a change of data type alone moves nothing."""
    x = op["self"]
    if op.out.shape == x.shape:
        op.emit(dict(labels_of(x)))
        return
    noted = len(op.space.left)
    moved = reshape_labels(op.space, labels_of(x), tuple(x.shape), tuple(op.out.shape), op.pin, outermost=op.outermost)
    op.split = len(op.space.left) > noted or op.outermost
    op.emit(dict(moved))


@rule("permute", "permute_copy")
def permute(op: Op) -> None:
    """Reorders dimensions."""
    x = op["self"]
    mine = labels_of(x)
    op.emit({new: mine.get(wrap(old, x.dim())) for new, old in enumerate(op["dims"])})


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
        op.pin_tensor(x, "dimensions are dropped in place")  # which ones they were cannot be told any more
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
    labels: dict[int, Vector | None] = {d + shift: v for d, v in labels_of(x).items()}
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
    labels: dict[int, Vector | None] = {}
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
    op.pin_tensor(x, "channels are rotated by a fixed count", dims)
    op.emit({d: v for d, v in labels_of(x).items() if d not in dims})


def keep_others(op: Op, x: torch.Tensor, dim: int) -> dict[int, Vector | None]:
    """Labels of every dimension but one."""
    return {d: v for d, v in labels_of(x).items() if d != dim}


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
            op.space.require_equal_counts(np.split(vector, size // share), f"sliced into shares ({op.name})", op.where)
            return
    op.pin(vector[start:] if from_end else vector[: stop if stop < size else start], "sliced at a fixed channel")


@rule("slice", "narrow", "slice_copy", "narrow_copy")
def slice_(op: Op) -> None:
    """Takes a range of one dimension; the labels taken are a view, so that later writes reach the original."""
    x = op["self"]
    dim = wrap(op["dim"] or 0, x.dim())
    size = x.shape[dim]
    if op.name.startswith("narrow"):
        start, stop, step = op["start"], op["start"] + op["length"], 1
    else:
        start, stop, step = op["start"] or 0, size if op["end"] is None else op["end"], op["step"] or 1
    from_end = start < 0
    start, stop = (min(max(v + size if v < 0 else v, 0), size) for v in (start, stop))
    labels = keep_others(op, x, dim)
    vector = labels_of(x).get(dim)
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
    op.emit({d - (d > dim): v for d, v in labels_of(x).items() if d != dim})


@rule(
    "split", "split_with_sizes", "chunk", "split_copy", "split_with_sizes_copy", "unsafe_split", "unsafe_chunk",
    "unsafe_split_with_sizes",
)  # fmt: skip
def split(op: Op) -> None:
    """Cuts one dimension into pieces; equal pieces must keep equal counts, unequal ones are numbers in the code."""
    x = op["self"]
    dim = wrap(op["dim"] or 0, x.dim())
    vector = labels_of(x).get(dim)
    sizes = [piece.shape[dim] for piece in op.out]
    if vector is not None and vector.any() and len(sizes) > 1:
        if len(set(sizes)) == 1:
            op.space.require_equal_counts(
                np.split(vector, len(sizes)), f"split into equal pieces ({op.name})", op.where
            )
        else:
            op.pin(vector, "split into unequal pieces")
    start = 0
    for piece, size in zip(op.out, sizes, strict=True):
        labels = keep_others(op, x, dim)
        if vector is not None:
            labels[dim] = vector[start : start + size]
        op.emit(labels, piece)
        start += size


@rule("unbind", "unbind_copy")
def unbind(op: Op) -> None:
    """Takes a dimension apart; along channels the code counts them, so they must stay."""
    x = op["self"]
    dim = wrap(op["dim"] or 0, x.dim())
    op.pin_tensor(x, "channels are taken apart one by one", [dim])
    for piece in op.out:
        op.emit({d - (d > dim): v for d, v in labels_of(x).items() if d != dim}, piece)


@rule("cat", "concatenate", "concat")
def cat(op: Op) -> None:
    """Joins along one dimension, lines up along the others."""
    tensors = [t for t in op["tensors"] if t.dim() > 1 or t.numel()]
    rank = op.out.dim()
    dim = wrap(op["dim"] or 0, rank)
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
    dim = wrap(op["dim"] or 0, op.out.dim())
    labels = _aligned(op, tensors, tensors[0].dim(), [])
    op.emit({d + (d >= dim): v for d, v in labels.items()})


def _aligned(op: Op, tensors: list[torch.Tensor], rank: int, skip: list[int]) -> dict[int, Vector | None]:
    return {
        d: op.merge([labels_of(t).get(d) for t in tensors], "joined with a tensor of fixed size")
        for d in range(rank)
        if d not in skip and tensors[0].shape[d] != 1
    }


@rule("constant_pad_nd")
def constant_pad(op: Op) -> None:
    """Pads with constants; along channels the padding is filler (the zero-padded shortcut)."""
    x, pad = op["self"], list(op["pad"])
    labels: dict[int, Vector | None] = dict(labels_of(x))
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


@rule("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle")
def shuffle(op: Op) -> None:
    """Fused shuffles, written as the view, permutation and view that they are."""
    x = op["self"]
    between_space = "pixel" in op.name
    channel = x.dim() - 3 if between_space else 1
    if between_space:
        op.pin_tensor(x, "space is shuffled along channels", [x.dim() - 2, x.dim() - 1])
    labels = {d: v for d, v in labels_of(x).items() if d < channel or (d > channel and not between_space)}
    vector = labels_of(x).get(channel)
    if vector is None:
        pass
    elif op.name == "pixel_shuffle":
        labels[channel] = united_rows(op, vector.reshape(-1, op["upscale_factor"] ** 2))
    elif op.name == "pixel_unshuffle":
        labels[channel] = np.repeat(vector, op["downscale_factor"] ** 2)
    else:
        labels[channel] = np.repeat(united_rows(op, vector.reshape(op["groups"], -1).T), op["groups"])
    op.emit(dict(labels))


def united_rows(op: Op, grid: Vector) -> Vector:
    """Unites each row of a table of labels; returns one label for each row."""
    head = np.ascontiguousarray(grid[:, 0])
    op.space.unite(np.repeat(head, grid.shape[1] - 1), grid[:, 1:].reshape(-1))
    return np.ascontiguousarray(grid.max(axis=1))  # any label of the class will do, but a filler will not


@rule("unfold", "unfold_copy")
def windows(op: Op) -> None:
    """Windows along one dimension, laid out along a new last one."""
    x = op["self"]
    dim = wrap(op["dimension"], x.dim())
    op.pin_tensor(x, "windows run along channels", [dim])
    op.emit(keep_others(op, x, dim))


@rule("im2col", "col2im")
def columns(op: Op) -> None:
    """Patches of an image as columns and back: every channel becomes as many rows as the kernel has places."""
    x = op["self"]
    places = int(np.prod(op["kernel_size"]))
    apart = op.name == "im2col"
    channel = x.dim() - (3 if apart else 2)
    op.pin_tensor(x, "windows run along channels", range(channel + 1, x.dim()))
    labels: dict[int, Vector | None] = {d: v for d, v in labels_of(x).items() if d < channel}
    vector = labels_of(x).get(channel)
    if apart:
        labels[channel] = None if vector is None else np.repeat(vector, places)
    elif op.out.shape[channel] == 1:
        op.pin(vector, "all channels are places of one kernel")
    else:
        labels[channel] = None if vector is None else united_rows(op, vector.reshape(-1, places))
    op.emit(labels)


@rule("diagonal", "diagonal_copy")
def diagonal(op: Op) -> None:
    """Takes the places where two dimensions have the same index: what stays along one stays along the other."""
    x = op["self"]
    a, b = wrap(op["dim1"], x.dim()), wrap(op["dim2"], x.dim())
    others = [d for d in range(x.dim()) if d not in (a, b)]
    labels: dict[int, Vector | None] = {new: labels_of(x).get(old) for new, old in enumerate(others)}
    if op["offset"] == 0 and x.shape[a] == x.shape[b]:
        labels[len(others)] = op.merge([labels_of(x).get(a), labels_of(x).get(b)], "a diagonal of fixed size")
    else:
        op.pin_tensor(x, "a diagonal that starts at a fixed channel", [a, b])
    op.emit(labels)


@rule("diag_embed")
def diagonal_matrix(op: Op) -> None:
    """Lays the last dimension on a diagonal among zeros: both new dimensions are the old one."""
    x, rank = op["self"], op.out.dim()
    a, b = wrap(op["dim1"], rank), wrap(op["dim2"], rank)
    others = [d for d in range(rank) if d not in (a, b)]
    labels: dict[int, Vector | None] = {new: labels_of(x).get(old) for old, new in enumerate(others)}
    vector = labels_of(x).get(x.dim() - 1)
    if op["offset"] == 0:
        labels.update({a: vector, b: vector})
    else:
        op.pin(vector, "a diagonal that starts at a fixed channel")
    op.emit(labels)


@rule("as_strided", "as_strided_copy")
def as_strided(op: Op) -> None:
    """Memory read in strides: followed where it is the same tensor, perhaps with its dimensions in another order."""
    x, labels = op["self"], labels_of(op["self"])
    before = layout_of(x) if op.in_place else (tuple(x.shape), x.stride(), x.storage_offset())
    sizes, strides = tuple(op["size"]), tuple(op["stride"])
    after = [(n, stride, d) for d, (n, stride) in enumerate(zip(sizes, strides, strict=True)) if n != 1]
    places: dict[tuple[int, int], int] = {}
    if before is not None and op["storage_offset"] in (None, before[2]):
        places = {(n, stride): d for d, (n, stride) in enumerate(zip(*before[:2], strict=True)) if n != 1}
        if len(places) < sum(n != 1 for n in before[0]):  # two dimensions that look alike
            places = {}
    if len(places) != len(after) or {(n, stride) for n, stride, _ in after} != set(places):
        op.pin_tensor(x, "memory is read in strides of fixed size")
        op.emit({})
        return
    op.emit({d: labels.get(places[n, stride]) for n, stride, d in after})


@rule("rot90")
def quarter_turns(op: Op) -> None:
    """Turns a plane by quarters: each is a swap of two dimensions, one of them reversed."""
    x = op["self"]
    a, b = (wrap(d, x.dim()) for d in op["dims"])
    op.pin_tensor(x, "channels are turned into space", [a, b])
    op.emit({d: v for d, v in labels_of(x).items() if d not in (a, b)})

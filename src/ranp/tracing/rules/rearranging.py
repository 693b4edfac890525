"""Data movement inside a dimension or between several: shuffles, windows, diagonals, strides, Fourier transforms."""

from __future__ import annotations

import numpy as np

from ranp.tracing.labels import Vector
from ranp.tracing.operation import Labels, Op, labels_of, wrap
from ranp.tracing.rules.movement import layout_of
from ranp.tracing.rules.table import rule


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
    op.emit(labels)


def united_rows(op: Op, grid: Vector) -> Vector:
    """Unites each row of a table of labels; returns one label for each row."""
    head = np.ascontiguousarray(grid[:, 0])
    op.space.unite(np.repeat(head, grid.shape[1] - 1), grid[:, 1:].reshape(-1))
    return np.ascontiguousarray(grid.max(axis=1))  # any label of the class will do, but a filler will not


@rule("unfold", "unfold_copy")
def windows(op: Op) -> None:
    """Windows along one dimension, laid out along a new last one."""
    op.pass_beside(op["self"], [wrap(op["dimension"], op["self"].dim())], "windows run along channels")


@rule("im2col", "col2im")
def columns(op: Op) -> None:
    """Patches of an image as columns and back: every channel becomes as many rows as the kernel has places."""
    x = op["self"]
    places = int(np.prod(op["kernel_size"]))
    apart = op.name == "im2col"
    channel = x.dim() - (3 if apart else 2)
    op.pin_tensor(x, "windows run along channels", range(channel + 1, x.dim()))
    labels: Labels = {d: v for d, v in labels_of(x).items() if d < channel}
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
    rest = [d for d in range(x.dim()) if d not in (a, b)]
    labels: Labels = {new: labels_of(x).get(old) for new, old in enumerate(rest)}
    if op["offset"] == 0 and x.shape[a] == x.shape[b]:
        labels[len(rest)] = op.merge([labels_of(x).get(a), labels_of(x).get(b)], "a diagonal of fixed size")
    else:
        op.pin_tensor(x, "a diagonal that starts at a fixed channel", [a, b])
    op.emit(labels)


@rule("diag_embed")
def diagonal_matrix(op: Op) -> None:
    """Lays the last dimension on a diagonal among zeros: both new dimensions are the old one."""
    x, rank = op["self"], op.out.dim()
    a, b = wrap(op["dim1"], rank), wrap(op["dim2"], rank)
    others = [d for d in range(rank) if d not in (a, b)]
    labels: Labels = {new: labels_of(x).get(old) for old, new in enumerate(others)}
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
    op.pass_beside(x, [wrap(d, x.dim()) for d in op["dims"]], "channels are turned into space")


@rule("_fft_r2c", "_fft_c2c", "_fft_c2r")
def fourier(op: Op) -> None:
    """Every frequency is made of all places along the transformed dimensions, so those must stay."""
    x = op["self"]
    op.pass_beside(x, [wrap(d, x.dim()) for d in op["dim"]], "a Fourier transform runs along channels")


@rule("view_as_real", "view_as_real_copy", "view_as_complex", "view_as_complex_copy")
def pairs(op: Op) -> None:
    """Real and imaginary parts lie along a last dimension of two, which no cut may touch."""
    x = op["self"]
    op.pass_beside(x, [op.out.dim() if "complex" in op.name else x.dim()], "real and imaginary parts")

"""The channels of a trace as flat arrays: positions, classes and blocks, on which costs and choices are computed.

Everything is a *position*, one output channel of one layer, in layer order then channel order, and belongs to a
*class* of channels that can only go together. Classes with the same set of layers form a *block*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ranp.tracing.labels import without_repeats
from ranp.tracing.trace import PINNED, Trace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LARGEST_TABLE = 1 << 24
"""Class ids up to here index a table directly; larger ones are numbered anew first."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The positions of a trace and the classes and blocks they form: what does not depend on scores.

    Attributes:
        starts: First position of each layer, and the number of positions at the end.
        layer: Layer index of each position.
        classes: Class of each position; ``PINNED`` = must stay.
        block: Block of each class.
        pieces: Like ``Trace.pieces``, in the numbers of ``classes``.
        dims: Like ``Trace.dims``, in the numbers of ``classes``, one after the other.
        dim_starts: First entry of each of ``Trace.dims`` in ``dims``.
        spans: Like ``Trace.spans``, in the numbers of ``classes``.
        op_spans: Like ``Trace.op_spans``, in the numbers of ``classes``.
        repeats: True if some layer holds a class more than once.
        simple: True if every layer and every tensor keeps something as soon as each layer does: no pieces, and every
            tensor reads at least one whole layer.
    """

    starts: Ints
    layer: Ints
    classes: Ints
    block: Ints
    pieces: tuple[tuple[Ints, ...], ...]
    dims: Ints
    dim_starts: Ints
    spans: tuple[Mapping[int, Ints], ...]
    op_spans: tuple[Mapping[tuple[int, int], Ints], ...]
    repeats: bool
    simple: bool

    def dim_classes(self) -> list[Ints]:
        """The classes of each of ``Trace.dims``, in its order."""
        starts = [*self.dim_starts.tolist(), len(self.dims)]
        return [self.dims[begin:end] for begin, end in pairwise(starts)]

    def by_layer(self, values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """One array per layer from one value per position."""
        return [values[begin:end] for begin, end in pairwise(self.starts.tolist())]

    @classmethod
    def of(cls, trace: Trace) -> Layout:
        """Lays out a trace; the latest one is remembered, since sweeps and searches come back with the same."""
        for known, layout in _LATEST:
            if known is trace:
                return layout
        layout = _lay_out(trace)
        _LATEST[:] = [(trace, layout)]
        return layout


_LATEST: list[tuple[Trace, Layout]] = []


def _lay_out(trace: Trace) -> Layout:
    layers = trace.layers
    raw = [layer.classes for layer in layers]
    flat_pieces = [array for entry in trace.pieces for array in entry]
    flat_spans = [array for span in trace.spans for array in span.values()]
    flat_spans += [array for span in trace.op_spans for array in span.values()]
    numbered = _numbered([*raw, *trace.dims.values(), *flat_pieces, *flat_spans])
    classes = _joined(numbered[: len(raw)])
    dims = numbered[len(raw) : len(raw) + len(trace.dims)]
    arrays = iter(numbered[len(raw) + len(trace.dims) :])
    pieces = tuple(tuple(next(arrays) for _ in entry) for entry in trace.pieces)
    spans = tuple({dim: next(arrays) for dim in span} for span in trace.spans)
    op_spans = tuple({at: next(arrays) for at in span} for span in trace.op_spans)
    held = [without_repeats(array) for array in numbered[: len(raw)]]
    counts = np.asarray([layer.channels for layer in layers], dtype=np.int64)
    size = 1 + _largest(numbered)
    return Layout(
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        layer=np.repeat(np.arange(len(layers)), counts),
        classes=classes,
        block=_blocks(size, held, pieces),
        pieces=pieces,
        dims=_joined(dims),
        dim_starts=np.concatenate([[0], np.cumsum([len(array) for array in dims])])[:-1].astype(np.int64),
        spans=spans,
        op_spans=op_spans,
        repeats=sum(map(len, held)) < len(classes),
        simple=not pieces and _reads_whole_layers(held, dims),
    )


def _reads_whole_layers(layers: list[Ints], dims: list[Ints]) -> bool:
    """True if every dimension holds something that must stay or all channels of some layer."""
    whole = {array.tobytes(): array for array in layers}
    for array in {array.tobytes(): array for array in dims}.values():
        held = without_repeats(array)
        known = PINNED in held[:1] or held.tobytes() in whole
        if not known and not any(np.isin(members, held).all() for members in whole.values()):
            return False
    return True


def _numbered(arrays: list[npt.NDArray[np.int64]]) -> list[Ints]:
    """The arrays as they are, or numbered anew (0 stays 0) if their numbers are too large for a table."""
    if _largest(arrays) < LARGEST_TABLE:
        return arrays
    ids = np.unique(np.concatenate([[PINNED], *arrays]))
    return [np.searchsorted(ids, array) for array in arrays]


def _largest(arrays: list[Ints]) -> int:
    return int(_joined(arrays).max(initial=PINNED))


def _joined(arrays: list[Ints]) -> Ints:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _blocks(size: int, layers: list[Ints], pieces: tuple[tuple[Ints, ...], ...]) -> Ints:
    """The block of each class: two classes share one if and only if they occur in the same layers and pieces.

    Partition refinement: each layer splits every block into the classes it holds and those it does not, so the result
    is exact and costs one sort per layer. An entry of pieces splits too: its classes are counted by themselves.
    """
    block = np.zeros(size, dtype=np.int64)
    fresh = 1
    for held in [*layers, *(without_repeats(_joined(list(entry))) for entry in pieces)]:
        mine = block[held]
        if len(mine) and (mine == mine[0]).all():  # as most are
            old, index = mine[:1], np.int64(0)
        else:
            old, index = np.unique(mine, return_inverse=True)
        block[held] = fresh + index
        fresh += len(old)
    used = without_repeats(_joined(layers)) if layers else np.zeros(0, np.int64)
    result = np.zeros(size, dtype=np.int64)
    result[used] = np.unique(block[used], return_inverse=True)[1].reshape(-1)
    return result

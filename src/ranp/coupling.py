"""Which channels stand or fall together, as flat arrays: the ground on which selection (step 5) computes.

Everything is a *position*, one output channel of one layer, in layer order then channel order, and belongs to a
*class* of channels that can only go together. Classes with the same set of layers form a *block*; the tie rules decide
block by block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ranp.errors import PlanMismatchError, unknown_name
from ranp.tracing.trace import PINNED, Trace

if TYPE_CHECKING:
    from ranp.scores import Scores

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LARGEST_TABLE = 1 << 24
"""Class ids up to here index a table directly; larger ones are numbered anew first."""

ALWAYS = 0.0
"""The need of what is kept at any sparsity."""


@dataclass(frozen=True, slots=True, eq=False)
class Coupling:
    """The positions of a trace with their scores, and the classes and blocks they form.

    Attributes:
        trace: Where the positions come from.
        scores: What the scores were taken from.
        starts: First position of each layer, and the number of positions at the end.
        layer: Layer index of each position.
        classes: Class of each position; ``PINNED`` = must stay.
        score: Score of each position.
        included: False at the positions of excluded layers: they have no part in a threshold.
        voting: True where a position has a say in what its block keeps.
        whole: Layers that keep all their channels by request or for lack of scores, with the reason.
        block: Block of each class, -1 for classes that are kept anyway.
        pieces: Like ``Trace.pieces``, in the numbers of ``classes``.
        dims: Like ``Trace.dims``, in the numbers of ``classes``, one after the other.
        dim_starts: First entry of each of ``Trace.dims`` in ``dims``.
    """

    trace: Trace
    scores: Scores
    starts: Ints
    layer: Ints
    classes: Ints
    score: Floats
    included: Flags
    voting: Flags
    whole: Mapping[str, str]
    block: Ints
    pieces: tuple[tuple[Ints, ...], ...]
    dims: Ints
    dim_starts: Ints

    @property
    def count(self) -> int:
        """Channels that take part in the threshold: the paper's n."""
        return int(np.count_nonzero(self.included))

    @property
    def size(self) -> int:
        """One more than the largest class number."""
        return len(self.block)

    @property
    def movable(self) -> Flags:
        """Positions that may be removed, depthwise included: what ``exact`` takes its share of."""
        names = [layer.name not in self.whole for layer in self.trace.layers]
        loose: Flags = (self.classes != PINNED) & np.asarray(names, dtype=bool)[self.layer]
        return loose

    def split(self, values: npt.NDArray[np.generic]) -> list[npt.NDArray[np.generic]]:
        """One array per layer from one value per position."""
        return np.split(values, self.starts[1:-1]) if len(self.starts) > 1 else []

    def cuttable(self) -> list[tuple[str, int, Ints]]:
        """Tensor name, dimension and classes of everything that can be cut."""
        arrays = np.split(self.dims, self.dim_starts[1:]) if len(self.dim_starts) else []
        return [(name, dim, classes) for (name, dim), classes in zip(self.trace.dims, arrays, strict=True)]


def couple(scores: Scores, trace: Trace, keep: Iterable[str] = ()) -> Coupling:
    """Lays out the channels of ``trace`` with their ``scores`` and finds the blocks.

    Raises:
        PlanMismatchError: Scores and trace are not of the same network, or a pattern in ``keep`` matches no layer.
    """
    layers = trace.layers
    counts = np.asarray([layer.channels for layer in layers], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    owner = np.repeat(np.arange(len(layers)), counts)
    score = _flat_scores(scores, trace)
    whole = _whole(scores, trace, keep)

    raw = [layer.classes for layer in layers]
    flat_pieces = [array for entry in trace.pieces for array in entry]
    numbered = _numbered([*raw, *trace.dims.values(), *flat_pieces])
    classes = _joined(numbered[: len(raw)])
    dims = numbered[len(raw) : len(raw) + len(trace.dims)]
    arrays = iter(numbered[len(raw) + len(trace.dims) :])
    pieces = tuple(tuple(next(arrays) for _ in entry) for entry in trace.pieces)

    votes = np.asarray([layer.votes for layer in layers], dtype=bool)
    stays = np.asarray([layer.name in whole for layer in layers], dtype=bool)
    excluded = np.asarray([layer.name in scores.excluded for layer in layers], dtype=bool)
    size = 1 + max((int(array.max()) for array in numbered if array.size), default=PINNED)
    block = _blocks(size, [classes[starts[i] : starts[i + 1]] for i in range(len(layers))], pieces)
    free = np.zeros(size, dtype=bool)
    free[classes[votes[owner]]] = True
    free[classes[stays[owner]]] = False
    free[PINNED] = False
    block[~free] = -1
    lengths = [len(array) for array in dims]
    return Coupling(
        trace=trace,
        scores=scores,
        starts=starts,
        layer=owner,
        classes=classes,
        score=score,
        included=~excluded[owner],
        voting=votes[owner] & (block[classes] >= 0),
        whole=whole,
        block=block,
        pieces=pieces,
        dims=_joined(dims),
        dim_starts=np.concatenate([[0], np.cumsum(lengths)])[:-1].astype(np.int64),
    )


def _flat_scores(scores: Scores, trace: Trace) -> Floats:
    values = []
    for layer in trace.layers:
        if layer.name not in scores:
            raise PlanMismatchError(
                f"there are no scores for layer {layer.name!r} of the trace. Score and trace the same network."
            )
        value = np.asarray(scores[layer.name].detach().cpu().double().numpy())
        if value.shape != (layer.channels,):
            raise PlanMismatchError(
                f"layer {layer.name!r} has {layer.channels} channels but scores of shape {value.shape}. "
                "Score and trace the same network."
            )
        values.append(value)
    if len(scores) != len(values):
        known = {layer.name for layer in trace.layers}
        extra = next(name for name in scores if name not in known)
        raise PlanMismatchError(
            f"there are scores for {extra!r}, which is no layer of the trace. Score and trace the same network."
        )
    return np.concatenate(values) if values else np.zeros(0)


def _whole(scores: Scores, trace: Trace, keep: Iterable[str]) -> dict[str, str]:
    names = [layer.name for layer in trace.layers]
    whole = {name: reason for name, reason in scores.excluded.items() if name in names}
    for pattern in (keep,) if isinstance(keep, str) else keep:
        matched = [name for name in names if fnmatchcase(name, pattern)]
        if not matched:
            raise PlanMismatchError(f"keep matches no layer: {unknown_name('pattern', pattern, names)}")
        whole.update(dict.fromkeys(matched, f"kept by request ({pattern})"))
    return whole


def _numbered(arrays: list[npt.NDArray[np.int64]]) -> list[Ints]:
    """The arrays as they are, or numbered anew (0 stays 0) if their numbers are too large for a table."""
    if max((int(array.max()) for array in arrays if array.size), default=0) < LARGEST_TABLE:
        return arrays
    ids = np.unique(np.concatenate([[PINNED], *arrays]))
    return [np.searchsorted(ids, array) for array in arrays]


def _joined(arrays: list[Ints]) -> Ints:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _blocks(size: int, layers: list[Ints], pieces: tuple[tuple[Ints, ...], ...]) -> Ints:
    """The block of each class: two classes share one if and only if they occur in the same layers and pieces.

    Partition refinement: each layer splits every block into the classes it holds and those it does not, so the result
    is exact and costs one sort per layer. An entry of pieces splits too: its classes are counted by themselves.
    """
    block = np.zeros(size, dtype=np.int64)
    fresh = 1
    for members in [*layers, *(_joined(list(entry)) for entry in pieces)]:
        held = np.unique(members)
        old, index = np.unique(block[held], return_inverse=True)
        block[held] = fresh + index
        fresh += len(old)
    return np.unique(block, return_inverse=True)[1].reshape(-1).astype(np.int64)

"""Which channels stand or fall together, as flat arrays: the ground on which selection (step 5) computes.

Everything is a *position*, one output channel of one layer, in layer order then channel order, and belongs to a
*class* of channels that can only go together. Classes with the same set of layers form a *block*; the tie rules decide
block by block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ranp import arguments
from ranp.errors import PlanMismatchError, unknown_name
from ranp.plan import ChannelClasses
from ranp.scores import Scores
from ranp.tracing.trace import PINNED, Trace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LARGEST_TABLE = 1 << 24
"""Class ids up to here index a table directly; larger ones are numbered anew first."""

ALWAYS = 0.0
"""The need of what is kept at any sparsity."""


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
    repeats: bool
    simple: bool

    def dim_classes(self) -> list[Ints]:
        """The classes of each of ``Trace.dims``, in its order."""
        starts = [*self.dim_starts.tolist(), len(self.dims)]
        return [self.dims[begin:end] for begin, end in pairwise(starts)]

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


@dataclass(frozen=True, slots=True, eq=False)
class Coupling:
    """A layout with scores, and who has a say.

    Attributes:
        trace: Where the positions come from.
        scores: What the scores were taken from.
        layout: Positions, classes and blocks.
        score: Score of each position.
        included: False at the positions of excluded layers: they have no part in a threshold.
        voting: True where a position has a say in what its block keeps.
        whole: Layers that keep all their channels by request or for lack of scores, with the reason.
        block: Block of each class, -1 for classes that are kept anyway.
    """

    trace: Trace
    scores: Scores
    layout: Layout
    score: Floats
    included: Flags
    voting: Flags
    whole: Mapping[str, str]
    block: Ints

    @property
    def classes(self) -> Ints:
        """Class of each position."""
        return self.layout.classes

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
        loose: Flags = (self.classes != PINNED) & np.asarray(names, dtype=bool)[self.layout.layer]
        return loose

    @property
    def stuck(self) -> bool:
        """True if no channel may be removed."""
        return not bool((self.block >= 0).any())

    def split(self, values: npt.NDArray[np.generic]) -> list[npt.NDArray[np.generic]]:
        """One array per layer from one value per position."""
        starts = self.layout.starts.tolist()
        return [values[begin:end] for begin, end in pairwise(starts)]

    def cuttable(self) -> list[tuple[str, int, Ints]]:
        """Tensor name, dimension and classes of everything that can be cut."""
        found = zip(self.trace.dims, self.layout.dim_classes(), strict=True)
        return [(name, dim, classes) for (name, dim), classes in found]

    def keeps(self, stays: Flags) -> dict[str, dict[int, tuple[int, tuple[int, ...]]]]:
        """What a choice of classes leaves of every tensor that it cuts: by dimension, its size and the kept indices.

        The same cut is made in many tensors; they share one tuple.
        """
        found: dict[str, dict[int, tuple[int, tuple[int, ...]]]] = {}
        shared: dict[bytes, tuple[int, tuple[int, ...]]] = {}
        for name, dim, classes in self.cuttable():
            flags = stays[classes]
            if not flags.all():
                key = classes.tobytes()
                if key not in shared:
                    shared[key] = (len(flags), tuple(np.flatnonzero(flags).tolist()))
                found.setdefault(name, {})[dim] = shared[key]
        return found

    def channel_classes(self) -> ChannelClasses:
        """The classes as a plan remembers them: numbered as they come, 0 for whatever is kept anyway."""
        layers, dims = self.split(self.classes), self.cuttable()
        met, first = np.unique(np.concatenate([self.classes, self.layout.dims]), return_index=True)
        loose = self.block[met] >= 0
        number = np.zeros(self.size, dtype=np.int64)
        number[met[loose]] = np.argsort(np.argsort(first[loose])) + 1
        shared: dict[bytes, tuple[int, ...]] = {}

        def told(classes: npt.NDArray[np.generic]) -> tuple[int, ...]:
            key = classes.tobytes()
            if key not in shared:
                shared[key] = tuple(number[classes].tolist())
            return shared[key]

        by_dim: dict[str, dict[int, tuple[int, ...]]] = {}
        for name, dim, classes in dims:
            if number[classes].any():
                by_dim.setdefault(name, {})[dim] = told(classes)
        names = (layer.name for layer in self.trace.layers)
        return ChannelClasses(
            {name: told(classes) for name, classes in zip(names, layers, strict=True) if number[classes].any()},
            by_dim,
            tuple(entry for entry in (tuple(map(told, e)) for e in self.layout.pieces) if any(map(any, entry))),
        )


def couple(scores: Scores, trace: Trace, keep: Iterable[str] = ()) -> Coupling:
    """Joins the channels of ``trace`` with their ``scores`` and finds who has a say.

    Raises:
        PlanMismatchError: Scores and trace are not of the same network, or a pattern in ``keep`` matches no layer.
    """
    arguments.kind("scores", scores, Scores, "what ranp.score returns")
    layout = Layout.of(arguments.kind("trace", trace, Trace, "what ranp.trace returns"))
    score = _flat_scores(scores, trace)
    whole = _whole(scores, trace, keep)
    votes, stays, excluded = (
        np.asarray([test(layer) for layer in trace.layers], dtype=bool)[layout.layer]
        for test in (
            lambda layer: layer.votes,
            lambda layer: layer.name in whole,
            lambda layer: layer.name in scores.excluded,
        )
    )
    free = np.zeros(len(layout.block), dtype=bool)
    free[layout.classes[votes]] = True
    free[layout.classes[stays]] = False
    free[PINNED] = False
    return Coupling(
        trace=trace,
        scores=scores,
        layout=layout,
        score=score,
        included=~excluded,
        voting=votes & free[layout.classes],
        whole=whole,
        block=np.where(free, layout.block, -1),
    )


def _lay_out(trace: Trace) -> Layout:
    layers = trace.layers
    raw = [layer.classes for layer in layers]
    flat_pieces = [array for entry in trace.pieces for array in entry]
    flat_spans = [array for span in trace.spans for array in span.values()]
    numbered = _numbered([*raw, *trace.dims.values(), *flat_pieces, *flat_spans])
    classes = _joined(numbered[: len(raw)])
    dims = numbered[len(raw) : len(raw) + len(trace.dims)]
    arrays = iter(numbered[len(raw) + len(trace.dims) :])
    pieces = tuple(tuple(next(arrays) for _ in entry) for entry in trace.pieces)
    spans = tuple({dim: next(arrays) for dim in span} for span in trace.spans)
    counts = np.asarray([layer.channels for layer in layers], dtype=np.int64)
    size = 1 + max((int(array.max()) for array in numbered if array.size), default=PINNED)
    return Layout(
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        layer=np.repeat(np.arange(len(layers)), counts),
        classes=classes,
        block=_blocks(size, numbered[: len(raw)], pieces),
        pieces=pieces,
        dims=_joined(dims),
        dim_starts=np.concatenate([[0], np.cumsum([len(array) for array in dims])])[:-1].astype(np.int64),
        spans=spans,
        repeats=any(len(np.unique(array)) < len(array) for array in numbered[: len(raw)]),
        simple=not pieces and _reads_whole_layers(numbered[: len(raw)], dims),
    )


def _reads_whole_layers(layers: list[Ints], dims: list[Ints]) -> bool:
    """True if every dimension holds something that must stay or all channels of some layer."""
    whole = {frozenset(array.tolist()) for array in layers}
    by_class: dict[int, set[frozenset[int]]] = {}
    for members in whole:
        for number in members:
            by_class.setdefault(number, set()).add(members)
    for array in {array.tobytes(): array for array in dims}.values():
        held = frozenset(array.tolist())
        if PINNED in held or held in whole:
            continue
        if not any(members <= held for number in held for members in by_class.get(number, ())):
            return False
    return True


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
    for pattern in arguments.patterns(keep):
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
    used = np.unique(_joined(layers)) if layers else np.zeros(0, np.int64)
    result = np.zeros(size, dtype=np.int64)
    result[used] = np.unique(block[used], return_inverse=True)[1].reshape(-1)
    return result

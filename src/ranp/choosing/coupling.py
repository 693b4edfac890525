"""Which channels stand or fall together, as flat arrays: the ground on which selection (step 5) computes.

Everything is a *position*, one output channel of one layer, in layer order then channel order, and belongs to a
*class* of channels that can only go together. Classes with the same set of layers form a *block*; the tie rules decide
block by block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from ranp import arguments
from ranp.choosing.plan import ChannelClasses
from ranp.errors import PlanMismatchError, asked, unknown_name
from ranp.scoring.scores import Scores
from ranp.tracing.layout import Flags, Floats, Ints, Layout
from ranp.tracing.trace import PINNED, Trace

ALWAYS = 0.0
"""The need of what is kept at any sparsity."""
REQUESTED = "kept by request"
COUPLED = "coupled with a layer that is kept whole"
"""How a plan's notes name layers that ``keep`` matched, and those that hang on them."""


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

    def cuttable(self) -> list[tuple[str, int, Ints]]:
        """Tensor name, dimension and classes of everything that can be cut."""
        found = zip(self.trace.dims, self.layout.dim_classes(), strict=True)
        return [(name, dim, classes) for (name, dim), classes in found]

    def channel_classes(self) -> ChannelClasses:
        """The classes as a plan remembers them: numbered as they come, 0 for whatever is kept anyway."""
        layers, dims = self.layout.by_layer(self.classes), self.cuttable()
        flat = np.concatenate([self.classes, self.layout.dims])
        first = np.full(self.size, len(flat))
        first[flat[::-1]] = np.arange(len(flat))[::-1]  # of several places of a class, the one written last counts
        met = np.argsort(first)[: np.count_nonzero(first < len(flat))]
        met = met[self.block[met] >= 0]
        number = np.zeros(self.size, dtype=np.int64)
        number[met] = np.arange(1, len(met) + 1)
        shared: dict[bytes, tuple[int, ...]] = {}

        def numbered(classes: npt.NDArray[np.generic]) -> tuple[int, ...]:
            key = classes.tobytes()
            if key not in shared:
                shared[key] = tuple(number[classes].tolist())
            return shared[key]

        by_dim: dict[str, dict[int, tuple[int, ...]]] = {}
        for name, dim, classes in dims:
            if any(numbered(classes)):
                by_dim.setdefault(name, {})[dim] = numbered(classes)
        names = (layer.name for layer in self.trace.layers)
        return ChannelClasses(
            {name: numbered(classes) for name, classes in zip(names, layers, strict=True) if number[classes].any()},
            by_dim,
            tuple(entry for entry in (tuple(map(numbered, e)) for e in self.layout.pieces) if any(map(any, entry))),
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


def _flat_scores(scores: Scores, trace: Trace) -> Floats:
    values = []
    for layer in trace.layers:
        if layer.name not in scores:
            raise PlanMismatchError(
                f"there are no scores for layer {layer.name!r} of the trace. Score and trace the same network."
            )
        value = scores[layer.name].numpy()
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
            raise PlanMismatchError(
                f"{asked('keep').rstrip('=')} matches no layer: {unknown_name('pattern', pattern, names)}"
            )
        whole.update(dict.fromkeys(matched, f"{REQUESTED} ({pattern})"))
    return whole

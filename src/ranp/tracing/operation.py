"""One operator of a run, as the rules see it: its arguments by name, the labels that go in and that come out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ranp.running.operators import Operator, flat_tensors
from ranp.tracing.labels import FILLER, RIGID, LabelSpace, Vector, has_filler

ATTRIBUTE = "_ranp_labels"
"""Where a tensor of the traced copy carries its labels: ``{dimension: vector}``; a missing dimension is rigid."""

TAINT = "_ranp_taint"
_NONE: dict[int, Vector] = {}

Labels = dict[int, Vector | None]
"""Labels by dimension; None: rigid, as a dimension that is missing."""


def labels_of(tensor: Any) -> dict[int, Vector]:
    """Labels a tensor carries; empty for anything that is no labelled tensor."""
    found: dict[int, Vector] = getattr(tensor, ATTRIBUTE, _NONE)
    return found


def put_labels(tensor: torch.Tensor, labels: dict[int, Vector]) -> None:
    """Lets a tensor carry labels. Dimensions of size one never do: there is nothing to remove."""
    setattr(tensor, ATTRIBUTE, {d: v for d, v in labels.items() if tensor.shape[d] != 1} if labels else labels)


def taint(tensor: torch.Tensor, vectors: list[Vector]) -> None:
    """Marks a tensor whose values number channels: whoever reads it needs those channels to stay."""
    setattr(tensor, TAINT, vectors)


def taint_of(tensor: torch.Tensor) -> list[Vector]:
    """Labels that must stay if this tensor is read."""
    found: list[Vector] = getattr(tensor, TAINT, None) or []
    return found


def others(tensor: Any, dims: Collection[int]) -> Labels:
    """Labels of a tensor along all but some dimensions."""
    return {d: v for d, v in labels_of(tensor).items() if d not in dims}


def wrap(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    return dim + rank if dim < 0 else dim


class Op(Operator):
    """An operator that has just run: what rules read from and write to."""

    __slots__ = ("carrier", "depthwise", "index", "module", "on_layer", "out", "space", "split", "summed", "where")

    def __init__(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        space: LabelSpace,
        where: str,
        module: nn.Module,
        index: int,
        carrier: int,
        depthwise: bool | None,
        on_layer: Callable[[Op, Vector | None, Vector | None, Vector | None], None],
    ) -> None:
        super().__init__(func, args, kwargs)
        self.out, self.space, self.where, self.module, self.index = out, space, where, module, index
        self.carrier = carrier
        self.depthwise = depthwise  # what the full network's convolution was; None: see for yourself
        self.on_layer = on_layer
        self.split = False
        self.summed: list[tuple[Vector, Vector]] = []  # fillers, and what they are summed over with

    @property
    def in_place(self) -> bool:
        """True if the operator wrote into its first argument and returned it."""
        return self.schema.in_place

    def pin(self, labels: Vector | None, reason: str) -> None:
        """Notes that labels must stay because of this operator."""
        self.space.pin(labels, reason, self.where, op=self.name)

    def pin_tensor(self, tensor: Any, reason: str, dims: Collection[int] | None = None) -> None:
        """Notes that all labels of a tensor, or of some of its dimensions, must stay."""
        for dim, vector in labels_of(tensor).items():
            if dims is None or dim in dims:
                self.pin(vector, reason)

    def merge(self, vectors: Sequence[Vector | None], reason: str) -> Vector | None:
        """Unites aligned dimensions; a rigid one (None) pins the others and makes the result rigid."""
        present = [v for v in vectors if v is not None]
        if len(present) < len(vectors):
            for vector in present:
                self.pin(vector, reason)
            return None
        result = present[0]
        for vector in present[1:]:
            result = self.space.unite(result, vector)
        return result

    def contract(self, a: Vector | None, b: Vector | None, reason: str) -> None:
        """Unites two dimensions that are summed over together; where one is rigid, the other stays.

        Where one is a filler, how many there are depends on the code (a first state of zeros): a trial cut shows it.
        """
        if a is None or b is None:
            self.pin(a, reason)
            self.pin(b, reason)
            return
        self.space.contracted.append(a)
        self.space.unite(a, b)
        if len(a) == len(b):
            self.summed += [(one, other) for one, other in ((a, b), (b, a)) if has_filler(one)]

    def standing_for(self, vector: Vector) -> Vector:
        """An input's labels as they stay; fillers have the labels of what they are summed over with."""
        if not has_filler(vector):  # only fillers are ever written over
            return vector
        other = next((other for own, other in self.summed if own is vector), vector)
        return np.where(vector == FILLER, other, vector)

    def emit(self, labels: Mapping[int, Vector | None], *results: torch.Tensor) -> None:
        """Gives the results their labels: those named, or all."""
        known = {d: v for d, v in labels.items() if v is not None}
        for result in results or flat_tensors(self.out):
            put_labels(result, known)

    def dim(self, rank: int, default: int = 0) -> int:
        """The dimension that the operator names, counted from the front."""
        return wrap(default if self["dim"] is None else self["dim"], rank)

    def pass_beside(self, x: torch.Tensor, dims: Collection[int], reason: str) -> None:
        """Labels along some dimensions of a tensor must stay and end here; the others come out where they went in."""
        self.pin_tensor(x, reason, dims)
        self.emit(others(x, dims))

    def write(self, destination: torch.Tensor, labels: dict[int, Vector | None]) -> None:
        """Labels written into existing storage: fillers of the destination take them, in every view of it."""
        mine = labels_of(destination)
        for dim in range(destination.dim()):
            if dim not in labels:  # nothing that varies along this dimension was written
                continue
            here, there = mine.get(dim), labels[dim]
            if here is None:
                self.pin(there, "written into a tensor of fixed size")
            elif there is None:
                self.pin(here, "overwritten by data of fixed size")
                if has_filler(here):
                    here[here == 0] = RIGID
            elif here is not there:
                self.space.unite(here, there)
                if has_filler(here):
                    empty = here == 0
                    here[empty] = there[empty]

    def rigid(self, size: int) -> Vector:
        """Labels for indices that no parameter gave birth to."""
        return np.full(size, RIGID, np.int64)

"""Which channels of a traced network stay: one value, and every form in which the steps after it ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import nn

from ranp.errors import PlanMismatchError
from ranp.running.calling import unwrap
from ranp.tracing.cutting import cut_copy
from ranp.tracing.layout import Flags, Ints, Layout
from ranp.tracing.trace import PINNED, Trace


class Decisions(Protocol):
    """What a plan decides by layer, with or without the trace that it was made from."""

    @property
    def kept(self) -> Mapping[str, Sequence[int]]:
        """Channels that stay."""
        ...

    @property
    def channels(self) -> Mapping[str, int]:
        """How many there were."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The classes of channels that stay.

    >>> from torch import zeros
    >>> from ranp import trace
    >>> net = nn.Sequential(nn.Conv3d(1, 4, 3, bias=False), nn.Conv3d(4, 2, 1))
    >>> everything = Choice.everything(trace(net, zeros(1, 1, 5, 5, 5)))
    >>> choice = everything.without(everything.trace.layers[0].classes[:2])
    >>> choice.kept, choice.cuts
    ({'0': (2, 3), '1': (0, 1)}, {'0.weight': {0: (4, (2, 3))}, '1.weight': {1: (4, (2, 3))}})

    Attributes:
        trace: Of the full network.
        stays: One flag per class, in the numbers of its ``Layout``.
    """

    trace: Trace
    stays: Flags

    @classmethod
    def everything(cls, trace: Trace) -> Choice:
        """Keeps every class."""
        return cls(trace, np.ones(len(Layout.of(trace).block), dtype=bool))

    @classmethod
    def of_plan(cls, trace: Trace, plan: Decisions) -> Choice:
        """What a plan's decisions by layer keep of a network whose inputs, outputs or sizes may differ.

        Raises:
            PlanMismatchError: They are not of this network.
        """
        layout = Layout.of(trace)
        gone, spared = np.zeros((2, len(layout.block)), dtype=bool)
        spared[PINNED] = True
        for layer, classes in zip(trace.layers, layout.by_layer(layout.classes), strict=True):
            kept = plan.kept.get(layer.name)
            if kept is None:
                raise PlanMismatchError(
                    f"layer {layer.name!r} is not in the plan. Use the network the plan was made for."
                )
            whole = len(kept) == plan.channels[layer.name]  # then it stays whole, whatever its size is here
            if not whole and plan.channels[layer.name] != layer.channels:
                raise PlanMismatchError(
                    f"layer {layer.name!r} has {layer.channels} channels, the plan was made for "
                    f"{plan.channels[layer.name]}. Use the network the plan was made for."
                )
            flags = np.full(layer.channels, whole)
            flags[[] if whole else list(kept)] = True
            gone[classes[~flags]] = True
            spared[classes[flags]] = True
        if (gone & spared).any():
            raise PlanMismatchError(
                "the plan removes channels that this network needs elsewhere. Use the network the plan was made for."
            )
        return cls(trace, ~gone)

    def without(self, classes: Ints) -> Choice:
        """The same, with these classes gone."""
        stays = self.stays.copy()
        stays[classes] = False
        return Choice(self.trace, stays)

    @property
    def layout(self) -> Layout:
        """What the flags are about."""
        return Layout.of(self.trace)

    @property
    def kept(self) -> dict[str, tuple[int, ...]]:
        """Channels that stay, by layer."""
        flags = self.layout.by_layer(self.stays[self.layout.classes])
        return {
            layer.name: tuple(np.flatnonzero(mine).tolist())
            for layer, mine in zip(self.trace.layers, flags, strict=True)
        }

    @property
    def removed(self) -> int:
        """How many channels of all layers go."""
        return int(np.count_nonzero(~self.stays[self.layout.classes]))

    @property
    def gone(self) -> Ints:
        """Classes that go, in the numbers of the trace."""
        own = np.concatenate([np.zeros(0, np.int64), *(layer.classes for layer in self.trace.layers)])
        return np.unique(own[~self.stays[self.layout.classes]])

    def over(self, classes: Ints) -> Flags:
        """For each of these classes, in the numbers of the trace, whether it stays."""
        return ~np.isin(classes, self.gone)

    @property
    def cuts(self) -> dict[str, dict[int, tuple[int, tuple[int, ...]]]]:
        """By tensor and dimension, where something goes: its full size and the indices that stay.

        The same cut is made in many tensors; they share one tuple.
        """
        found: dict[str, dict[int, tuple[int, tuple[int, ...]]]] = {}
        shared: dict[bytes, tuple[int, tuple[int, ...]]] = {}
        for (name, dim), classes in zip(self.trace.dims, self.layout.dim_classes(), strict=True):
            flags = self.stays[classes]
            if np.count_nonzero(flags) < len(flags):
                key = classes.tobytes()
                if key not in shared:
                    shared[key] = (len(classes), tuple(np.flatnonzero(flags).tolist()))
                found.setdefault(name, {})[dim] = shared[key]
        return found

    @property
    def indices(self) -> dict[str, dict[int, tuple[int, ...]]]:
        """By tensor and dimension, where something goes: the indices that stay."""
        return {name: {dim: keep for dim, (_, keep) in by_dim.items()} for name, by_dim in self.cuts.items()}

    def cut(self, model: nn.Module, *, meta: bool = True) -> nn.Module:
        """A copy of the traced network with only these channels; without data if ``meta``."""
        return cut_copy(unwrap(model), self.indices, meta=meta)

"""The value that tracing returns: layers, shapes, and which channels stand or fall together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ranp.errors import PlanMismatchError, unknown_name
from ranp.running.flops import OpCall
from ranp.running.recording import LeafCall
from ranp.tables import html

if TYPE_CHECKING:
    from ranp.tracing.groups import Group, Links

ClassIds = npt.NDArray[np.int64]
"""One integer per channel: 0 = must stay, any other number = stays or goes with all channels of that number."""

PINNED = 0


class Cause(str, Enum):
    """Why channels must stay whatever their scores, in one word: the key under which reports count them."""

    OUTPUT = "output"
    """They make the network's output."""
    CODE = "code"
    """Python code assumes their number, or takes another path without them."""
    OPERATOR = "operator"
    """An operator without a rule reads them."""
    OPERATION = "operation"
    """An operator needs all the channels that it meets."""
    UNUSED = "unused"
    """Their layer did not run on the example."""
    UNSEEN = "unseen"
    """They are made, and no operator that was seen reads them."""
    SINGLE = "single"
    """The layer has a single channel."""
    REQUEST = "request"
    """They were to be kept."""
    GRADIENT = "gradient"
    """The layer has no scores."""
    COUPLING = "coupling"
    """They stand or fall with channels that stay."""
    OTHER = "other"

    __str__ = str.__str__


MAKES_OUTPUT = "makes the network's output"
NEVER_READ = "made but never read by an operator that was seen"


@dataclass(frozen=True, slots=True)
class Pin:
    """Channels that must stay because of one operator or one property of the network."""

    reason: str
    where: str
    """Module in which it arose; empty for the network itself."""
    channels: int
    op: str = ""
    """Operator to blame, if one is."""
    cause: Cause = Cause.OTHER

    def __str__(self) -> str:
        clause = f"{self.reason} ({self.op})" if self.op else self.reason
        return f"{clause} in {self.where}" if self.where else clause


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution, transposed convolution or linear layer: what the paper calls a layer of neurons.

    Attributes:
        name: The ``named_modules`` name.
        kind: ``"conv"``, ``"transposed"``, ``"linear"`` or ``"parameter"`` (a weight used by function call).
        weight: Qualified name of the weight tensor.
        out_dim: The weight's dimension that holds output channels (1 for a transposed conv), per group if grouped.
        in_dim: The weight's dimension that holds input channels.
        groups: Groups of the convolution.
        channels: Number of output channels.
        classes: Class of each output channel, ``PINNED`` where it must stay. Length ``channels``.
        votes: False for a depthwise layer: its channels follow those of its producer.
        norm: Name of the norm module that alone consumes the layer's output, if there is one.
        reason: Why channels of this layer must stay, empty if none must: the commonest of ``pins``.
        pins: Every cause for which channels of this layer must stay, and how many, the commonest first.
    """

    name: str
    kind: str
    weight: str
    out_dim: int
    in_dim: int
    groups: int
    channels: int
    classes: ClassIds
    votes: bool = True
    norm: str | None = None
    reason: str = ""
    pins: tuple[Pin, ...] = ()

    @property
    def pinned(self) -> bool:
        """True if every channel must stay."""
        return not self.classes.any()


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """What running a network showed: its layers, costs, and which channels stand or fall together.

    Attributes:
        layers: In ``named_modules`` order.
        dims: ``(tensor name, dimension) -> classes``, one per index, for every dimension that can be cut.
        pieces: Each entry is a tuple of arrays of classes; every array must keep the same number of classes
            (grouped convolution, GroupNorm, chunk). A class is in at most one array of at most one entry.
        calls: Calls of leaf modules, in order.
        spans: For each of ``calls``, the class of every index of the dimensions of its result that hold channels.
        ops: Operators with true FLOPs, in order.
        op_spans: For each of ``ops``, ``(tensor argument, dimension) -> classes``, where a dimension holds channels.
        pins: Why channels must stay.
        unknown: Operators the tracer has no rule for, as ``"operator in module"``.
        parameters: Shape of every parameter.
        links: How channels came to be one class, for ``groups``.

    ``print(trace)`` shows the groups of coupled layers:

        >>> from torch import nn, zeros
        >>> from ranp import trace
        >>> print(trace(nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 1)), zeros(1, 1, 8, 8)))
        2 layers in 2 groups; 8 of 10 channels can go
        channels  can go  layers  joined by  must stay
               8       8  0
               2       0  2                  2 output
        must stay: 2 output
    """

    layers: tuple[Layer, ...]
    dims: Mapping[tuple[str, int], ClassIds]
    pieces: tuple[tuple[ClassIds, ...], ...] = ()
    calls: tuple[LeafCall, ...] = ()
    spans: tuple[Mapping[int, ClassIds], ...] = ()
    ops: tuple[OpCall, ...] = ()
    op_spans: tuple[Mapping[tuple[int, int], ClassIds], ...] = ()
    pins: tuple[Pin, ...] = ()
    unknown: tuple[str, ...] = ()
    parameters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    links: Links | None = None

    def __repr__(self) -> str:
        return f"Trace({len(self.layers)} layers, {self.prunable:,} of {self.channels:,} channels can go)"

    def __str__(self) -> str:
        from ranp.tracing.groups import parts

        return "\n".join(map(str, parts(self)))

    def _repr_html_(self) -> str:
        from ranp.tracing.groups import parts

        return html(parts(self))

    def groups(self) -> tuple[Group, ...]:
        """Layers whose channels stand or fall together, through what, and what must stay: each layer in one group."""
        from ranp.tracing.groups import groups_of

        return groups_of(self)

    def layer(self, name: str) -> Layer:
        """The layer of that name."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise PlanMismatchError(unknown_name("layer", name, (layer.name for layer in self.layers)))

    @property
    def channels(self) -> int:
        """All output channels of all layers: the paper's n."""
        return sum(layer.channels for layer in self.layers)

    @property
    def prunable(self) -> int:
        """Output channels that may be removed, depthwise layers included."""
        return sum(int(np.count_nonzero(layer.classes)) for layer in self.layers)

"""What a plan holds, and what makes it a valid one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import lt
from typing import Any

from ranp.choosing.plan.classes import ChannelClasses, check
from ranp.errors import PlanMismatchError
from ranp.files import atomic
from ranp.tables import Grid, html

DIMENSIONS = 1024
"""No tensor and no attribute that a network keeps widths in has more."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The indices that one dimension of one tensor keeps.

    Attributes:
        size: Full size of the dimension.
        keep: Kept indices, increasing, at least one.
    """

    size: int
    keep: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_indices("a cut", self.size, self.keep)


@dataclass(frozen=True, slots=True)
class Sparsity:
    """How much was to be removed and how much was, both as the fraction removed.

    Unpacks as ``requested, achieved = plan.sparsity``.

    Attributes:
        requested: What was asked for.
        removed: Output channels removed, over all layers.
        channels: Output channels of all layers: the paper's n.
        prunable: Those of them that could be removed: not pinned, not in ``keep``.
        measure: What ``achieved`` is a share of: ``"channels"`` (the paper) or ``"prunable"`` (``exact=True``).
    """

    requested: float
    removed: int
    channels: int
    prunable: int
    measure: str = "channels"

    def __post_init__(self) -> None:
        if self.measure not in ("channels", "prunable"):
            raise PlanMismatchError(f"sparsity measure {self.measure!r} is unknown. Use 'channels' or 'prunable'.")
        if not isinstance(self.requested, int | float) or not 0 <= self.requested <= 1:
            raise PlanMismatchError(f"requested sparsity {self.requested!r} is no share. Give a number from 0 to 1.")
        for name in ("channels", "removed", "prunable"):
            count = getattr(self, name)
            if type(count) is not int or not 0 <= count <= self.channels:
                raise PlanMismatchError(
                    f"sparsity has {name}={count!r} of {self.channels!r} channels. Give whole numbers up to that."
                )

    @property
    def achieved(self) -> float:
        """The share really removed, in the measure of ``requested``."""
        return self.of_channels if self.measure == "channels" else self.of_prunable

    @property
    def of_channels(self) -> float:
        """The share of all channels that was removed."""
        return self.removed / self.channels if self.channels else 0.0

    @property
    def of_prunable(self) -> float:
        """The share of the prunable channels that was removed."""
        return self.removed / self.prunable if self.prunable else 0.0

    def __iter__(self) -> Iterator[float]:
        return iter((self.requested, self.achieved))


@dataclass(frozen=True, slots=True)
class Change:
    """What two plans say differently about one layer. ``None``: the layer is missing in that plan."""

    layer: str
    before: int | None
    after: int | None
    dropped: tuple[int, ...]
    added: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which channels stay.

    Attributes:
        kept: Layer name to its kept output channels, for every layer, in layer order.
        channels: Layer name to its full number of output channels.
        cuts: Tensor name to dimension to ``Cut``, only where something is really cut.
        sparsity: Requested and achieved.
        settings: How the plan was made (method, criterion, seed, batches, ...): plain JSON.
        notes: Layers that were kept whole, and why.
        classes: Which channels stand or fall together; then all that the plan says must agree. Empty if nobody knows.
        altered: True if somebody changed it since it was chosen: with ``edited``, or its file by hand.
    """

    kept: Mapping[str, tuple[int, ...]]
    channels: Mapping[str, int]
    cuts: Mapping[str, Mapping[int, Cut]]
    sparsity: Sparsity
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    classes: ChannelClasses = field(default_factory=ChannelClasses)
    altered: bool = False

    def __post_init__(self) -> None:
        """Copies what it was given (the caller may go on changing his own) and checks each entry."""
        kept = {layer: tuple(indices) for layer, indices in self.kept.items()}
        object.__setattr__(self, "kept", kept)
        object.__setattr__(self, "channels", dict(self.channels))
        object.__setattr__(self, "cuts", {name: dict(by_dim) for name, by_dim in self.cuts.items() if by_dim})
        object.__setattr__(self, "settings", _plain(self.settings))
        object.__setattr__(self, "notes", tuple(self.notes))
        for layer in kept.keys() ^ self.channels.keys():
            raise PlanMismatchError(
                f"layer {layer!r} is in only one of kept and channels. Give both its kept channels and their number."
            )
        for layer, indices in kept.items():
            _check_indices(f"layer {layer!r}", self.channels[layer], indices)
        for name, by_dim in self.cuts.items():
            for dim, cut in by_dim.items():
                if not isinstance(cut, Cut) or type(dim) is not int or not 0 <= dim < DIMENSIONS:
                    raise PlanMismatchError(
                        f"cut {dim!r} of {name!r} is {cut!r}. Use a dimension from 0 to {DIMENSIONS - 1} and a Cut."
                    )
        if self.classes:
            check(self)

    @property
    def widths(self) -> dict[str, int]:
        """Layer name to the number of channels it keeps."""
        return {layer: len(indices) for layer, indices in self.kept.items()}

    def _repr_html_(self) -> str:
        from ranp.choosing.plan.notation import format_indices

        rows = [("layer", "channels", "kept", "which")]
        for name, indices in self.kept.items():
            which = "all" if len(indices) == self.channels[name] else format_indices(indices)
            rows.append((name, str(self.channels[name]), str(len(indices)), which))
        sparsity = self.sparsity
        title = f"{sparsity.removed} of {sparsity.channels} channels removed ({sparsity.of_channels:.2%})"
        altered = ["edited since it was made"] if self.altered else []
        return html([title, Grid(rows, left=(0, 3)), *self.notes, *altered])

    def diff(self, other: Plan) -> tuple[Change, ...]:
        """What ``other`` decides differently, layer by layer; empty if both keep the same channels."""
        changes = []
        for layer in [*self.kept, *(name for name in other.kept if name not in self.kept)]:
            before, after = self.kept.get(layer), other.kept.get(layer)
            if before != after:
                old, new = set(before or ()), set(after or ())
                changes.append(
                    Change(
                        layer,
                        None if before is None else len(before),
                        None if after is None else len(after),
                        tuple(sorted(old - new)),
                        tuple(sorted(new - old)),
                    )
                )
        return tuple(changes)

    def edited(self, *, layer: str, keep: int | str | Iterable[int]) -> Plan:
        """The plan in which that layer keeps other channels, and all that stands or falls with them follows.

            >>> classes = ChannelClasses({"a": (1, 2, 3)}, {"a.weight": {0: (1, 2, 3)}, "b.weight": {1: (1, 2, 3)}})
            >>> plan = Plan({"a": (0, 1, 2)}, {"a": 3}, {}, Sparsity(0.0, 0, 3, 3), classes=classes)
            >>> plan.edited(layer="a", keep=[0, 2]).cuts["b.weight"][1].keep
            (0, 2)

        Coupled layers move too. To change several layers that only agree once all are changed, such as those that share
        a group norm, use ``ranp.choosing.plan.editing.edit``.

        Args:
            layer: Its name.
            keep: The channels to keep, also as ``"0-15, 17"``; or how many: then the lowest of those that the plan
                keeps stay, and if it keeps fewer, the lowest removed ones return, evenly over what must keep equal
                counts. The plan knows no scores; to choose by score, make another plan.

        Raises:
            PlanMismatchError: No such layer, one that must stay whole, channels that do not exist or must stay, nothing
                left of a layer or tensor, unequal counts where they must be equal, or a plan without classes.
        """
        from ranp.choosing.plan.editing import edit

        return edit(self, {layer: keep})

    def to_json(self) -> str:
        """The text that ``save`` writes.

        Raises:
            StorageError: ``settings`` is not plain JSON.
        """
        from ranp.choosing.plan import storing

        return storing.to_json(self)

    @classmethod
    def from_json(cls, text: str, *, source: str = "the text") -> Plan:
        """The plan that ``to_json`` made the text of; see ``load``. ``source`` is what an error calls it."""
        from ranp.choosing.plan import storing

        return storing.from_json(text, source)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as JSON that a person can read, edit and compare: indices as ``"0-15, 17, 20-31"``.

        Raises:
            StorageError: The file cannot be written, or ``settings`` is not plain JSON.
        """
        atomic.write_atomic(path, self.to_json().encode("utf-8"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Reads a plan, edited by hand (then it is ``altered``) or not.

        The counts of the achieved sparsity are taken anew from the layers. All that the file says about channels that
        stand or fall together must agree: an edit of one place alone is refused.

        Raises:
            StorageError: The file is missing, torn, of another kind or release, or an entry is wrong or disagrees with
                another; the message names it.
        """
        from ranp.choosing.plan import storing

        return storing.load(path)


def _check_indices(what: str, size: int, keep: tuple[int, ...]) -> None:
    whole = type(size) is int and set(map(type, keep)) == {int}
    if not whole or keep[0] < 0 or keep[-1] >= size or not all(map(lt, keep, keep[1:])):
        shown = str(keep) if len(keep) <= 8 else f"({', '.join(map(str, keep[:8]))}, ...)"
        raise PlanMismatchError(
            f"{what} of size {size!r} keeps {shown}. Give at least one index, increasing, each from 0 to size - 1."
        )


def _plain(value: Any) -> Any:
    """A copy in which every tuple is a list, as JSON will have it, so that a saved plan equals the loaded one."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value

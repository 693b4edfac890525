"""The decision, as a value and as a file: which channels each layer keeps, and which indices of which tensors go.

A plan needs no trace and no network to be read: beside the kept channels by layer it lists the cuts, tensor by tensor.
Dimensions that lose nothing (inputs, outputs, pinned layers) are not in it, so it applies to the same architecture
with other input channels, classes or spatial sizes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import lt
from typing import Any

from ranp import files
from ranp.errors import PlanMismatchError, StorageError

FORMAT = "ranp-plan"
VERSION = 1


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
        outputs: Layer name to the tensor and dimension that hold all of its output channels, where there is one.
    """

    kept: Mapping[str, tuple[int, ...]]
    channels: Mapping[str, int]
    cuts: Mapping[str, Mapping[int, Cut]]
    sparsity: Sparsity
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    outputs: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Copies what it was given (the caller may go on changing his own) and checks each entry."""
        kept = {layer: tuple(indices) for layer, indices in self.kept.items()}
        object.__setattr__(self, "kept", kept)
        object.__setattr__(self, "channels", dict(self.channels))
        object.__setattr__(self, "cuts", {name: dict(by_dim) for name, by_dim in self.cuts.items() if by_dim})
        object.__setattr__(self, "settings", _plain(self.settings))
        object.__setattr__(self, "notes", tuple(self.notes))
        object.__setattr__(self, "outputs", {layer: (name, dim) for layer, (name, dim) in self.outputs.items()})
        for layer in kept.keys() ^ self.channels.keys():
            raise PlanMismatchError(
                f"layer {layer!r} is in only one of kept and channels. Give both its kept channels and their number."
            )
        for layer, indices in kept.items():
            _check_indices(f"layer {layer!r}", self.channels[layer], indices)
        for name, by_dim in self.cuts.items():
            for dim, cut in by_dim.items():
                if not isinstance(cut, Cut) or not isinstance(dim, int) or dim < 0:
                    raise PlanMismatchError(f"cut {dim!r} of {name!r} is {cut!r}. Use a dimension >= 0 and a Cut.")

    @property
    def widths(self) -> dict[str, int]:
        """Layer name to the number of channels it keeps."""
        return {layer: len(indices) for layer, indices in self.kept.items()}

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as JSON that a person can read, edit and compare: indices as ``"0-15, 17, 20-31"``.

        Raises:
            StorageError: The file cannot be written, or ``settings`` is not plain JSON.
        """
        sparsity = self.sparsity
        layers: dict[str, dict[str, Any]] = {}
        for layer, indices in self.kept.items():
            entry: dict[str, Any] = {"channels": self.channels[layer], "kept": format_indices(indices)}
            if layer in self.outputs:
                entry["output"] = list(self.outputs[layer])
            layers[layer] = entry
        value = {
            "sparsity": {
                "requested": sparsity.requested,
                "measure": sparsity.measure,
                "achieved": sparsity.achieved,
                "removed": sparsity.removed,
                "channels": sparsity.channels,
                "prunable": sparsity.prunable,
            },
            "settings": self.settings,
            "notes": list(self.notes),
            "layers": layers,
            "cuts": {
                name: {str(dim): {"size": cut.size, "keep": format_indices(cut.keep)} for dim, cut in by_dim.items()}
                for name, by_dim in self.cuts.items()
            },
        }
        files.write_json(path, value, kind=FORMAT, version=VERSION)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Reads a plan, edited by hand or not.

        The counts of the achieved sparsity are taken anew from the layers. Where the file says which tensor holds a
        layer's output, its cut must agree with the layer's kept channels, so that an edit of one of them alone is
        not silently without effect.

        Raises:
            StorageError: The file is missing, torn, of another kind, newer than this release, or an entry is wrong;
                the message names the entry.
        """
        value, _ = files.read_editable_json(path, kind=FORMAT, version=VERSION)
        try:
            plan = _from_json(value)
            _check_outputs(plan)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise StorageError(f"{str(path)!r} is not a valid plan: {reason}. Correct it, or make it again.") from error
        except PlanMismatchError as error:
            raise StorageError(f"{str(path)!r} is not a valid plan: {error}") from error
        return plan


def format_indices(indices: tuple[int, ...]) -> str:
    """Increasing indices as ranges.

    >>> format_indices((0, 1, 2, 5, 7, 8))
    '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def parse_indices(text: str, size: int) -> tuple[int, ...]:
    """The indices that ``format_indices`` wrote, or that a person typed.

    >>> parse_indices("0-2,5 , 7-8", 10)
    (0, 1, 2, 5, 7, 8)

    Raises:
        ValueError: Not a list of ranges, or one of them is outside of ``0 .. size - 1`` or out of order.
    """
    indices: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        numbers = (first, last) if dash else (first, first)
        if not all(number.isascii() and number.isdigit() for number in numbers):
            raise ValueError(f"{part.strip()!r} is not an index or a range; write '0-15, 17, 20-31'")
        start, stop = int(numbers[0]), int(numbers[1])
        if stop >= size or start > stop or (indices and start <= indices[-1]):
            raise ValueError(f"{part.strip()!r} must follow the range before it and lie in 0-{size - 1}")
        indices.extend(range(start, stop + 1))
    return tuple(indices)


def _check_indices(what: str, size: int, keep: tuple[int, ...]) -> None:
    whole = isinstance(size, int) and set(map(type, keep)) == {int}
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


def _from_json(value: dict[str, Any]) -> Plan:
    layers = {layer: (entry, int(entry["channels"])) for layer, entry in value["layers"].items()}
    kept = {layer: _named(layer, entry["kept"], size) for layer, (entry, size) in layers.items()}
    channels = {layer: size for layer, (_, size) in layers.items()}
    cuts = {
        name: {int(dim): Cut(cut["size"], _named(name, cut["keep"], cut["size"])) for dim, cut in by_dim.items()}
        for name, by_dim in value["cuts"].items()
    }
    total = sum(channels.values())
    sparsity = Sparsity(
        requested=float(value["sparsity"]["requested"]),
        removed=total - sum(map(len, kept.values())),
        channels=total,
        prunable=int(value["sparsity"]["prunable"]),
        measure=value["sparsity"]["measure"],
    )
    outputs = {
        layer: (str(entry["output"][0]), int(entry["output"][1]))
        for layer, (entry, _) in layers.items()
        if "output" in entry
    }
    settings, notes = value.get("settings", {}), value.get("notes", [])
    return Plan(kept, channels, cuts, sparsity, dict(settings), tuple(map(str, notes)), outputs)


def _named(entry: str, text: str, size: int) -> tuple[int, ...]:
    try:
        return parse_indices(text, size)
    except ValueError as error:
        raise ValueError(f"in {entry!r}, {error}") from error


def _check_outputs(plan: Plan) -> None:
    for layer, (name, dim) in plan.outputs.items():
        kept, size = plan.kept[layer], plan.channels[layer]
        cut = plan.cuts.get(name, {}).get(dim, Cut(size, tuple(range(size))))
        if (cut.size, cut.keep) != (size, kept):
            raise PlanMismatchError(
                f"layer {layer!r} keeps {format_indices(kept)} of {size}, but dimension {dim} of {name!r} keeps "
                f"{format_indices(cut.keep)} of {cut.size}. Edit both alike, and every other cut of those channels."
            )

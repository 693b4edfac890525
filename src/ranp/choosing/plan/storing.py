"""A plan as JSON text, and back: what comes from a file is believed only as far as it was checked."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from ranp.choosing.plan.classes import ChannelClasses
from ranp.choosing.plan.notation import format_classes, format_indices, parse_classes, parse_indices
from ranp.choosing.plan.value import Cut, Plan, Sparsity
from ranp.errors import PlanMismatchError, StorageError, brief
from ranp.files import atomic

FORMAT = "ranp-plan"
VERSION = 2

LARGEST = 1 << 26
"""Channels and indices that all layers and dimensions of a plan in a file may have together."""


def to_json(plan: Plan) -> str:
    """See ``Plan.to_json``."""
    sparsity, classes = plan.sparsity, _Classes.of(plan.classes)
    layers: dict[str, dict[str, Any]] = {}
    for layer, indices in plan.kept.items():
        layers[layer] = {"channels": plan.channels[layer], "kept": format_indices(indices)}
        if layer in classes.layers:
            layers[layer]["classes"] = classes.layers[layer]
    cuts: dict[str, dict[str, dict[str, Any]]] = {}
    for name, by_dim in plan.cuts.items():
        cuts[name] = {str(dim): {"size": cut.size, "keep": format_indices(cut.keep)} for dim, cut in by_dim.items()}
    uncut: dict[str, dict[str, str]] = {}
    for name in (*plan.cuts, *(name for name in classes.dims if name not in plan.cuts)):  # as it will be read again
        for dim, text in sorted(classes.dims.get(name, {}).items()):
            if dim in cuts.get(name, {}):
                cuts[name][dim]["classes"] = text
            else:
                uncut.setdefault(name, {})[dim] = text
    value = {
        "sparsity": {
            "requested": sparsity.requested,
            "measure": sparsity.measure,
            "achieved": sparsity.achieved,
            "removed": sparsity.removed,
            "channels": sparsity.channels,
            "prunable": sparsity.prunable,
        },
        "settings": plan.settings,
        "notes": list(plan.notes),
        "altered": plan.altered,
        "layers": layers,
        "cuts": cuts,
        "uncut": uncut,
        "equal": classes.equal,
        "coupling": classes.fingerprint,
    }
    return atomic.json_text(value, kind=FORMAT, version=VERSION, target="the plan")


def from_json(text: str, source: str) -> Plan:
    """See ``Plan.from_json``."""
    return _checked(atomic.parse_editable_json(text, kind=FORMAT, version=VERSION, source=source), source)


def load(path: str | os.PathLike[str]) -> Plan:
    """See ``Plan.load``."""
    return _checked(atomic.read_editable_json(path, kind=FORMAT, version=VERSION), repr(str(path)))


def _checked(content: tuple[dict[str, Any], bool], source: str) -> Plan:
    value, edited = content
    try:
        plan = _Reader(value, edited).plan()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise StorageError(f"{source} is not a valid plan: {reason}. Correct it, or make it again.") from error
    except PlanMismatchError as error:
        raise StorageError(f"{source} is not a valid plan: {error}") from error
    if edited and plan.cuts and not plan.classes:
        raise StorageError(
            f"{source} was edited and does not know which channels stand or fall together, so that nobody can tell "
            "whether it holds together. Restore it, or make it again."
        )
    return plan


class _Classes(NamedTuple):
    """The classes as texts: of layers, of dimensions, and of what must keep equal counts."""

    layers: dict[str, str]
    dims: dict[str, dict[str, str]]
    equal: list[list[str]]

    @classmethod
    def of(cls, classes: ChannelClasses) -> _Classes:
        known: dict[int, str] = {}  # many tensors share one tuple

        def text(numbers: tuple[int, ...]) -> str:
            if id(numbers) not in known:
                known[id(numbers)] = format_classes(numbers)
            return known[id(numbers)]

        return cls(
            {layer: text(of) for layer, of in classes.layers.items()},
            {name: {str(dim): text(of) for dim, of in by_dim.items()} for name, by_dim in classes.dims.items()},
            [list(map(text, entry)) for entry in classes.equal],
        )

    @property
    def fingerprint(self) -> str:
        """Of what the network is, not of what was decided about it: no edit of a plan may change it."""
        return atomic.seal(list(self))


class _Reader:
    """Reads the entries of a plan; sizes are added up before anything of that size is made."""

    def __init__(self, value: dict[str, Any], edited: bool) -> None:
        self.value, self.edited = value, edited
        self.room = LARGEST
        self.read: dict[tuple[str, int], tuple[int, ...]] = {}  # many tensors say the same

    def plan(self) -> Plan:
        kept: dict[str, tuple[int, ...]] = {}
        channels: dict[str, int] = {}
        of_layers: dict[str, tuple[int, ...]] = {}
        for layer, entry in _object(self.value["layers"], "'layers'").items():
            what = f"layer {layer!r}"
            size = channels[layer] = self.size(_object(entry, what)["channels"], what)
            kept[layer] = self.indices(entry["kept"], size, what)
            if "classes" in entry:
                of_layers[layer] = self.classes(entry["classes"], what)
        cuts: dict[str, dict[int, Cut]] = {}
        of_dims: dict[str, dict[int, tuple[int, ...]]] = {}
        for name, dim, entry in self.dimensions("cuts"):
            what = f"dimension {dim} of {name!r}"
            size = self.size(_object(entry, what)["size"], what)
            cuts.setdefault(name, {})[dim] = Cut(size, self.indices(entry["keep"], size, what))
            if "classes" in entry:
                of_dims.setdefault(name, {})[dim] = self.classes(entry["classes"], what)
        for name, dim, entry in self.dimensions("uncut"):
            if dim in cuts.get(name, {}):
                raise ValueError(f"dimension {dim} of {name!r} is both in 'cuts' and in 'uncut'")
            of_dims.setdefault(name, {})[dim] = self.classes(entry, f"dimension {dim} of {name!r}")
        equal = tuple(
            tuple(self.classes(text, "'equal'") for text in _list(entry, "an entry of 'equal'"))
            for entry in _list(self.value["equal"], "'equal'")
        )
        classes = ChannelClasses(of_layers, of_dims, equal)
        if self.value["coupling"] != _Classes.of(classes).fingerprint:
            raise ValueError(
                "its classes are not those it was made with: they say what the network is, and only "
                "'kept' and 'keep' may be edited"
            )
        altered, notes = self.value["altered"], _list(self.value["notes"], "'notes'")
        if type(altered) is not bool or not all(isinstance(note, str) for note in notes):
            raise ValueError("'altered' must be true or false, and 'notes' a list of texts")
        settings = _object(self.value["settings"], "'settings'")
        sparsity = self.sparsity(channels, kept)
        return Plan(kept, channels, cuts, sparsity, settings, tuple(notes), classes, altered or self.edited)

    def sparsity(self, channels: dict[str, int], kept: dict[str, tuple[int, ...]]) -> Sparsity:
        given, total = _object(self.value["sparsity"], "'sparsity'"), sum(channels.values())
        requested = given["requested"]
        if type(requested) not in (int, float):
            raise ValueError(f"'requested' is {brief(requested)}, not a number")
        removed = total - sum(map(len, kept.values()))
        return Sparsity(requested, removed, total, given["prunable"], given["measure"])

    def dimensions(self, section: str) -> list[tuple[str, int, Any]]:
        found = []
        for name, by_dim in _object(self.value[section], f"{section!r}").items():
            for dim, entry in _object(by_dim, f"{name!r} in {section!r}").items():
                if not (dim.isascii() and dim.isdigit() and len(dim) < 10 and str(int(dim)) == dim):
                    raise ValueError(f"{name!r} in {section!r} has a dimension {dim[:20]!r}, which is no number")
                found.append((name, int(dim), entry))
        return found

    def size(self, value: Any, what: str) -> int:
        if type(value) is not int or not 1 <= value <= LARGEST:
            raise ValueError(f"{what} has size {brief(value)}, not a whole number from 1 to {LARGEST}")
        self.spend(value)
        return value

    def spend(self, count: int) -> None:
        self.room -= count
        if self.room < 0:
            raise ValueError(f"its layers and tensors have more than {LARGEST} channels together")

    def indices(self, text: Any, size: int, what: str) -> tuple[int, ...]:
        return self.once((text, size), lambda: parse_indices(text, size), what)

    def classes(self, text: Any, what: str) -> tuple[int, ...]:
        numbers = self.once((text, 0), lambda: parse_classes(text, self.room), what)
        self.spend(len(numbers))
        return numbers

    def once(self, key: tuple[Any, int], parse: Callable[[], tuple[int, ...]], what: str) -> tuple[int, ...]:
        if not isinstance(key[0], str):
            raise ValueError(f"in {what}, {brief(key[0])} is not a text such as '0-15, 17'")
        if key not in self.read:
            try:
                self.read[key] = parse()
            except ValueError as error:
                raise ValueError(f"in {what}, {error}") from error
        return self.read[key]


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is {type(value).__name__} and not an object")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{what} is {type(value).__name__} and not a list")
    return value

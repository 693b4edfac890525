"""A plan as JSON text, and back: what comes from a file is believed only as far as it was checked."""

from __future__ import annotations

import os
from typing import Any

from ranp import files
from ranp.errors import PlanMismatchError, StorageError
from ranp.plan.classes import ChannelClasses
from ranp.plan.notation import format_classes, format_indices, parse_classes, parse_indices
from ranp.plan.value import Cut, Plan, Sparsity

FORMAT = "ranp-plan"
VERSION = 2

LARGEST = 1 << 26
"""Channels and indices that all layers and dimensions of a plan in a file may have together."""


def to_json(plan: Plan) -> str:
    """See ``Plan.to_json``."""
    sparsity, classes = plan.sparsity, plan.classes
    layers: dict[str, dict[str, Any]] = {}
    for layer, indices in plan.kept.items():
        layers[layer] = {"channels": plan.channels[layer], "kept": format_indices(indices)}
        if layer in classes.layers:
            layers[layer]["classes"] = format_classes(classes.layers[layer])
    cuts: dict[str, dict[str, dict[str, Any]]] = {}
    for name, by_dim in plan.cuts.items():
        cuts[name] = {str(dim): {"size": cut.size, "keep": format_indices(cut.keep)} for dim, cut in by_dim.items()}
    uncut: dict[str, dict[str, str]] = {}
    for name, numbers in classes.dims.items():
        for dim, of in numbers.items():
            if str(dim) in cuts.get(name, {}):
                cuts[name][str(dim)]["classes"] = format_classes(of)
            else:
                uncut.setdefault(name, {})[str(dim)] = format_classes(of)
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
        "equal": [list(map(format_classes, entry)) for entry in classes.equal],
        "coupling": _fingerprint(classes),
    }
    return files.json_text(value, kind=FORMAT, version=VERSION, target="the plan")


def from_json(text: str, source: str) -> Plan:
    """See ``Plan.from_json``."""
    return _checked(files.parse_editable_json(text, kind=FORMAT, version=VERSION, source=source), source)


def load(path: str | os.PathLike[str]) -> Plan:
    """See ``Plan.load``."""
    return _checked(files.read_editable_json(path, kind=FORMAT, version=VERSION), repr(str(path)))


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


def _fingerprint(classes: ChannelClasses) -> str:
    """What the network is, not what was decided about it: no edit of a plan may change it."""
    dims = {name: {str(dim): format_classes(of) for dim, of in dims.items()} for name, dims in classes.dims.items()}
    layers = {layer: format_classes(of) for layer, of in classes.layers.items()}
    return files.seal([layers, dims, [list(map(format_classes, entry)) for entry in classes.equal]])


class _Reader:
    """Reads the entries of a plan; sizes are added up before anything of that size is made."""

    def __init__(self, value: dict[str, Any], edited: bool) -> None:
        self.value, self.edited = value, edited
        self.room = LARGEST
        self.read: dict[str, tuple[int, ...]] = {}  # many tensors say the same

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
        if self.value["coupling"] != _fingerprint(classes):
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
        told, total = _object(self.value["sparsity"], "'sparsity'"), sum(channels.values())
        requested = told["requested"]
        if type(requested) not in (int, float):
            raise ValueError(f"'requested' is {requested!r}, not a number")
        removed = total - sum(map(len, kept.values()))
        return Sparsity(requested, removed, total, told["prunable"], told["measure"])

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
            raise ValueError(f"{what} has size {value!r}, not a whole number from 1 to {LARGEST}")
        self.spend(value)
        return value

    def spend(self, count: int) -> None:
        self.room -= count
        if self.room < 0:
            raise ValueError(f"its layers and tensors have more than {LARGEST} channels together")

    def indices(self, text: Any, size: int, what: str) -> tuple[int, ...]:
        try:
            return parse_indices(_text(text), size)
        except ValueError as error:
            raise ValueError(f"in {what}, {error}") from error

    def classes(self, text: Any, what: str) -> tuple[int, ...]:
        try:
            known = self.read.get(_text(text))
            if known is None:
                known = self.read[text] = parse_classes(text, self.room)
        except ValueError as error:
            raise ValueError(f"in {what}, {error}") from error
        self.spend(len(known))
        return known


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is {type(value).__name__} and not an object")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{what} is {type(value).__name__} and not a list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text such as '0-15, 17'")
    return value

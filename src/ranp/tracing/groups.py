"""Groups of layers whose channels stand or fall together: which layers, through what, and what must stay why.

A run only notes which labels became one class, and in which operator. Here, when somebody asks, these notes become an
answer for people: of all that was united, what lies on a way from one output channel of a layer to another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ranp.tables import Grid
from ranp.tracing.labels import FILLER, RIGID, Classes, LabelSpace, Vector

if TYPE_CHECKING:
    from ranp.tracing.trace import Layer, Pin, Trace

DEPTHWISE, SHARED, GROUPED = "depthwise convolution", "shared input of", "groups of"
_NAMES = 6


@dataclass(frozen=True, slots=True)
class Join:
    """What makes channels of two layers, or several of one layer, stand or fall together.

    Attributes:
        operator: An operator that they meet in, or what they have in common.
        where: Module in which that is; empty for the network's own code.
    """

    operator: str
    where: str = ""

    def __str__(self) -> str:
        if self.operator in (SHARED, GROUPED):
            return f"{self.operator} {self.where}"
        return f"{self.operator} in {self.where}" if self.where else self.operator


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share classes of channels, directly or through others.

    Attributes:
        layers: Their names, in layer order.
        channels: Output channels of these layers.
        prunable: How many of these may go.
        classes: Sets of channels that stand or fall together: what there is to choose from.
        through: What joins the channels, in the order in which it ran. Empty if nothing does.
        equal: Why parts of the channels must keep equally many, if they must.
        norms: Norms and other modules whose tensors are cut with the channels.
        readers: Layers that read the channels, and are cut along their inputs.
        pins: Why channels must stay, the commonest cause first.
    """

    layers: tuple[str, ...]
    channels: int
    prunable: int
    classes: int
    through: tuple[Join, ...] = ()
    equal: tuple[Join, ...] = ()
    norms: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    pins: tuple[Pin, ...] = ()

    def __str__(self) -> str:
        text = f"{self.prunable:,} of {self.channels:,} channels of {listed(self.layers)} can go"
        joined = f", joined by {places(self.through)}" if self.through else ""
        equal = f", equally many for {places(self.equal)}" if self.equal else ""
        pinned = "".join(f"; {pin.channels:,} must stay: {pin}" for pin in self.pins)
        return text + joined + equal + pinned


@dataclass(frozen=True, slots=True)
class Links:
    """What the runs noted about how labels became one class, as far as a trace needs it to explain itself."""

    space: LabelSpace
    classes: Classes
    outputs: Mapping[str, Vector] = field(default_factory=dict)
    """Layer -> labels of its output channels."""
    inputs: Mapping[str, Vector] = field(default_factory=dict)
    """Layer -> labels of the input channels of its weight."""

    def joins(self, layers: Iterable[Layer]) -> dict[int, dict[Join, None]]:
        """Root of a class -> what joins output channels of layers in it."""
        known = {layer.name: layer for layer in layers}
        unions = [*zip(self.space.left, self.space.right, strict=True)]
        names = [Join("a width in an attribute")] * len(unions)
        for start, stop, operator, where in self.space.sources:
            names[start:stop] = [self._named(operator, where, known)] * (stop - start)
        for wish in self.classes.coupled:
            unions += [(wish.pieces[0], piece) for piece in wish.pieces[1:]]
            names += [Join(wish.reason, wish.where)] * (len(wish.pieces) - 1)
        if not unions:
            return {}
        one, other = (np.concatenate([pair[side] for pair in unions]) for side in (0, 1))
        number = np.repeat(np.arange(len(unions)), [len(pair[0]) for pair in unions])
        edges = np.stack([np.minimum(one, other), np.maximum(one, other), number])
        edges = edges[:, (edges[0] > RIGID) & (edges[0] != edges[1])]
        made = np.zeros(self.space.size, bool)
        for labels in self.outputs.values():
            made[labels] = True
        edges = self._between(edges, made)
        reader = np.full(self.space.size, -1)
        readers = list(self.inputs)
        for index, name in enumerate(readers):
            reader[self.inputs[name]] = index
        reader[made] = -1
        found: dict[int, dict[Join, None]] = {}
        shared = np.maximum(reader[edges[0]], reader[edges[1]])
        kinds = np.unique(np.stack([edges[2], shared, self.classes.roots[edges[0]]]), axis=1)
        for at, index, root in kinds.T.tolist():
            join = names[at]
            if index >= 0:
                join = Join(GROUPED if known[readers[index]].groups > 1 else SHARED, readers[index])
            found.setdefault(root, {})[join] = None
        return found

    @staticmethod
    def _between(edges: Vector, made: Vector) -> Vector:
        """The edges that lie between output channels of layers: ends that are none are taken off, again and again."""
        while True:
            pairs = np.unique(edges[:2], axis=1)
            degree = np.bincount(pairs.reshape(-1), minlength=len(made))
            loose = (degree == 1) & ~made
            stays = ~(loose[edges[0]] | loose[edges[1]])
            if stays.all():
                return edges
            edges = edges[:, stays]

    @staticmethod
    def _named(operator: str, where: str, layers: Mapping[str, Layer]) -> Join:
        if where in layers and not layers[where].votes:
            return Join(DEPTHWISE, where)
        if operator.startswith("_scaled_dot_product"):
            return Join("attention", where)
        return Join(operator.strip("_").removeprefix("native_"), where)


def groups_of(trace: Trace) -> tuple[Group, ...]:
    """Every layer in one group, in layer order: see ``Trace.groups``."""
    links = trace.links
    homes: dict[int, int] = {}  # mark of a class of channels -> group
    parts: dict[int, list[int]] = {}
    for index, layer in enumerate(trace.layers):
        if links is None:
            marks = layer.classes[layer.classes != 0]
        else:
            marks = links.classes.roots[links.outputs.get(layer.name, np.zeros(0, np.int64))]
            marks = marks[(marks != FILLER) & (marks != links.classes.roots[RIGID])]
        mine = np.unique(marks).tolist()
        parts[index] = [index]
        for old in {homes[mark] for mark in mine if mark in homes}:
            parts[index] += parts.pop(old)
            homes.update({mark: index for mark, home in homes.items() if home == old})
        homes.update(dict.fromkeys(mine, index))
    members = {index: [trace.layers[at] for at in sorted(found)] for index, found in parts.items()}
    joins: dict[int, dict[Join, None]] = {}
    equal: dict[int, dict[Join, None]] = {}
    if links is not None:
        for root, found in links.joins(trace.layers).items():
            if root in homes:
                joins.setdefault(homes[root], {}).update(found)
        in_pieces = [np.zeros(0, np.int64), *(piece for entry in trace.pieces for piece in entry)]
        ranked = np.isin(links.classes.ids, np.concatenate(in_pieces))
        for wish in links.space.equal_counts:
            labels = np.concatenate(wish.pieces)
            for root in np.unique(links.classes.roots[labels[ranked[labels]]]).tolist():
                if root in homes:
                    equal.setdefault(homes[root], {})[Join(wish.reason, wish.where)] = None
    cut = _cut_with(trace, members)
    return tuple(
        Group(
            layers=tuple(layer.name for layer in found),
            channels=sum(layer.channels for layer in found),
            prunable=sum(int(np.count_nonzero(layer.classes)) for layer in found),
            classes=len(np.unique(np.concatenate([layer.classes[layer.classes != 0] for layer in found]))),
            through=tuple(joins.get(index, ())),
            equal=tuple(equal.get(index, ())),
            norms=tuple(cut[index][0]),
            readers=tuple(cut[index][1]),
            pins=summed(pin for layer in found for pin in layer.pins),
        )
        for index, found in sorted(members.items(), key=lambda item: min(parts[item[0]]))
    )


def _cut_with(trace: Trace, members: Mapping[int, list[Layer]]) -> dict[int, tuple[dict[str, None], dict[str, None]]]:
    """Group -> the modules that are no layers and the layers that are cut with its channels."""
    known = [*trace.dims.values(), *(layer.classes for layer in trace.layers)]
    home = np.full(1 + max((int(ids.max()) for ids in known if ids.size), default=0), -1)
    own: dict[tuple[str, int], None] = {}
    for index, found in members.items():
        for layer in found:
            home[layer.classes[layer.classes != 0]] = index
            own[layer.weight, layer.out_dim] = None
    modules = {layer.weight.rpartition(".")[0] for layer in trace.layers if layer.kind != "parameter"}
    reading = {(layer.weight, layer.in_dim): layer.name for layer in trace.layers}
    cut: dict[int, tuple[dict[str, None], dict[str, None]]] = {index: ({}, {}) for index in members}
    for (name, dim), ids in trace.dims.items():
        owner = name.rpartition(".")[0]
        for index in np.unique(home[ids]).tolist():
            if index < 0 or (name, dim) in own:
                continue
            if (name, dim) in reading:
                cut[index][1][reading[name, dim]] = None
            elif owner not in modules:
                cut[index][0][owner or name] = None
    return cut


def summed(pins: Iterable[Pin]) -> tuple[Pin, ...]:
    """The pins with the channels of equal ones added up, the commonest first."""
    counted: Counter[Pin] = Counter()
    for pin in pins:
        counted[replace(pin, channels=0)] += pin.channels
    return tuple(replace(pin, channels=count) for pin, count in counted.most_common())


def parts(trace: Trace) -> list[str | Grid]:
    """A trace for people: a table with one row for each group, and a line above and below."""
    groups = trace.groups()
    rows = [("channels", "can go", "layers", "joined by", "must stay")]
    for group in groups:
        causes = _by_cause(group.pins)
        joined = [places(group.through)] if group.through else []
        joined += [f"equally many: {places(group.equal)}"] if group.equal else []
        rows.append((f"{group.channels:,}", f"{group.prunable:,}", listed(group.layers), "; ".join(joined), causes))
    return [
        f"{len(trace.layers)} layers in {len(groups)} groups; {trace.prunable:,} of {trace.channels:,} channels can go",
        Grid(rows, left=(2, 3, 4)),
        *([f"must stay: {_by_cause(trace.pins)}"] if trace.pins else []),
        *([f"without a rule: {', '.join(trace.unknown)}"] if trace.unknown else []),
    ]


def _by_cause(pins: Iterable[Pin]) -> str:
    counted: Counter[str] = Counter()
    for pin in pins:
        counted[pin.cause.value] += pin.channels
    return ", ".join(f"{count:,} {cause}" for cause, count in counted.most_common())


def places(joins: Iterable[Join]) -> str:
    """Joins for a line of text, those in modules that differ by numbers alone as one.

    >>> places([Join("add", "blocks.0"), Join("add", "blocks.1"), Join("cat")])
    'add in blocks.* (2), cat'
    """
    counted = Counter(str(replace(join, where=pattern(join.where))) for join in joins)
    alone = {str(replace(join, where=pattern(join.where))): str(join) for join in joins}
    return _shortened([alone[text] if count == 1 else f"{text} ({count})" for text, count in counted.items()])


def pattern(name: str) -> str:
    """A module name with its numbers left open.

    >>> pattern("layers.3.conv.0")
    'layers.*.conv.*'
    """
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def listed(names: Iterable[str]) -> str:
    """Layer names for a line of text: those that differ by numbers alone as one pattern, the rest one by one.

    >>> listed(["head", "blocks.0.conv", "blocks.1.conv"])
    'head, blocks.*.conv (2 layers)'
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        key = pattern(name)
        groups.setdefault(key if key.strip("*.") else name, []).append(name)
    shown = [found[0] if len(found) == 1 else f"{key} ({len(found)} layers)" for key, found in groups.items()]
    return _shortened(shown)


def _shortened(parts: list[str]) -> str:
    more = [f"{len(parts) - _NAMES} more"] if len(parts) > _NAMES else []
    return ", ".join([*parts[:_NAMES], *more])

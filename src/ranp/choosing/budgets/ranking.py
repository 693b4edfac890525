"""The ranking of a method as steps by which a network grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ranp.choosing.coupling import ALWAYS, Coupling
from ranp.choosing.scopes import SCOPES
from ranp.choosing.selection import Selection
from ranp.choosing.ties import needs
from ranp.tracing.layout import Flags, Floats, Ints
from ranp.tracing.trace import PINNED


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The steps of a ranking, in order.

    Attributes:
        classes: Classes of all steps, one step after the other.
        starts: First entry of each step, and the number of entries at the end.
        families: Family of each step.
    """

    classes: Ints
    starts: Ints
    families: Ints

    def __len__(self) -> int:
        return len(self.families)

    def of(self, step: int) -> Ints:
        """Classes of one step."""
        return self.classes[self.starts[step] : self.starts[step + 1]]

    @classmethod
    def of_needs(cls, need: Floats, families: Ints, after: float) -> Steps:
        """Steps by rising need, those above ``after``; what is never needed is in none."""
        member = np.flatnonzero((need > after) & np.isfinite(need) & (families >= 0))
        order = member[np.lexsort((member, families[member], need[member]))]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (need[order][1:] != need[order][:-1]) | (families[order][1:] != families[order][:-1])
        starts = np.flatnonzero(new)
        return cls(order, np.append(starts, len(order)), families[order][starts])

    def added(self, stays: Flags, count: int) -> Flags:
        """The network with the first ``count`` steps taken."""
        grown: Flags = stays.copy()
        grown[self.classes[: self.starts[count]]] = True
        return grown

    def after(self, count: int) -> Steps:
        """The steps after the first ``count``."""
        begin = int(self.starts[count])
        return Steps(self.classes[begin:], self.starts[count:] - begin, self.families[count:])

    def without(self, step: int) -> Steps:
        """The steps after this one, but for the rest of its family."""
        left: Flags = self.families != self.families[step]
        left[: step + 1] = False
        sizes = np.diff(self.starts)
        starts = np.concatenate([[0], np.cumsum(sizes[left])]).astype(np.int64)
        return Steps(self.classes[np.repeat(left, sizes)], starts, self.families[left])


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """A network as the number of steps that each family has taken, so that single steps can be taken or taken back.

    Attributes:
        stays: One flag per class.
        steps: Classes of the steps of each family, in their order.
        taken: How many of them stay.
    """

    stays: Flags
    steps: Mapping[int, tuple[Ints, ...]]
    taken: Mapping[int, int]

    @classmethod
    def of(cls, selection: Selection, stays: Flags, smallest: Flags) -> Ladder:
        """The ladder of a network; a family that has not taken its steps in their order is left as it is."""
        families = families_of(selection.coupling)
        if selection.fixed is not None:
            need = selection.fixed[1].kept
        else:
            need = by_score(selection, stays)
            smallest = _first(need, families, smallest)
        every = Steps.of_needs(np.where(smallest, ALWAYS, need), families, ALWAYS)
        steps: dict[int, list[Ints]] = {}
        for number in range(len(every)):
            steps.setdefault(int(every.families[number]), []).append(every.of(number))
        ordered: dict[int, tuple[Ints, ...]] = {}
        taken: dict[int, int] = {}
        for family, own in steps.items():
            held = [bool(stays[classes].all()) for classes in own]
            if held == sorted(held, reverse=True):
                ordered[family], taken[family] = tuple(own), sum(held)
        return cls(stays, ordered, taken)

    def next_steps(self) -> list[tuple[int, Ints]]:
        """Families with steps left, and the next of each."""
        return [(family, own[self.taken[family]]) for family, own in self.steps.items() if self.left(family)]

    def takes_back(self) -> list[int]:
        """Families with a step that can be taken back."""
        return [family for family, count in self.taken.items() if count]

    def left(self, family: int) -> int:
        """How many steps a family has left."""
        return len(self.steps[family]) - self.taken[family]

    def moved(self, move: Mapping[int, int]) -> Flags:
        """The network with so many steps more of some families, or less (below 0)."""
        stays: Flags = self.stays.copy()
        for family, count in move.items():
            at = self.taken[family]
            for classes in self.steps[family][min(at, at + count) : max(at, at + count)]:
                stays[classes] = count > 0
        return stays

    def after(self, move: Mapping[int, int]) -> Ladder:
        """The ladder of that network."""
        taken = {family: count + move.get(family, 0) for family, count in self.taken.items()}
        return replace(self, stays=self.moved(move), taken=taken)


def _first(need: Floats, families: Ints, smallest: Flags) -> Flags:
    """As many classes of each family as the smallest network has, the first ones in that order."""
    least: Flags = smallest & (families < 0)
    for family in np.unique(families[smallest & (families >= 0)]).tolist():
        own = np.flatnonzero(families == family)
        least[own[np.argsort(need[own], kind="stable")][: np.count_nonzero(smallest[own])]] = True
    return least


def families_of(coupling: Coupling) -> Ints:
    """Family of each class: its block, or what it must stay equal with; -1 for what is kept anyway."""
    families: Ints = coupling.block.copy()
    first = int(families.max(initial=-1)) + 1
    for number, entry in enumerate(coupling.layout.pieces):
        members = np.concatenate(entry)
        families[members] = np.where(coupling.block[members] >= 0, first + number, -1)
    return families


def finest(selection: Selection) -> Floats:
    """When each class comes by its score alone, with widths neither bounded nor rounded."""
    coupling = selection.coupling
    order = SCOPES.get("network").order(coupling, 0.0, selection.seed)
    return needs(coupling, order.levels, order.priority, selection.rule).kept


def by_score(selection: Selection, stays: Flags) -> Floats:
    """The same, but what stays comes first; pieces that stay equal grow together, and rounded counts never."""
    if selection.round_to > 1:
        return np.full(selection.coupling.size, np.inf)
    need = finest(selection)
    need = np.where(stays, need, need + need[np.isfinite(need)].max(initial=0.0))
    for entry in selection.coupling.layout.pieces:
        total = np.concatenate(entry)
        if len({len(members) for members in entry}) > 1 or (total == PINNED).any():
            need[total[total != PINNED]] = np.inf
            continue
        ranked = np.stack([np.asarray(members)[np.argsort(need[members], kind="stable")] for members in entry])
        need[ranked] = need[ranked].max(axis=0)
    return need


def named(coupling: Coupling, classes: Ints) -> str:
    """Channels in words: how many of which layers."""
    position = np.flatnonzero(np.isin(coupling.classes, classes))
    found, counts = np.unique(coupling.layout.layer[position], return_counts=True)
    first = coupling.trace.layers[int(found[0])].name
    others = f" and of {len(found) - 1} coupled layer{'s' if len(found) > 2 else ''}" if len(found) > 1 else ""
    return f"{int(counts[0])} channel{'s' if counts[0] > 1 else ''} of {first!r}{others}"

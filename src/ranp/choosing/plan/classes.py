"""Which channels of a plan stand or fall together, and whether all that it says about them agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ranp.choosing.plan.notation import format_classes, shown
from ranp.errors import PlanMismatchError

if TYPE_CHECKING:
    from ranp.choosing.plan.value import Plan

Numbers = tuple[int, ...]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ChannelClasses:
    """The class of each index: 0 = must stay, any other number = stays or goes with all indices of that number.

    Empty if nobody knows: then nothing is checked, and nothing can be edited.

    Attributes:
        layers: Layer name to the class of each of its output channels; layers that must stay whole are not in it.
        dims: Tensor name to dimension to the class of each index, for every dimension that can be cut, cut or not.
        equal: Each entry holds sets of classes of which equally many must stay (grouped convolution, GroupNorm).
    """

    layers: Mapping[str, Numbers] = field(default_factory=dict)
    dims: Mapping[str, Mapping[int, Numbers]] = field(default_factory=dict)
    equal: tuple[tuple[Numbers, ...], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", {layer: tuple(numbers) for layer, numbers in self.layers.items()})
        dims = {name: {dim: tuple(of) for dim, of in by_dim.items()} for name, by_dim in self.dims.items() if by_dim}
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "equal", tuple(tuple(map(tuple, entry)) for entry in self.equal))

    def __bool__(self) -> bool:
        return bool(self.layers or self.dims)


class Place(NamedTuple):
    """A layer, or a dimension of a tensor: its words, the class of each index, and which of them stay."""

    name: str
    classes: npt.NDArray[np.int64]
    stays: Flags


def choice(plan: Plan) -> Flags:
    """Of every class whether it stays.

    Raises:
        PlanMismatchError: A layer or a cut has no classes, or two places disagree about one; the message names both.
    """
    places = list(_places(plan))
    numbers = np.concatenate([place.classes for place in places])
    flags = np.concatenate([place.stays for place in places])
    for number in (int(numbers.min()), int(numbers.max())):
        if not 0 <= number <= len(numbers):
            raise PlanMismatchError(
                f"a class has number {number}. Number the classes from 1 on, without gaps; 0 is what must stay."
            )
    size = int(numbers.max()) + 1
    there, kept = np.bincount(numbers, minlength=size), np.bincount(numbers, flags, minlength=size)
    at_odds = kept < there
    at_odds[1:] &= kept[1:] > 0
    if at_odds.any():
        raise PlanMismatchError(_conflict(plan, places, int(np.argmax(at_odds))))
    stays: Flags = kept > 0
    stays[0] = True
    return stays


def check(plan: Plan) -> None:
    """Refuses a plan in which two places disagree about a class, or sets of classes keep unequal counts.

    Raises:
        PlanMismatchError: The message names the places, the class, what each says, and the remedy.
    """
    stays = choice(plan)
    for entry in plan.classes.equal:
        if any(not 0 <= number < len(stays) for numbers in entry for number in numbers):
            raise PlanMismatchError("classes that must keep equal counts are of no layer. Make the plan again.")
        counts = [int(np.count_nonzero(stays[list(numbers)])) for numbers in entry]
        if len(set(counts)) > 1 and counts != list(map(len, entry)):  # what is whole is right as it is
            other = next(index for index, count in enumerate(counts) if count != counts[0])
            members = {number for numbers in entry for number in numbers} - {0}
            layers = [layer for layer, numbers in plan.classes.layers.items() if members & set(numbers)]
            raise PlanMismatchError(
                f"of classes {format_classes(entry[0])} the plan keeps {counts[0]}, of classes "
                f"{format_classes(entry[other])} it keeps {counts[other]}, but equally many must stay (grouped "
                f"convolution, group norm or chunk; layers {', '.join(map(repr, layers))}). Keep as many of each."
            )


def _places(plan: Plan) -> Iterator[Place]:
    """Layers first, then every dimension that can be cut, with what the plan says of them."""
    arrays: dict[int, npt.NDArray[np.int64]] = {}
    seen: set[tuple[int, int]] = set()  # many places share both tuples, and so say the same

    def place(name: str, classes: Numbers, size: int, keep: Numbers | None) -> Iterator[Place]:
        if len(classes) != size:
            raise PlanMismatchError(f"{name} has size {size} but {len(classes)} classes. Make the plan again.")
        if (id(classes), id(keep)) in seen:
            return
        seen.add((id(classes), id(keep)))
        if id(classes) not in arrays:
            arrays[id(classes)] = np.asarray(classes, dtype=np.int64)
        stays = np.full(size, keep is None)
        if keep is not None:
            stays[list(keep)] = True
        yield Place(name, arrays[id(classes)], stays)

    known = plan.classes
    for layer, size in plan.channels.items():
        if layer in known.layers:
            yield from place(f"layer {layer!r}", known.layers[layer], size, plan.kept[layer])
        elif len(plan.kept[layer]) < size:
            raise PlanMismatchError(f"layer {layer!r} keeps {shown(plan.kept[layer])} of {size}, but must stay whole.")
    for layer in known.layers.keys() - plan.channels.keys():
        raise PlanMismatchError(f"there are classes of layer {layer!r}, which the plan does not have.")
    for name, by_dim in known.dims.items():
        for dim, classes in by_dim.items():
            cut = plan.cuts.get(name, {}).get(dim)
            size, keep = (len(classes), None) if cut is None else (cut.size, cut.keep)
            yield from place(f"dimension {dim} of {name!r}", classes, size, keep)
    for name, cuts in plan.cuts.items():
        for dim in cuts.keys() - known.dims.get(name, {}).keys():
            raise PlanMismatchError(f"dimension {dim} of {name!r} is cut, but must stay whole. Take that cut out.")


def _conflict(plan: Plan, places: list[Place], number: int) -> str:
    """The sentence for a class that one place keeps and another removes, or that must stay."""
    keeper = remover = ""
    for place in places:
        here = place.classes == number
        for stays in (True, False):
            found = np.flatnonzero(here & (place.stays == stays))
            if len(found):
                said = f"{place.name} keeps {shown(np.flatnonzero(place.stays).tolist())} of {len(here)}"
                said += f", {'with' if stays else 'without'} {found[0]}"
                keeper, remover = (keeper or said, remover) if stays else (keeper, remover or said)
    if number == 0:
        return f"{remover}, which must stay. Keep it."
    layer = next((name for name, numbers in plan.classes.layers.items() if number in numbers), "...")
    return (
        f"{remover}, but {keeper}: both are class {number} and stand or fall together. "
        f"Move all of that class with plan.edited(layer={layer!r}, keep=...) or 'ranp plan edit'."
    )

"""Scopes: what a sparsity is a share of, and in which order channels are granted until it is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor, inf, nextafter
from typing import TYPE_CHECKING, Any

import numpy as np

from ranp import arguments
from ranp.choosing.coupling import ALWAYS, Coupling
from ranp.errors import DataError, PlanMismatchError, UnsupportedError
from ranp.registry import Registry
from ranp.tracing.layout import Flags, Floats, Ints
from ranp.tracing.trace import Trace

if TYPE_CHECKING:
    from ranp.scoring.scores import Scores

ROUNDING = 1e-9
"""Guards a count against float error: ``n * (1 - (1 - c / n))`` falls below ``c`` for one ``c`` in five."""


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The order in which channels are granted.

    Attributes:
        levels: For each position, the budget from which on it is granted.
        priority: For each position, how much it deserves to stay when a block keeps fewer than all.
        budget: From a sparsity to a budget; never rises with the sparsity.
        sparsity: From a budget to the largest sparsity that reaches it, up to rounding.
    """

    levels: Floats
    priority: Floats
    budget: Callable[[float], float]
    sparsity: Callable[[float], float]

    def largest(self, budget: float) -> float:
        """A sparsity in [0, 1) that is sure to reach ``budget``, as large as rounding allows."""
        sparsity = min(max(self.sparsity(budget), 0.0), nextafter(1.0, 0.0))
        step = 2.0**-53
        while sparsity > 0 and self.budget(sparsity) < budget:
            sparsity, step = max(sparsity - step, 0.0), 2 * step
        return sparsity


@dataclass(frozen=True, slots=True)
class Scope:
    """What a sparsity is a share of.

    Attributes:
        name: Its name.
        order: ``(coupling, sparsity, seed) -> Order``.
        steps: ``coupling ->`` how many different sparsities there are: the resolution of a search.
        nested: True if ``order`` is the same for every sparsity, which makes searches closed forms.
        shape: For a scope that says how wide layers are: from the coupling and the price of each class to the order.
            Budgets keep to these widths as nearly as they can be used.
        priced: True if the prices matter; they follow from a budget, so that it does not work with a sparsity.
    """

    name: str
    order: Callable[[Coupling, float, int], Order]
    steps: Callable[[Coupling], int]
    nested: bool = True
    shape: Callable[[Coupling, Floats], Order] | None = None
    priced: bool = False


Wanted = Callable[["Scores", Trace, float], Mapping[str, Any]]
"""A scope of your own: ``(scores, trace, sparsity) -> {layer: one flag per channel, True = granted}``.

It should grant a subset at a higher sparsity of what it grants at a lower one.
"""

SCOPES: Registry[Scope] = Registry("scope")


def resolve(scope: str | Scope | Wanted) -> Scope:
    """The scope of that name, the scope itself, or one made of a function.

    Raises:
        UnsupportedError: No such name, or neither a name, a ``Scope`` nor a function.
    """
    if isinstance(scope, Scope):
        return scope
    if isinstance(scope, str):
        return SCOPES.get(scope)
    if not callable(scope):
        raise UnsupportedError(
            f"scope={arguments.shown(scope)} is not a scope. Pass a name ({', '.join(SCOPES)}) or a function."
        )
    return _from_function(scope)


def granted(coupling: Coupling, flags: Flags) -> Order:
    """The order that grants exactly the flagged positions; they also go first inside a block, then the score."""
    place = np.empty(len(flags))
    place[np.lexsort((coupling.score, flags))] = np.arange(len(flags))
    return Order(np.where(flags, 1.0, inf), place, lambda _: 1.0, lambda _: nextafter(1.0, 0.0))


def _network(coupling: Coupling, _sparsity: float, _seed: int) -> Order:
    """One threshold over all channels: exactly ``floor(n * (1 - sparsity))`` are granted, by layer order if equal.

    Deviation: the authors grant every score at or above the k-th; equal scores then grant more than k.
    """
    count = coupling.count
    position = np.flatnonzero(coupling.included)
    levels = np.full(len(coupling.score), ALWAYS)
    levels[position[_descending(coupling.score[position])]] = np.arange(1, count + 1)
    return Order(
        levels,
        coupling.score,
        lambda sparsity: floor(count * (1 - sparsity) + ROUNDING),
        lambda budget: 1 - budget / max(count, 1),
    )


def _descending(score: Floats) -> Ints:
    """The positions from the highest score to the lowest, equal ones in their order.

    A stable sort is several times slower than one that is not, and differs only where scores are equal.
    """
    order = np.argsort(-score)
    ranked = score[order]
    return np.argsort(-score, kind="stable") if np.any(ranked[1:] == ranked[:-1]) else order


def _layer(coupling: Coupling, _sparsity: float, _seed: int) -> Order:
    """The same share of every layer: ``ceil(n_l * (1 - sparsity))`` of its channels, the highest scores."""
    order = np.lexsort((-coupling.score, coupling.layout.layer))
    levels = np.empty(len(order))
    place = np.arange(len(order)) - coupling.layout.starts[coupling.layout.layer[order]]
    sizes = np.diff(coupling.layout.starts)[coupling.layout.layer[order]]
    levels[order] = place / sizes + ROUNDING  # equal shares of different layers are exactly equal
    return Order(levels, coupling.score, lambda sparsity: 1 - sparsity, lambda budget: 1 - budget)


def _random(coupling: Coupling, _sparsity: float, seed: int) -> Order:
    """Removes ``floor(n * sparsity)`` channels drawn from all of them, whatever their scores.

    The paper's recipe: ``numpy``'s legacy generator, whose draw of m is the beginning of its draw of m + 1.
    """
    count = coupling.count
    position = np.flatnonzero(coupling.included)
    levels = np.full(len(coupling.score), ALWAYS)
    gone_first = np.random.RandomState(seed % 2**32).choice(count, count, replace=False) if count else position
    levels[position[gone_first]] = np.arange(count, 0, -1)
    return Order(
        levels,
        -levels,
        lambda sparsity: count - floor(count * sparsity + ROUNDING),
        lambda budget: 1 - budget / max(count, 1),
    )


def _from_function(function: Wanted) -> Scope:
    name = getattr(function, "__name__", type(function).__name__)

    def order(coupling: Coupling, sparsity: float, _seed: int) -> Order:
        with arguments.blamed(f"scope {name!r}"):
            given = function(coupling.scores, coupling.trace, sparsity)
        if not isinstance(given, Mapping):
            raise DataError(
                f"scope {name!r} returned {arguments.shown(given)}; flags for every layer are needed. "
                "Return a mapping from layer names."
            )
        flags = []
        for layer in coupling.trace.layers:
            value = np.asarray(given.get(layer.name, ()), dtype=bool)
            if value.shape != (layer.channels,):
                raise PlanMismatchError(
                    f"scope {name!r} returned flags of shape {value.shape} for layer {layer.name!r}. "
                    f"Return one flag for each of its {layer.channels} channels."
                )
            flags.append(value)
        return granted(coupling, np.concatenate(flags) if flags else np.zeros(0, dtype=bool))

    return Scope(name, order, lambda coupling: coupling.count, nested=False)


def _channels(coupling: Coupling) -> int:
    return coupling.count


SCOPES.register("network", Scope("network", _network, _channels))
SCOPES.register("layer", Scope("layer", _layer, _channels))
SCOPES.register("random", Scope("random", _random, _channels))

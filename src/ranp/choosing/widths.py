"""Scopes that say how wide layers are relative to each other; the scores only decide which of their channels stay.

A layer of share s is granted its k-th best channel at level k / s, so that at level t it has t * s channels, at most
all. ``flat``: every share is 1. ``power``: the root of the full width. ``balanced``: the optimum of

    min sum_l a_l * w_l^(1 - alpha)   such that the costs of the widths w are within every budget,

where a_l = (V_l / V_max)^kappa and V_l is how many voxels the layer's output has. There the share of a layer is
(a_l / m_l)^(1 / alpha), m_l being what one more of its channels costs; the solver finds widths at which both agree.
The constants depend on whether the network's output is dense (a label for each voxel) or not (a classifier); what they
were chosen by stands in docs/evidence.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor

import numpy as np

from ranp.choosing.coupling import ALWAYS, Coupling
from ranp.choosing.scopes import ROUNDING, SCOPES, Order, Scope
from ranp.costs.layers import memory_by_layer
from ranp.tracing.layout import Floats
from ranp.tracing.trace import Cause, Trace

ALPHA, ALPHA_CLASSIFIER = 4.0, 2.0
"""How evenly widths are spread: 1 is not at all, infinity is flat; where the output is dense, and where it is not."""
KAPPA, KAPPA_CLASSIFIER = 0.5, 0.0
"""How much more a channel at a high resolution is worth."""
SPREAD = 0.5
"""How far random widths lie around flat ones: the standard deviation of their logarithm."""

Share = Callable[[Coupling, Floats], Floats]
"""``(coupling, price of each class of channels) -> share of each position``."""


def in_proportion(name: str, share: Share, *, priced: bool = False) -> Scope:
    """The scope that makes layers as wide as their shares say.

    Args:
        name: Its name.
        share: How wide the layer of each position is, relative to others.
        priced: Whether that depends on what channels cost, and so on a budget.
    """

    def shape(coupling: Coupling, prices: Floats) -> Order:
        levels: Floats = places(coupling) / share(coupling, prices)
        ranked, count = np.sort(levels[coupling.included]), coupling.count

        def budget(sparsity: float) -> float:
            granted = floor(count * (1 - sparsity) + ROUNDING)
            return float(ranked[granted - 1]) if granted > 0 else ALWAYS

        def sparsity(budget: float) -> float:
            return 1 - (int(np.searchsorted(ranked, budget)) + 1) / max(count, 1)

        return Order(levels, coupling.score, budget, sparsity)

    return Scope(
        name,
        lambda coupling, _sparsity, _seed: shape(coupling, np.ones(coupling.size)),
        lambda coupling: coupling.count,
        shape=shape,
        priced=priced,
    )


def places(coupling: Coupling) -> Floats:
    """The rank of every channel in its layer by score, from 1."""
    layout = coupling.layout
    order = np.lexsort((-coupling.score, layout.layer))
    place = np.empty(len(order))
    place[order] = np.arange(1, len(order) + 1) - layout.starts[layout.layer[order]]
    return place


def _flat(coupling: Coupling, _prices: Floats) -> Floats:
    return np.ones(len(coupling.classes))


def _power(coupling: Coupling, _prices: Floats) -> Floats:
    return np.sqrt(np.diff(coupling.layout.starts))[coupling.layout.layer]


def fair(worth: Callable[[Trace], Mapping[str, float]], alpha: float = ALPHA) -> Share:
    """Shares that solve the program above, for layers of which one channel is worth so much."""

    def share(coupling: Coupling, prices: Floats) -> Floats:
        by_layer = worth(coupling.trace)
        most = _largest(coupling, np.asarray([by_layer[layer.name] for layer in coupling.trace.layers]))
        shares: Floats = (most / prices)[coupling.classes] ** (1 / alpha)
        return shares

    return share


def _largest(coupling: Coupling, by_layer: Floats) -> Floats:
    """Of each class of channels that stand or fall together, the largest figure of their layers."""
    best = np.zeros(coupling.size)
    np.maximum.at(best, coupling.classes, by_layer[coupling.layout.layer])
    return best


def _balanced(coupling: Coupling, prices: Floats) -> Floats:
    return fair(worths, ALPHA if is_dense(coupling.trace) else ALPHA_CLASSIFIER)(coupling, prices)


def worths(trace: Trace, kappa: float = KAPPA) -> dict[str, float]:
    """What one channel of each layer is worth: a_l of the formula above."""
    voxels = _voxels(trace)
    power, most = kappa if is_dense(trace) else KAPPA_CLASSIFIER, max(voxels.values(), default=1.0)
    return {name: (count / most) ** power for name, count in voxels.items()}


def is_dense(trace: Trace) -> bool:
    """Whether a layer that makes an output has more than one voxel for each sample."""
    voxels = _voxels(trace)
    samples = trace.calls[0].input[0] if trace.calls and trace.calls[0].input else 1
    ends = [layer.name for layer in trace.layers if any(pin.cause is Cause.OUTPUT for pin in layer.pins)]
    return any(voxels[name] > samples for name in ends)


def _voxels(trace: Trace) -> dict[str, float]:
    elements = memory_by_layer(trace, "true")
    return {layer.name: max(elements[layer.name] / max(layer.channels, 1), 1.0) for layer in trace.layers}


def drawn(draw: int) -> Scope:
    """The scope of one random vector of widths: layers that are independent of each other draw their share each.

    Shares are log-normal around flat widths, with a standard deviation of ``SPREAD`` in the logarithm: what rules that
    claim to know better are measured against.
    """

    def share(coupling: Coupling, _prices: Floats) -> Floats:
        normal = np.random.default_rng(draw).standard_normal(len(coupling.trace.layers))
        return _largest(coupling, np.exp(SPREAD * normal))[coupling.classes]

    return in_proportion(f"widths-{draw}", share)


SCOPES.register("flat", in_proportion("flat", _flat))
SCOPES.register("power", in_proportion("power", _power))
SCOPES.register("balanced", in_proportion("balanced", _balanced, priced=True))

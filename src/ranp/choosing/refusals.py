"""Why channels must stay, and why a request to remove some is refused, in words."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np

from ranp.choosing.coupling import COUPLED, Coupling
from ranp.errors import asked
from ranp.tracing.trace import Layer


def why_kept(coupling: Coupling) -> dict[str, str]:
    """For each layer why channels of it are kept whatever their scores; empty if none are."""
    fixed = coupling.layout.by_layer(coupling.block[coupling.classes] < 0)
    found = {}
    for layer, flags in zip(coupling.trace.layers, fixed, strict=True):
        coupled = COUPLED if flags.all() else ""
        own = layer.reason or ("must stay" if layer.pinned else "")
        found[layer.name] = coupling.whole.get(layer.name) or own or coupled
    return found


def lost(coupling: Coupling, where: int) -> tuple[str, Layer]:
    """What loses all its channels, in words, and the layer that made them.

    Args:
        coupling: The channels.
        where: Number of the layer, or, counted on from there, of the dimension in ``Trace.dims``.
    """
    trace = coupling.trace
    if where < len(trace.layers):
        layer = trace.layers[where]
        return f"removes all {layer.channels} channels of {layer.name!r}", layer
    tensor, dim, classes = coupling.cuttable()[where - len(trace.layers)]
    layer = trace.layers[int(coupling.layout.layer[np.isin(coupling.classes, classes)][0])]
    return f"leaves nothing of dimension {dim} of {tensor!r}, {len(classes)} channels of {layer.name!r}", layer


def sparsity_too_high(coupling: Coupling, wish: float, where: int, largest: float) -> str:
    """The sentence for a sparsity at which something loses all its channels."""
    what, layer = lost(coupling, where)
    return (
        f"{asked('sparsity', wish)} {what}. The largest feasible sparsity here is {_rounded_down(largest)}. Lower it, "
        f"pass {asked('keep', [layer.name])}, or {asked('exact', True)}, so that every layer keeps a channel."
    )


def share_too_high(wish: float, largest: float) -> str:
    """The sentence for a share of the prunable channels that cannot go."""
    return (
        f"{asked('sparsity', wish)} with {asked('exact', True)} leaves some layers without a channel. The largest "
        f"feasible share of prunable channels here is {_rounded_down(largest)}. Lower it."
    )


def nothing_goes(coupling: Coupling, request: str) -> str:
    """The sentence for a request to remove something of a network that must keep everything, with the reasons."""
    held, reasons = Counter[str](), why_kept(coupling)
    for layer in coupling.trace.layers:
        if layer.name in coupling.whole or not layer.pins:
            held[reasons[layer.name]] += layer.channels
        for pin in () if layer.name in coupling.whole else layer.pins:
            held[str(replace(pin, where=""))] += pin.channels
    text = "; ".join(f"{count} channels: {why}" for why, count in held.most_common(3))
    return (
        f"{request} cannot be met: no channel of this network may be removed ({text}). Name fewer layers in "
        f"{asked('keep')}, or change the code that ranp.trace(model, example).pins names."
    )


def needs_budget(what: str) -> str:
    """The sentence for a sparsity with widths that follow from a budget."""
    return (
        f"{what} needs a budget: its widths follow from what channels cost. Pass {asked('budget', 'flops=5%')} instead "
        f"of {asked('sparsity')}."
    )


def _rounded_down(share: float) -> str:
    """Four digits, rounded down, but not by a float error: 0.34 must not become 0.3399."""
    return f"{math.floor(share * 1e4 + 1e-11) / 1e4:.4f}"

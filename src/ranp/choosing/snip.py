"""SNIP NP: prune single weights over the whole network, then see which channels are left (the scope ``weights``).

The paper's comparison with SNIP. A channel is granted if a weight survives that reads a living channel and somebody
reads the channel in turn; a granted channel is then dense.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import numpy as np
import numpy.typing as npt
import torch

from ranp.choosing.coupling import Coupling
from ranp.choosing.scopes import ROUNDING, SCOPES, Order, Scope, granted
from ranp.errors import PlanMismatchError
from ranp.tracing.layout import Flags, Ints
from ranp.tracing.trace import PINNED, Layer

Weights = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """Which weights of a layer survive, as links from input to output channels.

    Attributes:
        alive: ``(outputs, inputs per group)``, True where any weight of the kernel survives.
        reads: Class of each input, ``PINNED`` if it can never go.
    """

    alive: Flags
    reads: Ints


def by_weights(coupling: Coupling, sparsity: float, _seed: int) -> Order:
    """Grants the channels that live when the share ``sparsity`` of all single weights is gone."""
    links = surviving_links(coupling, sparsity)
    return granted(coupling, living(coupling, links))


def weight_count(coupling: Coupling) -> int:
    """Single weights that take part: those of all layers with per-weight scores."""
    return sum(coupling.scores.weights[layer.name].numel() for layer in _weighted(coupling))


def surviving_links(coupling: Coupling, sparsity: float) -> list[Links]:
    """Cuts all but the ``floor(N * (1 - sparsity))`` highest weights, by layer order if equal; one entry per layer.

    Rows of channels that are kept anyway (outputs, pinned, by request) stay whole.
    """
    weighted = _weighted(coupling)
    matrices = {layer.name: _matrix(coupling, layer) for layer in weighted}
    flat = np.concatenate([matrix.ravel() for matrix in matrices.values()])
    count = floor(len(flat) * (1 - sparsity) + ROUNDING)
    threshold, equal = np.inf, 0
    if count:
        threshold = np.partition(flat, len(flat) - count)[len(flat) - count]
        equal = count - int(np.count_nonzero(flat > threshold))
    del flat

    links = []
    table = {(name, dim): classes for name, dim, classes in coupling.cuttable()}
    for layer, classes in zip(coupling.trace.layers, coupling.layout.by_layer(coupling.classes), strict=True):
        reads = table.get((layer.weight, layer.in_dim), np.zeros(0, dtype=np.int64))
        if layer.name not in matrices:
            links.append(Links(np.ones((layer.channels, len(reads)), dtype=bool), reads))
            continue
        matrix = matrices[layer.name]
        survives = matrix > threshold
        ties = np.flatnonzero(matrix.ravel() == threshold)[:equal]
        survives.ravel()[ties] = True
        equal -= len(ties)
        alive: Flags = np.any(survives, axis=2)
        alive[coupling.block[classes] < 0] = True
        if len(reads) != alive.shape[1]:
            reads = np.full(alive.shape[1], PINNED)
        links.append(Links(alive, reads))
    return links


def living(coupling: Coupling, links: list[Links]) -> Flags:
    """Removes channels that nothing feeds or nobody reads until none is left; True for the positions that live.

    A class without a known reader counts as read: something other than a layer may use it.
    """
    known = np.zeros(coupling.size, dtype=bool)
    for link in links:
        known[link.reads] = True
    kept = coupling.block < 0
    living_class = np.ones(coupling.size, dtype=bool)
    positions = np.ones(len(coupling.classes), dtype=bool)
    while True:
        read = ~known
        fed = []
        for link, before in zip(links, coupling.layout.by_layer(positions), strict=True):
            alive = link.alive & living_class[link.reads] & before.astype(bool)[:, None]
            fed.append(alive.any(axis=1))
            read[link.reads[alive.any(axis=0)]] = True
        after = np.concatenate(fed) & read[coupling.classes] if fed else positions
        after |= kept[coupling.classes]
        living_class = kept.copy()
        living_class[coupling.classes[after & coupling.voting]] = True
        after &= living_class[coupling.classes]
        if np.array_equal(after, positions):
            return positions
        positions = after


def _weighted(coupling: Coupling) -> list[Layer]:
    names = coupling.scores.weights
    layers = [layer for layer in coupling.trace.layers if layer.name in names]
    missing = [
        layer.name
        for layer in coupling.trace.layers
        if layer.name not in names and layer.name not in coupling.scores.excluded
    ]
    if missing or not layers:
        raise PlanMismatchError(
            f"there are no per-weight scores for layer {missing[0] if missing else 'any'!r}, which scope 'weights' "
            "needs. Score with criterion='snip'."
        )
    return [layer for layer in layers if layer.name not in coupling.scores.excluded]


def _matrix(coupling: Coupling, layer: Layer) -> Weights:
    """A layer's weights as (outputs, inputs per group, kernel); a transposed conv holds its outputs in dimension 1."""
    given = coupling.scores.weights[layer.name].detach().cpu()
    # numpy knows neither bfloat16 nor other short floats; widening them keeps their order.
    values: Weights = (given if given.dtype == torch.float64 else given.float()).numpy()
    if layer.out_dim > layer.in_dim:
        inputs, outputs = values.shape[layer.in_dim], values.shape[layer.out_dim]
        grouped = values.reshape(layer.groups, inputs // layer.groups, outputs, -1)
        values = grouped.transpose(0, 2, 1, 3).reshape(layer.groups * outputs, inputs // layer.groups, -1)
    values = values.reshape(values.shape[0], values.shape[1] if values.ndim > 1 else 1, -1)
    if len(values) != layer.channels:
        raise PlanMismatchError(
            f"layer {layer.name!r} has {layer.channels} channels but per-weight scores for {len(values)}. "
            "Score and trace the same network."
        )
    return values


SCOPES.register("weights", Scope("weights", by_weights, weight_count, nested=False))

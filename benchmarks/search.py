"""The closed form of the largest feasible sparsity against the paper's bisection (its Alg. 2), on its networks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import ranp
from benchmarks.pairs import measure_pairs, table
from ranp.errors import InfeasibleError
from ranp.paper import models

DELTA = 1e-4
STRENGTH = 11
PAIRS = 7
NAMES = ("unet3d-shapenet", "unet3d-brats", "mobilenetv2-ucf101", "i3d-ucf101", "psm-sceneflow", "unet3d-shapenet-23")


def bisect(prune_at: Callable[[float], object]) -> float:
    """The paper's search: halve [0, 1] until it is shorter than delta; pruning tells whether a sparsity is feasible."""
    low, high = 0.0, 1.0
    while high - low > DELTA:
        middle = (low + high) / 2
        try:
            prune_at(middle)
            low = middle
        except InfeasibleError:
            high = middle
    return low


def compare(name: str, count: int) -> tuple[object, ...]:
    with torch.device("meta"):
        model = models.build(name)
    trace = ranp.trace(model, models.example(name, device="meta"))
    generator = torch.Generator().manual_seed(0)
    raw = ranp.Scores({x.name: torch.rand(x.channels, generator=generator).double() ** 4 for x in trace.layers})
    scores = ranp.reweight(ranp.balance(raw), ranp.measure(trace, "flops", convention="paper"), STRENGTH)

    def closed() -> float:
        return ranp.max_sparsity(scores, trace)

    def bisection() -> float:
        return bisect(lambda sparsity: ranp.select(scores, trace, sparsity=sparsity))

    def prune_at(sparsity: float) -> nn.Module:
        weighted = ranp.reweight(ranp.balance(raw), ranp.measure(trace, "flops", convention="paper"), STRENGTH)
        return ranp.slim(model, ranp.select(weighted, trace, sparsity=sparsity))

    difference = abs(closed() - bisection())
    selects = measure_pairs(closed, bisection, count)
    prunes = measure_pairs(closed, lambda: bisect(prune_at), max(2, count // 3))
    return (
        name,
        trace.channels,
        f"{closed():.4f}",
        f"{difference:.1e} (1/n = {1 / trace.channels:.1e})",
        f"{1 / selects.ratio.median:.0f} x",
        f"{1 / prunes.ratio.median:.0f} x",
    )


def run(*, quick: bool) -> None:
    rows = [compare(name, 3 if quick else PAIRS) for name in (NAMES[:2] if quick else NAMES)]
    header = (
        "network",
        "channels n",
        "largest sparsity",
        "differs from bisection by",
        "faster than bisection over `select`",
        "faster than the paper's Alg. 2",
    )
    notes = (
        f"Bisection as in the paper's Alg. 2, delta {DELTA:g}; Alg. 2 prunes the network (its Alg. 1) in every trial. "
        "Scores are random numbers to the fourth power, balanced and reweighted.",
    )
    print(table("Closed form against bisection", header, rows, notes))

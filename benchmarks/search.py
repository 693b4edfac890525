"""The closed form of the largest feasible sparsity against the paper's bisection (its Alg. 2), on every paper network."""

from __future__ import annotations

import torch

import ranp
from benchmarks.pairs import measure_pairs, table
from ranp.errors import InfeasibleError
from ranp.paper import models

DELTA = 1e-4
NAMES = ("unet3d-shapenet", "unet3d-brats", "mobilenetv2-ucf101", "i3d-ucf101", "psm-sceneflow", "unet3d-shapenet-23")


def bisect(prune_at: object) -> float:
    """The paper's search: halve [0, 1] until it is shorter than delta; pruning tells whether a sparsity is feasible."""
    low, high = 0.0, 1.0
    while high - low > DELTA:
        middle = (low + high) / 2
        try:
            prune_at(middle)  # type: ignore[operator]
            low = middle
        except InfeasibleError:
            high = middle
    return low


def run(*, quick: bool) -> None:
    rows = []
    for name in NAMES[:2] if quick else NAMES:
        with torch.device("meta"):
            model = models.build(name)
        trace = ranp.trace(model, models.example(name, device="meta"))
        generator = torch.Generator().manual_seed(0)
        raw = ranp.Scores(
            {layer.name: torch.rand(layer.channels, generator=generator).double() ** 4 for layer in trace.layers}
        )
        costs = ranp.measure(trace, "flops")
        scores = ranp.reweight(ranp.balance(raw), costs, 11)

        def closed() -> float:
            return ranp.max_sparsity(scores, trace)

        def bisection() -> float:
            return bisect(lambda sparsity: ranp.select(scores, trace, sparsity=sparsity))

        def algorithm() -> float:
            """As the paper has it: every trial weights the scores, selects and makes the slim network."""

            def prune_at(sparsity: float) -> None:
                weighted = ranp.reweight(ranp.balance(raw), ranp.measure(trace, "flops"), 11)
                ranp.slim(model, ranp.select(weighted, trace, sparsity=sparsity))

            return bisect(prune_at)

        difference = abs(closed() - bisection())
        count = 3 if quick else 7
        rows.append(
            (
                name,
                trace.channels,
                f"{closed():.4f}",
                f"{difference:.1e} (1/n = {1 / trace.channels:.1e})",
                f"{1 / measure_pairs(closed, bisection, count).ratio.median:.0f} x",
                f"{1 / measure_pairs(closed, algorithm, max(2, count // 3)).ratio.median:.0f} x",
            )
        )
    header = ("network", "channels n", "largest sparsity", "differs from bisection by", "faster than bisection over "
              "`select`", "faster than the paper's Alg. 2")
    notes = (
        f"Bisection as in the paper's Alg. 2, delta {DELTA:g}; Alg. 2 prunes the network (its Alg. 1) in every trial. "
        "Scores are random numbers to the fourth power, balanced and reweighted.",
    )
    print(table("Closed form against bisection", header, rows, notes))

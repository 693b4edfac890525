"""A training step of the slim network against one of the full network, beside the FLOPs that pruning removed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import ranp
from benchmarks.networks import Batch, Case, paper_cases, train_step
from benchmarks.pairs import measure_pairs, table

PAIRS = 5
STRENGTH = 11


def pruned_by_flops(model: nn.Module, case: Case, batch: Batch) -> nn.Module:
    """RANP-f at the paper's sparsity for this network, from one batch; as far as feasible."""
    trace = ranp.trace(model, batch[0])
    scores = ranp.balance(ranp.score(model, [batch], case.loss, trace=trace))
    scores = ranp.reweight(scores, ranp.measure(trace, "flops", convention="paper"), STRENGTH)
    sparsity = min(case.sparsity, ranp.max_sparsity(scores, trace))
    return ranp.slim(model, ranp.select(scores, trace, sparsity=sparsity), init="glorot")


def stepper(model: nn.Module, case: Case, batch: Batch) -> Callable[[], None]:
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-6)
    return lambda: train_step(model.train(), optimiser, case, batch)


def run(*, quick: bool) -> None:
    rows = []
    for case in paper_cases(quick):
        model, batch = case.build(), case.batch()
        slim = pruned_by_flops(model, case, batch)
        before, after = (ranp.profile(network, batch[0], convention="true") for network in (model, slim))
        pairs = measure_pairs(stepper(slim, case, batch), stepper(model, case, batch), 3 if quick else PAIRS)
        rows.append(
            (
                case.name,
                case.size,
                f"{100 * case.sparsity:.2f}",
                f"{after.flops / before.flops:.3f}",
                f"{after.memory_mb / before.memory_mb:.3f}",
                pairs.ratio,
                pairs.work_ratio,
                pairs.count,
            )
        )
        del model, slim
    header = ("network", "batch", "sparsity %", "FLOPs", "memory", "time", "CPU time", "pairs")
    notes = (
        "Slim over full. FLOPs and memory kept for the backward pass: `true` convention at this batch. Time of a step "
        "(forward, backward, SGD): median (quartiles; extremes) of interleaved pairs.",
        f"RANP-f, strength {STRENGTH}, scored on one random batch, at the sparsities of the paper's main table.",
    )
    print(table("Slim against full training step", header, rows, notes))

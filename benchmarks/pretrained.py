"""Pretrained networks, where scores must matter: which channels to keep at the same widths, and what tuning mends.

A full 3D-UNet is trained to its plateau. Every criterion then chooses channels for the very same widths: the same share
of every layer that meets the budget. Weights of what stays are kept, statistics of norms are taken anew, and a tenth of
the steps of the first training follows. What is found is kept, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch_pruning
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import update_bn

import ranp
from benchmarks.evidence import shapes16
from benchmarks.evidence.training import POOL, Samples, among, trained
from benchmarks.pairs import table
from benchmarks.resuming import Kept
from ranp.choosing.budgets import Budget, StepSetup, plan_within
from ranp.choosing.selection import Selection
from ranp.comparing import Training
from ranp.comparing.inference import difference
from ranp.paper import models
from ranp.scoring.score import score_many

BUDGETS = ("flops=50%", "flops=25%", "flops=12.5%")
SEEDS = range(100, 106)
"""None of them was looked at before ``mpmg-group`` had been made."""
STEPS, SCORED, RECALIBRATED = 1200, 32, 32
"""Steps of the first training, and batches that channels are scored on and that statistics of norms are taken from."""
OURS = ("mpmg-sum", "mnmg-sum", "neuron-mask", "mpmg-group", "magnitude", "random")
PEERS: dict[str, Callable[[], Any]] = {
    "Torch-Pruning, group magnitude": lambda: torch_pruning.importance.GroupMagnitudeImportance(p=2),
    "Torch-Pruning, group Taylor": torch_pruning.importance.GroupTaylorImportance,
}
SCRATCH = "new weights"
STAGES = ("cut", "recalibrated", "tuned")


def full_network() -> nn.Module:
    return models.UNet3d(1, shapes16.CLASSES, (16, 32, 64))


def trained_network(seed: int, steps: int) -> nn.Module:
    """A full network at its plateau."""
    torch.manual_seed(seed)
    network = full_network()
    train(network, seed, 1e-2, steps)
    return network


def train(network: nn.Module, seed: int, lr: float, steps: int) -> None:
    """The training of the evidence, in place."""
    pool = shapes16.rods(1000 + seed, POOL)
    trained(network, Training(seed, lr, Path()), among(pool), lambda _: {}, steps=steps, batch=4)


def batches(seed: int, count: int) -> list[Samples]:
    draw, generator = among(shapes16.rods(1000 + seed, POOL)), torch.Generator().manual_seed(seed)
    return [draw(4, generator) for _ in range(count)]


def scores_of(network: nn.Module, trace: ranp.Trace, scored: list[Samples]) -> dict[str, ranp.Scores]:
    """Every criterion's scores, as ranks inside their layer: then all of them lead to the same widths."""
    found: dict[str, Mapping[str, Tensor]] = dict(score_many(network, scored, F.cross_entropy, OURS, trace=trace))
    found |= {name: peer_scores(network, trace, make(), scored) for name, make in PEERS.items()}
    return {
        name: ranp.Scores({layer: 1.0 + values.argsort().argsort() for layer, values in scores.items()})
        for name, scores in found.items()
    }


def peer_scores(
    network: nn.Module, trace: ranp.Trace, importance: Any, scored: list[Samples]
) -> dict[str, Tensor]:  # fmt: skip
    """What Torch-Pruning thinks of the channels of every layer."""
    copied = copy.deepcopy(network).train()
    for inputs, target in scored:
        F.cross_entropy(copied(inputs), target).backward()
    graph = torch_pruning.DependencyGraph().build_dependency(copied, scored[0][0])
    found = {}
    for layer in trace.layers:
        module = copied.get_submodule(layer.name)
        group = graph.get_pruning_group(module, torch_pruning.prune_conv_out_channels, list(range(layer.channels)))
        found[layer.name] = importance(group).detach().float()
    return found


def judged(network: nn.Module) -> float:
    with torch.no_grad():
        return shapes16.judged(network.eval())["miou"]


def followed(slim: nn.Module, seed: int, steps: int) -> dict[str, float]:
    """The figure as it is cut, with statistics taken anew, and after a tenth of the training."""
    found = {"cut": judged(slim)}
    update_bn((inputs for inputs, _ in batches(seed, RECALIBRATED)), slim)
    found["recalibrated"] = judged(slim)
    train(slim, seed, 3e-3, steps // 10)
    return {**found, "tuned": judged(slim)}


def cells(seed: int, budgets: tuple[str, ...], steps: int) -> dict[str, Any]:
    """Everything of one seed: the full network's figure, and those of every budget and criterion."""
    network = trained_network(seed, steps)
    scored = batches(seed, SCORED)
    trace, setup = ranp.trace(network, scored[0][0]), StepSetup(network, scored[0][0])
    scores, found = scores_of(network, trace, scored), {"full": judged(network)}
    for budget in budgets:
        plans = {
            name: plan_within(Selection.of(own, trace, scope="layer"), [Budget.parse(budget)], setup)
            for name, own in scores.items()
        }
        widths = [plan.widths for plan in plans.values()]
        assert all(one == widths[0] for one in widths), "criteria are compared at the same widths"
        found[budget] = {name: followed(ranp.slim(network, plan), seed, steps) for name, plan in plans.items()}
        fresh = ranp.slim(network, plans["random"], init="glorot")
        found[budget][SCRATCH] = followed(fresh, seed, steps)
        print(seed, budget, {name: round(one["tuned"], 3) for name, one in found[budget].items()}, flush=True)
    return found


def run(*, quick: bool) -> None:
    kept = Kept("pretrained", quick)
    budgets, seeds, steps = (BUDGETS[:1], SEEDS[:1], 40) if quick else (BUDGETS, SEEDS, STEPS)
    found = [kept.once(seed, work=lambda seed=seed: cells(seed, budgets, steps)) for seed in seeds]
    full = [one["full"] for one in found]
    rows = []
    for budget in budgets:
        for name in found[0][budget]:
            runs = {stage: [one[budget][name][stage] for one in found] for stage in STAGES}
            apart = [own - other[budget]["random"]["tuned"] for own, other in zip(runs["tuned"], found, strict=True)]
            rows.append(
                (budget, name, *(f"{statistics.fmean(runs[stage]):.3f}" for stage in STAGES), str(difference(apart)))
            )
    notes = (
        f"mIoU on volumes that no training saw, means over {len(seeds)} seeds; the full networks have "
        f"{statistics.fmean(full):.3f} ({min(full):.3f} to {max(full):.3f}) after {steps} steps. Fine-tuning: "
        f"{steps // 10} steps. The last column: fine-tuned, minus random channels of the same seed and widths, with a "
        "95 % interval (bootstrapped, BCa).",
        f"`{SCRATCH}`: the same widths and the same few steps from new weights: what the pretrained weights are worth.",
    )
    header = ("FLOPs", "channels chosen by", "as cut", "norms recalibrated", "fine-tuned", "against random channels")
    print(table("Pretrained networks: which channels to keep", header, rows, notes))

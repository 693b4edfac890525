"""Channels weighted by the time of their layer against channels weighted by its FLOPs: steps at equal FLOPs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import ranp
from benchmarks.networks import Batch, Case, train_step
from benchmarks.pairs import measure_pairs, table
from ranp.choosing.budgets import parse_all, plan_within
from ranp.choosing.methods import resolve
from ranp.choosing.plan import Plan
from ranp.choosing.selection import Selection
from ranp.costs.step import StepSetup, TrainingStep
from ranp.paper import models, tasks
from ranp.paper.scoring import ScoringBatches

PAIRS = 21
STRENGTH = 11
SHARES = (20, 10, 5)
"""FLOPs that are left, in per cent of the full network's."""
SCORED = 8
STRENGTHS = (11, 50)


def agreement(one: Plan, other: Plan) -> float:
    """Channels that both keep, of those that at least one keeps."""
    first, second = ({(name, channel) for name, kept in plan.kept.items() for channel in kept} for plan in (one, other))
    return len(first & second) / len(first | second)


def stepper(model: nn.Module, case: Case, batch: Batch) -> Callable[[], None]:
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-6)
    return lambda: train_step(model.train(), optimiser, case, batch)


def run(*, quick: bool) -> None:
    edge = 16 if quick else 32
    case = Case(
        "3D-UNet 15, ShapeNet", lambda: models.build("unet3d-shapenet"), ((1, 1, edge, edge, edge),), "voxels", 50
    )
    task = tasks.get("shapenet")
    model, batch = case.build(), case.batch()
    setup = StepSetup(model, batch[0], TrainingStep(), case.loss, batch[1])
    trace = ranp.trace(model, batch[0])
    raw = ranp.score(model, ScoringBatches(task, edge, SCORED, 0), task.loss, trace=trace)
    method = resolve("ranp-f")
    costs = {name: method.costs(trace, name, setup) for name in ("flops", "time")}
    full = ranp.profile(model, batch[0], convention="paper").flops

    def within(share: float, name: str, strength: float) -> Plan:
        scores = method.weigh(raw, costs[name], strength)
        return plan_within(Selection.of(scores, trace), parse_all(f"flops={share}%"), setup)

    rows = []
    for share in SHARES[:1] if quick else SHARES:
        base = within(share, "flops", STRENGTH)
        for strength in STRENGTHS:
            plan = within(share, "time", strength)
            ours, theirs = (ranp.slim(model, one, init="glorot") for one in (plan, base))
            left = [ranp.profile(network, batch[0], convention="paper").flops / full for network in (ours, theirs)]
            pairs = measure_pairs(
                stepper(ours, case, batch), stepper(theirs, case, batch), 3 if quick else PAIRS, warmup=2
            )
            rows.append(
                (
                    f"{share} %",
                    f"time, strength {strength}",
                    f"{100 * left[0]:.2f} / {100 * left[1]:.2f}",
                    f"{sum(plan.widths.values())} / {sum(base.widths.values())}",
                    f"{100 * agreement(plan, base):.1f}",
                    pairs.ratio,
                    pairs.work_ratio,
                    pairs.count,
                )
            )
    header = (
        "FLOPs allowed", "weighted by", "FLOPs left %", "channels", "kept by both %", "time", "CPU time",
        "pairs",
    )  # fmt: skip
    notes = (
        'Each variant over RANP-f, both by `budget="flops=..."`: time of a training step (forward,'
        " loss, backward, Adam), median (quartiles; extremes) of interleaved pairs. Below 1, the variant is faster.",
        f"{case.name} at {case.size}, RANP-f at strength {STRENGTH}, scored on {SCORED} procedural shapes.",
    )
    print(table("Time as the resource, at equal FLOPs", header, rows, notes))

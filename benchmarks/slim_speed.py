"""What FLOPs that are gone are worth in time: slim steps over full ones, in every way to run them; free channels."""

from __future__ import annotations

import sys
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import nn

import ranp
from benchmarks.networks import Case
from benchmarks.pairs import table
from benchmarks.resuming import Kept
from benchmarks.time_budgets import dynunet
from ranp.costs.step import StepSetup, TrainingStep
from ranp.costs.timing import SURE, Stepper, ratio
from ranp.costs.tuning import Tuned
from ranp.paper import models

SHARES = (2, 5, 20)
BATCHES = (1, 2, 4)
WAYS = [Tuned(name, half) for name in ("contiguous", "channels_last_3d") for half in (False, True)]


def segresnet() -> nn.Module:
    from monai.networks.nets import SegResNet

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return SegResNet(3, init_filters=16, in_channels=1, out_channels=3, blocks_down=(1, 2, 2), blocks_up=(1, 1))


def basic_unet() -> nn.Module:
    from monai.networks.nets import BasicUNet

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return BasicUNet(3, 1, 3)


def cases(quick: bool) -> list[Case]:
    edge = 16 if quick else 32
    cube = (1, 1, edge, edge, edge)
    found = [
        Case("3D-UNet 15, BraTS", lambda: models.build("unet3d-brats"), ((1, 4, edge, edge, edge),), "voxels", 5),
        Case("3D-UNet 15, ShapeNet", lambda: models.build("unet3d-shapenet"), ((1, 1, 24, 24, 24),), "voxels", 50),
        Case("MobileNetV2-3D", lambda: models.build("mobilenetv2-ucf101"), ((1, 3, 8, 56, 56),), "clip", 101),
        Case("SegResNet (MONAI)", segresnet, (cube,), "voxels", 3),
        Case("DynUNet (MONAI)", dynunet, (cube,), "voxels", 3),
        Case("BasicUNet (MONAI)", basic_unet, (cube,), "voxels", 3),
    ]
    return found[:1] if quick else found


def _pruned(case: Case, budget: str, **options: Any) -> ranp.Pruned:
    return ranp.prune(case.build(), [case.batch()], case.loss, budget=budget, method="ranp-f", **options)


def _ratios(case: Case, slim: nn.Module, batch: int) -> dict[str, float]:
    """Steps of the slim network in every way, and of the full one channels last, over the full one's plain step."""
    full, (inputs, target) = case.build(), case.batch()
    setup = StepSetup(full, inputs, TrainingStep(batch=batch), case.loss, target)
    with Stepper(setup, full) as base:
        found = {}
        for network, way in [(full, WAYS[2]), *((slim, way) for way in WAYS)]:
            with Stepper(setup, network, prepare=way.prepare) as other:
                found[f"{'full ' if network is full else ''}{way.name}"] = ratio(other, base, SURE)
    return found


def _cell(case: Case, share: float, batch: int) -> dict[str, Any]:
    found = _pruned(case, f"flops={share}%")
    flops = found.report.true_flops
    return {
        "flops": flops.after / flops.before,
        "channels": sum(found.plan.widths.values()),
        **_ratios(case, found.model, batch),
    }


def _filled(case: Case, time: float, batch: int) -> dict[str, Any]:
    """As many channels as fit into the time that the plan by FLOPs takes."""
    step = TrainingStep(batch=batch)
    found = _pruned(case, f"step-time={100 * time:.4f}%", step=step)
    flops = found.report.true_flops
    return {
        "flops": flops.after / flops.before,
        "channels": sum(found.plan.widths.values()),
        **_ratios(case, found.model, batch),
    }


def run(*, quick: bool) -> None:
    kept, rows = Kept("slim-speed", quick), []
    for case in cases(quick):
        for share, batch in product(SHARES[:1] if quick else SHARES, BATCHES[:2] if quick else BATCHES):
            plain = kept.once(case.name, share, batch, work=partial(_cell, case, share, batch))
            rows.append(_row(case, f"flops={share}%", batch, plain))
            if batch == 2:
                free = kept.once(case.name, share, "free", work=partial(_filled, case, plain["contiguous"], batch))
                rows.append(_row(case, "the same time, free channels", batch, free))
            print(*(" | ".join(map(str, row)) for row in rows[-2:]), sep="\n", file=sys.stderr, flush=True)
    header = (
        "network", "budget", "batch", "channels", "FLOPs", *(way.name for way in WAYS), "full channels_last_3d",
        "efficiency, plain", "tuned",
    )  # fmt: skip
    notes = (
        "Time of a training step (Adam) over the full network's plain one: medians of interleaved rounds, one thread.",
        "Efficiency: the FLOPs that are left over the time that is left; 1 if time fell as FLOPs did. Tuned: the "
        "fastest of the ways, which is what `ranp.tune` takes.",
    )
    print(table("What FLOPs that are gone are worth in time", header, rows, notes))


def _row(case: Case, budget: str, batch: int, found: dict[str, Any]) -> tuple[Any, ...]:
    times, flops = [found[way.name] for way in WAYS], found["flops"]
    shown = [f"{time:.3f}" for time in (*times, found[f"full {WAYS[2].name}"])]
    efficiency = [f"{flops / time:.2f}" for time in (times[0], min(times))]
    return (case.name, budget, batch, found["channels"], f"{flops:.4f}", *shown, *efficiency)

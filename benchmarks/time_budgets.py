"""Budgets of step time: met by the solver's own measurement, then measured again, independently; and free channels."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

import ranp
from benchmarks.networks import Batch, Case, train_step
from benchmarks.pairs import measure_pairs, table
from benchmarks.resuming import Kept
from ranp.errors import InfeasibleError
from ranp.paper import models

PAIRS = 15
SPEEDUPS = (4, 8)


def monai_unet() -> nn.Module:
    from monai.networks.nets import UNet

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return UNet(3, 1, 3, channels=(32, 64, 128, 256), strides=(2, 2, 2), num_res_units=2)


def dynunet() -> nn.Module:
    from monai.networks.nets import DynUNet

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return DynUNet(3, 1, 3, [3] * 4, [1, 2, 2, 2], [2, 2, 2], filters=[32, 64, 96, 128])


def cases(quick: bool) -> list[Case]:
    found = [
        Case("3D-UNet 15, BraTS", lambda: models.build("unet3d-brats"), ((2, 4, 32, 32, 32),), "voxels", 5),
        Case("3D-UNet 15, ShapeNet", lambda: models.build("unet3d-shapenet"), ((2, 1, 24, 24, 24),), "voxels", 50),
        Case("MobileNetV2-3D", lambda: models.build("mobilenetv2-ucf101"), ((2, 3, 8, 56, 56),), "clip", 101),
        Case("UNet (MONAI)", monai_unet, ((2, 1, 32, 32, 32),), "voxels", 3),
        Case("DynUNet (MONAI)", dynunet, ((2, 1, 32, 32, 32),), "voxels", 3),
    ]
    return found[-2:-1] if quick else found


def stepper(model: nn.Module, case: Case, batch: Batch) -> Any:
    optimiser = torch.optim.Adam(model.train().parameters(), lr=0.0)
    return lambda: train_step(model, optimiser, case, batch)


def solved(case: Case, speedup: float, fill: str, pairs: int) -> dict[str, Any]:
    """A plan within the budget, and its step beside the full network's, measured after the solver has gone."""
    model, batch = case.build(), case.batch()
    try:
        budget = f"step-time={speedup}x"
        pruned = ranp.prune(model, [batch], case.loss, budget=budget, method="ranp-f", fill=fill)
    except InfeasibleError as refusal:
        return {"refused": str(refusal).split("The smallest possible is ")[1].split(" of the full")[0].split("(")[1]}
    (entry,) = pruned.plan.settings["budget"]
    found = measure_pairs(stepper(pruned.model, case, batch), stepper(model, case, batch), pairs, warmup=2)
    return {
        "channels": sum(pruned.plan.widths.values()),
        "flops": pruned.report.true_flops.after / pruned.report.true_flops.before,
        "solver": entry["after"] / entry["limit"],
        "again": speedup * found.work_ratio.median,
        "wall": speedup * found.ratio.median,
    }


def run(*, quick: bool) -> None:
    kept, rows, again, gains = Kept("time-budgets", quick), [], [], []
    for case in cases(quick):
        for speedup in SPEEDUPS[:1] if quick else SPEEDUPS:
            found = {
                fill: kept.once(
                    case.name, speedup, fill,
                    work=lambda c=case, s=speedup, f=fill: solved(c, s, f, 3 if quick else PAIRS),  # type: ignore[misc]
                )
                for fill in ("none", "time")
            }  # fmt: skip
            for fill, one in found.items():
                if "refused" in one:
                    rows.append((case.name, case.size, f"{speedup}x", fill, f"at least {one['refused']}", *[""] * 4))
                    continue
                again.append(one["again"])
                rows.append(
                    (
                        case.name, case.size, f"{speedup}x", fill, one["channels"], f"{one['flops']:.4f}",
                        f"{one['solver']:.3f}", f"{one['again']:.3f}", f"{one['wall']:.3f}",
                    )
                )  # fmt: skip
                print(" | ".join(map(str, rows[-1])), file=sys.stderr, flush=True)
            if not any("refused" in one for one in found.values()):
                gains.append(found["time"]["channels"] / found["none"]["channels"])
    header = (
        "network", "batch", "budget", "fill", "channels", "FLOPs", "by the solver", "second measurement", "by wall",
    )  # fmt: skip
    notes = (
        "Step time over the allowed one: as the solver measured it, and measured again after it "
        f"({3 if quick else PAIRS} interleaved pairs with the full network; CPU time of one thread, and wall clock). "
        "FLOPs: slim over full.",
        f"Second measurements above 1.03: {sum(one > 1.03 for one in again)} of {len(again)}; the largest "
        f"{max(again, default=0):.3f}. Channels with `fill=time` over those without, at the same budget: "
        f"{', '.join(f'{gain:.2f}' for gain in gains)}.",
    )
    print(table("Budgets of step time", header, rows, notes))

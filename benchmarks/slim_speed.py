"""What FLOPs that are gone are worth in time: slim steps over full ones, in every way to run them; free channels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from itertools import product
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import ranp
from benchmarks.networks import Case
from benchmarks.pairs import table
from benchmarks.resuming import Kept
from benchmarks.time_budgets import dynunet
from ranp.choosing.budgets.measured import SAFE
from ranp.costs.step import StepSetup, TrainingStep
from ranp.costs.timing import Care, Stepper, ratios
from ranp.costs.tuning import Tuned
from ranp.errors import InfeasibleError
from ranp.paper import models

METHODS = ("balanced", "ranp-f")
"""The default with a budget, and the paper's."""
SHARES = (2, 5, 20)
BATCHES = (1, 2, 4)
WAYS = [Tuned(name, half) for name in ("contiguous", "channels_last_3d") for half in (False, True)]
POINTWISE = {batch: Tuned("channels_last_3d", batch == 1, pointwise=True) for batch in BATCHES}
FULL = Tuned("channels_last_3d")
"""The other way in which the full network runs, beside the plain one that everything is measured against."""
PROFILED = 3
"""Steps whose operators are timed."""
CARE = Care(least=7, most=21, settled=0.01, seconds=20.0)


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


def pruned_within(case: Case, method: str, budget: str, **options: Any) -> ranp.Pruned:
    return ranp.prune(case.build(), [case.batch()], case.loss, budget=budget, method=method, **options)


def step_ratios(case: Case, network: nn.Module, batch: int, ways: Sequence[Tuned]) -> dict[str, float]:
    """Steps of a network in several ways, over the full one's plain step."""
    full, (inputs, target) = case.build(), case.batch()
    setup = StepSetup(full, inputs, TrainingStep(batch=batch), case.loss, target)
    with ExitStack() as stack:
        base, *others = (
            stack.enter_context(Stepper(setup, one, prepare=way.prepare))
            for one, way in [(full, Tuned()), *((network, way) for way in ways)]
        )
        return dict(zip((way.name for way in ways), ratios(others, base, CARE), strict=True))


def convolving(case: Case, network: nn.Module, batch: int, way: Tuned) -> float:
    """The share of a step's time that its convolutions take by themselves, forward and backward."""
    inputs, target = case.batch()
    setup = StepSetup(network, inputs, TrainingStep(batch=batch), case.loss, target)
    with Stepper(setup, network, prepare=way.prepare) as step, profile(activities=[ProfilerActivity.CPU]) as record:
        for _ in range(PROFILED):
            step()
    found = {event.key: event.self_cpu_time_total for event in record.key_averages()}
    return sum(time for name, time in found.items() if "conv" in name.lower()) / sum(found.values())


def ways_at(batch: int) -> list[Tuned]:
    """The ways that differ: only a batch of one is computed in halves."""
    return [*(way for way in WAYS if batch == 1 or not way.halved), POINTWISE[batch]]


def _cell(case: Case, found: Callable[[], ranp.Pruned], batch: int) -> dict[str, Any]:
    """What is left of the FLOPs, and of the time in every way that differs at this batch."""
    pruned = found()
    flops, times = pruned.report.true_flops, step_ratios(case, pruned.model, batch, ways_at(batch))
    fastest = min(times, key=times.__getitem__)
    return {
        "flops": flops.after / flops.before,
        "channels": sum(pruned.plan.widths.values()),
        "times": times,
        "convolutions": times[fastest] * convolving(case, pruned.model, batch, Tuned.named(fastest)),
    }


def _free(case: Case, found: Callable[[], ranp.Pruned], batch: int) -> dict[str, Any]:
    """The same; nothing where even the smallest network does not surely keep within the time."""
    try:
        return _cell(case, found, batch)
    except InfeasibleError:
        return {}


def run(*, quick: bool) -> None:
    kept, rows = Kept("slim-speed", quick), []
    methods, shares = (METHODS[:1], SHARES[:1]) if quick else (METHODS, SHARES)
    for case, method, share in product(cases(quick), methods, shares):
        found = cache(partial(pruned_within, case, method, f"flops={share}%"))
        for batch in BATCHES[:2] if quick else BATCHES:
            full = kept.once(case.name, "full", batch, work=partial(step_ratios, case, case.build(), batch, [FULL]))
            plain = kept.once(case.name, method, share, batch, work=partial(_cell, case, found, batch))
            rows.append(_row((case.name, method, f"flops={share}%", batch), plain, full))
            if batch == 2:  # as many channels as fit into the time that the plan by FLOPs takes
                budget = f"step-time={100 * plain['times'][WAYS[0].name] / SAFE:.4f}%"
                filled = partial(pruned_within, case, method, budget, step=TrainingStep(batch=batch))
                free = kept.once(case.name, method, share, "free", work=partial(_free, case, filled, batch))
                if free:
                    rows.append(_row((case.name, method, "the same time, free channels", batch), free, full))
            print(" | ".join(map(str, rows[-1])), file=sys.stderr, flush=True)
    header = (
        "network", "method", "budget", "batch", "channels", "FLOPs", *(way.name for way in WAYS), "pointwise too",
        "convolutions alone", f"full {FULL.name}", "efficiency, plain", "tuned",
    )  # fmt: skip
    notes = (
        "Time of a training step (Adam) over the full network's plain one: medians of interleaved rounds, one thread.",
        "Efficiency: the FLOPs that are left over the time that is left; 1 if time fell as FLOPs did. Tuned: the "
        "fastest of the ways, which is what `ranp.tune` takes. Only a batch of one is computed in halves. Pointwise "
        "too: the last of the ways, with convolutions of single voxels as matrix products. Convolutions alone: what "
        "the fastest way spends in them (torch's profiler), over the full step; nothing else can go below that.",
        "The same time: a budget of the time that the plan above takes in the plain way, with free channels; missing "
        "where the smallest network takes as long.",
    )
    print(table("What FLOPs that are gone are worth in time", header, rows, notes))


def _row(named: tuple[str, str, str, int], found: dict[str, Any], full: dict[str, float]) -> tuple[Any, ...]:
    times, flops = found["times"], found["flops"]
    shown = [f"{times[way.name]:.3f}" if way.name in times else "" for way in (*WAYS, POINTWISE[named[-1]])]
    efficiency = [f"{flops / time:.2f}" for time in (times[WAYS[0].name], min(times.values()))]
    alone, whole = f"{found['convolutions']:.3f}", f"{full[FULL.name]:.3f}"
    return (*named, found["channels"], f"{flops:.4f}", *shown, alone, whole, *efficiency)

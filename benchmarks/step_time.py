"""Seconds of training steps as predicted from tables of operators, against steps that were run, in one process."""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from ranp.costs.time import Table
from torch import nn

import ranp
from benchmarks.networks import Batch, Case, segresnet, train_step
from benchmarks.pairs import table
from ranp.choosing.methods import Method
from ranp.costs.step import TrainingStep, trace_step
from ranp.paper import models

ROUNDS = 6
"""Of measured steps before the operators are timed, and as many after."""
SHARES = ((Method("even", criterion="magnitude", scope="layer"), 0.3), (Method("uneven", criterion="magnitude"), 0.6))
"""How the slim networks are made: the same share of every layer, or the smallest channels of all."""


@dataclass(slots=True)
class Timed:
    """A network at certain widths, what its steps and inferences took, and what was predicted."""

    label: str
    step: Callable[[], None]
    inference: Callable[[], None]
    model: nn.Module
    steps: list[float]
    work: list[float]
    inferences: list[float]
    predicted: tuple[float, float] = (0.0, 0.0)

    def run(self) -> None:
        seconds, work = _taken(self.step)
        self.steps.append(seconds)
        self.work.append(work)
        self.inferences.append(_taken(self.inference)[0])


def _taken(function: Callable[[], None]) -> tuple[float, float]:
    """Seconds on the wall, and of the process."""
    gc.collect()
    wall, work = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - work


def monai_unet() -> nn.Module:
    from monai.networks.nets import UNet

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return UNet(3, 1, 3, channels=(16, 32, 64, 128), strides=(2, 2, 2), num_res_units=2)


def dynunet() -> nn.Module:
    from monai.networks.nets import DynUNet

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return DynUNet(3, 1, 3, [3] * 4, [1, 2, 2, 2], [2, 2, 2], filters=[32, 64, 96, 128])


def cases(quick: bool) -> list[Case]:
    stereo = {"disparities": 32, "windows": (16, 8, 4, 2)}
    found = [
        Case("3D-UNet 15, ShapeNet", lambda: models.build("unet3d-shapenet"), ((1, 1, 16, 16, 16),), "voxels", 50),
        Case("UNet (MONAI)", monai_unet, ((1, 1, 32, 32, 32),), "voxels", 3),
        Case("3D-UNet 15, ShapeNet", lambda: models.build("unet3d-shapenet"), ((1, 1, 32, 32, 32),), "voxels", 50),
        Case("3D-UNet 15, BraTS", lambda: models.build("unet3d-brats"), ((2, 4, 16, 16, 16),), "voxels", 5),
        Case("MobileNetV2-3D", lambda: models.build("mobilenetv2-ucf101"), ((2, 3, 8, 56, 56),), "clip", 101),
        Case("I3D", lambda: models.build("i3d-ucf101"), ((1, 3, 16, 224, 224),), "clip", 101),
        Case("PSM", lambda: models.build("psm-sceneflow", **stereo), ((2, 3, 64, 64),) * 2, "stereo"),
        Case("SegResNet (MONAI)", lambda: segresnet(16), ((1, 1, 32, 32, 32),), "voxels", 2),
        Case("DynUNet (MONAI)", dynunet, ((2, 1, 32, 32, 32),), "voxels", 3),
    ]
    return found[:2] if quick else found


def slim_networks(case: Case, model: nn.Module, batch: Batch) -> Iterator[tuple[str, nn.Module]]:
    """The network at a few widths, the full one first."""
    yield "full", model
    trace = ranp.trace(model, batch[0])
    for method, share in SHARES:
        scores = ranp.score(model, [batch], case.loss, trace=trace, criterion=method.criterion)
        scores = ranp.balance(scores)
        most = ranp.max_sparsity(scores, trace) if method.scope == "network" else share
        plan = ranp.select(scores, trace, sparsity=min(share, 0.98 * most), scope=method.scope)
        yield f"{method.name} {100 * plan.sparsity.achieved:.0f} %", ranp.slim(model, plan)


def timed(label: str, model: nn.Module, case: Case, batch: Batch) -> Timed:
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-6)

    def step() -> None:
        train_step(model.train(), optimiser, case, batch)

    def inference() -> None:
        with torch.no_grad():
            model.eval()(*batch[0])

    return Timed(label, step, inference, model, [], [], [])


def measure(case: Case, rounds: int, times: Table) -> tuple[list[Timed], float, int]:
    """Steps of all widths in turn, then the operators, then the steps again."""
    model, batch = case.build(), case.batch()
    networks = [timed(label, network, case, batch) for label, network in slim_networks(case, model, batch)]
    for network in networks:
        network.step()
        network.inference()
    for _ in range(rounds):
        for network in networks:
            network.run()
    before, begun = times.size, time.perf_counter()
    options = {"step": TrainingStep(optimiser="adam"), "loss": case.loss, "target": batch[1]}
    times.cover(trace_step(model, batch[0], **options))
    times.cover(trace_step(model, batch[0], step=None))
    spent = time.perf_counter() - begun
    for network in networks:
        network.predicted = (
            times.seconds(trace_step(network.model, batch[0], **options)),
            times.seconds(trace_step(network.model, batch[0], step=None)),
        )
    for _ in range(rounds):
        for network in networks:
            network.run()
    return networks, spent, times.size - before


def off(predicted: float, taken: list[float]) -> float:
    return predicted / statistics.median(taken) - 1


def spread(taken: list[float]) -> str:
    low, middle, high = statistics.quantiles(taken, n=4, method="inclusive")
    return f"{1e3 * middle:.1f} ({1e3 * low:.1f} - {1e3 * high:.1f})"


def run(*, quick: bool) -> None:
    rows, costs = [], []
    errors: dict[str, list[float]] = {"step": [], "CPU time of a step": [], "inference": []}
    rounds = 2 if quick else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        times = Table.open(folder)
        for case in cases(quick):
            networks, spent, count = measure(case, rounds, times)
            costs.append(f"{case.name} at {case.size}: {count} in {spent:.0f} s")
            for network in networks:
                step, inference = network.predicted
                taken = (step, network.steps), (step, network.work), (inference, network.inferences)
                wrong = [off(predicted, seconds) for predicted, seconds in taken]
                for name, error in zip(errors, wrong, strict=True):
                    errors[name].append(abs(error))
                rows.append(
                    (
                        case.name,
                        case.size,
                        network.label,
                        f"{1e3 * step:.0f}",
                        spread(network.steps),
                        f"{100 * wrong[0]:+.1f}",
                        f"{100 * wrong[1]:+.1f}",
                        f"{1e3 * inference:.1f}",
                        spread(network.inferences),
                        f"{100 * wrong[2]:+.1f}",
                    )
                )
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    header = ("network", "batch", "widths", "step ms, predicted", "measured (quartiles)", "off by %", "of CPU time")
    header += ("inference ms, predicted", "measured (quartiles)", "off by %")
    median = "; ".join(
        f"{name} {100 * statistics.median(o):.1f} % ({100 * max(o):.1f} %)" for name, o in errors.items()
    )
    notes = (
        f"Median error over {len(rows)} networks and widths, largest in brackets: {median}.",
        f"A step is forward pass, loss, backward pass and Adam. Measured: median of {2 * rounds}, half of them before"
        " the operators were timed and half after; all widths of a network in turn.",
        "Slim networks by magnitude: the same share of every layer (even), or the smallest channels of all (uneven).",
        f"Operators timed for each network, beyond those before: {'; '.join(costs)}.",
    )
    print(table("Predicted against measured training steps", header, rows, notes))

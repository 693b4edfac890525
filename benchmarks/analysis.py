"""Trace, select and slim against Torch-Pruning's dependency graph and pruner, on the same networks and inputs."""

from __future__ import annotations

import copy
import warnings
from importlib.metadata import version
from typing import Any

import torch_pruning
from torch import nn

import ranp
from benchmarks.networks import Case, segresnet
from benchmarks.pairs import measure_pairs, table
from ranp.paper import models

PAIRS = 7
SPARSITY = 0.5


def cases(quick: bool) -> list[tuple[Case, str]]:
    """The networks with the name of their output layer, which Torch-Pruning must be told to leave alone.

    Each at the smallest example that serves, so that next to nothing is computed, and at an ordinary one.
    """
    networks = (
        ("3D-UNet", lambda: models.build("unet3d-shapenet"), "head", (1, 1, 16, 16, 16), (1, 1, 64, 64, 64)),
        (
            "MobileNetV2-3D",
            lambda: models.build("mobilenetv2-ucf101"),
            "classifier",
            (1, 3, 8, 32, 32),
            (1, 3, 16, 112, 112),
        ),
        ("SegResNet (MONAI)", lambda: segresnet(8), "conv_final.2.conv", (1, 1, 16, 16, 16), (1, 1, 96, 96, 96)),
    )
    return [
        (Case(name, build, (shape,), "clip"), output)
        for name, build, output, *shapes in networks
        for shape in shapes[: 1 if quick else None]
    ]


def ours(model: nn.Module, inputs: tuple[Any, ...]) -> tuple[nn.Module, ranp.Plan]:
    """Trace, magnitude scores, layer-wise selection, slim copy."""
    trace = ranp.trace(model, inputs)
    scores = ranp.score(model, [], _unused, trace=trace, criterion="magnitude")
    plan = ranp.select(scores, trace, sparsity=SPARSITY, scope="layer")
    return ranp.slim(model, plan), plan


def theirs(model: nn.Module, inputs: tuple[Any, ...], output: str) -> nn.Module:
    """Dependency graph, magnitude importance, the same share of every layer, in place."""
    pruner = torch_pruning.pruner.BasePruner(
        model,
        inputs,
        importance=torch_pruning.importance.MagnitudeImportance(p=1),
        pruning_ratio=SPARSITY,
        ignored_layers=[model.get_submodule(output)],
    )
    pruner.step()
    return model


def _unused(output: object, target: object) -> Any:
    raise AssertionError("magnitudes need no loss")


def compare(case: Case, output: str, count: int) -> tuple[object, ...]:
    model, (inputs, _) = case.build().eval(), case.batch()
    stock = [copy.deepcopy(model) for _ in range(count + 2)]  # one a run: it is pruned in place

    def mine() -> tuple[nn.Module, ranp.Plan]:
        return ours(model, inputs)

    def peer() -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return theirs(stock.pop(), inputs, output)

    slim, plan = mine()
    try:
        other = _parameters(peer())
    except Exception as error:
        return case.name, case.size, f"Torch-Pruning fails: {type(error).__name__}", "", "", "", ""
    pairs = measure_pairs(mine, peer, count)
    checking = measure_pairs(lambda: ranp.verify(model, plan, inputs, slim=slim), mine, 2, warmup=0)
    parameters, check = f"{_parameters(slim)} / {other}", f"{checking.work_ratio.median:.2f}"
    return case.name, case.size, parameters, pairs.ratio, pairs.work_ratio, pairs.count, check


def run(*, quick: bool) -> None:
    rows = [compare(case, output, 3 if quick else PAIRS) for case, output in cases(quick)]
    header = ("network", "example", "parameters, ours / theirs", "time", "CPU time", "pairs", "verification over ours")
    notes = (
        f"Ours (trace, magnitude scores, select, slim copy) over Torch-Pruning {version('torch-pruning')} (dependency "
        "graph, magnitude importance, pruning in place): median (quartiles; extremes) of interleaved pairs.",
        f"Half of every layer goes (sparsity {SPARSITY:g}). The copy that Torch-Pruning needs, since it prunes in "
        "place, is made outside its time, ours inside. Torch-Pruning computes the example, ours is never "
        "computed: hence two sizes, the smallest that serves and an ordinary one.",
        "`ranp.verify`, which has no counterpart there, is timed apart: CPU time over that of our analysis.",
    )
    print(table("Analysis against Torch-Pruning", header, rows, notes))


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())

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
from ranp.tracing.tracer import Tracer

PAIRS = 7
SPARSITY = 0.5
SMALL = 100_000
"""Examples with more elements are not verified here: the masked network is computed at full size."""


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


def ours_unprobed(model: nn.Module, inputs: tuple[Any, ...]) -> nn.Module:
    """The same without the trial cuts, which look for sizes typed into the code (Torch-Pruning does not)."""
    tracer = Tracer(model, inputs)
    tracer.start()
    trace = tracer.assembled(tracer.space.resolve())
    scores = ranp.score(model, [], _unused, trace=trace, criterion="magnitude")
    return ranp.slim(model, ranp.select(scores, trace, sparsity=SPARSITY, scope="layer"))


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
    stock = [copy.deepcopy(model) for _ in range(2 * count + 4)]  # one a run: it is pruned in place

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
    unprobed = measure_pairs(lambda: ours_unprobed(model, inputs), peer, count)
    parameters = f"{_parameters(slim)} / {other}"
    if inputs[0].numel() > SMALL:
        return case.name, case.size, parameters, pairs.work_ratio, unprobed.work_ratio, pairs.count, ""
    checking = measure_pairs(lambda: ranp.verify(model, plan, inputs, slim=slim), mine, 2, warmup=0)
    check = f"{checking.work_ratio.median:.1f}"
    return case.name, case.size, parameters, pairs.work_ratio, unprobed.work_ratio, pairs.count, check


def run(*, quick: bool) -> None:
    rows = [compare(case, output, 3 if quick else PAIRS) for case, output in cases(quick)]
    header = (
        "network",
        "example",
        "parameters, ours / theirs",
        "ours over theirs",
        "without trial cuts",
        "pairs",
        "verify",
    )
    notes = (
        f"Ours (trace, magnitude scores, select, slim copy) over Torch-Pruning {version('torch-pruning')} (dependency "
        "graph, magnitude importance, pruning in place): median (quartiles; extremes) of interleaved pairs.",
        f"Half of every layer goes (sparsity {SPARSITY:g}). The copy that Torch-Pruning needs, since it prunes in "
        "place, is made outside its time, ours inside. Torch-Pruning computes the example, ours is never "
        "computed: hence two sizes, the smallest that serves and an ordinary one.",
        "Without trial cuts: the trace leaves out the part of verification that it contains, the run of a network cut "
        "at random beside the full one, which finds sizes typed into the code. Verify: `ranp.verify` over our "
        "analysis, at the small examples; it computes both networks in float64. Neither has a counterpart there. All "
        "CPU time.",
    )
    print(table("Analysis against Torch-Pruning", header, rows, notes))


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())

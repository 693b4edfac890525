"""Slim networks of the paper and of MONAI, exported both ways: how far off, and which sizes the files take."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ranp
from benchmarks.networks import paper_cases
from benchmarks.pairs import table
from ranp.integrations.exporting import Exported, export

SPARSITY = 0.5


def monai_cases(quick: bool) -> list[tuple[str, Callable[[], nn.Module], tuple[int, ...]]]:
    from monai.networks import nets

    swin: dict[str, Any] = {"patch_size": 2, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 4, 8), "feature_size": 12}
    cases: list[tuple[str, Callable[[], nn.Module], tuple[int, ...]]] = [
        ("MONAI UNet", lambda: nets.UNet(3, 1, 2, (16, 32, 64), (2, 2), num_res_units=2), (1, 1, 32, 32, 32)),
        ("MONAI SegResNet", lambda: nets.SegResNet(3, 8, 1, 2), (1, 1, 32, 32, 32)),
        (
            "MONAI DynUNet",
            lambda: nets.DynUNet(3, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], filters=[8, 16, 32]),
            (1, 1, 32, 32, 32),
        ),
        ("MONAI AttentionUnet", lambda: nets.AttentionUnet(3, 1, 2, (8, 16, 32), (2, 2)), (1, 1, 32, 32, 32)),
        ("MONAI VNet", lambda: nets.VNet(), (1, 1, 32, 32, 32)),
        ("MONAI DenseNet121", lambda: nets.DenseNet121(3, 1, 2), (1, 1, 64, 64, 64)),
        ("MONAI SwinUNETR", lambda: nets.SwinUNETR(1, 2, **swin), (1, 1, 64, 64, 64)),
    ]
    return cases[:2] if quick else cases


def slim(model: nn.Module, example: Any) -> nn.Module:
    """Random channels go, half of them or as many as can before coupling: exporting does not care which."""
    trace = ranp.trace(model, example)
    generator = torch.Generator().manual_seed(0)
    scores = ranp.Scores({at.name: torch.rand(at.channels, generator=generator) + 0.01 for at in trace.layers})
    plan = ranp.select(scores, trace, sparsity=min(SPARSITY, ranp.max_sparsity(scores, trace)))
    return ranp.slim(model, plan).eval()


def sizes(made: Exported) -> str:
    """The spatial sizes of the first input; every input of these networks takes the same."""
    name = made.inputs[0]
    spans = {span.dimension: str(span) for span in made.dynamic if span.input == name and span.dimension > 1}
    rank = len(made.checks[0].shapes[0])
    words = [spans.get(dim, f"{made.checks[0].shapes[0][dim]} only") for dim in range(2, rank)]
    return words[0] if len(set(words)) == 1 else " by ".join(words)


def row(name: str, model: nn.Module, shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[str, ...], list[str]]:
    """The row of a network, and what its export says about sizes that do not vary."""
    generator = torch.Generator().manual_seed(0)
    example = tuple(torch.randn(shape, generator=generator) for shape in shapes)
    network = slim(model, example)
    made, seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("onnx", "torch-export"):
            start = time.perf_counter()
            made[kind] = export(network, example, Path(folder, f"net.{kind}"), format=kind)
            seconds[kind] = time.perf_counter() - start
    onnx, program = made["onnx"], made["torch-export"]
    batch = {str(span) for result in made.values() for span in result.dynamic if span.dimension == 0}
    cells = (
        name,
        " + ".join("x".join(map(str, shape)) for shape in shapes),
        f"{onnx.max_error:.0e}",
        f"{program.max_error:.0e}",
        " / ".join(sorted(batch)) if onnx.dynamic_batch and program.dynamic_batch else "fixed",
        sizes(onnx) if sizes(onnx) == sizes(program) else f"{sizes(onnx)} (ONNX), {sizes(program)} (torch.export)",
        f"{seconds['onnx']:.0f} + {seconds['torch-export']:.0f}",
    )
    reasons = dict.fromkeys(reason for result in made.values() for reason in result.reasons)
    return cells, [f"{name}: {reason}." for reason in reasons]


def run(*, quick: bool) -> None:
    rows, fixed = [], []
    cases = [(case.name, case.build, tuple((1, *shape[1:]) for shape in case.shapes)) for case in paper_cases(quick)]
    cases = cases[: 1 if quick else 5] + [(name, build, (shape,)) for name, build, shape in monai_cases(quick)]
    for name, build, shapes in cases:
        torch.manual_seed(0)
        try:
            cells, reasons = row(name, build(), shapes)
            rows.append(cells)
            fixed += reasons
        except ranp.errors.RanpError as error:
            rows.append((name, " ".join(str(error).split()), *[""] * 5))
        print(rows[-1], file=sys.stderr)
    header = ("network", "example", "ONNX off by", "torch.export off by", "batch", "spatial sizes", "seconds")
    notes = (
        "Slim networks: sparsity 0.5 requested, of random channels; coupled layers get some back. Off by: largest "
        "difference from PyTorch over the largest output, at batches of 1 and 3 and, where it varies, at another "
        "spatial size.",
        "Sizes: what the guards of the program take, one dimension at a time; one entry where all dimensions agree. "
        "Seconds: writing and checking, ONNX + torch.export.",
        *fixed,
    )
    print(table("Exported slim networks", header, rows, notes))

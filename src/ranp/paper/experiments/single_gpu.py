"""A deeper network in the memory of one GPU (paper, ``tb:single_GPU``), by a stated estimate of a training step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ranp.choosing.plan import Plan
from ranp.costs.measuring import profile
from ranp.paper.experiments import main
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.deciding import OURS
from ranp.paper.experiments.experiment import Experiment, Presentation, Results, Wanted
from ranp.paper.experiments.scales import told
from ranp.paper.experiments.table import Column, Group, Table
from ranp.paper.experiments.texts import (
    KEPT_ONE,
    METHODS,
    cost_cells,
    cost_columns,
    figure_cells,
    figure_columns,
    numbers,
    percent,
    seeds_of,
    spreads,
)
from ranp.paper.experiments.transfer import SPARSITY
from ranp.paper.published import OnGpus, Row, quotes, single_gpu
from ranp.paper.published import main as main_table
from ranp.paper.recipe import Recipe
from ranp.paper.training.network import make_full
from ranp.slimming.slim import apply_plan

__all__ = ["SINGLE_GPU", "StepMemory", "cell_of", "copies", "step_memory"]

_SHALLOW, _DEEP = "unet3d-shapenet", "unet3d-shapenet-23"
_ROWS = ((_SHALLOW, FULL), (_DEEP, FULL), (_DEEP, OURS))
_GIB = 1024**3
_LIMITS = (12, 24)
"""GiB of the GPUs that are asked about."""


@dataclass(frozen=True, slots=True)
class StepMemory:
    """What a training step holds at the end of its forward pass, in bytes.

    Attributes:
        fixed: Weights, their gradients and the optimiser's state.
        sample: Activations kept for the backward pass of one sample.
    """

    fixed: int
    sample: int

    def largest_batch(self, limit: int) -> int:
        """How many samples fit into that many bytes; 0 if not even one does.

        >>> StepMemory(fixed=100, sample=30).largest_batch(199), StepMemory(fixed=100, sample=30).largest_batch(90)
        (3, 0)
        """
        return max(0, (limit - self.fixed) // self.sample)


def copies(recipe: Recipe) -> int:
    """Tensors as large as the parameters: the weights, their gradients and what the optimiser of the recipe keeps.

    >>> from ranp.paper import tasks
    >>> copies(tasks.get("shapenet").recipe), copies(tasks.get("brats").recipe)
    (3, 5)
    """
    if recipe.optimiser == "sgd":
        return 2 + (recipe.momentum > 0)
    return 4 + recipe.amsgrad


def step_memory(cell: Cell, plan: Plan | None) -> StepMemory:
    """What a training step of a cell's network holds, the network cut by a plan; counted without its weights."""
    task, recipe = cell.open(), cell.recipe()
    example = cell.example(task)
    with torch.device("meta"):
        full = make_full(task, recipe)
    network = full if plan is None else apply_plan(full, plan, example=example)
    figures = profile(network, example, convention="true")
    parameters = sum(row.params_bytes for row in figures.rows)
    return StepMemory(copies(recipe) * parameters, sum(row.memory_bytes for row in figures.rows))


def cell_of(wanted: Wanted, network: str, method: str, seed: int) -> Cell:
    """A cell of the table: the shallow network is the main table's, the deep one at the paper's scale transfer's."""
    if network == _SHALLOW:
        return main.cell_of(wanted, _SHALLOW, method, seed)
    settings = (f"network={_DEEP}", *_deeper(wanted))
    return wanted.cell("shapenet", method, seed, settings=settings, sparsity=0.0 if method == FULL else SPARSITY)


def _deeper(wanted: Wanted) -> tuple[str, ...]:
    """The widths of the small scale, and one level more."""
    if wanted.scale == "paper":
        return ()
    return ("options.widths=8,16,16",) if wanted.quick else ("options.widths=24,48,96,192",)


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for seed in seeds_of(wanted):
        for row in _ROWS:
            yield cell_of(wanted, *row, seed)


def _present(results: Results, wanted: Wanted) -> Presentation:
    rows, records = [], []
    for network, method in _ROWS:
        cells = [cell_of(wanted, network, method, seed) for seed in seeds_of(wanted)]
        found = [results[cell] for cell in cells]
        steps = [
            step_memory(cell, None if method == FULL else Plan.load(results.folder(cell) / "plan.json"))
            for cell in cells
        ]
        printed, layers = _printed(network, method), len(found[0].widths)
        fixed, sample = (_mean([getattr(step, name) for step in steps]) for name in ("fixed", "sample"))
        batches = [_mean([step.largest_batch(limit * _GIB) for step in steps]) for limit in _LIMITS]
        rows.append(
            (
                METHODS[method] + ("†" if any(one.kept_one for one in found) else ""),
                str(layers),
                "" if method == FULL else percent([one.sparsity for one in found]),
                *cost_cells(found, wanted, (_costs(network, method), _costs(network, FULL))),
                f"{fixed / 1024**2:.2f}",
                f"{sample / 1024**2:.2f}",
                *(f"{batch:.0f}" for batch in batches),
                f"{printed.batch} on {printed.gpus}",
                *figure_cells(found, network, wanted, printed),
            )
        )
        records.append(
            {
                "network": network,
                "method": method,
                "layers": layers,
                "fixed_mb": fixed / 1024**2,
                "kept_per_sample_mb": sample / 1024**2,
                **{f"batch_in_{limit}_gib": batch for limit, batch in zip(_LIMITS, batches, strict=True)},
                "paper_batch": printed.batch,
                "paper_gpus": printed.gpus,
                **numbers(found, network),
            }
        )
    table = Table(
        "single-gpu",
        "A deeper network on a single GPU",
        (
            Column("method", left=True),
            Column("layers"),
            Column("sparsity %"),
            *cost_columns(wanted),
            Column("fixed MB, estimate"),
            Column("per sample MB, estimate"),
            *(Column(f"batch in {limit} GiB, estimate") for limit in _LIMITS),
            Column("paper's batch on GPUs"),
            *figure_columns(wanted),
        ),
        (Group("ShapeNet, 3D-UNet", tuple(rows)),),
        caption=_caption(wanted),
        notes=_notes(wanted),
        records=tuple(records),
    )
    return Presentation((table,))


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


def _printed(network: str, method: str) -> OnGpus:
    return next(row for row in single_gpu() if (row.network, row.method) == (network, method))


def _costs(network: str, method: str) -> Row:
    """The paper's costs: of the shallow network from its main table, of the deep one from its text."""
    if network == _SHALLOW:
        return next(row for row in main_table(network) if row.method == method)
    quote = next(quote for quote in quotes(network) if quote.method == method and "gflops" in quote.figures)
    return Row(method=method, gflops=quote.figures["gflops"], memory_mb=quote.figures["memory_mb"])


def _caption(wanted: Wanted) -> str:
    how = (
        "The paper's networks at its sizes, scored on a few procedural samples instead of ShapeNet."
        if wanted.scale == "paper"
        else f"Small networks on procedural data, {len(seeds_of(wanted))} seed(s), all trained with the same batch; "
        "the paper's columns are those of its own networks and data."
    )
    return (
        "What a deeper network costs, full and pruned by RANP-f, and how many samples of a training step fit into the "
        f"memory of one GPU. {how} In brackets: what is removed of the full network, in percent. Costs in the paper's "
        "convention, for one call."
    )


def _notes(wanted: Wanted) -> tuple[str, ...]:
    recipe = cell_of(wanted, _DEEP, FULL, 0).recipe()
    notes = [
        "Estimate of a training step: batch times what autograd keeps of one sample for the backward pass (convention "
        f'"true"), plus {copies(recipe)} times the parameters: weights, gradients and the state of {recipe.optimiser} '
        "as the recipe sets it, all in float32. Left out: gradients of activations on their way, the loss, workspace "
        "of the convolutions, fragmentation and what the driver takes, so that a real GPU fits less.",
        KEPT_ONE,
    ]
    if wanted.scale == "cpu":
        notes.append(
            f"Cut: {told(wanted.scale, 'shapenet', quick=wanted.quick)}; the deeper network with "
            f"{', '.join(_deeper(wanted))}."
        )
    return (*notes, *spreads(wanted))


SINGLE_GPU = Experiment(
    "single-gpu",
    "A 23-layer network on a single GPU",
    "tb:single_GPU",
    lambda wanted: tuple(_cells(wanted)),
    _present,
)

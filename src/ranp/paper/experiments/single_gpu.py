"""A deeper network in the memory of one GPU (paper, ``tb:single_GPU``), by the predicted peak of a training step."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from ranp.choosing.plan import Plan
from ranp.costs.memory import training_memory
from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import FULL, Cell, Column, Experiment, Line, Results, Wanted
from ranp.paper.experiments.scales import changes, described
from ranp.paper.experiments.transfer import SPARSITY
from ranp.paper.published import Row, quotes, single_gpu
from ranp.paper.published import main as main_table
from ranp.paper.recipe import Setting
from ranp.paper.training.network import make_full
from ranp.slimming.slim import apply_plan

__all__ = ["SINGLE_GPU", "StepMemory", "cell_of"]

_SHALLOW, _DEEP = "unet3d-shapenet", "unet3d-shapenet-23"
_MB, _GIB = 1024**2, 1024**3
_LIMITS = (12, 24)
"""GiB of the GPUs that are asked about."""


class StepMemory:
    """The peaks of training steps of a cell's network, by the batch, in bytes.

    Args:
        cell: Network and optimiser.
        plan: What the network is cut by; its weights are never made.
    """

    def __init__(self, cell: Cell, plan: Plan | None) -> None:
        task, recipe = cell.open(), cell.recipe()
        self._example = cell.example(task)
        with torch.device("meta"):
            full = make_full(task, recipe)
        self._network = full if plan is None else apply_plan(full, plan, example=self._example)
        self._step = recipe.step()
        self.peak = functools.cache(self._peak)

    def _peak(self, batch: int) -> int:
        return training_memory(self._network, self._example, step=replace(self._step, batch=batch)).peak

    def largest_batch(self, limit: int) -> int:
        """How many samples fit into that many bytes; 0 if not even one does."""
        high = 1
        while self.peak(high) <= limit:
            high *= 2
        return bisect.bisect_right(range(1, high), limit, key=self.peak)


def cell_of(wanted: Wanted, network: str, method: str, seed: int) -> Cell:
    """A cell of the table: the shallow network is the main table's, the deep one at the paper's scale transfer's."""
    if network == _SHALLOW:
        return main.cell_of(wanted, _SHALLOW, method, seed)
    settings = (("network", _DEEP), *_deeper(wanted))
    return wanted.cell("shapenet", method, seed, settings=settings, sparsity=0.0 if method == FULL else SPARSITY)


def _deeper(wanted: Wanted) -> tuple[Setting, ...]:
    """The widths of the small scale, and one level more."""
    if wanted.is_paper:
        return ()
    return (("options.widths", (8, 16, 16) if wanted.quick else (24, 48, 96, 192)),)


def _lines(wanted: Wanted) -> Iterator[Line]:
    for printed in single_gpu():
        network, method = printed.network, printed.method
        yield Line(
            wanted.runs(functools.partial(cell_of, wanted, network, method)),
            network=network,
            group=texts.NETWORKS[_SHALLOW],
            printed=_costs(printed),
            whole=_costs(next(row for row in single_gpu() if (row.network, row.method) == (network, FULL))),
            key={"network": network, "method": method, "paper_batch": printed.batch, "paper_gpus": printed.gpus},
        )


def _costs(printed: Row) -> Row:
    """The paper's row with its costs: of the shallow network from its main table, of the deep one from its text."""
    if printed.network == _SHALLOW:
        return replace(main_table(_SHALLOW)[0], figures=printed.figures)
    own = (quote.figures for quote in quotes(printed.network) if quote.method == printed.method)
    found = next(figures for figures in own if "gflops" in figures)
    return Row(method=printed.method, gflops=found["gflops"], memory_mb=found["memory_mb"], figures=printed.figures)


def _measured(wanted: Wanted, line: Line, results: Results) -> dict[str, float]:
    """Means over seeds: the peak of a step of the recipe's batch, and the largest batches."""
    steps = [StepMemory(cell, results.plan(cell)) for cell in line.cells]
    batch = line.cells[0].recipe().batch
    found: dict[str, Sequence[int]] = {"step": [step.peak(batch) for step in steps]}
    found |= {f"batch_in_{limit}_gib": [step.largest_batch(limit * _GIB) for step in steps] for limit in _LIMITS}
    return {name: sum(values) / len(values) for name, values in found.items()}


def _batch(limit: int) -> Column:
    return Column(f"batch in {limit} GiB, predicted", text=lambda line: f"{line.measured[f'batch_in_{limit}_gib']:.0f}")


def _columns(wanted: Wanted, lines: Sequence[Line]) -> Iterator[Column]:
    yield texts.METHOD
    yield Column("layers", text=lambda line: str(len(line.found[0].widths)))
    yield texts.SPARSITY
    yield from texts.costs(wanted)
    batch = lines[0].cells[0].recipe().batch
    yield Column(f"MB of a step of {batch}, predicted", text=lambda line: f"{line.measured['step'] / _MB:.2f}")
    yield from map(_batch, _LIMITS)
    yield Column("paper's batch on GPUs", text=lambda line: "{paper_batch} on {paper_gpus}".format(**line.key))
    yield from texts.merit(wanted)


def _optimiser(wanted: Wanted, lines: object) -> list[str]:
    return [cell_of(wanted, _DEEP, FULL, 0).recipe().optimiser]


def _cut(wanted: Wanted, lines: object) -> list[str]:
    cut = described(wanted.scale, "shapenet", quick=wanted.quick)
    return [f"{cut}; the deeper network with {changes(_deeper(wanted))}"]


SINGLE_GPU = Experiment(
    **texts.words("single-gpu", optimiser=_optimiser, cut=_cut),
    lines=_lines,
    columns=_columns,
    record=lambda line: {
        "network": line.network,
        "method": line.method,
        "layers": len(line.found[0].widths),
        "step_mb": line.measured["step"] / _MB,
        **{f"batch_in_{limit}_gib": line.measured[f"batch_in_{limit}_gib"] for limit in _LIMITS},
        "paper_batch": line.key["paper_batch"],
        "paper_gpus": line.key["paper_gpus"],
        **texts.numbers(line),
    },
    measure=_measured,
)

"""What trained networks say of some samples of each task (paper, ``fig:shapenet_viz`` and its like)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import nn

from ranp.paper.experiments import main, texts
from ranp.paper.experiments.experiment import Column, Experiment, Line, Results, Wanted
from ranp.paper.experiments.studying import Drawing, by_network
from ranp.paper.published import FIGURES
from ranp.paper.training import evaluation
from ranp.reporting.folder import RunFolder

__all__ = ["EXAMPLES", "trained"]

_COUNT = 2
"""Samples of a task, as ``words.ini`` says."""


def trained(folder: Path) -> nn.Module:
    """The trained network of a run folder, in eval mode.

    Raises:
        StorageError: It is no folder of a finished training run.
        PlanMismatchError: The network does not fit.
    """
    return evaluation.trained(RunFolder(folder))[0].eval()


def _columns(wanted: Wanted, lines: Sequence[Line]) -> Iterator[Column]:
    yield texts.METHOD
    yield from texts.costs(wanted, ("gflops", "memory_mb"), beside=False)
    if not wanted.resources_only:
        yield Column("last epoch", left=True, text=texts.last_epoch)
        yield texts.PAPERS_FIGURES


def _drawn(wanted: Wanted, lines: Sequence[Line], results: Results) -> Iterator[Drawing]:
    from ranp.paper.tasks.pictures import pictures
    from ranp.reporting.drawing import examples

    networks = {line.name: trained(results.folder(line.cells[0])) for line in lines}
    full = lines[0].cells[0]
    shown = pictures(full.open(), networks, size=full.recipe().size, count=_COUNT)
    yield "", ": truth and predictions", examples(shown)


EXAMPLES = Experiment(
    **texts.words("examples"),
    lines=lambda wanted: main.lines_of(wanted, ("full", "random", "ranp-f"), range(1)),
    columns=_columns,
    record=lambda line: {
        **line.key,
        "kept_one": line.kept_one,
        **texts.cost_numbers(line.slim, names=("gflops", "memory_mb")),
        **{name: line.found[0].figures[name] for name in FIGURES[line.network] if line.found[0].figures},
    },
    figures=by_network("examples", _drawn, trained=True),
)

"""The figures of a page for a paper: SVG and PDF of each, drawn with matplotlib."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ranp.errors import StorageError
from ranp.page.curves import main_figure
from ranp.page.gather import StoredRun, of_task, representatives
from ranp.page.material import Absent, Bill, Material
from ranp.reporting import drawing
from ranp.reporting.format import MIB
from ranp.reporting.looks import FULL

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_SUFFIXES = (".svg", ".pdf")
_CURVES = 8
"""Curves that one figure can hold and still be read."""


def write_figures(material: Material, folder: Path) -> list[Path]:
    """Writes every figure that the material has, in every form a paper may want.

    Args:
        material: See ``collect``.
        folder: Where to; made if it is not there.

    Returns:
        The files.

    Raises:
        StorageError: The folder cannot be written to.
        UnsupportedError: Matplotlib is not installed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"--figures {str(folder)!r}: {error.strerror}. Name another folder.") from error
    written = []
    for name, figure in _figures(material):
        for suffix in _SUFFIXES:
            path = folder / f"{name}{suffix}"
            drawing.save(figure, path)
            written.append(path)
    return written


def _figures(material: Material) -> Iterator[tuple[str, Figure]]:
    from ranp.reporting import drawing

    for run in material.details:
        study = material.studies[run.label]
        if not isinstance(study, Absent):
            yield f"{_file(run.label)}-importance", drawing.importance(study)
            yield f"{_file(run.label)}-resources", drawing.resources(study.sweeps)
    for task, members in of_task(material.runs).items():
        ratios, layers = _ratios(members)
        if ratios:
            yield f"{_file(task)}-retained", drawing.retained(ratios, layers)
        points = _points(task, members, material)
        if points:
            yield f"{_file(task)}-scatter", drawing.scatter(points)
        trained = _one_of_each([run for run in members if any(record.get("kind") == "epoch" for record in run.records)])
        main = main_figure(list(trained.values()))
        if main is not None:
            curves = {name: drawing.Curve.of(run.records) for name, run in trained.items()}
            yield f"{_file(task)}-convergence", drawing.convergence(curves, y=("loss", main.name))
    for task, found in material.pictures.items():
        if not isinstance(found, Absent):
            yield f"{_file(task)}-examples", drawing.examples(found)


def _one_of_each(runs: Sequence[StoredRun]) -> dict[str, StoredRun]:
    """By label if they are few, else one of each method, of the least seed."""
    if len(runs) <= _CURVES and len({run.method for run in runs}) == len(runs):
        return {run.method: run for run in runs}
    if len(runs) <= _CURVES:
        return {run.label: run for run in runs}
    return {run.method: run for run in representatives(runs)}


def _ratios(runs: Sequence[StoredRun]) -> tuple[dict[str, list[float]], list[str]]:
    """The share that every layer retains, by method, of the runs whose network is that of the first that pruned."""
    pruned = [run for run in runs if run.plan is not None and run.method != FULL]
    if not pruned or pruned[0].plan is None:
        return {}, []
    channels = pruned[0].plan.channels
    alike = [run for run in pruned if run.plan is not None and run.plan.channels == channels]
    shares = {
        name: [run.plan.widths[layer] / count for layer, count in channels.items()]
        for name, run in _one_of_each(alike).items()
        if run.plan is not None
    }
    return shares, list(channels)


def _points(task: str, runs: Sequence[StoredRun], material: Material) -> list[drawing.ScatterPoint]:
    """Means over the runs of each method; none without a full network to compare with."""
    bills: dict[str, list[Bill]] = {}
    for run in runs:
        bill = material.bills[run.label]
        if isinstance(bill, Bill):
            bills.setdefault(run.method, []).append(bill)
    if FULL not in bills or len(bills) < 2:
        return []
    return [
        drawing.ScatterPoint(
            task,
            method,
            statistics.fmean(bill.flops for bill in members) / 1e9,
            statistics.fmean(bill.memory for bill in members) * MIB,
        )
        for method, members in bills.items()
    ]


def _file(name: str) -> str:
    """A name that any file system takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"

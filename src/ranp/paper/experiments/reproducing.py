"""From an experiment to files: run its cells, or a share of them, and write what they show once all are finished."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ranp.errors import UnsupportedError
from ranp.paper.experiments.experiment import Experiment, Results, Wanted
from ranp.paper.experiments.results import read
from ranp.paper.experiments.running import Place, run_all
from ranp.progress import Labelled
from ranp.reporting.folder import RunFolder

__all__ = ["Share", "reproduce_one", "share_of"]

Share = tuple[int, int]
"""Which share, counted from 1, of how many."""


def share_of(text: str) -> Share:
    """``K/N`` as a share.

    Raises:
        UnsupportedError: It is none.

    >>> share_of("2/8")
    (2, 8)
    """
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise UnsupportedError(f"--cell {text!r} is not K/N with 1 <= K <= N. For example --cell 3/8.")
    return int(found[1]), int(found[2])


def reproduce_one(
    experiment: Experiment,
    wanted: Wanted,
    out: Path,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    share: Share | None = None,
    device: str = "cpu",
    progress: Labelled | None = None,
    command: str = "",
) -> list[Path]:
    """Runs the cells of an experiment and writes its tables and figures.

    Args:
        experiment: Which.
        wanted: How.
        out: Folder for cells and results; experiments in one folder share the cells they have in common.
        jobs: Processes side by side.
        cluster: A Dask cluster that runs them instead, see ``ranp.workers``.
        share: Run this share of the cells only.
        device: As ``ranp train --device``.
        progress: Told ``(label, done, total, remark)``.
        command: What the reader runs to have it again, written into the tables.

    Returns:
        What was written; nothing while cells of other shares are missing.

    Raises:
        RanpError: Cells cannot be run, or the folder cannot be written to.
    """
    RunFolder(out).check(force=True)
    place = Place(out, device)
    cells = tuple(dict.fromkeys(experiment.cells(wanted)))
    mine = cells if share is None else cells[share[0] - 1 :: share[1]]
    run_all(mine, place, jobs=jobs, cluster=cluster, progress=progress)
    found = {cell: read(place.of(cell)) for cell in cells}
    missing = [cell for cell, result in found.items() if result is None]
    if missing:
        if progress is not None:
            remark = f"cells of {experiment.name} are there, no table yet"
            progress("table", len(cells) - len(missing), len(cells), remark)
        return []
    results = Results(place, {cell: result for cell, result in found.items() if result is not None})
    shown = experiment.present(results, wanted)
    drawn: list[Path] = []
    if shown.figures:
        from ranp.reporting.drawing import save

        for name, figure in shown.figures.items():
            for path in (out / f"{name}.svg", out / f"{name}.pdf"):
                save(figure, path)
                drawn.append(path)
    table = replace(shown.table, figures=tuple(f"{name}.svg" for name in shown.figures), command=command)
    return table.write(out) + drawn

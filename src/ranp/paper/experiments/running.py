"""Cells are run: each in a folder of its own, here, by a pool of processes or by a cluster.

A process claims a cell by a lock that ends with the process, so a killed one leaves nothing behind but a run that goes
on where it was; a finished cell (it has a ``result.json``) is never run again. Commands that share a folder share the
work.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ranp.choosing.methods import resolve
from ranp.choosing.plan import Plan
from ranp.costs.measuring import profile
from ranp.errors import RanpError
from ranp.files.claims import claimed
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.deciding import Decision
from ranp.paper.experiments.results import Costs, Result, make_folder, read, write
from ranp.paper.experiments.shelf import Shelf
from ranp.paper.tasks.task import Task
from ranp.paper.training import train
from ranp.paper.training.network import make_full, make_slim, whole
from ranp.paper.training.runs import of_run, records
from ranp.paper.training.team import Team, joined
from ranp.progress import Labelled, silent
from ranp.reporting.folder import versions
from ranp.workers import check_all_ran, side_by_side

__all__ = ["Labelled", "Place", "run_all", "run_cell"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where cells run.

    Attributes:
        folder: Holds a folder of each cell, and scores that cells share.
        device: As ``ranp train --device``.
    """

    folder: Path
    device: str = "cpu"

    def of(self, cell: Cell) -> Path:
        """The folder of a cell."""
        return self.folder / "cells" / cell.id

    @property
    def shelf(self) -> Shelf:
        """Where scores are kept."""
        return Shelf(self.folder / "scores")


def run_cell(cell: Cell, place: Place, progress: Labelled | None = None, together: Sequence[str] = ()) -> Result:
    """Runs a cell, or goes on with it, or reads what came out of it.

    Args:
        cell: What to run.
        place: Where.
        progress: See ``training.train``.
        together: Criteria to score along with the cell's own, because other cells will ask for them.

    Raises:
        RanpError: The cell cannot be run; the message says why.
    """
    folder = place.of(cell)
    if (done := read(folder)) is not None:
        return done
    with joined(place.device) as team:
        decision = None if cell.method == FULL else Decision(cell.origin or cell, place.shelf, tuple(together))
        run = _trained if cell.trains else _decided
        result = run(cell, folder, decision, team, progress)
        if team.leads:
            write(folder, result)
    return result


def _trained(cell: Cell, folder: Path, decision: Decision | None, team: Team, progress: Labelled | None) -> Result:
    task, plan = cell.open(), None
    if cell.origin is not None and decision is not None:  # the plan is another task's; a run that goes on has it
        begun = (folder / "recipe.json").is_file()
        plan, decision = None if begun else decision.of_cell(team, progress).plan, None
    run = train(
        task,
        folder,
        recipe=cell.recipe(),
        plan=plan,
        pruning=decision,
        resume=True,
        team=team,
        about={"cell": cell.to_dict()},
        progress=progress,
    )
    return _result(cell, task, run.plan, tuple(record for record in records(folder) if record["kind"] == "epoch"))


def _decided(cell: Cell, folder: Path, decision: Decision | None, team: Team, progress: Labelled | None) -> Result:
    """What a network costs, without training it."""
    task = cell.open()
    if decision is None:
        return _result(cell, task, whole(make_full(task, cell.recipe())))
    pruned = decision.of_cell(team, progress)
    result = _result(cell, task, pruned.plan)
    if team.leads:
        make_folder(folder)
        pruned.plan.save(folder / "plan.json")
        pruned.report.save(folder / "report.json")
    return result


def _result(cell: Cell, task: Task, plan: Plan, epochs: tuple[Mapping[str, Any], ...] = ()) -> Result:
    full, example = make_full(task, cell.recipe()), cell.example(task)
    slim = full if cell.method == FULL else make_slim(full, plan, cell.recipe(), example)
    return Result(
        cell=cell,
        full=Costs.of(profile(full, example, convention="paper")),
        slim=Costs.of(profile(slim, example, convention="paper")),
        sparsity=plan.sparsity.requested,
        removed=plan.sparsity.of_channels,
        largest=plan.settings.get("largest"),
        kept_one=bool(plan.settings.get("exact")),
        widths={name: (len(kept), plan.channels[name]) for name, kept in plan.kept.items()},
        epochs=epochs,
        used=max((one["after"] / one["limit"] for one in plan.settings.get("budget", ())), default=None),
        versions={**versions(), "python": platform.python_version()},
    )


def run_all(
    cells: Sequence[Cell],
    place: Place,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    progress: Labelled | None = None,
) -> list[Result]:
    """Runs cells side by side and waits for those that other processes have claimed.

    Args:
        cells: What to run; equal ones are run once.
        place: Where.
        jobs: Processes side by side.
        cluster: Instead of processes here, a Dask cluster that sees the same folder; see ``ranp.workers``.
        progress: Labelled ``(label, done, total, remark)``.

    Returns:
        The results, in the order of the cells.

    Raises:
        RanpError: Cells cannot be run. The others are finished all the same; the message names those that are not.
    """
    wanted, progress = list(dict.fromkeys(cells)), progress or silent
    together = _scored_together(wanted)
    left, done, failed = wanted, 0, dict[str, RanpError]()
    for wait in (False, True):
        work = partial(_claimed, place=place, together=together, wait=wait)
        taken = []
        for cell, found in side_by_side(work, left, jobs=jobs, cluster=cluster, progress=progress):
            if found is None:
                taken.append(cell)
                continue
            done += 1
            if isinstance(found, RanpError):
                failed[cell.id] = found
                progress("failed", done, len(wanted), f"{cell.id}: {found}")
            elif found:
                progress("cell", done, len(wanted), found)
        left = taken
    check_all_ran(failed, len(wanted))
    return [run_cell(cell, place) for cell in cells]


def _claimed(
    cell: Cell, progress: Labelled, *, place: Place, together: Mapping[Cell, Sequence[str]], wait: bool
) -> str | None:
    """Runs a cell unless it is finished: what came out, in words; None if another process has claimed it."""
    with claimed(place.folder / "cells" / f".{cell.id}.lock", wait=wait) as mine:
        if not mine:
            return None
        if read(place.of(cell)) is not None:
            return ""
        progress = of_run(f"{cell.task} {cell.method} {cell.seed}", progress)
        return _summary(cell, run_cell(cell, place, progress, together[_scoring(cell)]))


def _scoring(cell: Cell) -> Cell:
    """The same for all cells that are scored on the same batches of the same network."""
    return dataclasses.replace(
        cell.origin or cell, method=FULL, criterion=None, sparsity=0.0, equal=None, floor=1, origin=None, trains=True
    )


def _scored_together(cells: Sequence[Cell]) -> dict[Cell, list[str]]:
    """The criteria of all cells that share their batches: one backward pass serves them all."""
    found: dict[Cell, list[str]] = {}
    for cell in cells:
        criteria = found.setdefault(_scoring(cell), [])
        own = (cell.origin or cell).criterion or (None if cell.method == FULL else resolve(cell.method).criterion)
        if own is not None and own not in ("random", *criteria):
            criteria.append(own)
    return found


def _summary(cell: Cell, result: Result) -> str:
    figures = ", ".join(f"{name} {value:.4f}" for name, value in list(result.figures.items())[:3])
    share = result.slim.flops / result.full.flops
    return f"{cell.id}: {result.removed:.1%} of the channels removed, {share:.1%} of the FLOPs left; {figures}"

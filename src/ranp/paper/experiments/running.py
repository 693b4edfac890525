"""Cells are run: each in a folder of its own, by as many processes as there are, on one machine or many.

A process claims a cell by a lock that ends with the process, so a killed one leaves nothing behind but a run that goes
on where it was; a finished cell (it has a ``result.json``) is never run again. Processes that share a folder share the
work, however they were started.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import platform
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ranp.choosing.methods import resolve
from ranp.choosing.plan import Plan
from ranp.costs.measuring import profile
from ranp.errors import RanpError
from ranp.paper.experiments.cell import FULL, Cell
from ranp.paper.experiments.deciding import Decision
from ranp.paper.experiments.results import Costs, Result, make_folder, read, write
from ranp.paper.experiments.shelf import Shelf, claimed
from ranp.paper.tasks.task import Task
from ranp.paper.training import train
from ranp.paper.training.network import make_full, make_slim, whole
from ranp.paper.training.runs import of_run, records
from ranp.paper.training.team import Team, joined
from ranp.progress import Labelled, silent
from ranp.reporting.folder import versions

__all__ = ["Labelled", "Place", "run_all", "run_cell"]

_PATIENCE = 0.5
"""Seconds between two looks at the workers."""


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


def run_all(cells: Sequence[Cell], place: Place, *, jobs: int = 1, told: Labelled | None = None) -> list[Result]:
    """Runs cells side by side and waits for those that other processes have claimed.

    Args:
        cells: What to run; equal ones are run once.
        place: Where.
        jobs: Processes; each takes the next cell that nobody has.
        told: Labelled ``(label, done, total, remark)``.

    Returns:
        The results, in the order of the cells.

    Raises:
        RanpError: Cells cannot be run. The others are finished all the same; the message names those that are not.
    """
    wanted = list(dict.fromkeys(cells))
    told = told or silent
    failed = _work(wanted, place, told) if jobs == 1 else _workers(wanted, place, jobs, told)
    if failed:
        names = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise RanpError(
            f"{len(failed)} of {len(wanted)} cells could not be run: {names}. The others are finished; mend it and run "
            "the same command again."
        )
    return [run_cell(cell, place) for cell in cells]


def _work(cells: Sequence[Cell], place: Place, told: Labelled) -> dict[str, str]:
    """Takes one cell after the other that is neither finished nor claimed, then waits for the claimed ones."""
    failed: dict[str, str] = {}
    together = _scored_together(cells)
    for wait in (False, True):
        for number, cell in enumerate(cells, 1):
            if cell.id in failed:
                continue
            with claimed(place.folder / "cells" / f".{cell.id}.lock", wait=wait) as mine:
                if not mine:
                    continue
                was_there = read(place.of(cell)) is not None
                progress = of_run(f"{cell.task} {cell.method} {cell.seed}", told)
                try:
                    result = run_cell(cell, place, progress, together[_scoring(cell)])
                except RanpError as error:
                    failed[cell.id] = str(error)
                    told("failed", number, len(cells), f"{cell.id}: {error}")
                    continue
                if not was_there:
                    told("cell", number, len(cells), _summary(cell, result))
    return failed


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


def _workers(cells: Sequence[Cell], place: Place, jobs: int, told: Labelled) -> dict[str, str]:
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    threads = max(1, (os.cpu_count() or 1) // jobs)
    workers = [
        context.Process(target=_worker, args=(list(cells), place, threads, messages), daemon=True) for _ in range(jobs)
    ]
    for worker in workers:
        worker.start()
    failed: dict[str, str] = {}
    running = len(workers)
    try:
        while running:
            try:
                kind, *message = messages.get(timeout=_PATIENCE)
            except queue.Empty:
                gone = [worker for worker in workers if worker.exitcode not in (None, 0)]
                if gone:
                    raise RanpError(
                        f"a process that ran cells ended with status {gone[0].exitcode} (-9: it was killed, often for "
                        "want of memory). Run the same command again: it goes on where it was; --jobs 1 needs less."
                    ) from None
                continue
            if kind == "told":
                told(*message)
            else:
                failed |= message[0]
                running -= 1
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    return failed


def _worker(cells: list[Cell], place: Place, threads: int, messages: Any) -> None:
    """A process that works until no cell is left, or until the one that started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    torch.set_num_threads(threads)
    failed = _work(cells, place, lambda *message: messages.put(("told", *message)))
    messages.put(("done", failed))


def _summary(cell: Cell, result: Result) -> str:
    figures = ", ".join(f"{name} {value:.4f}" for name, value in list(result.figures.items())[:3])
    share = result.slim.flops / result.full.flops
    return f"{cell.id}: {result.removed:.1%} of the channels removed, {share:.1%} of the FLOPs; {figures}"

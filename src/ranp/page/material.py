"""All that a page and its figures are made of, worked out once: runs, tables, costs, studies and pictures.

What needs the networks themselves can fail for reasons outside of the page (the code of a network has moved, scores
were not kept); the page then says why in one sentence, and shows the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ranp.costs.measuring import profile
from ranp.errors import RanpError, UnsupportedError
from ranp.page.gather import StoredRun, gather, of_task, representatives
from ranp.paper.naming import NOTHING, Trust, named_code, stored_example, stored_network
from ranp.paper.tasks.pictures import pictures
from ranp.paper.training.evaluation import recipe_of, task_of
from ranp.progress import Labelled, Progress, silent, under
from ranp.reporting.drawing import Picture
from ranp.reporting.folder import RunFolder
from ranp.reporting.looks import FULL, rank
from ranp.reporting.study import Study, study
from ranp.reporting.table import Table
from ranp.slimming.slim import apply_plan
from ranp.slimming.storage import Build, hollow

_DETAILED = 4
"""Runs that get a section of their own, at most."""
_BESIDE = 4
"""Networks whose predictions fit beside each other."""
_BLIND, _COMPARED = "random", "vanilla"

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Absent:
    """Something the page cannot show, and why: one sentence for its reader."""

    reason: str


@dataclass(frozen=True, slots=True)
class Bill:
    """What one call of a network takes, and a training step at its peak if that is known; memory in bytes."""

    params: int
    flops: int
    memory: int
    training: float | None = None


@dataclass(frozen=True, slots=True)
class Material:
    """What is shown.

    Attributes:
        runs: All runs.
        tables: Tables that lay on disk.
        bills: What each run's network costs, by label.
        studies: Of the runs that get a section of their own, by label, in the order of the sections.
        pictures: Example predictions by task; no entry where nothing was trained.
    """

    runs: tuple[StoredRun, ...]
    tables: tuple[Table, ...]
    bills: Mapping[str, Bill | Absent]
    studies: Mapping[str, Study | Absent]
    pictures: Mapping[str, tuple[Picture, ...] | Absent]

    @property
    def details(self) -> list[StoredRun]:
        """The runs that get a section of their own."""
        return [run for label in self.studies for run in self.runs if run.label == label]


def collect(folders: Sequence[Path], progress: Labelled | None = None, *, trust: Trust = NOTHING) -> Material:
    """Reads folders, and works out what needs the networks.

    Args:
        folders: Run folders, or folders that hold some.
        progress: Called with ``(what is going on, done, total, remark)``.
        trust: What may run beside registered networks: no code at all unless it says so.

    Raises:
        StorageError: A folder is none, holds nothing to report, or a file of it is torn or of another kind.
    """
    notify = progress or silent
    gathered = gather([Path(folder) for folder in folders])
    studies = {
        run.label: study_of(run, under(f"other sparsities of {run.label}", notify), trust=trust)
        for run in chosen(gathered.runs)
    }
    groups = of_task([run for run in gathered.runs if run.records])
    shown: dict[str, tuple[Picture, ...] | Absent] = {}
    for number, (task, members) in enumerate(groups.items(), 1):
        shown[task] = pictures_of(representatives(members)[:_BESIDE], trust)
        notify("predicting", number, len(groups), task)
    return Material(gathered.runs, gathered.tables, bills_of(gathered.runs, trust), studies, shown)


def chosen(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """The runs that get a section of their own: all that pruned by scores if they are few, else one of each task."""
    pruned = [run for run in runs if run.report is not None]
    scored = [run for run in pruned if run.method != _BLIND] or pruned
    if len(scored) <= _DETAILED:
        return scored
    best = [
        min(representatives(members), key=lambda run: (run.method == FULL, rank(run.method)))
        for members in of_task(scored).values()
    ]
    return best[:_DETAILED]


def network_of(run: StoredRun, trust: Trust = NOTHING) -> tuple[Build, Any]:
    """What makes the full network of a run, and inputs of one call without data.

    Where the folder names no code, it says all that is needed, and nothing of what else was said takes its place.

    Raises:
        UnsupportedError: The folder names code and nobody trusts it, nothing has that name, or nothing says what goes
            in.
    """
    where = RunFolder(run.folder).recipe_file
    said = trust if named_code(run.recipe) else NOTHING
    network = stored_network(run.recipe, where, said)
    example = stored_example(network, run.recipe, where, said)
    if example is None:
        raise UnsupportedError(f"the recipe does not say what goes into {network.name!r}")
    return network.build, example


def bills_of(runs: Sequence[StoredRun], trust: Trust) -> dict[str, Bill | Absent]:
    """What each run's network takes, by label: from a report of this network, or counted on the network itself."""
    full: dict[str, Bill] = {}
    bills: dict[str, Bill | Absent] = {}
    for run in runs:
        if run.report is not None:
            costs: list[Any] = [run.report.params, run.report.flops, run.report.memory]
            costs += [one for one in run.report.spent() if one.quantity.name == "train-memory"]
            full[run.training_key] = full[run.network_key] = Bill(*(cost.before for cost in costs))
            bills[run.label] = Bill(*(cost.after for cost in costs))
    for run in runs:
        if run.method == FULL and run.network_key in full:
            alike = full.get(run.training_key) or replace(full[run.network_key], training=None)
            bills.setdefault(run.label, alike)
        elif run.report is None:
            bills[run.label] = _attempt("Costs", partial(_counted, run, trust))
    return bills


def _counted(run: StoredRun, trust: Trust) -> Bill:
    build, example = network_of(run, trust)
    model = hollow(build)
    if run.plan is not None:
        model = apply_plan(model, run.plan, example=example)
    costs = profile(model, example)
    return Bill(costs.params, costs.flops, costs.memory_bytes)


def study_of(run: StoredRun, progress: Progress | None = None, *, trust: Trust = NOTHING) -> Study | Absent:
    """How widths and costs move with sparsity, for the run's method and for importance alone.

    Args:
        run: One that pruned.
        progress: Called with ``(done, of how many)``.
        trust: What may run beside registered networks.
    """
    if run.report is None:
        return Absent("The run did not prune, so there are no scores to choose channels by.")
    if _BLIND in (run.method, run.report.settings.get("criterion")):
        return Absent("Channels were drawn blindly, so there are no scores to choose channels by.")
    raw = RunFolder(run.folder).scores()
    if raw is None:
        return Absent(
            "The folder holds no scores.safetensors, so other sparsities cannot be computed. Prune again to keep the "
            "scores."
        )

    def studied() -> Study:
        build, example = network_of(run, trust)
        strength = None if run.plan is None else run.plan.settings.get("strength")
        how: dict[str, Any] = {"plan": run.plan, "method": run.method, "strength": strength}
        compare = () if run.method == _COMPARED else (_COMPARED,)
        return study(hollow(build), example, raw, compare=compare, progress=progress, **how)

    return _attempt("Other sparsities", studied)


def pictures_of(runs: Sequence[StoredRun], trust: Trust) -> tuple[Picture, ...] | Absent:
    """What trained networks of one task predict on samples they were not trained on, beside the truth.

    Args:
        runs: Of one task; those that have not finished training take no part.
        trust: What may run beside registered networks.
    """
    done = [run for run in runs if run.figures and RunFolder(run.folder).finished]
    if not done:
        return Absent("No network of this page has finished training, so there is nothing to predict with.")

    def pictured() -> tuple[Picture, ...]:
        first = RunFolder(done[0].folder)
        (task, _), (_, recipe) = task_of(first), recipe_of(first)
        models = {run.label: RunFolder(run.folder).model(network_of(run, trust)[0]) for run in done}
        return pictures(task, models, size=recipe.size, seed=recipe.seed)

    return _attempt("Example predictions", pictured)


def _attempt(what: str, act: Callable[[], _Result]) -> _Result | Absent:
    """The result, or why there is none; the code of a network is the user's and may raise anything."""
    try:
        return act()
    except RanpError as error:
        return Absent(f"{what} cannot be shown: {str(error).rstrip('.')}.")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        return Absent(f"{what} cannot be shown: the network cannot be made again here ({reason}).")

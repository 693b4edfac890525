"""All that a page and its figures are made of, worked out once: runs, tables, costs, studies and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ranp.page.choosing import of_task, representatives
from ranp.page.gather import StoredRun, gather
from ranp.page.rebuilding import Absent, Bill, bills_of, pictures_of, study_of
from ranp.page.tables import Table
from ranp.paper.naming import NOTHING, Trust
from ranp.progress import Labelled, silent, under
from ranp.reporting.looks import FULL, rank

if TYPE_CHECKING:
    from ranp.reporting.drawing import Picture
    from ranp.reporting.study import Study

__all__ = ["Material", "chosen", "collect"]

_DETAILED = 4
_BLIND = "random"
_BESIDE = 4
"""Networks whose predictions fit beside each other."""


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
        progress: Told ``(what is going on, done, total, remark)``.
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
    pictures: dict[str, tuple[Picture, ...] | Absent] = {}
    for number, (task, members) in enumerate(groups.items(), 1):
        pictures[task] = pictures_of(representatives(members)[:_BESIDE], trust)
        notify("predicting", number, len(groups), task)
    return Material(gathered.runs, gathered.tables, bills_of(gathered.runs, trust), studies, pictures)


def chosen(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """The runs that get a section of their own: all that pruned by scores if they are few, else one of each task."""
    pruned = [run for run in runs if run.report is not None]
    scored = [run for run in pruned if run.method != _BLIND] or pruned
    if len(scored) <= _DETAILED:
        return scored
    best = [min(representatives(members), key=_place) for members in of_task(scored).values()]
    return best[:_DETAILED]


def _place(run: StoredRun) -> tuple[bool, int]:
    return run.method == FULL, rank(run.method)

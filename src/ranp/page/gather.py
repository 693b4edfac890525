"""From folders to plain values: the runs in them, the tables of a reproduction or of a demonstration.

Runs that differ by their seed alone are of one kind; one of them stands for the others.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ranp.choosing.plan import Plan
from ranp.errors import StorageError
from ranp.files import atomic
from ranp.files.journal import NAME
from ranp.page.templates import table_from
from ranp.reporting.folder import RunFolder
from ranp.reporting.looks import FULL, rank
from ranp.reporting.report import Report
from ranp.reporting.table import KIND, VERSION, Table

_DEPTH = 3
"""How far below a folder runs are looked for: a reproduction has them in ``cells/<id>``."""
_SUM = re.compile(r"-[0-9a-f]{10}$")
_LARGEST = 1e300
"""The largest figure in a journal: sums of them are still finite."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run, as its files describe it.

    Attributes:
        folder: Where it lies.
        label: What the page calls it; no two runs of a page share one.
        recipe: ``recipe.json``.
        plan: What stayed of the network; None if the run has none yet.
        report: What pruning did; None of a full network, and of one that was cut by another run's plan.
        records: The journal of training; empty if it was not trained.
    """

    folder: Path
    label: str
    recipe: Mapping[str, Any]
    plan: Plan | None = None
    report: Report | None = None
    records: tuple[Mapping[str, Any], ...] = ()

    @property
    def model(self) -> str:
        """The network's name, or the code that makes it."""
        return str(self.recipe["model"])

    @property
    def task(self) -> str:
        """What it was trained or scored on; empty if the recipe does not say."""
        data = self.recipe.get("data")
        named = self.recipe.get("task") or (data.get("task") if isinstance(data, dict) else None)
        return str(named or "")

    @property
    def method(self) -> str:
        """What chose the channels; ``"full"`` if none were removed."""
        if self.plan is None or not self.plan.sparsity.removed:
            return FULL
        return str(self.plan.settings.get("method", "pruned"))

    @property
    def seed(self) -> int:
        """Of the run."""
        inside = self.recipe.get("recipe")
        found = inside.get("seed", 0) if isinstance(inside, dict) else self.recipe.get("seed", 0)
        return found if isinstance(found, int) else 0

    @property
    def figures(self) -> dict[str, float]:
        """Of the last validation; empty if there was none."""
        for record in reversed(self.records):
            if record.get("valid"):
                return {name: float(value) for name, value in record["valid"].items() if value is not None}
        return {}

    @property
    def step_seconds(self) -> float | None:
        """How long a step took while it trained, in the mean; None where the journal does not say."""
        for record in reversed(self.records):
            if record.get("seconds"):
                return float(record["seconds"]) / int(record["step"])
        return None

    @property
    def sparsity(self) -> float:
        """The share of channels that was to be removed."""
        return 0.0 if self.plan is None else self.plan.sparsity.requested

    @property
    def network_key(self) -> str:
        """The same for runs of the same network at the same size."""
        settings = [self.recipe.get(name) or None for name in ("model", "options", "inputs", "example")]
        return json.dumps(settings, sort_keys=True)

    @property
    def training_key(self) -> str:
        """The same for runs of the same network whose training step is the same, too."""
        stored, step = self.recipe.get("recipe"), None
        if isinstance(stored, Mapping):
            step = {name: value for name, value in stored.items() if name != "seed"}
        return json.dumps([self.network_key, step], sort_keys=True)


class Gathered(NamedTuple):
    """Everything the page is about."""

    runs: tuple[StoredRun, ...]
    tables: tuple[Table, ...]


def gather(folders: Sequence[Path]) -> Gathered:
    """The runs and the tables that lie in run folders, or in folders that hold some.

    Args:
        folders: In the order in which the page shows them.

    Raises:
        StorageError: A folder is none, holds nothing to report, or a file of it is torn or of another kind.
    """
    if not folders:
        raise StorageError("there is no folder to report on. Name at least one run folder.")
    runs: dict[Path, StoredRun] = {}
    tables: list[Table] = []
    for top in dict.fromkeys(folders):
        RunFolder(top).settle()
        if not top.is_dir():
            raise StorageError(f"{str(top)!r} is not a folder. Pass one that ranp prune, train or reproduce wrote.")
        inside = _runs_below(top, _DEPTH)
        found_tables = [] if top in inside else _tables_of(top)
        if not inside and not found_tables:
            raise StorageError(
                f"{str(top)!r} holds no run: there is no recipe.json in it or below it. Pass a folder that ranp prune, "
                "ranp train, ranp compare, ranp reproduce or ranp demo wrote."
            )
        tables += found_tables
        new = [_read(folder, _name(top, folder)) for folder in inside if folder.resolve() not in runs]
        runs |= {run.folder.resolve(): run for run in sorted(new, key=lambda run: rank(run.method))}
    return Gathered(tuple(_with_own_labels([*runs.values()])), tuple(tables))


def _runs_below(folder: Path, depth: int) -> list[Path]:
    """Run folders, a folder of its own first and alone: what lies below a run belongs to it."""
    if RunFolder(folder).begun:
        return [folder]
    if not depth:
        return []
    inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return [run for path in inside for run in _runs_below(path, depth - 1)]


def _name(top: Path, folder: Path) -> str:
    """The folder's name below the one that was given; a cell of a reproduction without the sum of its settings."""
    path = folder.resolve().name if folder == top else folder.relative_to(top).as_posix()
    return _SUM.sub("", path.removeprefix("cells/")) if path.startswith("cells/") else path


def _read(path: Path, name: str) -> StoredRun:
    """The run of a folder.

    Raises:
        StorageError: A file is torn, or a line of the journal is not a record of a step or an epoch.
    """
    run, journal = RunFolder(path), path / NAME
    recipe = run.recipe()
    records = run.records() if journal.is_file() else []
    for number, record in enumerate(records, 1):
        if not _is_record(record):
            raise StorageError(
                f"line {number} of {str(journal)!r} is not a record of training. Remove it, or restore the file."
            )
    return StoredRun(path, str(recipe.get("label") or name), recipe, run.plan(), run.report(), tuple(records))


def _is_record(record: Any) -> bool:
    """Whether it says which step or epoch it is of, and holds figures where figures belong."""
    if not isinstance(record, dict) or not isinstance(record.get("valid", {}), dict | None):
        return False
    counted = ("step", "epoch") if record.get("kind") == "epoch" else ("step",)
    figures = [record.get(name) for name in ("epoch", "loss", "seconds", "learning_rate")]
    figures += (record.get("valid") or {}).values()
    return all(type(record.get(name)) is int and 1 <= record[name] < 2**63 for name in counted) and all(
        figure is None or (type(figure) in (int, float) and abs(figure) <= _LARGEST) for figure in figures
    )


def _with_own_labels(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """The runs with labels that differ; equal ones get the end of their path, then a number."""
    labels = [run.label for run in runs]
    apart: dict[str, StoredRun] = {}
    for run in runs:
        path = "/".join(run.folder.resolve().parts[-2:]).removeprefix("cells/")
        name = label = run.label if labels.count(run.label) == 1 else path
        number = 1
        while label in apart:
            number += 1
            label = f"{name} ({number})"
        apart[label] = replace(run, label=label)
    return list(apart.values())


def _tables_of(folder: Path) -> list[Table]:
    """The tables that lie in a folder itself; other JSON files are somebody else's."""
    tables = []
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem):
        if _kind(path) == KIND:
            tables.append(table_from(path, atomic.read_json(path, kind=KIND, version=VERSION)))
    return tables


def _kind(path: Path) -> str:
    """What a JSON file says it is.

    Raises:
        StorageError: It is torn, or not JSON; or it is sealed, and even what it says it is may have been changed.
    """
    try:
        value = atomic.parse_json(atomic.read_bytes(path, limit=atomic.JSON_LIMIT).decode("utf-8-sig"))
    except ValueError as error:
        raise StorageError(f"{str(path)!r} is not readable JSON ({error}). Restore it, or remove it.") from error
    if not isinstance(value, dict):
        return ""
    said = str(value.pop(atomic.SEAL, ""))
    if said.startswith("sha256:") and said != atomic.seal(value):
        raise StorageError(f"{str(path)!r} was changed since it was written. Restore a copy, or remove it.")
    return str(value.get("format"))


def of_task(runs: Sequence[StoredRun]) -> dict[str, list[StoredRun]]:
    """The runs by task, in the order in which the tasks come first."""
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(run.task or run.model, []).append(run)
    return groups


def kinds(runs: Sequence[StoredRun]) -> list[list[StoredRun]]:
    """The runs in groups that differ by their seed alone; those that stand for a method come first.

    That is the largest group of each method, of the network that most runs are of: the others are there to compare it
    with something else.
    """
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(_without_seed(run), []).append(run)
    usual = Counter(run.network_key for run in runs).most_common(1)[0][0] if runs else ""
    ranked = sorted(groups.values(), key=lambda group: (group[0].network_key != usual, -len(group)))
    first: dict[str, list[StoredRun]] = {}
    for group in ranked:
        first.setdefault(group[0].method, group)
    leading = [group for group in groups.values() if first[group[0].method] is group]
    return leading + [group for group in groups.values() if first[group[0].method] is not group]


def representatives(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """One run of each method, of the least seed of its kind."""
    methods = {run.method for run in runs}
    return [min(group, key=lambda run: run.seed) for group in kinds(runs)[: len(methods)]]


def _without_seed(run: StoredRun) -> str:
    """The same for runs that differ by their seed alone."""
    settings = [run.recipe.get(name) for name in ("recipe", "pruning", "cell", "data")]
    plain = [{**value, "seed": None} if isinstance(value, Mapping) else value for value in settings]
    return json.dumps([run.method, round(run.sparsity, 6), run.network_key, plain], sort_keys=True)

"""Folders become runs and tables, in the order a reader expects, and anything torn is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ranp.choosing.plan import Plan, Sparsity
from ranp.errors import StorageError
from ranp.files import atomic
from ranp.page.gather import StoredRun, gather, kinds, of_task, representatives
from ranp.page.material import chosen
from tests.support.run_folders import write_full, write_journal, write_pruned, write_table


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("runs")
    write_pruned(top / "a-random", "random")
    write_pruned(top / "b-slim", "ranp-f")
    write_full(top / "c-full")
    return top


def test_one_folder_holds_many_runs_full_first_and_blind_last(runs: Path) -> None:
    found = gather([runs])
    assert [(run.label, run.method) for run in found.runs] == [
        ("c-full", "full"),
        ("b-slim", "ranp-f"),
        ("a-random", "random"),
    ]


def test_folders_come_in_the_order_they_are_given_in_and_only_once(runs: Path) -> None:
    found = gather([runs / "b-slim", runs / "c-full", runs / ".." / runs.name / "b-slim"])
    assert [run.label for run in found.runs] == ["b-slim", "c-full"]


def test_labels_of_runs_are_told_apart(tmp_path: Path) -> None:
    for top in ("one", "two"):
        write_full(tmp_path / top / "full")
    write_full(tmp_path / "three", label="two/full")
    labels = [run.label for run in gather([tmp_path / "one", tmp_path / "two", tmp_path / "three"]).runs]
    assert labels == ["one/full", "two/full", "two/full (2)"]


def test_cells_of_a_reproduction_are_named_without_the_sum_of_their_settings(tmp_path: Path) -> None:
    write_full(tmp_path / "cells" / "unet-full-0-0123456789")
    write_table(tmp_path / "main.json")
    atomic.write_json(tmp_path / "other.json", {"a": 1}, kind="somebody-elses", version=7)
    found = gather([tmp_path])
    assert [run.label for run in found.runs] == ["unet-full-0"]
    assert [table.title for table in found.tables] == ["Main results"]
    assert found.tables[0].groups[0].rows == (("RANP-f", "78.24"), ("Full", "237.85"))


def test_the_last_validation_counts_and_null_is_no_figure(tmp_path: Path) -> None:
    write_full(tmp_path / "run")
    write_journal(tmp_path / "run", [2.0, 1.0, 0.5], [{"miou": 0.1}, {"miou": 0.2}, None])
    assert gather([tmp_path]).runs[0].figures == {"miou": 0.2}


def test_few_runs_are_all_shown_and_of_many_one_of_each_task(tmp_path: Path) -> None:
    for seed in range(3):
        for method in ("vanilla", "ranp-f"):
            write_pruned(tmp_path / f"{method}-{seed}", method, recipe={"seed": seed})
    runs = gather([tmp_path]).runs
    assert len(chosen(runs[:4])) == 4
    assert [(run.method, run.seed) for run in chosen(runs)] == [("ranp-f", 0)]
    assert list(of_task(runs)) == ["shapenet"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("recipe.json", "{", "is not readable JSON"),
        ("recipe.json", '{"format": "ranp-recipe", "version": 1}', "made by an older release"),
        ("recipe.json", '{"format": "ranp-recipe", "version": 2}', "changed since it was written"),
        ("plan.json", "[]", "is not a ranp-plan file"),
        ("report.json", '{"format": "ranp-report", "version": 2}', "changed since it was written"),
        ("metrics.jsonl", "nonsense\n", "line 1 of"),
        ("metrics.jsonl", "[1]\n", "is not a record of training"),
    ],
)
def test_a_torn_file_is_refused_by_name(name: str, content: str, told: str, tmp_path: Path) -> None:
    write_pruned(tmp_path / "run")
    (tmp_path / "run" / name).write_text(content)
    with pytest.raises(StorageError, match=told) as error:
        gather([tmp_path])
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"columns": None}, "not a valid table"),
        ({"groups": [{"title": "x", "rows": [["only one"]]}]}, "has 1 cells, not 2"),
        ({"figures": {"missing.svg": ""}}, "which is not there"),
        ({"figures": {"../elsewhere.svg": ""}}, "lies beside it"),
    ],
)
def test_a_wrong_table_is_refused(change: dict[str, object], told: str, tmp_path: Path) -> None:
    write_table(tmp_path / "main.json", **change)
    with pytest.raises(StorageError, match=told) as error:
        gather([tmp_path])
    assert "main.json" in str(error.value)


def test_nothing_to_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="holds no run"):
        gather([tmp_path])
    with pytest.raises(StorageError, match="is not a folder"):
        gather([tmp_path / "missing"])
    with pytest.raises(StorageError, match="at least one"):
        gather([])


def stored(label: str, method: str, seed: int = 0, sparsity: float = 0.5, **recipe: Any) -> StoredRun:
    plan = Plan({"a": (0,)}, {"a": 2}, {}, Sparsity(sparsity, 1, 2, 2), {"method": method})
    told = {"model": "unet3d-shapenet", "task": "shapenet", "recipe": {"epochs": 2, "seed": seed}, **recipe}
    return StoredRun(Path(label), label, told, plan)


STORED = (
    stored("sweep", "ranp-f", sparsity=0.2),
    stored("deep", "ranp-f", model="unet3d-shapenet-23"),
    *(stored(f"main {seed}", "ranp-f", seed) for seed in (2, 1, 0)),
    *(stored(f"random {seed}", "random", seed) for seed in (0, 1)),
    stored("longer", "ranp-f", recipe={"epochs": 9, "seed": 0}),
)


def test_runs_that_differ_by_their_seed_alone_are_one_kind() -> None:
    found = [[member.label for member in group] for group in kinds(STORED)]
    assert found == [
        ["main 2", "main 1", "main 0"],
        ["random 0", "random 1"],
        ["sweep"],
        ["deep"],
        ["longer"],
    ]


def test_the_usual_kind_of_each_method_stands_for_it() -> None:
    assert [one.label for one in representatives(STORED)] == ["main 0", "random 0"]
    assert representatives([]) == []


def test_tasks_keep_their_order_and_a_run_of_none_goes_by_its_network() -> None:
    other = stored("other", "ranp-f", task="", model="mine")
    assert {task: len(members) for task, members in of_task((*STORED, other)).items()} == {"shapenet": 8, "mine": 1}

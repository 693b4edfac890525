"""Of many runs the kind that is repeated most stands for its method, on the network that most runs are of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranp.choosing.plan import Plan, Sparsity
from ranp.page.gather import StoredRun, kinds, of_task, representatives


def run(label: str, method: str, seed: int = 0, sparsity: float = 0.5, **recipe: Any) -> StoredRun:
    plan = Plan({"a": (0,)}, {"a": 2}, {}, Sparsity(sparsity, 1, 2, 2), {"method": method})
    told = {"model": "unet3d-shapenet", "task": "shapenet", "recipe": {"epochs": 2, "seed": seed}, **recipe}
    return StoredRun(Path(label), label, told, plan)


RUNS = (
    run("sweep", "ranp-f", sparsity=0.2),
    run("deep", "ranp-f", model="unet3d-shapenet-23"),
    *(run(f"main {seed}", "ranp-f", seed) for seed in (2, 1, 0)),
    *(run(f"random {seed}", "random", seed) for seed in (0, 1)),
    run("longer", "ranp-f", recipe={"epochs": 9, "seed": 0}),
)


def test_runs_that_differ_by_their_seed_alone_are_one_kind() -> None:
    found = [[member.label for member in group] for group in kinds(RUNS)]
    assert found == [
        ["main 2", "main 1", "main 0"],
        ["random 0", "random 1"],
        ["sweep"],
        ["deep"],
        ["longer"],
    ]


def test_the_usual_kind_of_each_method_stands_for_it() -> None:
    assert [one.label for one in representatives(RUNS)] == ["main 0", "random 0"]
    assert representatives([]) == []


def test_tasks_keep_their_order_and_a_run_of_none_goes_by_its_network() -> None:
    other = run("other", "ranp-f", task="", model="mine")
    assert {task: len(members) for task, members in of_task((*RUNS, other)).items()} == {"shapenet": 8, "mine": 1}

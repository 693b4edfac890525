"""Curves are the numbers of the journal: one by one of few runs, means over seeds of many."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranp.page.curves import Figure, curves_of, main_figure, percent
from ranp.page.gather import StoredRun


def run(
    label: str, losses: list[float | None], seed: int = 0, task: str = "shapenet", figure: str = "miou"
) -> StoredRun:
    records = []
    for epoch, loss in enumerate(losses, 1):
        records.append({"kind": "step", "epoch": epoch, "step": epoch, "loss": loss})
        valid = {figure: None if loss is None else loss / 10}
        records.append({"kind": "epoch", "epoch": epoch, "step": epoch, "loss": loss, "valid": valid})
    recipe = {"model": "unet3d-shapenet", "task": task, "recipe": {"seed": seed}}
    return StoredRun(Path(label), label, recipe, records=tuple(records))


def test_few_runs_are_drawn_one_by_one() -> None:
    curves = curves_of([run("a", [3.0, 2.0]), run("b", [4.0, 1.0])], "miou")
    assert [(curve.label, curve.x, curve.y) for curve in curves] == [
        ("a", (1.0, 2.0), (0.3, 0.2)),
        ("b", (1.0, 2.0), (0.4, 0.1)),
    ]


def test_many_runs_become_means_over_seeds_with_their_spread() -> None:
    runs = [run(f"run {seed}", [float(seed), 2.0 * seed], seed) for seed in range(1, 8)]
    (curve,) = curves_of(runs, None)
    assert curve.label == "full network (mean of 7)"
    assert curve.y == pytest.approx((4.0, 8.0))
    assert (curve.low, curve.high) == ((1.0, 2.0), (7.0, 14.0))


def test_a_long_loss_is_smoothed_and_thinned_but_keeps_its_ends_and_its_level() -> None:
    (curve,) = curves_of([run("a", [5.0] * 1000)], None)
    assert 100 <= len(curve.x) <= 200
    assert curve.x[-1] == 1000.0
    assert curve.y == pytest.approx([5.0] * len(curve.y))


def test_what_was_not_a_number_is_left_out() -> None:
    (curve,) = curves_of([run("a", [1.0, None, 3.0])], "miou")
    assert curve.x == (1.0, 3.0)
    assert curves_of([run("a", [None])], None) == ()


def test_the_main_figure_is_the_tasks_own() -> None:
    assert main_figure([run("a", [1.0])]) == Figure("miou", True)
    assert main_figure([run("a", [1.0], task="sceneflow", figure="epe")]) == Figure("epe", False)
    assert main_figure([run("a", [1.0], task="", figure="mine")]) == Figure("mine", True)
    assert main_figure([StoredRun(Path("a"), "a", {"model": "m"})]) is None


def test_shares_are_percent_and_errors_are_not() -> None:
    assert percent("miou", [0.2, 1.0])
    assert not percent("loss", [0.2, 1.1])
    assert not percent("epe", [0.2])

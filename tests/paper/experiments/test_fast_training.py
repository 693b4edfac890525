from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ranp.files.checkpoints import Mark
from ranp.files.journal import Journal
from ranp.paper.experiments.experiment import Results, Wanted
from ranp.paper.experiments.fast_training import FAST_TRAINING, cell_of, curve_of, reached
from tests.support.crafted import crafted, result_of, rows_of


def journal(epochs: int, steps: int) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    for epoch in range(1, epochs + 1):
        for _ in range(steps):
            step = len([one for one in told if one["kind"] == "step"]) + 1
            told.append({"kind": "step", "epoch": epoch, "step": step, "loss": 1 / step, "seconds": 0.5 * step})
        told.append(
            {"kind": "epoch", "epoch": epoch, "step": step, "seconds": 0.5 * step, "valid": {"miou": epoch / 10}}
        )
    return told


def test_the_runs_differ_in_pruning_batch_and_epochs_only() -> None:
    for wanted in (Wanted(), Wanted(quick=True), Wanted(scale="paper")):
        full, ours = FAST_TRAINING.cells(wanted)
        assert (full.method, full.recipe().batch) == ("full", 1)
        assert (ours.method, ours.recipe().batch, ours.sparsity) == ("ranp-f", 4, 0.8)
        assert full.recipe().but([f"batch={4}", f"epochs={ours.recipe().epochs}"]) == ours.recipe()
        assert full.recipe().epochs < ours.recipe().epochs
        assert full.recipe().network == "unet3d-shapenet-23"
        assert full.recipe().valid_every == 1
    recipe = cell_of(Wanted(scale="paper"), "full").recipe()
    assert (recipe.size, recipe.learning_rate, recipe.epochs) == (128, 0.01, 6)
    assert cell_of(Wanted(scale="paper"), "ranp-f").size == 64


def test_the_loss_is_a_mean_over_an_eighth_of_an_epoch() -> None:
    told = journal(epochs=2, steps=16)
    curve = curve_of(told)
    losses = [record["loss"] for record in told if record["kind"] == "step"]
    assert curve.figures["loss"] == pytest.approx([(losses[i] + losses[i + 1]) / 2 for i in range(0, 32, 2)])
    assert curve.epochs == pytest.approx([number / 8 for number in range(1, 17)])
    assert curve.seconds == pytest.approx([float(number) for number in range(1, 17)])
    assert curve.points("epoch", "miou") == ((1.0, 2.0), (10.0, 20.0))


def test_few_steps_are_points_of_their_own_and_an_unfinished_epoch_is_none() -> None:
    told = journal(epochs=3, steps=3)
    curve = curve_of(told[:-2])  # the last step of the last epoch, and its end, are not there
    assert curve.epochs == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2])
    assert curve.figures["loss"] == pytest.approx([1 / step for step in range(1, 7)])


def test_every_step_counts_once_however_many_there_are() -> None:
    for steps in range(1, 30):
        told = journal(epochs=1, steps=steps)
        curve = curve_of(told)
        ends = [round(epoch * steps) for epoch in curve.epochs]
        sizes = [b - a for a, b in zip([0, *ends], ends, strict=False)]
        total = sum(loss * size for loss, size in zip(curve.figures["loss"], sizes, strict=True) if loss is not None)
        assert total == pytest.approx(sum(1 / step for step in range(1, steps + 1)))
        assert len(ends) == min(8, steps)
        assert max(sizes) - min(sizes) <= 1


def test_at_equal_time_counts_what_was_reached_by_then() -> None:
    run = result_of(cell_of(Wanted(), "full"))  # an epoch every 2.5 seconds
    assert reached(run, 2.4) is None
    assert reached(run, 7.5) == run.epochs[2]["valid"]["miou"]
    assert reached(run, 9.9) == run.epochs[2]["valid"]["miou"]


def test_the_table_and_the_drawing_tell_what_the_journals_say(tmp_path: Path) -> None:
    wanted = Wanted()
    results = crafted(FAST_TRAINING, wanted, tmp_path)
    full, ours = (results[cell] for cell in FAST_TRAINING.cells(wanted))
    ours = replace(ours, epochs=tuple({**record, "seconds": record["seconds"] / 2} for record in ours.epochs))
    results = Results(results.place, {full.cell: full, ours.cell: ours})
    for number, result in enumerate((full, ours), 2):
        results.folder(result.cell).mkdir(parents=True)
        written = Journal(results.folder(result.cell), Mark(), 0, tensorboard=False)
        for record in journal(number, 8):
            written.write(record)
        written.close()
    shown = FAST_TRAINING.present(results, wanted)
    table = shown.table
    first, second = rows_of(table, table.groups[0].title)
    assert (first["batch"], second["batch"]) == ("1", "4")
    assert second["of a batch, MB"] == f"{4 * ours.slim.memory_mb:.2f}"
    assert (first["s per epoch"], second["s per epoch"]) == ("2.50", "1.25")
    assert (first["samples/s"], second["samples/s"]) == ("2.0", "16.0")  # 5 steps in 2.5 s; of 4 samples in 1.25 s
    assert (first["epochs"], first["paper's"], second["paper's"]) == ("7", "6", "26")
    assert second["mIoU % after 9 s"] == second["mIoU % at the end"] == f"{100 * ours.figures['miou']:.2f}"
    assert first["mIoU % after 9 s"] == f"{100 * full.epochs[2]['valid']['miou']:.2f}"  # 8.75 s: three epochs

    figure = shown.figures["fast-training"]
    assert len(figure.axes) == 4
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [16, 24]
    assert [len(line.get_xdata()) for line in figure.axes[2].lines] == [2, 3]


def test_without_training_there_are_costs_and_no_drawing(tmp_path: Path) -> None:
    wanted = Wanted(scale="paper", resources_only=True)
    shown = FAST_TRAINING.present(crafted(FAST_TRAINING, wanted, tmp_path), wanted)
    assert not shown.figures
    assert "epochs" not in [column.name for column in shown.table.columns]

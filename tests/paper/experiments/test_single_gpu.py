from __future__ import annotations

from pathlib import Path

import pytest
import torch

import ranp
from ranp.paper.experiments.experiment import Wanted
from ranp.paper.experiments.main import MAIN
from ranp.paper.experiments.single_gpu import SINGLE_GPU, StepMemory, cell_of
from ranp.paper.experiments.transfer import cell_of as transferred
from ranp.paper.recipe import Setting
from ranp.paper.training.network import make_full, whole
from tests.support.numbered import by_column, numbered
from tests.support.small_cells import cell

PAPER = Wanted(scale="paper", resources_only=True)


@pytest.mark.parametrize("optimiser", [(("optimiser", "sgd"), ("momentum", 0.9)), (("optimiser", "adam"),)])
def test_a_step_takes_what_training_memory_says_of_the_network(optimiser: tuple[Setting, ...]) -> None:
    one = cell(settings=(*cell().settings, *optimiser))
    model = make_full(one.open(), one.recipe())
    step = ranp.TrainingStep(batch=3, optimiser={"sgd": "momentum", "adam": "adam"}[one.recipe().optimiser])
    found = StepMemory(one, None)
    assert found.peak(3) == ranp.training_memory(model, torch.empty(1, 1, 8, 8, 8), step=step).peak
    assert found.peak(3) == StepMemory(one, whole(model)).peak(3)


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    memory = StepMemory(cell(), None)
    for limit in (1000, memory.peak(1), memory.peak(4) - 1, memory.peak(4), memory.peak(13) + 1):
        batch = memory.largest_batch(limit)
        assert batch == 0 or memory.peak(batch) <= limit
        assert limit < memory.peak(batch + 1)
    assert memory.largest_batch(1000) == 0


@pytest.mark.slow
def test_a_full_network_does_not_fit_the_papers_batch_on_one_gpu() -> None:
    """The paper trains both full networks on two GPUs."""
    shallow, deep = (
        StepMemory(cell_of(PAPER, network, "full", 0), None) for network in ("unet3d-shapenet", "unet3d-shapenet-23")
    )
    assert deep.largest_batch(12 * 1024**3) < shallow.largest_batch(12 * 1024**3) < 12
    assert shallow.largest_batch(24 * 1024**3) > deep.largest_batch(24 * 1024**3) > 12


def test_cells_are_shared_with_other_tables() -> None:
    for wanted in (Wanted(), PAPER):
        assert cell_of(wanted, "unet3d-shapenet", "full", 0) in MAIN.cells(wanted)
    for method in ("full", "ranp-f"):
        assert cell_of(PAPER, "unet3d-shapenet-23", method, 0) == transferred(PAPER, "shapenet", method, 0)
    cells = SINGLE_GPU.cells(Wanted(seeds=1))
    assert [one.sparsity for one in cells] == [0.0, 0.0, 0.8]
    assert len({one.recipe().batch for one in cells}) == 1
    widths = [one.recipe().options["widths"] for one in cells]
    assert widths[1][: len(widths[0])] == widths[0]  # deeper, not narrower
    assert len(widths[1]) == len(widths[2]) > len(widths[0])


@pytest.mark.slow
def test_the_table_shows_the_prediction_beside_the_papers_figures(tmp_path: Path) -> None:
    results = numbered(SINGLE_GPU, PAPER, tmp_path)
    deep = cell_of(PAPER, "unet3d-shapenet-23", "ranp-f", 0)
    with torch.device("meta"):
        full = make_full(deep.open(), deep.recipe())
    results.folder(deep).mkdir(parents=True)
    whole(full).save(results.folder(deep) / "plan.json")
    table = SINGLE_GPU.present(results, PAPER).table
    rows = by_column(table)
    assert [row["paper's batch on GPUs"][0] for row in rows] == ["12 on 2", "12 on 2", "12 on 1"]
    assert rows[2]["paper's"] == ["", "7.39 (97.2)", "255.57 (74.6)"]
    assert rows[0]["paper's"] == ["62.26", "237.85", "997.00"]
    for row, network in zip(rows[:2], ("unet3d-shapenet", "unet3d-shapenet-23"), strict=True):
        memory = StepMemory(cell_of(PAPER, network, "full", 0), None)
        assert row["MB of a step of 12, predicted"] == [f"{memory.peak(12) / 1024**2:.2f}"]
        assert row["batch in 12 GiB, predicted"] == [str(memory.largest_batch(12 * 1024**3))]
        assert row["batch in 24 GiB, predicted"] == [str(memory.largest_batch(24 * 1024**3))]
    assert rows[1]["batch in 12 GiB, predicted"] == rows[2]["batch in 12 GiB, predicted"]  # a plan that removes nothing
    assert any("Predicted" in note for note in table.notes)

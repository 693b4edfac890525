from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ranp.errors import StorageError
from ranp.paper.experiments.examples import EXAMPLES, trained
from ranp.paper.experiments.experiment import Results, Wanted
from ranp.paper.experiments.main import MAIN
from ranp.paper.experiments.running import Place, run_all, run_cell
from ranp.paper.experiments.texts import NETWORKS
from tests.support.crafted import crafted, only, rows_of
from tests.support.small_cells import cell as small_cell

SHAPENET = "unet3d-shapenet"


@pytest.mark.parametrize("wanted", [Wanted(), Wanted(quick=True), Wanted(scale="paper", resources_only=True)])
def test_it_has_no_cell_of_its_own(wanted: Wanted) -> None:
    cells = EXAMPLES.cells(wanted)
    assert set(cells) <= set(MAIN.cells(wanted))
    assert {(cell.method, cell.seed) for cell in cells} == {("full", 0), ("random", 0), ("ranp-f", 0)}


def test_a_network_that_is_restored_is_as_good_as_the_trained_one(tmp_path: Path) -> None:
    cell, place = small_cell("ranp-f"), Place(tmp_path)
    result = run_cell(cell, place)
    network, task, recipe = trained(place.of(cell)), cell.open(), cell.recipe()
    assert not network.training
    samples = [
        task.valid_data(recipe.size, recipe.valid_count, recipe.seed)[number]
        for number in range(recipe.valid_count or 0)
    ]
    with torch.no_grad():
        pairs = [
            (task.predict(network, inputs[None], recipe.size), target[None])
            for inputs, target in samples
            if isinstance(inputs, torch.Tensor)
        ]
    assert task.evaluate(pairs)["miou"] == pytest.approx(result.figures["miou"])
    with pytest.raises(StorageError):
        trained(tmp_path / "nothing")


def test_pictures_and_figures_of_trained_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(SHAPENET, monkeypatch)
    wanted, place = Wanted(quick=True), Place(tmp_path)
    cells = EXAMPLES.cells(wanted)
    found = dict(zip(cells, run_all(cells, place), strict=True))
    shown = EXAMPLES.present(Results(place, found), wanted)
    rows = rows_of(shown.table, NETWORKS[SHAPENET])
    assert [row["method"].rstrip("†") for row in rows] == ["Full", "Random NP", "RANP-f"]
    for row, result in zip(rows, found.values(), strict=True):
        assert row["last epoch"] == f"mIoU {100 * result.figures['miou']:.2f}"
    assert rows[0]["paper's"] == "mIoU 83.79 ± 0.21"
    assert set(shown.figures) == {f"examples-{SHAPENET}"}
    texts = [text.get_text() for text in shown.figures[f"examples-{SHAPENET}"].texts]
    texts += [axes.get_title() for axes in shown.figures[f"examples-{SHAPENET}"].axes]
    assert any("truth and predictions" in text for text in texts)


def test_without_training_there_are_costs_and_no_picture(tmp_path: Path) -> None:
    wanted = Wanted(scale="paper", resources_only=True)
    shown = EXAMPLES.present(crafted(EXAMPLES, wanted, tmp_path), wanted)
    assert not shown.figures
    assert [column.name for column in shown.table.columns] == ["method", "GFLOPs", "Memory MB"]

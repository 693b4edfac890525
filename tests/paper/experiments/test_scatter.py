from __future__ import annotations

from pathlib import Path

import pytest

from ranp.paper.experiments import main
from ranp.paper.experiments.experiment import Wanted
from ranp.paper.experiments.main import MAIN
from ranp.paper.experiments.scatter import SCATTER
from ranp.paper.experiments.texts import NETWORKS
from tests.support.crafted import crafted, rows_of


@pytest.mark.parametrize("wanted", [Wanted(), Wanted(quick=True), Wanted(scale="paper", resources_only=True)])
def test_it_has_no_cell_of_its_own(wanted: Wanted) -> None:
    assert set(SCATTER.cells(wanted)) <= set(MAIN.cells(wanted))


def test_shares_are_means_over_seeds_and_stand_beside_the_papers(tmp_path: Path) -> None:
    wanted = Wanted(seeds=2)
    results = crafted(SCATTER, wanted, tmp_path)
    shown = SCATTER.present(results, wanted)
    table = shown.table
    brats = "unet3d-brats"
    rows = rows_of(table, NETWORKS[brats])
    assert [row["method"].rstrip("†") for row in rows][:3] == ["Full", "SNIP NP", "Random NP"]
    runs = [results[main.cell_of(wanted, brats, "ranp-f", seed)] for seed in range(2)]
    flops = sum(run.slim.flops for run in runs) / sum(run.full.flops for run in runs)
    memory = sum(run.slim.memory for run in runs) / sum(run.full.memory for run in runs)
    assert rows[-1]["MFLOPs"] == f"{sum(run.slim.flops for run in runs) / 2e6:.2f}"
    assert (rows[-1]["of full %"], rows[-1]["of full % #2"]) == (f"{100 * flops:.1f}", f"{100 * memory:.1f}")
    # The paper prints 16.97 of 478.13 GFLOPs and 729.11 of 3628 MB.
    assert (rows[-1]["paper's"], rows[-1]["paper's #2"]) == ("3.5", "20.1")
    for name, place in (("scatter", (flops, memory)), ("scatter-paper", (16.97 / 478.13, 729.11 / 3628))):
        points = [line.get_xydata()[0] for line in shown.figures[name].axes[1].lines]
        assert len(points) == 8
        assert min(abs(x - place[0]) + abs(y - place[1]) for x, y in points) < 1e-6

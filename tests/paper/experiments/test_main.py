from __future__ import annotations

import csv
import io
import statistics
from pathlib import Path

import pytest

from ranp.paper import published
from ranp.paper.experiments.cell import Cell
from ranp.paper.experiments.experiment import Results, Wanted
from ranp.paper.experiments.main import MAIN, cell_of, networks
from ranp.paper.experiments.results import Costs, Result
from ranp.paper.experiments.running import Place
from ranp.paper.experiments.texts import METHODS

FULL = Costs(10 * 1024**2, 4 * 10**9, 8 * 1024**2)


def crafted(wanted: Wanted) -> Results:
    """Every cell with figures of its own, so that one in the wrong place is seen."""
    found: dict[Cell, Result] = {}
    for number, cell in enumerate(MAIN.cells(wanted)):
        share = 1.0 if cell.method == "full" else 0.5 - number / 1000
        slim = Costs(*(round(share * value) for value in (FULL.params, FULL.flops, FULL.memory)))
        names = published.FIGURES[cell.recipe().network]
        epochs = tuple({"epoch": epoch, "valid": dict.fromkeys(names, (number + epoch) / 200)} for epoch in range(1, 8))
        found[cell] = Result(
            cell, FULL, slim, cell.sparsity or 0.0, 0.25, 0.5, number % 5 == 0, {}, epochs if cell.trains else ()
        )
    return Results(Place(Path()), found)


@pytest.mark.parametrize("network", published.FIGURES)
def test_every_method_is_pruned_at_the_papers_sparsity(network: str) -> None:
    if network.endswith("-23"):
        return
    for wanted in (Wanted(), Wanted(scale="paper", resources_only=True)):
        for row in published.main(network):
            cell = cell_of(wanted, network, row.method, 0)
            if row.method == "full":
                assert cell.sparsity == 0
            elif (wanted.scale, network) == ("paper", "unet3d-shapenet") and row.method in ("random", "layerwise"):
                assert cell.sparsity == 0.782
            else:
                assert cell.sparsity == pytest.approx((row.sparsity or 0) / 100)


def test_the_small_scale_has_eight_methods_four_tasks_and_three_seeds() -> None:
    cells = MAIN.cells(Wanted())
    assert len(set(cells)) == len(cells) == 8 * 4 * 3
    assert {cell.task for cell in cells} == {"shapenet", "brats", "ucf101", "sceneflow"}
    assert {cell.seed for cell in cells} == {0, 1, 2}
    assert all(cell.trains for cell in cells)
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)  # a part of the table is of use early


def test_figures_stand_where_they_belong() -> None:
    wanted = Wanted()
    results = crafted(wanted)
    table = MAIN.present(results, wanted).table
    names = [column.name for column in table.columns]
    assert names.index("last epoch, ± over seeds") < names.index("last 5 epochs, ± over them") < len(names) - 1
    for network, group in zip(networks(wanted), table.groups, strict=True):
        for method, row in zip(METHODS, group.rows, strict=True):
            runs = [results[cell_of(wanted, network, method, seed)] for seed in range(3)]
            figure = published.FIGURES[network][0]
            unit = 1 if figure == "epe" else 100
            last = [unit * run.epochs[-1]["valid"][figure] for run in runs]
            seeds = row[names.index("last epoch, ± over seeds")].split(" · ")[0]
            assert seeds.split(" ", 1)[1] == f"{statistics.fmean(last):.2f} ± {statistics.stdev(last):.2f}"
            five = [[unit * record["valid"][figure] for record in run.epochs[-5:]] for run in runs]
            epochs = row[names.index("last 5 epochs, ± over them")].split(" · ")[0]
            mean = statistics.fmean(statistics.fmean(one) for one in five)
            spread = statistics.fmean(statistics.stdev(one) for one in five)
            assert epochs.split(" ", 1)[1] == f"{mean:.2f} ± {spread:.2f}"
            assert ("†" in row[0]) == any(run.kept_one for run in runs)
            if method != "full":
                flops = statistics.fmean(run.slim.flops for run in runs)
                shown = row[names.index("MFLOPs")]
                assert shown == f"{flops / 1e6:.2f} ({100 * (1 - flops / FULL.flops):.1f})"


def test_numbers_are_there_for_programs() -> None:
    wanted = Wanted()
    table = MAIN.present(crafted(wanted), wanted).table
    records = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [(record["network"], record["method"]) for record in records] == [
        (network, method) for network in networks(wanted) for method in METHODS
    ]
    printed = {row.method: row for row in published.main("psm-sceneflow")}
    last = {record["method"]: record for record in records if record["network"] == "psm-sceneflow"}
    assert float(last["snip"]["paper_gflops"]) == printed["snip"].gflops


def test_costs_of_the_papers_networks_have_its_own_beside_them() -> None:
    wanted = Wanted(scale="paper", resources_only=True)
    table = MAIN.present(crafted(wanted), wanted).table
    assert len(table.groups) == 7
    assert [len(group.rows) for group in table.groups] == [8] * 5 + [4] * 2
    assert not any("epoch" in column.name for column in table.columns)
    row = next(row for row in table.groups[0].rows if row[0].startswith("RANP-f"))
    assert "7.54 (96.8)" in row
    assert "262.66 (73.7)" in row
    assert "98.57" in row

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from ranp.paper.experiments import main
from ranp.paper.experiments.accuracy import ACCURACY, sparsities
from ranp.paper.experiments.experiment import Wanted
from ranp.paper.experiments.main import MAIN
from ranp.paper.experiments.texts import NETWORKS
from tests.support.crafted import crafted, rows_of

SHAPENET, PSM = "unet3d-shapenet", "psm-sceneflow"


def test_cells_of_the_main_table_are_taken_and_a_few_are_added_between_them() -> None:
    wanted = Wanted(seeds=2)
    cells, of_main = ACCURACY.cells(wanted), set(MAIN.cells(wanted))
    own = [cell for cell in cells if cell not in of_main]
    assert len(cells) == len(set(cells)) == 4 * (2 + 2 + 4)
    assert {(cell.method, cell.seed) for cell in own} == {("ranp-f", 0)}
    assert sorted({cell.sparsity for cell in own if cell.task == "brats"}) == [0.3, 0.5, 0.7, 0.85]
    assert sorted({cell.sparsity for cell in own if cell.task == "ucf101"}) == [0.15, 0.3, 0.45, 0.6]
    for cell in own:
        like = next(one for one in of_main if (one.task, one.method, one.seed) == (cell.task, "ranp-f", 0))
        assert cell.recipe() == like.recipe()
        assert (cell.batches, cell.batch, cell.criterion) == (like.batches, like.batch, like.criterion)


def test_the_paper_tells_of_more_sparsities_at_its_own_scale() -> None:
    assert sparsities(Wanted(scale="paper"), SHAPENET)[-1] == 0.9857
    assert 0.7 in sparsities(Wanted(scale="paper"), PSM)
    assert 0.9857 not in sparsities(Wanted(), SHAPENET)
    assert set(ACCURACY.cells(Wanted(scale="paper", resources_only=True))) <= set(
        MAIN.cells(Wanted(scale="paper", resources_only=True))
    )


def test_means_and_spreads_are_those_of_the_runs(tmp_path: Path) -> None:
    wanted = Wanted(seeds=3)
    results = crafted(ACCURACY, wanted, tmp_path)
    shown = ACCURACY.present(results, wanted)
    table = shown.table
    rows = rows_of(table, NETWORKS[PSM])
    assert [row["sparsity %"] for row in rows] == ["", "15.00", "30.00", "45.00", "46.20", "60.00"]
    assert [row["seeds"] for row in rows] == ["3", "1", "1", "1", "3", "1"]

    runs = [results[main.cell_of(wanted, PSM, "ranp-f", seed)] for seed in range(3)]
    epe = [run.epochs[-1]["valid"]["epe"] for run in runs]
    acc = [100 * run.epochs[-1]["valid"]["acc1"] for run in runs]
    last = rows[4]["last epoch, ± over seeds"]
    assert last.endswith(f"EPE {statistics.mean(epe):.2f} ± {statistics.stdev(epe):.2f}")
    assert last.startswith(f"Acc-1 {statistics.mean(acc):.2f} ± {statistics.stdev(acc):.2f}")
    assert rows[4]["paper's"].startswith("Acc-1 84.51 ± 0.56")
    assert rows[1]["paper's"] == ""

    single = results[main.cell_of(wanted, PSM, "ranp-f", 0, sparsity=0.15)]
    of_epochs = [record["valid"]["epe"] for record in single.epochs[-5:]]
    mean, spread = statistics.mean(of_epochs), statistics.stdev(of_epochs)
    assert rows[1]["last 5 epochs, ± over them"].endswith(f"EPE {mean:.2f} ± {spread:.2f}")
    assert rows[1]["last epoch, ± over seeds"].endswith(f"EPE {single.epochs[-1]['valid']['epe']:.2f}")
    assert rows[1]["method"] == "RANP-f" + ("†" if single.kept_one else "")
    assert f"({100 * (1 - single.slim.flops / single.full.flops):.1f})" in rows[1]["MFLOPs"]

    (record,) = (r for r in table.records if (r["network"], r["sparsity"]) == (PSM, 0.15))
    assert record["epe_mean_of_last_epochs"] == pytest.approx(mean)
    assert record["epe_std_over_seeds"] == ""


def test_the_drawing_has_every_point_and_the_full_network(tmp_path: Path) -> None:
    wanted = Wanted(seeds=2)
    results = crafted(ACCURACY, wanted, tmp_path)
    figures = ACCURACY.present(results, wanted).figures
    assert len(figures) == 5
    error = figures[f"accuracy-{PSM}-error"].axes[0]
    full = [results[main.cell_of(wanted, PSM, "full", seed)] for seed in range(2)]
    line, curve = error.lines
    means = [statistics.mean(record["valid"]["epe"] for record in run.epochs[-5:]) for run in full]
    assert line.get_ydata()[0] == pytest.approx(statistics.mean(means))
    assert curve.get_xdata().tolist() == [0.15, 0.3, 0.45, 0.462, 0.6]
    of_main = [results[main.cell_of(wanted, PSM, "ranp-f", seed)] for seed in range(2)]
    means = [statistics.mean(record["valid"]["epe"] for record in run.epochs[-5:]) for run in of_main]
    assert curve.get_ydata()[3] == pytest.approx(statistics.mean(means))
    marked = [
        one for one in [0.15, 0.3, 0.45, 0.6] if results[main.cell_of(wanted, PSM, "ranp-f", 0, sparsity=one)].kept_one
    ]
    marked += [0.462] if any(run.kept_one for run in of_main) else []
    assert sorted(text.xy[0] for text in error.texts) == sorted(marked)

    shares = figures[f"accuracy-{PSM}"].axes[0]
    assert len(shares.lines) == 4  # Acc-1 and Acc-3, each with the full network's in its colour
    assert [one.get_color() for one in shares.lines[:2]] == [one.get_color() for one in shares.lines[2:]]


def test_without_training_there_are_costs_and_no_drawing(tmp_path: Path) -> None:
    wanted = Wanted(scale="paper", resources_only=True)
    shown = ACCURACY.present(crafted(ACCURACY, wanted, tmp_path), wanted)
    assert not shown.figures
    assert [column.name for column in shown.table.columns][-1] == "Memory MB"

from __future__ import annotations

from pathlib import Path

import pytest

from ranp.paper.experiments import main
from ranp.paper.experiments.experiment import Wanted
from ranp.paper.experiments.main import MAIN
from ranp.paper.experiments.retained import RETAINED, ratios
from ranp.paper.experiments.texts import NETWORKS
from tests.support.crafted import crafted, rows_of


@pytest.mark.parametrize("wanted", [Wanted(), Wanted(quick=True), Wanted(scale="paper", resources_only=True)])
def test_it_has_no_cell_of_its_own(wanted: Wanted) -> None:
    cells = RETAINED.cells(wanted)
    assert set(cells) <= set(MAIN.cells(wanted))
    assert {cell.seed for cell in cells} == {0}
    assert {cell.method for cell in cells} == {"random", "layerwise", "vanilla", "weighted", "ranp-f"}


def test_ratios_are_those_of_the_widths(tmp_path: Path) -> None:
    wanted = Wanted(seeds=1)
    results = crafted(RETAINED, wanted, tmp_path)
    shown = RETAINED.present(results, wanted)
    table = shown.table
    network = "mobilenetv2-ucf101"
    result = results[main.cell_of(wanted, network, "vanilla", 0)]
    kept = sorted(number for number, _ in result.widths.values())
    row = rows_of(table, NETWORKS[network])[2]
    assert (row["layers"], row["least kept %"]) == ("5", f"{100 * kept[0] / 9:.1f}")
    assert (row["median %"], row["most kept %"]) == (f"{100 * kept[2] / 9:.1f}", f"{100 * kept[-1] / 9:.1f}")
    assert f"({kept[0]} of 9)" in row["layer that keeps least"]
    assert row["removed %"] == f"{100 * result.removed:.2f}"
    records = [one for one in table.records if (one["network"], one["method"]) == (network, "vanilla")]
    assert {one["layer"]: (one["kept"], one["channels"]) for one in records} == result.widths
    assert ratios(result) == {name: number / 9 for name, (number, _) in result.widths.items()}
    assert set(shown.figures) == {f"retained-{name}" for name in main.networks(wanted)}

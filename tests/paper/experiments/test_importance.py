from __future__ import annotations

from pathlib import Path

import pytest

from ranp.paper.experiments.experiment import Results, Wanted
from ranp.paper.experiments.importance import IMPORTANCE, cell_of
from ranp.paper.experiments.resources import RESOURCES
from ranp.paper.experiments.running import Place, run_all
from ranp.paper.experiments.texts import NETWORKS
from ranp.scoring.scores import Scores
from tests.support.crafted import only, rows_of

SHAPENET = "unet3d-shapenet"


def test_nothing_is_trained_and_scores_are_shared() -> None:
    cells = IMPORTANCE.cells(Wanted())
    assert not any(cell.trains for cell in cells)
    assert set(RESOURCES.cells(Wanted())) <= set(cells)
    assert {cell.recipe().network for cell in cells if cell.recipe().init == "orthogonal"} == {SHAPENET, "unet3d-brats"}
    assert {cell.recipe().network for cell in IMPORTANCE.cells(Wanted(scale="paper"))} == {SHAPENET, "unet3d-brats"}


def test_the_table_and_the_drawings_tell_what_was_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(SHAPENET, monkeypatch)
    wanted, place = Wanted(quick=True), Place(tmp_path)
    cells = IMPORTANCE.cells(wanted)
    found = dict(zip(cells, run_all(cells, place), strict=True))
    before = sorted(path.name for path in place.shelf.folder.glob("*.safetensors"))
    shown = IMPORTANCE.present(Results(place, found), wanted)
    assert sorted(path.name for path in place.shelf.folder.glob("*.safetensors")) == before  # nothing is scored again
    table = shown.table
    raw = {
        float(Scores.load(path)["encoders.0.conv1.0"].mean())
        for path in place.shelf.folder.glob("*mpmg-sum.safetensors")
    }
    told = {one["raw_mean"] for one in table.records if one["layer"] == "encoders.0.conv1.0"}
    assert sorted(told) == pytest.approx(sorted(raw))
    assert len(told) == 2
    for init in ("Glorot", "orthogonal"):
        first, balanced, last = rows_of(table, f"{NETWORKS[SHAPENET]}, {init} initialisation")
        means = [one["raw_mean"] for one in table.records if one["init"] == init.lower()]
        assert first["largest / smallest"] == f"{max(means) / min(means):.3g}"
        assert balanced["largest / smallest"] == "1"
        assert float(balanced["largest"]) == pytest.approx(max(means), rel=0.01)  # Eq. 8: all means are the largest
        assert float(last["smallest mean of a layer"]) > float(balanced["largest"])  # what a layer costs adds to it
    figure = shown.figures[f"importance-{SHAPENET}-initialisation"]
    result = found[cell_of(wanted, SHAPENET, "ranp-f", "orthogonal")]
    (line,) = (line for line in figure.axes[-1].lines if str(line.get_label()).startswith("RANP-f, orthogonal"))
    assert list(line.get_ydata()) == pytest.approx([kept / all_ for kept, all_ in result.widths.values()])
    assert set(shown.figures) == {f"importance-{SHAPENET}", f"importance-{SHAPENET}-initialisation"}

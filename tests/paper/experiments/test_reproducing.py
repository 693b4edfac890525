from __future__ import annotations

from pathlib import Path

import pytest

from ranp.errors import StorageError, UnsupportedError
from ranp.paper import experiments
from ranp.paper.experiments.experiment import Wanted
from ranp.paper.experiments.reproducing import reproduce_one, share_of
from ranp.paper.experiments.running import Place, run_cell
from tests.support.small_cells import SMALL, cell


def test_shares_make_the_table_between_them(tmp_path: Path) -> None:
    wanted = Wanted(seeds=1)
    assert reproduce_one(SMALL, wanted, tmp_path, share=(1, 2)) == []
    assert len(list((tmp_path / "cells").glob("*/result.json"))) == 1
    written = reproduce_one(SMALL, wanted, tmp_path, share=(2, 2), command="ranp reproduce small")
    assert [path.name for path in written] == ["small.md", "small.csv", "small.tex", "small.json"]
    text = (tmp_path / "small.md").read_text()
    assert "ranp reproduce small" in text
    for method in ("full", "ranp-f"):
        assert f"{run_cell(cell(method), Place(tmp_path)).figures['miou']:.6f}" in text


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "1/0", "-1/2", "a/b", "1/2/3"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match="is not K/N"):
        share_of(text)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="is a file"):
        reproduce_one(SMALL, Wanted(), tmp_path / "file")


def test_every_experiment_has_its_own_name_and_cells_at_both_scales() -> None:
    for name in experiments.names():
        one = experiments.get(name)
        assert one.name == name
        assert one.title
        assert one.label
        for wanted in (Wanted(), Wanted(quick=True), Wanted(scale="paper", resources_only=True)):
            cells = one.cells(wanted)
            assert cells, name
            assert len({each.id for each in cells}) == len(set(cells))
            assert all(each.scale == wanted.scale for each in cells)
            assert not (wanted.resources_only and any(each.trains for each in cells))
    with pytest.raises(UnsupportedError, match="mian"):
        experiments.get("mian")

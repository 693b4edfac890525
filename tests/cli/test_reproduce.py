from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ranp.cli import main
from ranp.paper import experiments
from ranp.paper.experiments.experiment import Wanted


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """An experiment whose cells run in a second, under the name of the main table."""
    from tests.support.small_cells import SMALL

    monkeypatch.setattr(experiments, "get", lambda name: SMALL)


@pytest.mark.usefixtures("small")
def test_a_table_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "main", "--out", str(tmp_path / "deep" / "out"), "--seeds", "1"]
    assert main(command) == 0
    told, progress = capsys.readouterr()
    assert re.search(r"\| ranp-f \| 0\.\d{6} \|", told)
    assert "wrote small.md, small.csv, small.tex, small.json" in told
    assert progress.count("cell ") == 2
    assert main([*command, "--json"]) == 0  # all is there: read, not run again
    told, progress = capsys.readouterr()
    assert [Path(path).name for path in json.loads(told)["files"]][:2] == ["small.md", "small.csv"]
    assert "cell " not in progress


@pytest.mark.usefixtures("small")
def test_shares_of_a_job_array_make_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "main", "--out", str(tmp_path), "--seeds", "1", "--cell"]
    assert main([*command, "2/2"]) == 0
    told, progress = capsys.readouterr()
    assert "no table yet" in told
    assert "1 of 2" in progress
    assert main([*command, "1/2"]) == 0
    assert (tmp_path / "small.md").is_file()


def test_the_list_holds_no_labels_of_the_papers_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    told = capsys.readouterr().out
    assert "a table" in told
    assert "3 figures" in told
    assert not re.search(r"\b(tb|fig):", told)


def test_what_there_is_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "--json"]) == 0
    found = {entry["name"]: int(entry["cells"]) for entry in json.loads(capsys.readouterr().out)}
    assert list(found) == list(experiments.names())
    assert found["main"] == len(experiments.get("main").cells(Wanted())) == 8 * 4 * 3

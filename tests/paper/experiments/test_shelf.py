from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from ranp.errors import StorageError
from ranp.paper.experiments.shelf import Shelf, claimed
from ranp.scoring.scores import Scores
from tests.support import processes


def test_what_is_on_the_shelf_is_not_made_again(tmp_path: Path) -> None:
    made: list[list[str]] = []

    def make(criteria: Sequence[str]) -> dict[str, Scores]:
        made.append(list(criteria))
        return {name: Scores({"conv": torch.tensor([len(made), 2.0])}, criterion=name) for name in criteria}

    shelf = Shelf(tmp_path / "scores")
    first = shelf.scores({"seed": 0}, ["mpmg-sum", "snip"], make)
    again = shelf.scores({"seed": 0}, ["snip", "mnmg-sum"], make)
    other = shelf.scores({"seed": 1}, ["snip"], make)
    assert made == [["mpmg-sum", "snip"], ["mnmg-sum"], ["snip"]]
    assert again["snip"] == first["snip"]
    assert other["snip"] != first["snip"]
    assert set(again) == {"snip", "mnmg-sum"}


def test_a_claim_keeps_others_out_and_ends_with_its_process(tmp_path: Path) -> None:
    lock = tmp_path / "deep" / "lock"
    program = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from ranp.paper.experiments.shelf import claimed
        with claimed(Path(sys.argv[1]), wait=True) as mine:
            print(mine, flush=True)
            time.sleep(600)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock)], stdout=subprocess.PIPE, text=True, env=processes.environment()
    ) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline().strip() == "True"
            with claimed(lock, wait=False) as mine:
                assert not mine
        finally:
            other.kill()
            other.wait()
    with claimed(lock, wait=False) as mine:
        assert mine


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Name another folder"), claimed(tmp_path / "file" / "lock", wait=True):
        pass

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from ranp.paper.experiments.shelf import Shelf
from ranp.scoring.scores import Scores


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

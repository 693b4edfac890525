"""What the slider says at each position is what the study says, and what is infeasible is told as such."""

from __future__ import annotations

import re

from ranp.page.charts import MANY
from ranp.page.detail import positions, slider_of, step_at
from ranp.page.templates import render
from tests.support.studies import STUDY

LESS = "\N{MINUS SIGN}"


def test_every_position_is_a_step_of_the_runs_own_method() -> None:
    own = STUDY.sweeps[0]
    found = positions(STUDY)
    assert [place["at"] for place in found] == [100 * step.sparsity for step in own.steps]
    for place, step in zip(found, own.steps, strict=True):
        assert place["feasible"][0] == step.feasible
        assert tuple(place["widths"][0]) == step.widths


def test_numbers_are_those_of_the_study() -> None:
    there = positions(STUDY)[2]
    assert there["cells"][0] == [
        "37.5 %",
        f"1.51 MFLOPs\n{LESS}74.9 %",
        f"0.24 MiB\n{LESS}50.0 %",
        f"555\n{LESS}55.0 %",
    ]
    assert there["cells"][1] == ["infeasible", *3 * ["\N{EN DASH}"]]
    assert there["text"] == (
        f"RANP-f at 50.0 % keeps 5 of 8 channels: 1.51 MFLOPs ({LESS}74.9 %), 0.24 MiB ({LESS}50.0 %), 555 parameters "
        f"({LESS}55.0 %). "
        "Vanilla NP is infeasible at 50.0 %: some layer would lose all its channels. Its largest feasible sparsity is "
        "26.00 %."
    )


def test_another_method_is_asked_at_its_nearest_step_and_says_at_which() -> None:
    assert step_at(STUDY.sweeps[1], 0.25).sparsity == 0.26
    assert "Vanilla NP at 26.0 % keeps 7 of 8 channels" in positions(STUDY)[1]["text"]
    assert step_at(STUDY.sweeps[1], 0.27).feasible is False
    assert step_at(STUDY.sweeps[0], 0.5).feasible is True


def test_the_slider_begins_where_the_run_was_pruned_and_all_it_moves_is_there() -> None:
    slider = slider_of(STUDY, "run-0", 0.26)
    body = render("slider.html", key="run-0", study=STUDY, slider=slider, many=MANY)
    assert 'value="1"' in body
    assert 'max="4"' in body
    assert len(re.findall("data-bar=", body)) == len(re.findall("data-width=", body)) == 6
    assert len(re.findall("data-cell=", body)) == 8
    assert [chart.key for chart in slider["charts"]] == ["run-0-flops", "run-0-memory", "run-0-params"]
    assert slider["positions"] == positions(STUDY)

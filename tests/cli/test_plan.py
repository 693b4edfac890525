"""``ranp plan``: what a plan keeps, what two of them say differently, and what an edit of one changes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import ranp
from ranp.cli import main

CODE = "tests.support.networks_to_name"


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two plans of one network."""
    home = tmp_path_factory.mktemp("plans")
    for name, sparsity in (("some", "0.3"), ("more", "0.5")):
        options = ["--input", "1x1x6x6x6", "--method", "random", "--sparsity", sparsity, "--out", str(home / name)]
        assert main(["prune", f"{CODE}:small", *options, "--no-tune"]) == 0
    return home / "some" / "plan.json", home / "more" / "plan.json"


def test_a_plan_is_shown(plans: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    plan = ranp.Plan.load(plans[0])
    value = json.loads(told(capsys, "plan", "show", plans[0], "--json"))
    assert value["widths"] == plan.widths
    assert value["channels"] == plan.channels
    assert value["requested"] == 0.3
    assert value["achieved"] == plan.sparsity.achieved
    assert value["settings"]["method"] == "random"
    lines = told(capsys, "plan", "show", plans[0]).splitlines()
    assert f"{plan.sparsity.removed} of {plan.sparsity.channels} channels removed" in lines[0]
    assert "method random" in lines[0]
    rows = {line.split()[0]: line.split()[1:3] for line in lines if line.split()[:1] and line.split()[0] in plan.widths}
    assert rows == {name: [str(plan.channels[name]), str(width)] for name, width in plan.widths.items()}


def test_a_run_folder_stands_for_its_plan(plans: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("show",), ("diff", plans[1])):
        verb, *before = words
        told_of_file = told(capsys, "plan", verb, *before, plans[0])
        assert told(capsys, "plan", verb, *before, plans[0].parent) == told_of_file


def test_an_edit_is_told_as_json(plans: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit = ("plan", "edit", plans[0], "--layer", "0", "--keep", "0-1", "--out", tmp_path / "new.json", "--json")
    changed = {change["layer"]: change["after"] for change in json.loads(told(capsys, *edit))}
    assert changed["0"] == 2 == ranp.Plan.load(tmp_path / "new.json").widths["0"]


def test_plans_are_compared(plans: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    some, more = map(ranp.Plan.load, plans)
    value = json.loads(told(capsys, "plan", "diff", *plans, "--json"))
    assert value
    for change in value:
        layer = change["layer"]
        assert (change["before"], change["after"]) == (some.widths[layer], more.widths[layer])
        assert set(change["dropped"]) == set(some.kept[layer]) - set(more.kept[layer])
        assert set(change["added"]) == set(more.kept[layer]) - set(some.kept[layer])
    text = told(capsys, "plan", "diff", *plans)
    assert all(change["layer"] in text for change in value)
    assert told(capsys, "plan", "diff", plans[0], plans[0]) == "the plans keep the same channels\n"
    assert json.loads(told(capsys, "plan", "diff", plans[0], plans[0], "--json")) == []


def test_a_bad_plan_is_refused(plans: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torn = tmp_path / "torn.json"
    torn.write_bytes(plans[0].read_bytes()[:-20])
    for arguments in (("show", torn), ("diff", plans[0], torn), ("diff", torn, plans[0])):
        assert main(["plan", *map(str, arguments)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"error: {str(torn)!r} is not readable JSON")
        assert captured.err.count("\n") == 1
    assert main(["plan", "show", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err


@pytest.mark.parametrize("budget", [5, [5], [{}], [{"resource": "flops", "after": 1, "limit": 0, "before": 1}]])
def test_strange_settings_are_refused(
    plans: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], budget: object
) -> None:
    value = json.loads(plans[0].read_text())
    value["settings"]["budget"] = budget
    (tmp_path / "plan.json").write_text(json.dumps(value))
    assert main(["plan", "show", str(tmp_path / "plan.json")]) == 2
    assert "name budgets that ranp did not write" in capsys.readouterr().err


def test_a_plan_is_edited(plans: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = ranp.Plan.load(plans[0])
    first, second = list(before.classes.layers)[:2]
    pairs = ["--layer", first, "--keep", "0, 1", "--layer", second, "--keep", "1-2"]
    text = told(capsys, "plan", "edit", plans[0], *pairs, "--out", tmp_path / "new.json")
    after = ranp.Plan.load(tmp_path / "new.json")
    assert (after.kept[first], after.kept[second]) == ((0, 1), (1, 2))
    assert after == before.edited(layer=first, keep=[0, 1]).edited(layer=second, keep=[1, 2])
    assert first in text
    assert second in text
    assert "edited since it was made" in told(capsys, "plan", "show", tmp_path / "new.json")
    assert "edited since it was made" not in told(capsys, "plan", "show", plans[0])
    assert json.loads(told(capsys, "plan", "show", tmp_path / "new.json", "--json"))["altered"] is True


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        (("--layer", "nowhere", "--keep", "0"), "unknown layer 'nowhere'"),
        (("--layer", "0", "--keep", "0-99"), "lie in 0-"),
        (("--layer", "0", "--keep", "x"), "not an index or a range"),
        (("--layer", "0", "--keep", "0", "--keep", "1"), "1 layers and 2 lists"),
        (("--layer", "0", "--keep", "0", "--layer", "0", "--keep", "1"), "each --layer once"),
    ],
)
def test_a_wrong_edit_is_refused(
    plans: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], pairs: tuple[str, ...], reason: str
) -> None:
    assert main(["plan", "edit", str(plans[0]), *pairs, "--out", str(tmp_path / "new.json")]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert reason in captured.err
    assert not (tmp_path / "new.json").exists()


@pytest.mark.parametrize("text", ["1e30", "8.7", "1e999", "-4", "true", "2147483649", '"4"'])
def test_an_absurd_size_is_refused(
    plans: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    absurd = tmp_path / "plan.json"
    absurd.write_text(
        re.sub(r'"channels": \d+,\s+"kept"', f'"channels": {text}, "kept"', plans[0].read_text(), count=1)
    )
    assert main(["plan", "show", str(absurd)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {str(absurd)!r} is not")
    assert captured.err.count("\n") == 1

"""``ranp report``: one file, its size, drawings on demand, and one line for a refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ranp.cli import main
from ranp.reporting.folder import write_run
from tests.support.run_folders import recipe, write_full, write_journal, write_pruned


def test_report_writes_one_file_and_the_drawings_that_were_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    write_pruned(runs / "ranp-f")
    write_full(runs / "full")
    for name in ("ranp-f", "full"):
        write_journal(runs / name, [2.0, 1.0], [{"miou": 0.1}, {"miou": 0.2}])
    out, figures = tmp_path / "report.html", tmp_path / "figures"
    status = main(["report", str(runs), "--out", str(out), "--title", "Mine & theirs", "--figures", str(figures)])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    assert "<title>Mine &amp; theirs</title>" in out.read_text(encoding="utf-8")
    assert f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)" in captured.out
    names = {path.name for path in figures.iterdir()}
    for name in (
        "ranp-f-importance",
        "ranp-f-resources",
        "shapenet-retained",
        "shapenet-scatter",
        "shapenet-convergence",
    ):
        assert {f"{name}.svg", f"{name}.pdf"} <= names
    assert f"wrote {len(names)} drawings" in captured.out
    assert main(["report", str(runs), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(out), "drawings": []}


@pytest.mark.parametrize("torn", [True, False])
def test_a_refusal_is_one_line_and_leaves_nothing(
    torn: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    if torn:
        (run / "recipe.json").write_text("{")
    assert main(["report", str(run), "--out", str(tmp_path / "report.html")]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ")
    assert ("recipe.json" if torn else "holds no run") in captured.err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_card_of_ones_own_is_asked_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", write_pruned(tmp_path / "run").with_step(), recipe())
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "run"), "--out", str(out), "--memory", "8GiB"]) == 0
    assert "In 8 GiB a training step of either network fits." in out.read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run"), "--out", str(out), "--memory", "8G"]) == 2
    assert "8GiB or 8GB?" in capsys.readouterr().err

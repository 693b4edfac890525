"""The notebooks run from top to bottom, and are kept without their output."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.real_data import real_data

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def cells(name: str) -> list[tuple[str, str]]:
    """Each code cell's id and text."""
    found = json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]
    return [(cell["id"], "".join(cell["source"])) for cell in found if cell["cell_type"] == "code"]


def run(name: str) -> list[Any]:
    """Runs the cells one after the other; returns what Jupyter would show, the value of each last line."""
    names: dict[str, object] = {"__name__": "notebook"}
    shown = []
    for cell, text in cells(name):
        tree = ast.parse(text)
        last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{name}, {cell}", "exec"), names)
        if last is not None:
            shown.append(eval(compile(last, f"{name}, {cell}", "eval"), names))
    return shown


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_tidy(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert text == json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["execution_count"], cell["outputs"]) == (None, [])


def test_the_quickstart_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    shown = [type(value).__name__ for value in run("quickstart.ipynb") if value is not None]
    assert shown == ["Trace", "Pruned", "Plan", "Scores", "Profile"]
    assert {"full:", "slim:"} <= set(capsys.readouterr().out.split())


@pytest.mark.slow
@pytest.mark.parametrize("real", [False, True], ids=["made", "real"])
def test_the_one_for_monai_runs(
    real: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("RANP_DATA", str(real_data("brats2015").parent) if real else "")
    monkeypatch.chdir(tmp_path)
    run("monai.ipynb")
    assert "Dice 0." in capsys.readouterr().out
    assert (tmp_path / "slim-unet.safetensors").is_file()

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from ranp.errors import StorageError
from ranp.files import atomic
from ranp.reporting.table import Column, Group, Table

COLUMNS = (Column("method", left=True), Column("GFLOPs"), Column("mIoU %", left=True))
GROUPS = (
    Group("ShapeNet, 3D-UNet", (("Full", "237.85", "83.79 ± 0.21"), ("RANP-f†", "7.54 (96.8)", "83.07 ± 0.22"))),
    Group("a_b & c", (("x|y", "1", "2"),)),
)


def table(**changes: object) -> Table:
    usual = {"caption": "100 % of it.", "notes": ("† kept one",), "figures": ("main.svg",), "command": "ranp reproduce"}
    return Table("main", "Main", COLUMNS, GROUPS, **{**usual, **changes})  # type: ignore[arg-type]


def test_markdown_has_every_cell_in_its_column() -> None:
    lines = [line for line in table().to_markdown().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").replace("\\|", "\0").split("|")] for line in lines]
    assert cells[0] == ["method", "GFLOPs", "mIoU %"]
    assert cells[1] == ["---", "---:", "---"]
    assert cells[3] == ["RANP-f†", "7.54 (96.8)", "83.07 ± 0.22"]
    assert cells[-1] == ["x\0y", "1", "2"]
    assert "![main](main.svg)" in table().to_markdown()


def test_csv_reads_back_as_the_records() -> None:
    records = ({"network": "a,b", "gflops": 7.541234567}, {"network": "c", "gflops": 1.0, "epe": 3.5})
    found = list(csv.DictReader(io.StringIO(table(records=records).to_csv())))
    assert found == [
        {"network": "a,b", "gflops": "7.541234567", "epe": ""},
        {"network": "c", "gflops": "1.0", "epe": "3.5"},
    ]
    plain = list(csv.DictReader(io.StringIO(table().to_csv())))
    assert [row["method"] for row in plain] == ["Full", "RANP-f†", "x|y"]


def test_latex_escapes_and_balances() -> None:
    text = table().to_latex()
    assert r"a\_b \& c" in text
    assert r"RANP-f\dag{} & 7.54 (96.8) & 83.07 $\pm$ 0.22 \\" in text
    assert r"100 \% of it." in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert text.count(r"\begin{") == text.count(r"\end{") == 2


def test_every_form_is_written(tmp_path: Path) -> None:
    (tmp_path / "main.svg").write_bytes(b"<svg/>")
    written = table().write(tmp_path)
    assert [path.name for path in written] == ["main.md", "main.csv", "main.tex", "main.json"]
    value = atomic.read_json(tmp_path / "main.json", kind="ranp-table", version=2)
    assert value["groups"][0]["rows"][1][0] == "RANP-f†"
    assert value["columns"][0] == {"name": "method", "left": True}
    assert value["figures"] == {"main.svg": atomic.checksum(b"<svg/>")}


def test_a_table_without_its_drawing_is_not_written_as_if_it_had_one(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"main\.svg"):
        table().write(tmp_path)
    assert not (tmp_path / "main.json").exists()


def test_a_row_of_another_length_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 3"):
        Table("main", "Main", COLUMNS, (Group("", (("x",),)),))

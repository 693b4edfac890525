from __future__ import annotations

import json
from pathlib import Path

import pytest

from ranp.cli import main

OWN = [
    "--model", "tests.support.comparable:model", "--batches", "tests.support.comparable:batches",
    "--loss", "torch.nn.functional:cross_entropy", "--train", "tests.support.comparable:train",
]  # fmt: skip
SMALL = [
    "--budget",
    "flops=30%",
    "--arm",
    "flat",
    "--arm",
    "tiny=ranp-f,min_channels=1",
    "--seeds",
    "2",
    "--rate",
    ".01",
]


def test_a_comparison_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "out"
    command = ["compare", *OWN, *SMALL, "--out", str(out)]
    assert main(command) == 0
    told, progress = capsys.readouterr()
    assert "flat widths" in told
    assert "tiny" in told
    assert "Fewer than 6 pairs: no interval." in told
    assert progress.count("cell ") == 4
    assert {"compare.md", "compare.csv", "compare.html"} <= {
        path.name for path in (tmp_path / "deep" / "out").iterdir()
    }
    assert main([*command, "--json"]) == 0  # all is there: read, not run again
    told, progress = capsys.readouterr()
    assert {run["arm"] for run in json.loads(told)["runs"]} == {"flat", "tiny"}
    assert "cell " not in progress


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([*OWN, *SMALL], "Pass --out DIR"),
        (["--out", "x", *SMALL], "in one way: --model, --batches, --loss and --train; --lightning; or --task"),
        (["--out", "x", "--task", "shapenet", *OWN], "in one way"),
        (["--out", "x", "--task", "shapenet", "--batch", "4"], "--batch is decided by the recipe of --task shapenet"),
        (["--out", "x", "--task", "shapenet", "--checkpointing"], "--checkpointing is decided by the recipe"),
        (["--out", "x", *OWN[:4]], "--loss, --train are missing. Pass all four."),
        (["--out", "x", *OWN, "--arm", "flat", "--reference", "ranp-f"], "--reference ranp-f is not an arm"),
        (["--out", "x", *OWN, "--metric", "dice", *SMALL], "unknown metric 'dice'. Allowed: loss, right."),
        (["--out", "x", "--task", "shapnet"], "shapenet"),
        pytest.param(
            ["--out", "x", *OWN, *SMALL, "--cluster", "tcp://127.0.0.1:9"],
            "no Dask scheduler answers",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_bad_input_is_one_line(
    given: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *given]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert words in told[-1]
    assert told[-1].startswith("error: ")

"""Progress for those who look and for those who read a log, and nothing that steers a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ranp.cli import console, main

CODE = "tests.support.networks_to_name"


def until(seen: Callable[[], bool]) -> None:
    """Waits for what another thread does."""
    for _ in range(10_000):
        if seen():
            return
        time.sleep(0.001)
    raise AssertionError("it never came")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """Lines at once, and all those there have been."""
    monkeypatch.setattr(console, "EVERY", 0.001)
    read: list[str] = []

    def lines() -> list[str]:
        read.extend(capsys.readouterr().err.splitlines())
        return read

    return lines


def test_a_log_tells_what_is_done_of_how_many_and_the_time_left(log: Callable[[], list[str]]) -> None:
    with console.progress_bars("working") as move:
        until(lambda: "working, 0:00:00 so far" in log())  # before anything is counted
        move("training", 1, 4, "loss 2")
        until(lambda: "training 1 of 4: loss 2" in log())
        move("training", 2, 4, "loss 1")
        until(lambda: "training 2 of 4, 0:00:00 left: loss 1" in log())
        seen = len(log())
        until(lambda: "training 2 of 4, 0:00:00 left" in log()[seen:])  # nothing moves: still a sign of life
        move("training", 4, 4, "")
    assert log()[-1] == "training 4 of 4"


def test_what_fails_soon_leaves_nothing_to_read_but_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with console.progress_bars("working") as move:
            move("training", 1, 4, "")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert capsys.readouterr().err == ""


def test_whole_lines_tell_the_time_left_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 50.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.progress_bars("working", lines=("cell",)) as move:
        now = 60.0
        move("cell", 3, 5, "a")  # two were there before
        now = 70.0
        move("cell", 5, 5, "b")
    assert capsys.readouterr().err.splitlines() == ["cell 3 of 5, 0:00:20 left: a", "cell 5 of 5: b"]


def test_where_somebody_looks_there_are_bars(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with console.progress_bars("working") as move:
        move("training", 1, 2, "loss 2")
    shown = capsys.readouterr().err
    assert "━" in shown
    assert "1/2" in shown
    assert "left" in shown


def test_quiet_is_quiet(log: Callable[[], list[str]]) -> None:
    with console.progress_bars("working", quiet=True, lines=("cell",)) as move:
        move("training", 1, 2, "")
        move("cell", 1, 2, "")
    assert log() == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (f"prune {CODE}:small --batches {CODE}:batches --loss {CODE}:loss --sparsity 0.3 --dry-run", "scoring"),
        (f"search {CODE}:small --batches {CODE}:batches --loss {CODE}:loss", "scoring"),
        (f"fit {CODE}:small --input 1x1x16x16x16 --memory 1GiB", "the network as it is"),
    ],
)
def test_verbs_tell_of_how_many(words: str, line: str, log: Callable[[], list[str]]) -> None:
    assert main(words.split()) == 0
    assert any(said.startswith(line) and " of " in said for said in log())


def test_exporting_tells_its_steps(log: Callable[[], list[str]], tmp_path: Path) -> None:
    data = f"--batches {CODE}:batches --loss {CODE}:loss --sparsity 0.3 --no-tune"
    assert main(f"prune {CODE}:small {data} --out {tmp_path / 'run'}".split()) == 0
    assert main(f"export {tmp_path / 'run'} --format torch-export --trust --out {tmp_path / 'x.pt2'}".split()) == 0
    assert any(said.startswith("exporting 2 of 3") for said in log())

"""The journal: appended line by line, readable after a crash, never telling a step twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ranp.errors import StorageError
from ranp.files.checkpoints import Mark
from ranp.files.journal import Journal, kept
from ranp.reporting.folder import RunFolder


def records(folder: Path) -> list[dict[str, object]]:
    return RunFolder(folder).records()


def step(number: int, loss: float = 1.0) -> dict[str, object]:
    return {"kind": "step", "step": number, "loss": loss}


def written(folder: Path, count: int) -> Mark:
    """Writes a journal of so many steps."""
    journal = Journal(folder, Mark(), 0, tensorboard=False)
    for number in range(1, count + 1):
        journal.write(step(number))
    journal.close()
    return journal._mark


def lines(folder: Path) -> list[str]:
    return (folder / "metrics.jsonl").read_text().splitlines()


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Mark(), 0, tensorboard=False)
    journal.write(step(1))
    assert records(tmp_path) == [step(1)]  # at once, not at the end
    journal.write({**step(2), "valid": {"miou": 0.1 + 0.2}})
    journal.close()
    assert records(tmp_path) == [step(1), {**step(2), "valid": {"miou": 0.1 + 0.2}}]


def test_a_run_that_goes_on_drops_what_it_will_tell_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Mark(), 0, tensorboard=False)
    journal.write(step(1))
    journal.write(step(2))
    mark = journal.mark()
    journal.write(step(3))
    journal.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"kind": "step", "st')  # killed in the middle of a line
    again = Journal(tmp_path, mark, 2, tensorboard=False)
    again.write(step(3, 7.0))
    again.close()
    assert records(tmp_path) == [step(1), step(2), step(3, 7.0)]


def test_nan_is_null(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Mark(), 0, tensorboard=False)
    journal.write({**step(1, float("nan")), "valid": {"miou": float("inf")}})
    journal.close()
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["loss"] is None


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    written(tmp_path, 3)
    first, _, last = lines(tmp_path)
    for second in ("nonsense", "[1]", '{"kind": "step"}', '{"step": 1, "step": 2}'):
        (tmp_path / "metrics.jsonl").write_text("".join(line + "\n" for line in (first, second, last)))
        with pytest.raises(StorageError, match=r"line 2 of .*metrics\.jsonl"):
            records(tmp_path)


def test_every_changed_digit_and_every_lost_or_moved_line_is_found(tmp_path: Path) -> None:
    written(tmp_path, 4)
    path = tmp_path / "metrics.jsonl"
    text = path.read_text()
    for place, old in enumerate(text):
        if old.isdigit():
            path.write_text(text[:place] + str((int(old) + 1) % 10) + text[place + 1 :])
            with pytest.raises(StorageError, match=r"line \d of .*metrics\.jsonl.* changed since it was written"):
                records(tmp_path)
    whole = text.splitlines(keepends=True)
    for order in ([1, 2, 3], [0, 2, 3], [1, 0, 2, 3], [0, 0, 1, 2, 3], [0, 1, 3, 2]):
        path.write_text("".join(whole[index] for index in order))
        with pytest.raises(StorageError, match="lines before it are lost"):
            records(tmp_path)


def test_the_lines_of_a_journal_are_json_for_everybody(tmp_path: Path) -> None:
    written(tmp_path, 2)
    assert [json.loads(line)["loss"] for line in lines(tmp_path)] == [1.0, 1.0]


def test_lines_lost_at_the_end_are_found_where_a_checkpoint_remembers_them(tmp_path: Path) -> None:
    mark = written(tmp_path, 3)
    whole = lines(tmp_path)
    for left in (2, 1, 0):
        (tmp_path / "metrics.jsonl").write_text("".join(line + "\n" for line in whole[:left]))
        with pytest.raises(StorageError, match=rf"lost lines at its end: it has {left}, and had 3"):
            Journal(tmp_path, mark, 3, tensorboard=False)
    (tmp_path / "metrics.jsonl").unlink()
    with pytest.raises(StorageError, match="it has 0, and had 3"):
        Journal(tmp_path, mark, 3, tensorboard=False)


def test_the_journal_of_another_run_is_found(tmp_path: Path) -> None:
    mark = written(tmp_path, 3)
    with pytest.raises(StorageError, match="of another run"):
        kept(tmp_path, Mark(2, mark.seal))


def test_tensorboard_gets_the_same_figures(tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    journal = Journal(tmp_path, Mark(), 0, tensorboard=True)
    journal.write({"kind": "epoch", "epoch": 1, "step": 4, "loss": 0.5, "valid": {"miou": 0.25}})
    journal.close()
    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("epoch/miou")] == [(4, 0.25)]
    assert [(e.step, e.value) for e in events.Scalars("epoch/loss")] == [(4, 0.5)]

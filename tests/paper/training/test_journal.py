"""The journal: appended line by line, readable after a crash, never telling a step twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ranp.errors import StorageError
from ranp.paper.training.journal import Journal, records


def step(number: int, loss: float = 1.0) -> dict[str, object]:
    return {"kind": "step", "step": number, "loss": loss}


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0, tensorboard=False)
    journal.write(step(1))
    assert records(tmp_path) == [step(1)]  # at once, not at the end
    journal.write({**step(2), "valid": {"miou": 0.1 + 0.2}})
    journal.close()
    assert records(tmp_path) == [step(1), {**step(2), "valid": {"miou": 0.1 + 0.2}}]


def test_a_run_that_goes_on_drops_what_it_will_tell_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0, tensorboard=False)
    for number in (1, 2, 3):
        journal.write(step(number))
    journal.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"kind": "step", "st')  # killed in the middle of a line
    again = Journal(tmp_path, 2, tensorboard=False)
    again.write(step(3, 7.0))
    again.close()
    assert records(tmp_path) == [step(1), step(2), step(3, 7.0)]


def test_nan_is_null(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0, tensorboard=False)
    journal.write({**step(1, float("nan")), "valid": {"miou": float("inf")}})
    journal.close()
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["loss"] is None


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\nnonsense\n{"step": 2}\n')
    with pytest.raises(StorageError, match=r"line 2 of .*metrics\.jsonl"):
        records(tmp_path)


def test_tensorboard_gets_the_same_figures(tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    journal = Journal(tmp_path, 0, tensorboard=True)
    journal.write({"kind": "epoch", "epoch": 1, "step": 4, "loss": 0.5, "valid": {"miou": 0.25}})
    journal.close()
    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("epoch/miou")] == [(4, 0.25)]
    assert [(e.step, e.value) for e in events.Scalars("epoch/loss")] == [(4, 0.5)]

"""Progress: logged now and then, never after the fact."""

from __future__ import annotations

import logging

import pytest

from ranp import progress


def test_the_log_gets_the_end_and_little_before_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    report = progress.logged(logging.getLogger("ranp"), seconds=10)
    with caplog.at_level(logging.INFO, "ranp"):
        for now in range(25):
            report("training", now + 1, 25, f"at {now}")
        progress.under("validating", report)(3, None)  # type: ignore[misc]
    assert caplog.messages == [
        "training 11 of 25, 0:00:14 left: at 10",
        "training 21 of 25, 0:00:04 left: at 20",
        "training 25 of 25: at 24",
        "validating 3 of 3",
    ]
    assert progress.under("anything", None) is None


def test_the_time_that_is_left_follows_from_the_rate() -> None:
    pace = progress.Pace()
    pace.move(100.0, 4, 10)  # the first of it: nobody knows when it began
    assert pace.left(100.0) is None
    pace.move(103.0, 5, 10)
    assert pace.left(103.0) == 3.0 * 5
    assert pace.left(113.0) == 3.0 * 5 - 10
    assert pace.left(200.0) == 0.0
    assert pace.line("x", 103.0) == "x 5 of 10, 0:00:15 left"
    pace.move(130.0, 10, 10)
    assert pace.is_over
    assert pace.line("x", 130.0, "done") == "x 10 of 10: done"
    pace.move(140.0, 1, None)  # begins anew, of nobody knows how many
    assert not pace.is_over
    assert pace.line("x", 140.0) == "x 1"


def test_what_an_earlier_start_has_done_took_no_time_of_this_one() -> None:
    pace = progress.Pace(begun=0.0)
    pace.move(8.0, 51, 54)
    assert pace.left(8.0) == 24.0

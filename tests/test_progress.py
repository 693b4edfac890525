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
        "training 11 of 25: at 10",
        "training 21 of 25: at 20",
        "training 25 of 25: at 24",
        "validating 3 of 3",
    ]
    assert progress.under("anything", None) is None

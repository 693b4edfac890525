"""How long work says how far it is: two kinds of functions that are called with it, and what makes one of the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["Labelled", "Progress", "logged", "silent", "under"]

Progress = Callable[[int, int | None], object]
"""``(done, of how many)``; None where nobody knows how many there will be."""

Labelled = Callable[[str, int, int, str], object]
"""``(what is going on, done, of how many, remark)``, for work of several kinds."""


def silent(label: str, done: int, total: int, remark: str) -> None:
    """Tells nobody."""


def under(label: str, report: Labelled | None) -> Progress | None:
    """Reports one kind of work under its label; None where nobody listens."""
    return None if report is None else lambda done, total: report(label, done, total or done, "")


def logged(logger: logging.Logger, seconds: float = 10.0) -> Labelled:
    """Logs the end of every kind of work, and before that no more than a line in so many seconds.

    >>> report = logged(logging.getLogger("ranp"))
    >>> report("training", 1, 2, "loss 0.5")
    """
    last: dict[str, float] = {}

    def report(label: str, done: int, total: int, remark: str) -> None:
        now = time.monotonic()
        if done >= total or now - last.setdefault(label, now) >= seconds:
            last[label] = now
            logger.info("%s %d of %d%s", label, done, total, f": {remark}" if remark else "")

    return report

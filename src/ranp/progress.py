"""How long work says how far it is: two kinds of functions that are called with it, and the time that is left."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable

Progress = Callable[[int, int | None], object]
"""``(done, of how many)``; None where nobody knows how many there will be."""

Labelled = Callable[[str, int, int, str], object]
"""``(what is going on, done, of how many, remark)``, for work of several kinds."""


def silent(label: str, done: int, total: int | None, remark: str = "") -> None:
    """Tells nobody."""


def under(label: str, report: Labelled | None) -> Progress | None:
    """Reports one kind of work under its label; None where nobody listens."""
    return None if report is None else lambda done, total: report(label, done, total or done, "")


class Pace:
    """How far one kind of work is, and the time that the rest takes at the rate so far.

    >>> pace = Pace(0.0)
    >>> pace.move(10.0, 1, 4)
    >>> pace.left(10.0)
    30.0
    >>> pace.line("training", 12.0, "loss 0.5")
    'training 1 of 4, 0:00:28 left: loss 0.5'

    Args:
        begun: When it began; default when it is first told of, and then its rate is known from the second time on.
    """

    def __init__(self, begun: float | None = None) -> None:
        self._begun, self._first = begun, 0
        self._moved: float | None = None
        self.done, self.total = 0, None  # type: int, int | None

    def move(self, now: float, done: int, total: int | None) -> None:
        """Takes how much is done; less than before means that the work began anew."""
        if self._begun is None or done < self.done:
            self._begun, self._first = now, done
        elif self._moved is None:
            self._first = max(done - 1, 0)  # what an earlier start had done took none of this time
        self._moved, self.done, self.total = now, done, total

    @property
    def is_over(self) -> bool:
        """Whether all is done; never where nobody knows how much there is."""
        return self.total is not None and self.done >= self.total

    def left(self, now: float) -> float | None:
        """Seconds until all is done; None where nothing tells."""
        if self._begun is None or self._moved is None or self.total is None:
            return None
        if self.is_over or self.done <= self._first:
            return None
        rate = (self._moved - self._begun) / (self.done - self._first)
        return max(0.0, rate * (self.total - self.done) - (now - self._moved))

    def line(self, label: str, now: float, remark: str = "") -> str:
        """All of that in words."""
        left = self.left(now)
        count = f"{self.done} of {self.total}" if self.total else f"{self.done}"
        rest = "" if left is None else f", {duration(left)} left"
        return f"{label} {count}{rest}" + (f": {remark}" if remark else "")


def duration(seconds: float) -> str:
    """Seconds for people: ``0:01:15``."""
    return str(datetime.timedelta(seconds=round(seconds)))


def logged(logger: logging.Logger, seconds: float = 10.0) -> Labelled:
    """Logs the end of every kind of work, and before that no more than a line in so many seconds.

    >>> report = logged(logging.getLogger("ranp"))
    >>> report("training", 1, 2, "loss 0.5")
    """
    last: dict[str, float] = {}
    paces: dict[str, Pace] = {}

    def report(label: str, done: int, total: int, remark: str) -> None:
        now, pace = time.monotonic(), paces.setdefault(label, Pace())
        pace.move(now, done, total)
        if done >= total or now - last.setdefault(label, now) >= seconds:
            last[label] = now
            logger.info("%s", pace.line(label, now, remark))

    return report

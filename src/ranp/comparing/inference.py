"""What paired runs say: differences with confidence intervals, and how sure one may be of several at once."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ranp.errors import UnsupportedError

CONFIDENCE = 0.95
ENOUGH = 6
"""Pairs from which on an interval is given: with fewer, no test can find anything at 5 %."""
_RESAMPLES = 9999


@dataclass(frozen=True, slots=True)
class Difference:
    """By how much an arm is better than another, over runs that share their seeds.

    Attributes:
        mean: Above 0 where the arm is better.
        low: Lower end of the 95 % interval (BCa bootstrap); minus infinity where there are fewer than ``ENOUGH`` pairs.
        high: Its upper end.
        wins: Pairs in which the arm is better.
        pairs: How many there are.
        p: Of Wilcoxon's signed-rank test, two-sided; 1 where there are fewer pairs.
    """

    mean: float
    low: float
    high: float
    wins: int
    pairs: int
    p: float

    def __str__(self) -> str:
        interval = f" [{self.low:+.4f}, {self.high:+.4f}]" if math.isfinite(self.low) else ""
        return f"{self.mean:+.4f}{interval}"


def difference(better: Sequence[float]) -> Difference:
    """The difference of pairs.

    Args:
        better: By how much the arm is better in each pair; finite.

    Raises:
        UnsupportedError: SciPy is not installed.

    >>> difference([0.5] * 6).low, difference([0.1, 0.2]).low
    (0.5, -inf)
    """
    values = np.asarray(better, dtype=float)
    mean = float(values.mean()) if len(values) else math.nan
    wins = int((values > 0).sum())
    if len(values) < ENOUGH:
        return Difference(mean, -math.inf, math.inf, wins, len(values), 1.0)
    if np.ptp(values) < 1e-12:
        return Difference(mean, mean, mean, wins, len(values), 1.0)
    stats = scipy_stats()
    interval = stats.bootstrap(
        (values,), np.mean, n_resamples=_RESAMPLES, confidence_level=CONFIDENCE, method="BCa", rng=0
    ).confidence_interval
    p = float(stats.wilcoxon(values).pvalue)
    return Difference(mean, float(interval.low), float(interval.high), wins, len(values), p)


def holm(ps: Mapping[str, float]) -> dict[str, float]:
    """P-values corrected for how many there are (Holm): each may be read as if it stood alone.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    found, least = dict[str, float](), 0.0
    for rank, (name, p) in enumerate(sorted(ps.items(), key=lambda pair: pair[1])):
        least = max(least, min(1.0, (len(ps) - rank) * p))
        found[name] = least
    return found


def percentile(value: float, others: Sequence[float]) -> float | None:
    """The share of others that are worse, ties counting half; higher is better. None where there are none.

    >>> percentile(2.0, [1.0, 2.0, 3.0, 0.0])
    62.5
    """
    if not others:
        return None
    return 100 * statistics.fmean(1.0 if other < value else 0.5 if other == value else 0.0 for other in others)


def scipy_stats() -> Any:
    """SciPy's statistics.

    Raises:
        UnsupportedError: SciPy is not installed.
    """
    try:
        return import_module("scipy.stats")
    except ImportError as error:
        raise UnsupportedError("a comparison needs SciPy. Install it with: pip install 'ranp[compare]'.") from error

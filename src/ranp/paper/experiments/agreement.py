"""How far two plans, and the scores they were made of, agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ranp.choosing.plan import Plan
from ranp.scoring.scores import Scores

__all__ = ["Agreement", "agreement", "rank_correlation"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two plans of one network agree, over the layers that either of them cuts.

    Attributes:
        shared: Channels that both keep, as a share of those that the second keeps.
        chance: What that would be if the first kept as many channels of each layer, drawn blindly.
        apart: Differences of widths, added up, as a share of the widths of the second.
    """

    shared: float
    chance: float
    apart: float


def agreement(one: Plan, other: Plan) -> Agreement:
    """How far a plan agrees with another; 1, what follows from the widths, and 0 where neither cuts anything."""
    cut = [name for name, count in other.channels.items() if min(one.widths[name], other.widths[name]) < count]
    kept = sum(other.widths[name] for name in cut)
    if not kept:
        return Agreement(1.0, 1.0, 0.0)
    both = sum(len(set(one.kept[name]) & set(other.kept[name])) for name in cut)
    chance = sum(one.widths[name] * other.widths[name] / other.channels[name] for name in cut)
    apart = sum(abs(one.widths[name] - other.widths[name]) for name in cut)
    return Agreement(both / kept, chance / kept, apart / kept)


def rank_correlation(one: Scores, other: Scores) -> float:
    """Spearman's correlation of the raw scores inside each layer, its mean weighted by channels.

    Between layers scores differ by orders of magnitude at any size, so that over the whole network it would always be
    near 1. Layers of equal scores have no ranks and are left out.
    """
    total, weight = 0.0, 0
    for name in other:
        ranks = [_ranks(scores[name].numpy()) for scores in (one, other)]
        if all(np.ptp(values) > 0 for values in ranks):
            total += len(ranks[0]) * float(np.corrcoef(*ranks)[0, 1])
            weight += len(ranks[0])
    return total / weight if weight else 1.0


def _ranks(values: Any) -> Any:
    """Ranks from 0, equal values at their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[inverse]

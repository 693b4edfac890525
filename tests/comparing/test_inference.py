from __future__ import annotations

import math

import numpy as np
import pytest

from ranp.comparing.inference import difference, holm, percentile


def test_an_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    found = [difference(random.normal(0.3, 1.0, 16).tolist()) for _ in range(150)]
    covered = sum(one.low <= 0.3 <= one.high for one in found) / len(found)
    assert 0.86 <= covered <= 0.99
    assert all(one.low <= one.mean <= one.high for one in found)


def test_a_clear_difference_is_clear_and_none_is_none() -> None:
    clear = difference([0.1, 0.12, 0.09, 0.11, 0.1, 0.13, 0.08, 0.12])
    assert clear.low > 0
    assert clear.p == pytest.approx(2 / 2**8)  # all of 8 signs alike, counted by hand
    assert (clear.wins, clear.pairs) == (8, 8)
    none = difference([0.1, -0.1, 0.2, -0.2, 0.05, -0.06])
    assert none.low < 0 < none.high


@pytest.mark.parametrize("values", [[], [0.5], [0.5, 0.7, 0.6, 0.8, 0.5]])
def test_few_pairs_claim_nothing(values: list[float]) -> None:
    found = difference(values)
    assert (found.p, found.low, found.high) == (1.0, -math.inf, math.inf)
    assert "[" not in str(found)


def test_holm_never_makes_a_p_smaller_and_keeps_their_order() -> None:
    ps = dict(zip("abcde", (0.2, 0.01, 0.04, 0.011, 0.9), strict=True))
    corrected = holm(ps)
    assert all(corrected[name] >= p for name, p in ps.items())
    assert sorted(corrected, key=lambda name: (corrected[name], ps[name])) == sorted(ps, key=lambda name: ps[name])
    assert corrected["b"] == pytest.approx(5 * 0.01)
    assert corrected["d"] == pytest.approx(max(5 * 0.01, 4 * 0.011))
    assert max(corrected.values()) <= 1


def test_a_percentile_counts_those_that_are_worse() -> None:
    others = [0.1, 0.2, 0.3, 0.4]
    assert [percentile(value, others) for value in (0.0, 0.25, 0.4, 1.0)] == [0.0, 50.0, 87.5, 100.0]
    assert percentile(0.3, []) is None

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from ranp.paper.experiments.agreement import agreement, rank_correlation
from ranp.scoring.scores import Scores
from tests.support.small_plans import cut_plan


def test_agreement_is_counted_over_layers_that_are_cut() -> None:
    small, large = cut_plan(a=(0, 1, 2), b=(0, 5)), cut_plan(a=(1, 2), b=(0, 1, 2))
    found = agreement(small, large)
    assert found.shared == pytest.approx((2 + 1) / 5)  # the head is whole in both
    assert found.apart == pytest.approx((1 + 1) / 5)
    drawn = [  # what blind choices of 3 of 4 and 2 of 6 share with the large plan, over all of them
        len(set(one) & {1, 2}) + len(set(other) & {0, 1, 2})
        for one, other in itertools.product(itertools.combinations(range(4), 3), itertools.combinations(range(6), 2))
    ]
    assert found.chance == pytest.approx(np.mean(drawn) / 5)
    same = agreement(large, large)
    assert (same.shared, same.apart) == (1.0, 0.0)
    assert agreement(cut_plan(), cut_plan()).shared == 1.0


def test_rank_correlation_is_spearmans_inside_layers() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.rand(50, generator=generator), torch.rand(50, generator=generator)
    ranks = [values.argsort().argsort().double() for values in (first, second)]
    expected = 1 - 6 * float(((ranks[0] - ranks[1]) ** 2).sum()) / (50 * (50**2 - 1))  # the textbook, without ties
    one, other = Scores({"a": first}), Scores({"a": second})
    assert rank_correlation(one, other) == pytest.approx(expected)
    assert rank_correlation(one, Scores({"a": 1000 * first**3})) == pytest.approx(1.0)
    assert rank_correlation(one, Scores({"a": 1 - first})) == pytest.approx(-1.0)
    tied = Scores({"a": torch.tensor([1.0, 1.0, 2.0, 3.0]), "b": torch.ones(9)})
    against = Scores({"a": torch.tensor([1.0, 2.0, 3.0, 4.0]), "b": torch.rand(9, generator=generator)})
    assert rank_correlation(tied, against) == pytest.approx(np.corrcoef([1.5, 1.5, 3, 4], [1, 2, 3, 4])[0, 1])

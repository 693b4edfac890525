"""Folds: every case validates once, and every fold has its share of both grades."""

from __future__ import annotations

from collections import Counter

import pytest

from ranp.errors import DataError
from ranp.paper.tasks.brats.folds import folds_of, split


@pytest.mark.parametrize(("high", "low"), [(210, 75), (8, 3), (7, 7), (0, 13), (3, 2), (1, 1)])
def test_folds_are_a_partition_with_equal_shares(high: int, low: int) -> None:
    grades = ["HGG"] * high + ["LGG"] * low
    folds = folds_of(len(grades))
    assert folds == (5 if len(grades) >= 10 else 2)
    parts = [split(grades, fold) for fold in range(folds)]
    assert sorted(n for _, valid in parts for n in valid) == list(range(len(grades)))
    for train, valid in parts:
        assert sorted(train + valid) == list(range(len(grades)))
    for count in (
        [len(valid) for _, valid in parts],
        *([Counter(grades[n] for n in valid)[grade] for _, valid in parts] for grade in ("HGG", "LGG")),
    ):
        assert max(count) - min(count) <= 1


def test_brats_18_is_228_to_57() -> None:
    train, valid = split(["HGG"] * 210 + ["LGG"] * 75, 3)
    assert (len(train), len(valid)) == (228, 57)
    assert sum(n < 210 for n in valid) == 42


def test_folds_are_shuffled_and_always_the_same() -> None:
    grades = ["HGG"] * 40
    assert split(grades, 1) == split(list(grades), 1)
    assert split(grades, 1)[1] != list(range(1, 40, 5))


@pytest.mark.parametrize(("count", "fold", "allowed"), [(20, 5, "0 to 4"), (20, -1, "0 to 4"), (4, 2, "0 to 1")])
def test_a_fold_that_is_not_there_is_refused(count: int, fold: int, allowed: str) -> None:
    with pytest.raises(DataError, match=rf"fold={fold}: {count} cases have folds {allowed}.*Set fold"):
        split(["HGG"] * count, fold)


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_cases_are_refused(count: int) -> None:
    with pytest.raises(DataError, match=rf"{count} complete cases? found; at least 2 are needed"):
        split(["LGG"] * count, 0)

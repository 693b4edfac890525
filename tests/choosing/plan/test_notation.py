"""Indices and classes as text: short, exact, and bounded before anything is built."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranp.choosing.plan import format_classes, format_indices, parse_classes, parse_indices
from tests.support.small_plans import indices


@given(indices())
def test_ranges_round_trip_and_are_shortest(drawn: tuple[int, tuple[int, ...]]) -> None:
    size, keep = drawn
    text = format_indices(keep)
    assert parse_indices(text, size) == keep
    runs = sum(index - 1 not in keep for index in keep)
    assert len(text.split(", ")) == runs


@pytest.mark.parametrize(
    "text", ["", " ", "a", "1-", "-1", "3-2", "1, 1", "2, 1", "0-3, 3-4", "0-10", "1.0", "\u0663", "0--1", "1e1", "+1"]
)
def test_wrong_ranges_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="range"):
        parse_indices(text, 10)


def test_huge_numbers_are_refused_before_they_are_built() -> None:
    with pytest.raises(ValueError, match="lie in 0-9"):
        parse_indices("0-9999999999", 10)
    with pytest.raises(ValueError, match="digits"):
        parse_indices("0-" + "9" * 5000, 10)
    for text in ("1-9999999999", "1*9999999999", "1-99999*99999"):
        with pytest.raises(ValueError, match="too many"):
            parse_classes(text, 1000)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(1, 4), st.integers(1, 3))
def test_classes_round_trip(numbers: list[int], times: int, copies: int) -> None:
    classes = tuple(number for number in numbers for _ in range(times)) * copies
    assert parse_classes(format_classes(classes), len(classes)) == classes
    with pytest.raises(ValueError, match="too many"):
        parse_classes(format_classes(classes), len(classes) - 1)


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        (range(1, 65), "1-64"),
        ([*range(1, 33), *range(65, 97)], "1-32, 65-96"),
        ([number for number in range(1, 65) for _ in range(49)], "1-64*49"),
        ([0, 0, 0, 1, 2], "0*3, 1-2"),
        ([0, 1, 2], "0, 1-2"),
        ([1, 2, 1, 2], "1-2, 1-2"),
        ([3, 2, 2, 3, 3], "3, 2-3*2"),
    ],
)
def test_how_classes_are_written(classes: list[int], text: str) -> None:
    assert format_classes(tuple(classes)) == text


@pytest.mark.parametrize("text", ["", "x", "1-", "2-1", "1*0", "1**2", "1*2-3", "-1", "1.5", "\u0663"])
def test_wrong_classes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"class|count up"):
        parse_classes(text, 10)

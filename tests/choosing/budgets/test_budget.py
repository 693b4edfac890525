"""Budgets as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranp.choosing.budgets.budget import Budget, budget_lines, parse_all, share_above, spent
from ranp.costs.quantities import QUANTITIES
from ranp.errors import UnsupportedError


@pytest.mark.parametrize(
    ("text", "full", "limit"),
    [
        ("flops=5%", 400.0, 20.0),
        ("macs=7.5G", 1.0, 7.5e9),
        ("params=1M", 1.0, 1e6),
        ("params=1_500_000", 1.0, 1.5e6),
        ("memory=25%", 8.0, 2.0),
        ("memory=4MiB", 1.0, 2**22),
        ("train-memory=8GiB", 1.0, 8 * 2**30),
        ("train-memory=8GB", 1.0, 8e9),
        ("train-memory=12345B", 1.0, 12345.0),
        ("step-time=4x", 2.0, 0.5),
        ("latency=30ms", 1.0, 0.03),
        ("latency = 2 s", 1.0, 2.0),
        ("flops=1e9", 1.0, 1e9),
        ("flops=100%", 7.0, 7.0),
    ],
)
def test_what_it_comes_to(text: str, full: float, limit: float) -> None:
    assert Budget.parse(text).limit(full) == pytest.approx(limit, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flops", "Write resource=value"),
        ("flop=5%", "did you mean 'flops'"),
        ("flops=0%", "'0%' is not allowed"),
        ("flops=-5%", "is not allowed"),
        ("flops=101%", "is not allowed"),
        ("flops=nan%", "is not allowed"),
        ("flops=half", "is not allowed"),
        ("flops=", "is not allowed"),
        ("flops=5GiB", "is not allowed"),
        ("train-memory=8", "KiB"),
        ("train-memory=8G", "GiB"),
        ("latency=30", "ms"),
        ("step-time=0.5x", "is not allowed"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError) as refusal:
        Budget.parse(text)
    assert message in str(refusal.value)


def test_several_come_as_a_list_or_in_one_text() -> None:
    assert parse_all("flops=5%, params=1M") == parse_all(["flops=5%", "params=1M"]) == parse_all("flops=5% params=1M")
    assert parse_all(Budget.parse("flops=5%")) == parse_all("flops=5%")
    with pytest.raises(UnsupportedError, match=r"two budgets for flops: flops=5% and flops=1G"):
        parse_all(["flops=5%", "flops=1G"])
    with pytest.raises(UnsupportedError, match="empty"):
        parse_all([])


@given(st.sampled_from(sorted(QUANTITIES)), st.floats(1e-3, 1e9))
def test_the_smallest_possible_value_is_met_when_it_is_asked_for(resource: str, figure: float) -> None:
    assert Budget.parse(QUANTITIES.get(resource).exactly(figure)).limit(math.inf) >= figure


@given(st.floats(1e-3, 1e12), st.floats(1e-6, 1.0))
def test_so_is_its_share(whole: float, share: float) -> None:
    part = whole * share
    shown = share_above(part, whole)
    if float(shown.rstrip("%")) <= 100:
        assert Budget.parse(f"flops={shown}").limit(whole) >= part
    assert float(shown.rstrip("%")) <= 100 * share * 1.002 + 1e-9


def test_figures_are_told_in_units_that_people_read() -> None:
    assert QUANTITIES.get("flops").format(11.892e9) == "11.89 GFLOPs"
    assert QUANTITIES.get("params").format(1234567) == "1.235 M parameters"
    assert QUANTITIES.get("train-memory").format(1.5 * 2**30) == "1.5 GiB"
    assert QUANTITIES.get("latency").format(0.0301) == "30.1 ms"


SETTINGS = {
    "budget": [{"budget": "flops=50%", "resource": "flops", "before": 2e6, "limit": 1e6, "after": 9e5}],
    "of_step": [{"resource": "step-time", "before": 0.2, "after": 0.05}],
    "step": {"inputs": ["1x1x8x8"], "batch": 4, "optimiser": "sgd", "precision": "float32", "checkpointing": True},
}


def test_what_is_spent_is_told_budgets_first() -> None:
    flops, time = spent(SETTINGS)
    assert (flops.budget, flops.used) == ("flops=50%", 0.9)
    assert (time.budget, time.figures) == ("", ("200 ms", "50 ms"))
    assert budget_lines(SETTINGS) == [
        "budget flops=50%: 900 kFLOPs of 1 MFLOPs allowed (90.0% used), full network 2 MFLOPs",
        "one training step, measured on this machine: 200 ms -> 50 ms",
        "one training step: 1x1x8x8, batch 4, sgd, float32, activation checkpointing",
    ]
    assert spent({}) == budget_lines({}) == []


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"after": math.nan}, {"before": -1}, {"before": math.inf}])
def test_what_no_network_needs_is_refused(wrong: dict[str, float]) -> None:
    (entry,) = SETTINGS["budget"]
    with pytest.raises(ValueError, match="no network needs"):
        spent({"budget": [{**entry, **wrong}]})

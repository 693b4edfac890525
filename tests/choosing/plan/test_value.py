"""The plan as a value: what it says, what it refuses to be."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import pytest

from ranp.choosing.plan import Change, ChannelClasses, Cut, Sparsity
from ranp.errors import PlanMismatchError
from tests.support.small_plans import small_plan


def test_values_and_widths() -> None:
    plan = small_plan()
    assert plan.widths == {"a": 3, "b": 2}
    requested, achieved = plan.sparsity
    assert (requested, achieved) == (0.3, 2 / 7)
    assert plan.sparsity.of_prunable == 2 / 5
    assert dataclasses.replace(plan.sparsity, measure="prunable").achieved == 2 / 5
    assert plan.settings["keep"] == ["x", "y"]
    assert copy.deepcopy(plan) == plan != small_plan(notes=())


def test_the_plan_does_not_follow_later_changes_of_its_arguments() -> None:
    kept = {"a": (0, 2, 3), "b": (0, 1)}
    settings = {"list": [1]}
    plan = small_plan(kept=kept, settings=settings)
    kept["a"] = (0,)
    settings["list"].append(2)
    assert plan.kept["a"] == (0, 2, 3)
    assert plan.settings == {"list": [1]}


def test_an_achieved_sparsity_without_channels_is_zero() -> None:
    assert Sparsity(0.5, 0, 0, 0).achieved == 0 == Sparsity(0.5, 0, 0, 0).of_prunable
    with pytest.raises(PlanMismatchError, match="'weights'"):
        Sparsity(0.5, 0, 0, 0, "weights")


@pytest.mark.parametrize(
    "values",
    [
        *((requested, 0, 1, 1) for requested in (math.inf, math.nan, -0.1, 2, "0.5")),
        *((0.5, *counts) for counts in ((-1, 1, 1), (2, 1, 1), (0, 1.0, 1), (0, 1, True), (0, 1, 2), (0, "1", 1))),
    ],
)
def test_a_sparsity_is_a_share_of_whole_numbers(values: tuple[Any, ...]) -> None:
    with pytest.raises(PlanMismatchError, match="sparsity"):
        Sparsity(*values)


@pytest.mark.parametrize("keep", [(), (1, 1), (2, 1), (-1, 0), (0, 5), (0.0, 1), (True,)])
def test_wrong_indices_are_named(keep: tuple[Any, ...]) -> None:
    with pytest.raises(PlanMismatchError, match="a cut of size 5"):
        Cut(5, keep)
    with pytest.raises(PlanMismatchError, match="layer 'a' of size 5"):
        small_plan(kept={"a": keep, "b": (0, 1)})


def test_wrong_plans_are_named() -> None:
    with pytest.raises(PlanMismatchError, match="layer 'b' is in only one"):
        small_plan(channels={"a": 5})
    with pytest.raises(PlanMismatchError, match=r"'a\.weight'"):
        small_plan(cuts={"a.weight": {-1: Cut(2, (0,))}})
    with pytest.raises(PlanMismatchError, match="a dimension from 0 to 1023"):
        small_plan(cuts={"a.weight": {10**9: Cut(2, (0,))}})
    with pytest.raises(PlanMismatchError, match="a cut of size True"):
        Cut(True, (0,))
    with pytest.raises(PlanMismatchError, match=r"'a\.weight'"):
        small_plan(cuts={"a.weight": {0: (0, 1)}})


def test_diff_says_what_changed() -> None:
    other = small_plan(kept={"a": (0, 1, 2), "c": (0,)}, channels={"a": 5, "c": 1}, classes=ChannelClasses())
    assert small_plan().diff(other) == (
        Change("a", 3, 3, dropped=(3,), added=(1,)),
        Change("b", 2, None, dropped=(0, 1), added=()),
        Change("c", None, 1, dropped=(), added=(0,)),
    )

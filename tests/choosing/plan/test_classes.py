"""What stands or falls together: a plan that contradicts itself is refused, and only that."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given, settings

from ranp.choosing.plan import ChannelClasses, Cut, Plan, Sparsity
from ranp.errors import PlanMismatchError
from tests.support.small_plans import CLASSES, places, small_plan

KEPT = (0, 2, 3)


@given(places())
@settings(max_examples=100)
def test_a_plan_is_refused_if_and_only_if_it_contradicts_itself(
    drawn: dict[str, tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    verdicts: dict[int, set[bool]] = {0: {True}}
    for classes, keep in drawn.values():
        for at, number in enumerate(classes):
            verdicts.setdefault(number, set()).add(at in keep)
    holds = all(len(said) == 1 for said in verdicts.values())
    channels = {name: len(classes) for name, (classes, _) in drawn.items()}
    kept = {name: keep for name, (_, keep) in drawn.items()}
    dims = {f"{name}.weight": {0: classes} for name, (classes, _) in drawn.items()}
    cuts = {f"{name}.weight": {0: Cut(channels[name], keep)} for name, keep in kept.items()}
    layers = {name: classes for name, (classes, _) in drawn.items()}
    sparsity = Sparsity(0.0, 0, 99, 99)

    def make(known: ChannelClasses) -> Plan:
        return Plan(kept, channels, cuts, sparsity, classes=known)

    make(ChannelClasses())
    context = nullcontext() if holds else pytest.raises(PlanMismatchError, match=r"stand or fall|must stay")
    with context:
        make(ChannelClasses(layers, dims))


def test_the_message_names_both_places_the_class_and_the_remedy() -> None:
    cuts = {"a.weight": {0: Cut(5, KEPT)}, "b.weight": {1: Cut(5, (0, 2, 4))}}
    with pytest.raises(PlanMismatchError) as caught:
        small_plan(cuts=cuts)
    told = str(caught.value)
    assert "dimension 1 of 'b.weight' keeps 0, 2, 4 of 5, without 3" in told
    assert "layer 'a' keeps 0, 2-3 of 5, with 3" in told
    assert "class 4" in told
    assert "plan.edited(layer='a', keep=...)" in told


def test_a_cut_that_is_left_out_is_missed() -> None:
    with pytest.raises(PlanMismatchError, match=r"but dimension 1 of 'b\.weight' keeps 0-4 of 5, with 1"):
        small_plan(cuts={"a.weight": {0: Cut(5, KEPT)}})


def test_what_has_no_class_must_stay() -> None:
    cuts = {"a.weight": {0: Cut(5, KEPT)}, "b.weight": {1: Cut(5, KEPT)}}
    with pytest.raises(PlanMismatchError, match="layer 'b' keeps 1 of 2, but must stay whole"):
        small_plan(kept={"a": KEPT, "b": (1,)})
    with pytest.raises(PlanMismatchError, match=r"dimension 0 of 'b\.weight' is cut, but must stay whole"):
        small_plan(cuts={**cuts, "b.weight": {0: Cut(2, (0,)), 1: Cut(5, KEPT)}})
    classes = (1, 0, 3, 4, 5)
    with pytest.raises(PlanMismatchError, match="layer 'a' keeps 0, 2-3 of 5, without 1, which must stay"):
        small_plan(classes=ChannelClasses({"a": classes}, {"a.weight": {0: classes}, "b.weight": {1: classes}}))


def test_classes_fit_what_they_are_of() -> None:
    dims = {"a.weight": {0: CLASSES}, "b.weight": {1: CLASSES}}
    with pytest.raises(PlanMismatchError, match="layer 'a' has size 5 but 4 classes"):
        small_plan(classes=ChannelClasses({"a": CLASSES[:4]}, dims))
    with pytest.raises(PlanMismatchError, match="layer 'z', which the plan does not have"):
        small_plan(classes=ChannelClasses({"a": CLASSES, "z": (1,)}, dims))
    for number in (-1, 10**12):  # the second would ask for a table of that size
        with pytest.raises(PlanMismatchError, match=rf"number {number}\."):
            small_plan(classes=ChannelClasses({"a": (*CLASSES[:4], number)}, dims))


def test_equal_counts() -> None:
    dims = {"a.weight": {0: CLASSES}, "b.weight": {1: CLASSES}}
    layers = {"a": CLASSES}
    small_plan(classes=ChannelClasses(layers, dims, (((1, 2), (4, 5)),)))  # one of each stays
    with pytest.raises(PlanMismatchError) as caught:
        small_plan(classes=ChannelClasses(layers, dims, (((1, 3), (4, 5)),)))
    assert "of classes 1, 3 the plan keeps 2, of classes 4-5 it keeps 1" in str(caught.value)
    assert "'a'" in str(caught.value)
    with pytest.raises(PlanMismatchError, match="equal counts are of no layer"):
        small_plan(classes=ChannelClasses(layers, dims, (((1,), (9,)),)))

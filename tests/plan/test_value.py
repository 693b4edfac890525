"""The plan: validates itself, survives the disk, may be edited by hand."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranp.errors import PlanMismatchError, StorageError
from ranp.plan import Change, Cut, Plan, Sparsity, format_indices, parse_indices


def small_plan(**changes: Any) -> Plan:
    values: dict[str, Any] = {
        "kept": {"a": (0, 2, 3), "b": (0, 1)},
        "channels": {"a": 5, "b": 2},
        "cuts": {"a.weight": {0: Cut(5, (0, 2, 3))}, "b.weight": {1: Cut(5, (0, 2, 3))}},
        "sparsity": Sparsity(0.3, 2, 7, 5),
        "settings": {"method": "ranp-f", "keep": ("x", "y"), "nested": {"pair": (1, 2)}},
        "notes": ("'b': makes the model's output",),
        "outputs": {"a": ("a.weight", 0), "b": ("b.weight", 0)},
    }
    return Plan(**{**values, **changes})


@st.composite
def indices(draw: st.DrawFn) -> tuple[int, tuple[int, ...]]:
    size = draw(st.integers(1, 60))
    return size, tuple(sorted(draw(st.sets(st.integers(0, size - 1), min_size=1))))


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    layers = draw(st.dictionaries(names, indices(), max_size=4))
    cuts = draw(st.dictionaries(names, st.dictionaries(st.integers(0, 4), indices(), min_size=1), max_size=4))
    kept = {layer: keep for layer, (_, keep) in layers.items()}
    channels = {layer: size for layer, (size, _) in layers.items()}
    total = sum(channels.values())
    removed = total - sum(map(len, kept.values()))
    return Plan(
        kept,
        channels,
        {name: {dim: Cut(*cut) for dim, cut in by_dim.items()} for name, by_dim in cuts.items()},
        Sparsity(draw(st.floats(0, 0.99)), removed, total, total, draw(st.sampled_from(["channels", "prunable"]))),
        draw(st.dictionaries(names, st.none() | st.integers() | st.floats(-9, 9) | st.lists(names))),
        tuple(draw(st.lists(names))),
    )


@given(plans())
@settings(max_examples=50)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, plan: Plan) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    plan.save(path)
    loaded = Plan.load(path)
    assert loaded == plan
    assert list(loaded.kept) == list(plan.kept)
    assert loaded.diff(plan) == ()


@given(indices())
def test_ranges_round_trip_and_are_shortest(drawn: tuple[int, tuple[int, ...]]) -> None:
    size, keep = drawn
    text = format_indices(keep)
    assert parse_indices(text, size) == keep
    runs = sum(index - 1 not in keep for index in keep)
    assert len(text.split(", ")) == runs


@pytest.mark.parametrize(
    "text", ["", " ", "a", "1-", "-1", "3-2", "1, 1", "2, 1", "0-3, 3-4", "0-10", "1.0", "\u0663", "0--1"]
)
def test_wrong_ranges_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="range"):
        parse_indices(text, 10)


def test_a_huge_range_is_refused_before_it_is_built() -> None:
    with pytest.raises(ValueError, match="lie in 0-9"):
        parse_indices("0-99999999999999", 10)


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
    with pytest.raises(PlanMismatchError, match=r"'a\.weight'"):
        small_plan(cuts={"a.weight": {0: (0, 1)}})


def test_diff_says_what_changed() -> None:
    other = small_plan(kept={"a": (0, 1, 2), "c": (0,)}, channels={"a": 5, "c": 1})
    assert small_plan().diff(other) == (
        Change("a", 3, 3, dropped=(3,), added=(1,)),
        Change("b", 2, None, dropped=(0, 1), added=()),
        Change("c", None, 1, dropped=(), added=(0,)),
    )


def edited(path: Path, edit: Any) -> Path:
    small_plan().save(path)
    value = json.loads(path.read_text(encoding="utf-8"))
    edit(value)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_person_may_edit_the_file(tmp_path: Path) -> None:
    def edit(value: dict[str, Any]) -> None:
        assert value["layers"]["a"]["kept"] == "0, 2-3"
        value["layers"]["a"]["kept"] = "0-1"
        value["cuts"]["a.weight"]["0"]["keep"] = "0-1"
        value["cuts"]["b.weight"]["1"]["keep"] = "0,1"
        value["settings"]["by"] = "hand"

    plan = Plan.load(edited(tmp_path / "plan.json", edit))
    assert plan.kept["a"] == (0, 1) == plan.cuts["b.weight"][1].keep
    assert plan.sparsity.removed == 3
    assert plan.settings["by"] == "hand"


def test_an_edit_that_would_have_no_effect_is_refused(tmp_path: Path) -> None:
    def only_the_layer(value: dict[str, Any]) -> None:
        value["layers"]["a"]["kept"] = "0-1"

    def only_the_layer_that_had_no_cut(value: dict[str, Any]) -> None:
        value["layers"]["b"]["kept"] = "1"

    for edit, layer in ((only_the_layer, "a"), (only_the_layer_that_had_no_cut, "b")):
        with pytest.raises(StorageError, match=rf"layer '{layer}' keeps .*Edit both"):
            Plan.load(edited(tmp_path / "plan.json", edit))


@pytest.mark.parametrize(
    ("keys", "value", "reason"),
    [
        (("layers", "a", "kept"), "0-9", "in 'a', '0-9'"),
        (("layers", "a", "kept"), "", "in 'a'"),
        (("layers", "a", "kept"), 3, "not a valid plan"),
        (("layers", "a"), "0-3", "not a valid plan"),
        (("layers",), [], "not a valid plan"),
        (("cuts", "b.weight", "1", "keep"), "4-2", "in 'b.weight', '4-2'"),
        (("cuts", "b.weight", "1", "size"), "x", "not a valid plan"),
        (("cuts", "b.weight"), {"one": {"size": 5, "keep": "0"}}, "not a valid plan"),
        (("sparsity", "measure"), "none", "'none'"),
        (("sparsity",), {}, "'requested' is missing"),
        (("version",), 2, "version 2"),
        (("format",), "scores", "'scores'"),
    ],
)
def test_a_wrong_edit_is_named(tmp_path: Path, keys: tuple[str, ...], value: Any, reason: str) -> None:
    def edit(root: dict[str, Any]) -> None:
        for key in keys[:-1]:
            root = root[key]
        root[keys[-1]] = value

    with pytest.raises(StorageError, match=reason):
        Plan.load(edited(tmp_path / "plan.json", edit))


def test_settings_that_json_cannot_say_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="plain JSON"):
        small_plan(settings={"a": object()}).save(tmp_path / "plan.json")

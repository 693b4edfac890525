"""The plan as a file: it comes back as it was, people may edit it, and no nonsense is believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranp.choosing.plan import ChannelClasses, Plan
from ranp.errors import StorageError
from tests.support.small_plans import CLASSES, plans, small_plan

EQUAL = ({"a": CLASSES}, {"a.weight": {0: CLASSES}, "b.weight": {1: CLASSES}}, (((1, 2), (4, 5)),))
"""Classes of the small plan, with two sets that keep one each."""


@given(plans())
@settings(max_examples=50)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, plan: Plan) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    plan.save(path)
    loaded = Plan.load(path)
    assert loaded == plan
    assert list(loaded.kept) == list(plan.kept)
    assert loaded.diff(plan) == ()


def test_the_text_is_the_file(tmp_path: Path) -> None:
    plan = small_plan()
    plan.save(tmp_path / "plan.json")
    assert plan.to_json() == (tmp_path / "plan.json").read_text(encoding="utf-8")
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(json.dumps(json.loads(plan.to_json()))) == plan  # whatever its layout
    with pytest.raises(StorageError, match=r"^the plan of rank 0 is not readable JSON"):
        Plan.from_json("{", source="the plan of rank 0")


def edited(path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """A plan's file after somebody changed something in it."""
    small_plan().save(path)
    value = json.loads(path.read_text(encoding="utf-8"))
    edit(value)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_person_may_edit_the_file(tmp_path: Path) -> None:
    def edit(value: dict[str, Any]) -> None:
        assert value["layers"]["a"] == {"channels": 5, "kept": "0, 2-3", "classes": "1-5"}
        value["layers"]["a"]["kept"] = "0-1"
        value["cuts"]["a.weight"]["0"]["keep"] = "0-1"
        value["cuts"]["b.weight"]["1"]["keep"] = "0,1"
        value["settings"]["by"] = "hand"

    plan = Plan.load(edited(tmp_path / "plan.json", edit))
    assert plan.kept["a"] == (0, 1) == plan.cuts["b.weight"][1].keep
    assert plan.sparsity.removed == 3
    assert plan.settings["by"] == "hand"


def test_an_edited_plan_is_known_as_one_ever_after(tmp_path: Path) -> None:
    path = edited(tmp_path / "plan.json", lambda value: value["notes"].append("mine"))
    plan = Plan.load(path)
    assert plan.altered
    plan.save(path)
    assert Plan.load(path) == plan
    assert not Plan.load(edited(path, lambda value: None)).altered


def test_a_dimension_may_move_between_cut_and_uncut(tmp_path: Path) -> None:
    def whole(value: dict[str, Any]) -> None:
        value["layers"]["a"]["kept"] = "0-4"
        value["uncut"]["a.weight"] = {"0": value["cuts"].pop("a.weight")["0"]["classes"]}
        value["cuts"]["b.weight"]["1"]["keep"] = "0-4"

    plan = Plan.load(edited(tmp_path / "plan.json", whole))
    assert plan.kept["a"] == (0, 1, 2, 3, 4)
    assert "a.weight" not in plan.cuts
    assert plan.sparsity.removed == 0


def test_an_edit_of_one_place_alone_is_refused(tmp_path: Path) -> None:
    def only_the_layer(value: dict[str, Any]) -> None:
        value["layers"]["a"]["kept"] = "0-1"

    def only_the_layer_that_must_stay(value: dict[str, Any]) -> None:
        value["layers"]["b"]["kept"] = "1"

    def only_a_cut(value: dict[str, Any]) -> None:
        value["cuts"]["b.weight"]["1"]["keep"] = "0-2"

    told = {only_the_layer: "layer 'a' keeps 0-1", only_the_layer_that_must_stay: "must stay whole"}
    for edit, reason in {**told, only_a_cut: r"'b\.weight' keeps 0-2"}.items():
        with pytest.raises(StorageError, match=reason):
            Plan.load(edited(tmp_path / "plan.json", edit))


def test_classes_are_no_matter_of_choice(tmp_path: Path) -> None:
    def swap(value: dict[str, Any]) -> None:
        value["cuts"]["b.weight"]["1"].update(keep="0, 2, 4", classes="1-3, 5, 4")

    def forget(value: dict[str, Any]) -> None:
        del value["cuts"]["b.weight"]

    for edit in (swap, forget, lambda value: value.update(coupling="")):
        with pytest.raises(StorageError, match="only 'kept' and 'keep' may be edited"):
            Plan.load(edited(tmp_path / "plan.json", edit))


def test_without_classes_only_an_untouched_file_is_believed(tmp_path: Path) -> None:
    text = small_plan(classes=ChannelClasses()).to_json()
    assert Plan.from_json(text).kept["a"] == (0, 2, 3)
    value = json.loads(text)
    value["cuts"]["b.weight"]["1"]["keep"] = "0, 2, 4"
    with pytest.raises(StorageError, match="nobody can tell"):
        Plan.from_json(json.dumps(value))


@pytest.mark.parametrize(
    ("keys", "value", "reason"),
    [
        (("layers", "a", "kept"), "0-9", "in layer 'a', '0-9'"),
        (("layers", "a", "kept"), "", "in layer 'a'"),
        (("layers", "a", "kept"), 3, "in layer 'a', 3 is not a text"),
        (("layers", "a", "kept"), "0-10000000000", "in layer 'a'"),
        (("layers", "a", "channels"), 1e30, "layer 'a' has size 1e[+]30"),
        (("layers", "a", "channels"), 8.7, "layer 'a' has size 8.7"),
        (("layers", "a", "channels"), 5.0, "layer 'a' has size 5.0"),
        (("layers", "a", "channels"), True, "layer 'a' has size True"),
        (("layers", "a", "channels"), -5, "layer 'a' has size -5"),
        (("layers", "a", "channels"), 2**31 + 1, "layer 'a' has size 2147483649"),
        (("layers", "a", "classes"), "1-10000000000", "in layer 'a'"),
        (("layers", "a", "classes"), "1*900000000", "in layer 'a'"),
        (("layers", "a", "classes"), 5, "in layer 'a', 5 is not a text"),
        (("layers", "a"), "0-3", "layer 'a' is str and not an object"),
        (("layers", "a"), {"channels": 5}, "'kept' is missing"),
        (("layers",), [], "'layers' is list and not an object"),
        (("cuts", "b.weight", "1", "keep"), "4-2", r"in dimension 1 of 'b\.weight', '4-2'"),
        (("cuts", "b.weight", "1", "keep"), None, r"in dimension 1 of 'b\.weight', None"),
        (("cuts", "b.weight", "1", "size"), "x", r"dimension 1 of 'b\.weight' has size 'x'"),
        (("cuts", "b.weight", "1", "size"), 2**40, r"dimension 1 of 'b\.weight' has size"),
        (("cuts", "b.weight", "1", "size"), 6, "has size 6 but 5 classes"),
        (("cuts", "b.weight"), {"one": {"size": 5, "keep": "0"}}, "a dimension 'one'"),
        (("cuts", "b.weight"), {"-1": {"size": 5, "keep": "0"}}, "a dimension '-1'"),
        (("cuts", "b.weight"), {"01": {"size": 5, "keep": "0"}}, "a dimension '01'"),
        (("cuts", "b.weight"), {"1000000000": {"size": 5, "keep": "0"}}, "a dimension '1000000000'"),
        (("cuts", "b.weight", "999999999"), {"size": 5, "keep": "0", "classes": "1-5"}, "not a valid plan"),
        (("uncut", "b.weight"), {"1": "1-5"}, "both in 'cuts' and in 'uncut'"),
        (("uncut",), 3, "'uncut' is int"),
        (("equal",), [["1-2", 3]], "in 'equal', 3"),
        (("equal",), [3], "not a list"),
        (("sparsity", "measure"), "none", "'none'"),
        (("sparsity", "requested"), "0.5", "'requested' is '0.5'"),
        (("sparsity", "requested"), True, "'requested' is True"),
        (("sparsity", "requested"), -1, "requested sparsity -1"),
        (("sparsity", "requested"), 1e300, "requested sparsity 1e[+]300"),
        (("sparsity", "prunable"), 1e30, "prunable=1e[+]30"),
        (("sparsity", "prunable"), -1, "prunable=-1"),
        (("sparsity",), {}, "'requested' is missing"),
        (("settings",), [], "'settings' is list"),
        (("notes",), "abc", "'notes' is str"),
        (("notes",), [1], "'notes' a list of texts"),
        (("altered",), 1, "'altered' must be"),
        (("version",), 1, "made by an older release.*Make it again"),
        (("version",), 3, "version 3"),
        (("format",), "scores", "'scores'"),
    ],
)
def test_a_wrong_edit_is_named(tmp_path: Path, keys: tuple[str, ...], value: Any, reason: str) -> None:
    def edit(root: dict[str, Any]) -> None:
        for key in keys[:-1]:
            root = root[key]
        root[keys[-1]] = value

    with pytest.raises(StorageError, match=reason) as caught:
        Plan.load(edited(tmp_path / "plan.json", edit))
    assert "plan.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def paths(value: Any) -> list[tuple[str | int, ...]]:
    """Where something stands in a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(key, *rest) for key, item in inside for rest in ((), *paths(item))]


NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.data())
@settings(max_examples=150)
def test_nonsense_anywhere_is_refused_or_does_not_matter(data: st.DataObject) -> None:
    value = json.loads(small_plan(classes=ChannelClasses(*EQUAL)).to_json())
    *way, last = data.draw(st.sampled_from(paths(value)))
    home = value
    for key in way:
        home = home[key]
    home[last] = data.draw(NONSENSE)
    with suppress(StorageError):
        plan = Plan.from_json(json.dumps(value))
        assert (plan.kept, plan.cuts) == (small_plan().kept, small_plan().cuts)


def test_a_number_beyond_all_floats_is_refused(tmp_path: Path) -> None:
    path = edited(tmp_path / "plan.json", lambda value: value["sparsity"].update(requested=12345.0))
    path.write_text(path.read_text().replace("12345.0", "1e999"))
    with pytest.raises(StorageError, match="1e999"):
        Plan.load(path)


def test_many_large_entries_are_refused_before_they_are_built() -> None:
    value = json.loads(small_plan().to_json())
    for size in range(2**26 - 9, 2**26):  # each of them alone would be allowed
        value["layers"][f"layer {size}"] = {"channels": size, "kept": "0"}
    with pytest.raises(StorageError, match="more than 67108864 channels together"):
        Plan.from_json(json.dumps(value))


def test_settings_that_json_cannot_say_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="plain JSON"):
        small_plan(settings={"a": object()}).save(tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()

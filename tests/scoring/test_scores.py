from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ranp.errors import DataError, StorageError
from ranp.scoring.scores import Scores


def example() -> Scores:
    return Scores(
        {
            "b.conv": torch.tensor([0.5, 2.0]),
            "a": torch.tensor([1e-30, 3.0, 0.1], dtype=torch.float64),
            "": torch.zeros(1),
        },
        stage="balanced",
        criterion="snip",
        weights={"a": torch.rand(3, 2, 1, generator=torch.Generator().manual_seed(0))},
        excluded={"": "no gradient reaches it"},
        batches=7,
    )


def test_is_a_mapping_in_layer_order_of_float64():
    scores = example()
    assert list(scores) == ["b.conv", "a", ""]
    assert len(scores) == 3
    assert dict(scores.items()).keys() == scores.keys()
    assert {values.dtype for values in scores.values()} == {torch.float64}
    assert scores.included == ("b.conv", "a")
    assert scores["b.conv"].tolist() == [0.5, 2.0]


def test_owns_its_values():
    values = torch.ones(2, dtype=torch.float64)
    scores = Scores({"a": values})
    values.fill_(9)
    assert scores["a"].tolist() == [1.0, 1.0]
    with pytest.raises(AttributeError):
        scores.stage = "balanced"  # type: ignore[misc]


def test_equality_sees_values_and_settings():
    assert example() == example()
    assert Scores({"a": torch.ones(2)}) != Scores({"a": torch.tensor([1.0, 2.0])})
    assert Scores({"a": torch.ones(2)}) != Scores({"a": torch.ones(2)}, batches=1)
    assert Scores({"a": torch.ones(2)}) != Scores({"b": torch.ones(2)})


@pytest.mark.parametrize(
    ("channels", "options", "match"),
    [
        ({}, {}, "at least one layer"),
        ({"a": torch.ones(2, 2)}, {}, r"'a' have shape \(2, 2\)"),
        ({"a": torch.ones(0)}, {}, r"'a' have shape \(0,\)"),
        ({"a": torch.tensor([1.0, float("nan")])}, {}, "'a' hold a NaN"),
        ({"a": torch.tensor([float("inf")])}, {}, "'a' hold a NaN"),
        ({"a": torch.tensor([-1.0])}, {}, "negative"),
        ({"a": [1.0]}, {}, "'a' are list"),
        ({"a": torch.ones(1)}, {"stage": "ballanced"}, "did you mean 'balanced'"),
        ({"a": torch.ones(1)}, {"excluded": {"b": "why"}}, "excluded.*unknown layer 'b'"),
        ({"a": torch.ones(1)}, {"weights": {"b": torch.ones(1)}}, "weights.*unknown layer 'b'"),
        ({"a": torch.ones(1)}, {"weights": {"a": -torch.ones(1)}}, "negative"),
    ],
)
def test_refuses_what_is_not_a_score(channels, options, match):
    with pytest.raises(DataError, match=match):
        Scores(channels, **options)


def test_round_trip(tmp_path: Path):
    scores = example()
    scores.save(tmp_path / "scores.safetensors")
    assert Scores.load(tmp_path / "scores.safetensors") == scores
    assert list(Scores.load(str(tmp_path / "scores.safetensors"))) == list(scores)
    assert os.listdir(tmp_path) == ["scores.safetensors"]


def test_slices_of_one_tensor_are_stored_whole(tmp_path: Path):
    first, second = torch.arange(5.0).split([2, 3])
    Scores({"a": first, "b": second}).save(tmp_path / "s")
    assert Scores.load(tmp_path / "s")["b"].tolist() == [2.0, 3.0, 4.0]


def test_every_flipped_byte_is_noticed(tmp_path: Path):
    path = tmp_path / "s"
    example().save(path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        try:
            same = Scores.load(path) == example()
        except StorageError:
            continue
        assert same, f"a flipped bit at byte {position} went through"


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_torn_and_random_files_are_refused(tmp_path: Path, data: st.DataObject):
    path = tmp_path / "s"
    example().save(path)
    whole = path.read_bytes()
    torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    path.write_bytes(data.draw(st.one_of(st.just(torn), st.binary(max_size=200))))
    with pytest.raises(StorageError):
        Scores.load(path)


def test_foreign_missing_and_newer_files_are_refused(tmp_path: Path):
    with pytest.raises(StorageError, match="missing"):
        Scores.load(tmp_path / "missing")
    safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / "model")
    with pytest.raises(StorageError, match=r"Scores\.save did not write it"):
        Scores.load(tmp_path / "model")
    (tmp_path / "plan.json").write_text(json.dumps({"format": "ranp.choosing.plan"}))
    with pytest.raises(StorageError, match="not a safetensors file"):
        Scores.load(tmp_path / "plan.json")
    newer = {"format": "ranp.scoring.scores", "version": "99", "checksum": "", "scores": ""}
    safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / "new", newer)
    with pytest.raises(StorageError, match="version '99'"):
        Scores.load(tmp_path / "new")
    with pytest.raises(StorageError, match="cannot write"):
        example().save(tmp_path / "no" / "folder")

"""The cache: used when nothing changed, made anew when something did or when it is torn, never beside the data."""

from __future__ import annotations

import logging
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from ranp.errors import StorageError
from ranp.paper.tasks.brats import cache
from ranp.paper.tasks.brats.cache import Recent, cache_folder, cached, ensure_cached, entry_of
from ranp.paper.tasks.brats.files import Case, find_cases
from ranp.paper.tasks.brats.preprocessing import Volume, prepare
from tests.support.brats_on_disk import scanned, write_case, write_nifti


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setenv("RANP_CACHE", str(tmp_path / "cache"))
    write_case(tmp_path / "data" / "case")
    return find_cases(tmp_path / "data")[0][0]


def count_prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []

    def counted(case: Case) -> Volume:
        made.append(case.name)
        return prepare(case)

    monkeypatch.setattr(cache, "prepare", counted)
    return made


def same(first: Volume, second: Volume) -> bool:
    return bool(np.array_equal(first.image, second.image) and np.array_equal(first.labels, second.labels))


def test_a_case_is_prepared_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    made = count_prepared(monkeypatch)
    volumes = [cached(case) for _ in range(3)]
    ensure_cached(case)
    assert made == ["case"]
    assert all(same(volume, prepare(case)) for volume in volumes)
    assert [volume.image.dtype for volume in volumes] == [np.float16] * 3


def test_nothing_is_written_beside_the_data(case: Case, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")}
    cached(case)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")} == before
    assert [path.suffix for path in (tmp_path / "cache" / "brats").iterdir()] == [".safetensors"]


def test_a_changed_file_is_prepared_anew(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    made = count_prepared(monkeypatch)
    first = cached(case)
    labels = scanned(0)[1]
    labels[labels == 4] = 1
    write_nifti(case.labels, labels)
    assert not same(cached(case), first)
    os.utime(case.images["flair"], ns=(1, 1))
    cached(case)
    monkeypatch.setattr(cache, "VERSION", 99)
    cached(case)
    assert len(made) == 4


@pytest.mark.parametrize("harm", ["cut", "empty", "flip", "other"])
@pytest.mark.parametrize("checked", [False, True])
def test_a_torn_entry_is_made_anew(case: Case, harm: str, checked: bool, caplog: pytest.LogCaptureFixture) -> None:
    whole = cached(case)
    entry = entry_of(case)
    data = entry.read_bytes()
    flipped = bytes((*data[:-9], data[-9] ^ 1, *data[-8:]))
    entry.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "flip": flipped, "other": b"<html>"[:6] * 9}[harm])
    with caplog.at_level(logging.WARNING):
        if checked:
            ensure_cached(case)
        assert same(cached(case), whole)
    assert caplog.text.count("it is made anew") == 1
    assert entry.name in caplog.text
    assert entry.read_bytes() == data


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANP_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "brats"
    monkeypatch.delenv("RANP_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "ranp" / "brats"


def test_a_cache_that_cannot_be_written(case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RANP_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match=r"cannot be kept in .*file.*Name another folder in RANP_CACHE"):
        cached(case)


def volume(edge: int) -> Volume:
    return Volume(np.zeros((1, edge, edge, edge), dtype=np.float16), np.zeros((edge, edge, edge), dtype=np.uint8))


def test_what_was_asked_for_last_is_held_as_far_as_it_fits() -> None:
    made: list[str] = []
    recent = Recent(most=2 * volume(4).bytes)

    def ask(key: str, edge: int = 4) -> None:
        recent.get(key, lambda: made.append(key) or volume(edge))  # type: ignore[func-returns-value]

    for key in "abab":
        ask(key)
    assert made == ["a", "b"]
    ask("c")  # a goes
    ask("b")
    ask("a")  # c goes
    ask("b")
    assert made == ["a", "b", "c", "a"]
    ask("large", 20)
    ask("large", 20)
    ask("b")
    assert made[4:] == ["large", "b"]


def test_a_copy_for_another_process_starts_empty() -> None:
    recent = Recent()
    recent.get("a", lambda: volume(16))
    assert len(pickle.dumps(recent)) < 1000
    assert pickle.loads(pickle.dumps(recent)).get("a", lambda: volume(2)).bytes == volume(2).bytes

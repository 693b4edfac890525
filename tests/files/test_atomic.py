"""Files are whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranp.errors import StorageError
from ranp.files import atomic


def test_write_then_read_gives_the_bytes(tmp_path: Path) -> None:
    atomic.write_atomic(tmp_path / "a", b"one")
    atomic.write_atomic(tmp_path / "a", b"two\x00")
    assert atomic.read_bytes(tmp_path / "a") == b"two\x00"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "plan.json"
    atomic.write_atomic(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, broken, fail)
    with pytest.raises(StorageError, match=r"plan\.json.*No space left.*writable"):
        atomic.write_atomic(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_an_interrupt_leaves_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        atomic.write_atomic(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == []


def test_what_a_killed_process_left_is_removed_when_the_file_is_written_again(tmp_path: Path) -> None:
    (tmp_path / ".a.0123456789abcdef.tmp").write_bytes(b"half")
    (tmp_path / ".b.0123456789abcdef.tmp").write_bytes(b"of another file")
    (tmp_path / ".a.notes.tmp").write_bytes(b"of somebody else")
    atomic.write_atomic(tmp_path / "a", b"whole")
    assert sorted(os.listdir(tmp_path)) == [".a.notes.tmp", ".b.0123456789abcdef.tmp", "a"]


def test_a_writer_whose_temporary_file_was_taken_for_a_left_over_writes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, taken = os.replace, []

    def meddle(source: Path, target: Path) -> None:
        if not taken:
            taken.append(source)
            os.unlink(source)
        replace(source, target)

    monkeypatch.setattr(atomic.os, "replace", meddle)
    atomic.write_atomic(tmp_path / "a", b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["a"]


def test_missing_folder_and_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"):
        atomic.write_atomic(tmp_path / "nowhere" / "a", b"")
    with pytest.raises(StorageError, match="absent"):
        atomic.read_bytes(tmp_path / "absent")
    with pytest.raises(StorageError, match="cannot read"):
        atomic.read_bytes(tmp_path)
    with pytest.raises(StorageError, match="cannot write"):
        atomic.write_atomic(tmp_path, b"")


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_permissions_are_those_of_an_ordinary_file(tmp_path: Path) -> None:
    (tmp_path / "ordinary").write_bytes(b"")
    atomic.write_atomic(tmp_path / "ours", b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    (tmp_path / "ours").chmod(0o640)
    atomic.write_atomic(tmp_path / "ours", b"again")
    assert (tmp_path / "ours").stat().st_mode & 0o777 == 0o640


@given(st.binary())
def test_checksum_is_sha256(data: bytes) -> None:
    assert atomic.checksum(data) == hashlib.sha256(data).hexdigest()


def test_json_round_trip_names_its_format_first(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    atomic.write_json(path, {"b": [1, 2.5, None], "a": {"ä": "x"}}, kind="thing", version=2)
    assert list(json.loads(path.read_text(encoding="utf-8"))) == ["format", "version", "b", "a", "seal"]
    assert atomic.read_json(path, kind="thing", version=2) == {"b": [1, 2.5, None], "a": {"ä": "x"}}
    with pytest.raises(StorageError, match=r"older release: thing version 2, this one reads 3\. Make it again"):
        atomic.read_json(path, kind="thing", version=3)


def test_every_torn_json_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    atomic.write_json(path, {"kept": {"conv": "0-3"}}, kind="thing", version=1)
    whole = path.read_bytes().rstrip()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(StorageError, match=r"a\.json"):
            atomic.read_json(path, kind="thing", version=1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\xff\xfe\x00", "not readable JSON"),
        (b"[1]", "'list'"),
        (b"3", "'int'"),
        (b'{"version": 1}', "None"),
        (b'{"format": "other", "version": 1}', "'other'"),
        (b'{"format": "thing"}', "version None"),
        (b'{"format": "thing", "version": 2}', "version 2"),
        (b'{"format": "thing", "version": true}', "version True"),
        (b'{"format": "thing", "version": 0}', "version 0"),
        (b'{"format": "thing", "version": 1, "a": NaN}', "NaN"),
        (b'{"format": "thing", "version": 1, "a": 1, "a": 2}', "'a' is there twice"),
        (b"[" * 100_000, "nested more than"),
        (b'{"format": "thing", "version": 1, "a": ' + b"[" * 900 + b"]" * 900 + b"}", "nested more than"),
        (b'{"format": "thing", "version": 1, "a": 1' + b"0" * 5000 + b"}", "integer of 5001 digits"),
        (b'{"format": "thing", "version": 1, "a": -1' + b"0" * 320 + b"}", "integer of 322 digits"),
        (b'{"format": "thing", "version": 1, "a": 1e400}', "1e400 is beyond"),
        (b'{"format": "thing", "version": 1, "a": "\\ud800"}', "surrogates"),
        (b'{"format": "thing", "version": 1, "\\ud800": 1}', "surrogates"),
        (b'{"format": "thing", "version": 1, "a": 1}', "seal is wrong or missing"),
        (b'{"format": "thing", "version": 1, "a": 1, "seal": 3}', "seal is wrong or missing"),
    ],
)
def test_wrong_json_is_refused_with_a_reason(tmp_path: Path, text: bytes, reason: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with pytest.raises(StorageError, match=reason):
        atomic.read_json(path, kind="thing", version=1)


_NOT_JSON = [float("nan"), float("inf"), object(), {1, 2}, {1: 0, "1": 0}, 10**400, 10**5000, "\ud800"]


@pytest.mark.parametrize("value", _NOT_JSON, ids=range(len(_NOT_JSON)))
def test_what_json_cannot_say_is_refused_and_nothing_is_written(tmp_path: Path, value: object) -> None:
    with pytest.raises(StorageError, match="plain JSON"):
        atomic.write_json(tmp_path / "a.json", {"a": value}, kind="thing", version=1)
    assert os.listdir(tmp_path) == []


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(_JSON)
def test_what_is_written_is_read_to_the_bit(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.getbasetemp() / "round.json"
    atomic.write_json(path, {"a": value}, kind="thing", version=1)
    assert repr(atomic.read_json(path, kind="thing", version=1)) == repr({"a": value})


def test_any_changed_character_is_found_and_layout_is_not_content(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    value = {"rate": 0.1, "kept": {"conv": [0, 13]}, "name": "net", "on": True}
    atomic.write_json(path, value, kind="thing", version=1)
    text = path.read_text(encoding="utf-8")
    for place, old in enumerate(text):
        for new in "0123456789" if old.isdigit() else "x":
            if new != old:
                path.write_text(text[:place] + new + text[place + 1 :], encoding="utf-8")
                with pytest.raises(StorageError, match=r"a\.json"):
                    atomic.read_json(path, kind="thing", version=1)
    told = json.loads(text)
    for layout in (json.dumps(told), json.dumps(told, indent=8, sort_keys=True).replace("\n", "\r\n"), "\ufeff" + text):
        path.write_text(layout, encoding="utf-8", newline="")
        assert atomic.read_json(path, kind="thing", version=1) == value


def test_an_edit_is_told_of_a_file_that_may_be_edited(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    atomic.write_json(path, {"kept": "0-3"}, kind="thing", version=1)
    assert atomic.read_editable_json(path, kind="thing", version=1) == ({"kept": "0-3"}, False)
    path.write_text(path.read_text().replace("0-3", "0-2"))
    assert atomic.read_editable_json(path, kind="thing", version=1) == ({"kept": "0-2"}, True)
    path.write_text('{"format": "thing", "version": 1, "kept": "1"}')
    assert atomic.read_editable_json(path, kind="thing", version=1) == ({"kept": "1"}, True)


def test_a_file_too_large_for_json_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "JSON_LIMIT", 1000)
    (tmp_path / "a.json").write_bytes(b" " * 1001)
    with pytest.raises(StorageError, match=r"a\.json.*more than the 1000 bytes"):
        atomic.read_json(tmp_path / "a.json", kind="thing", version=1)


@pytest.mark.parametrize("path", [*([] if os.name == "nt" else ["/proc/x", "/dev/null/x/y"]), "x" * 300, "a\0b"])
def test_a_place_that_cannot_be_written_is_refused_and_any_other_is_left_as_it_was(path: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write to"):
        atomic.check_writable(tmp_path / path)
    (tmp_path / "file").write_text("mine")
    for good in ("", "file", "new", "new/deep/er"):
        atomic.check_writable(tmp_path / good)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]

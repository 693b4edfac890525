"""A run folder holds one run or the other, whenever the process that replaces it ends."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ranp
from ranp.errors import StorageError
from ranp.files import atomic
from ranp.reporting import folder
from ranp.reporting.folder import RECIPE, RECIPE_VERSION, RunFolder, write_run
from ranp.slimming import storage
from tests.support.run_folders import network, pruned, recipe

OURS = {"recipe.json", "plan.json", "report.json", "scores.safetensors", "model.safetensors"}


class Killed(BaseException):
    """What no handler of ours catches."""


class Staging:
    """A temporary folder that outlives an error, as it does a kill."""

    def __init__(self, **options: Any) -> None:
        self.name = tempfile.mkdtemp(**options)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not Killed:
            shutil.rmtree(self.name)


def content(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    write_run(run, pruned("random"), recipe(seed=1))
    (run / "notes.txt").write_text("mine")
    (run / "more").mkdir()
    (run / "more" / "notes.txt").write_text("mine too")
    (run / ".plan.json.0123456789abcdef.tmp").write_text("half")
    return run


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    run = tmp_path_factory.mktemp("new") / "run"
    write_run(run, pruned("ranp-f"), recipe(seed=2))
    return content(run)


@contextmanager
def killed_before(monkeypatch: pytest.MonkeyPatch, last: int) -> Iterator[None]:
    """Ends the process, as far as it can tell, before its ``last``-th step on the disk."""
    count = 0

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == last:
                raise Killed
            return act(*given, **options)

        return step

    with monkeypatch.context() as patch:
        for module, name in ((os, "rename"), (os, "replace"), (shutil, "rmtree")):
            patch.setattr(module, name, counted(getattr(module, name)))
        patch.setattr(folder.tempfile, "TemporaryDirectory", Staging)
        yield


def test_the_folder_holds_the_old_run_or_the_new_one_whenever_it_is_cut_off(
    old: Path, new: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = content(old)
    mine = {"notes.txt": b"mine", "more/notes.txt": b"mine too"}
    spare = tmp_path.with_name(tmp_path.name + "-spare")
    shutil.copytree(tmp_path, spare)
    ended = set()
    for last in range(1, 100):
        shutil.rmtree(tmp_path)
        shutil.copytree(spare, tmp_path)
        killed = False
        with killed_before(monkeypatch, last):
            try:
                write_run(old, pruned("ranp-f"), recipe(seed=2))
            except Killed:
                killed = True
        if not killed:
            break
        if old.is_dir():  # or it is about to be renamed
            now = {name: data for name, data in content(old).items() if name in OURS}
            assert now in ({name: before[name] for name in OURS}, new), "a mixture"
        RunFolder(old).check(force=True)
        after = content(old)
        ended.add(after["recipe.json"] == new["recipe.json"])
        assert after == before or after == {**new, **mine}
        write_run(old, pruned("ranp-f"), recipe(seed=2))
        assert content(old) == {**new, **mine}
        assert os.listdir(tmp_path) == ["run"], "something is left over"
    assert last > 10
    assert ended == {True, False}
    assert content(old) == {**new, **mine}


def test_two_processes_may_settle_a_folder_at_once(
    old: Path, new: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rename = os.rename
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "settle", lambda _: None)
        write_run(old, pruned("ranp-f"), recipe(seed=2))
    assert (tmp_path / ".run.ranp-new").is_dir()
    spare = tmp_path.with_name(tmp_path.name + "-spare")
    shutil.copytree(tmp_path, spare)
    for turn in range(1, 6):  # the other process does all of it just before one of our steps
        shutil.rmtree(tmp_path)
        shutil.copytree(spare, tmp_path)
        count = 0

        def interrupted(source: Path, target: Path, turn: int = turn) -> None:
            nonlocal count
            count += 1
            if count == turn:
                RunFolder(old).settle()
            rename(source, target)

        monkeypatch.setattr(os, "rename", interrupted)
        RunFolder(old).settle()
        monkeypatch.undo()
        RunFolder(old).settle()
        assert content(old) == {**new, "notes.txt": b"mine", "more/notes.txt": b"mine too"}, turn
        assert os.listdir(tmp_path) == ["run"]


def test_settling_leaves_other_folders_alone(old: Path) -> None:
    before = content(old)
    for name in (".run.old", ".run.new", ".run.backup_1", ".other.ranp-old"):
        (old.parent / name).mkdir()
        (old.parent / name / "a").write_text("a")
    write_run(old, pruned("random"), recipe(seed=1))
    RunFolder(old).settle()
    assert {name: data for name, data in content(old).items() if name in OURS} == {n: before[n] for n in OURS}
    assert sorted(os.listdir(old.parent)) == [".other.ranp-old", ".run.backup_1", ".run.new", ".run.old", "run"]


def test_a_link_to_a_folder_stays_a_link(old: Path, new: dict[str, bytes]) -> None:
    link = old.with_name("link")
    link.symlink_to(old, target_is_directory=True)
    write_run(link, pruned("ranp-f"), recipe(seed=2))
    assert link.is_symlink()
    assert content(old)["model.safetensors"] == new["model.safetensors"]


def test_a_folder_that_cannot_be_moved_is_left_as_it_was(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, rename = content(old), os.rename

    def busy(source: Path, target: Path) -> None:
        if source == old:
            raise OSError(16, "Device or resource busy")
        rename(source, target)

    monkeypatch.setattr(os, "rename", busy)
    with pytest.raises(StorageError, match="Device or resource busy"):
        write_run(old, pruned("ranp-f"), recipe(seed=2))
    monkeypatch.undo()
    assert content(old) == before
    assert os.listdir(old.parent) == ["run"]


@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoint-000000004.safetensors", "result.json"])
def test_what_was_trained_is_never_replaced(old: Path, name: str) -> None:
    (old / name).write_text("days of work")
    before = content(old)
    with pytest.raises(StorageError, match=f"run of training.*{name}"):
        write_run(old, pruned("ranp-f"), recipe(seed=2))
    assert content(old) == before


def test_the_folder_one_is_in_is_not_replaced(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(old)
    with pytest.raises(StorageError, match="the folder you are in"):
        write_run(Path(), pruned("ranp-f"), recipe(seed=2))


def test_files_of_two_runs_are_told_apart(old: Path, new: dict[str, bytes]) -> None:
    assert RunFolder(old).finished_recipe()["seed"] == 1
    (old / "model.safetensors").write_bytes(new["model.safetensors"])
    with pytest.raises(StorageError, match="are of different runs"):
        RunFolder(old).finished_recipe()
    ranp.load(old / "model.safetensors", network)


def test_a_changed_digit_of_the_recipe_is_found(old: Path) -> None:
    path = old / "recipe.json"
    text = path.read_text()
    assert '"seed": 0' in text
    path.write_text(text.replace('"seed": 0', '"seed": 3'))
    with pytest.raises(StorageError, match="changed since it was written"):
        RunFolder(old).finished_recipe()
    value = {**json.loads(text), "seed": 3}
    for key in ("format", "version", "seal"):
        del value[key]
    atomic.write_json(path, value, kind=RECIPE, version=RECIPE_VERSION)  # with a good seal, it is still another recipe
    with pytest.raises(StorageError, match="are of different runs"):
        RunFolder(old).finished_recipe()
    assert storage.metadata(old / "model.safetensors")["recipe"]["seed"] == 1

"""A run folder: the recipe, the plan, the report, the raw scores and the network, all of them of one run or none.

A folder that is there already is replaced as a whole. The new run is written beside it into ``.NAME.*.tmp``; when all
of it is on the disk it is named ``.NAME.ranp-new``, the old folder becomes ``.NAME.ranp-old``, the new one takes its
name, what the user kept in the old one is moved over, and the rest of the old one is removed. ``settle`` finishes that
from wherever it was cut off.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranp.errors import StorageError
from ranp.files import atomic

if TYPE_CHECKING:
    from ranp.pruning import Pruned

RECIPE = "ranp-recipe"
RECIPE_VERSION = 2
_OURS = frozenset({"recipe.json", "plan.json", "report.json", "scores.safetensors", "model.safetensors"})
_OF_TRAINING = ("metrics.jsonl", "checkpoint-*.safetensors", "result.json")


def versions() -> dict[str, str]:
    """What results are made with, to be told beside them."""
    import torch

    from ranp import __version__

    return {"ranp": __version__, "torch": str(torch.__version__)}


def check_folder(out: Path, *, force: bool, remedy: str = "pass --force to replace the run in it") -> None:
    """Refuses a folder that results cannot go into; one that was being replaced is settled first.

    Args:
        out: The folder.
        force: Take it even if it holds something.
        remedy: What the user may do to have it taken, besides naming another.

    Raises:
        StorageError: It is a file, nothing can be written there, or it holds something and ``force`` is not given.
    """
    atomic.check_writable(out)
    settle(out)
    if out.exists() and not out.is_dir():
        raise StorageError(f"--out {str(out)!r} is a file. Name a folder.")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise StorageError(f"--out {str(out)!r} is not empty. Name another folder, or {remedy}.")


def check_replaceable(out: Path, *, force: bool) -> None:
    """Refuses a folder that a pruned network cannot go into, before anything slow begins.

    Raises:
        StorageError: See ``check_folder``; or it holds what training left, or is the folder that the process is in.
    """
    check_folder(out, force=force)
    place, here = out.resolve(), Path.cwd()
    trained = [path.name for pattern in _OF_TRAINING for path in sorted(place.glob(pattern))]
    if trained:
        raise StorageError(f"--out {str(out)!r} holds a run of training ({trained[0]}), never replaced. Name another.")
    if here.is_relative_to(place):
        raise StorageError(
            f"--out {str(out)!r} is the folder you are in, and a run folder is put in its place as a whole. Name a "
            "folder in it, or go elsewhere."
        )


def write_run(out: Path, pruned: Pruned, recipe: Mapping[str, Any]) -> list[Path]:
    """Writes the results beside the folder first, and puts them in its place when all are there.

    Files in the folder that are no run's stay in it.

    Returns:
        The files.

    Raises:
        StorageError: Something cannot be written, or ``check_replaceable`` refuses; the folder is then as it was.
    """
    from ranp.slimming import storage

    check_replaceable(out, force=True)
    place = out.resolve()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for left in place.parent.glob(f".{glob.escape(place.name)}.{'?' * 8}.tmp"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=f".{place.name}.", suffix=".tmp", dir=place.parent) as temporary:
            folder = Path(temporary, "run")
            folder.mkdir()
            if place.is_dir():
                shutil.copymode(place, folder)
            atomic.write_json(folder / "recipe.json", recipe, kind=RECIPE, version=RECIPE_VERSION)
            pruned.plan.save(folder / "plan.json")
            pruned.report.save(folder / "report.json")
            pruned.raw.by_channel().save(folder / "scores.safetensors")
            storage.save(folder / "model.safetensors", pruned.model, pruned.plan, recipe=dict(recipe))
            names = sorted(path.name for path in folder.iterdir())
            os.rename(folder, _beside(place, "new"))
        try:
            settle(place)
        except StorageError:
            if not _beside(place, "old").exists():  # nothing has moved
                shutil.rmtree(_beside(place, "new"), ignore_errors=True)
            raise
    except OSError as error:
        raise StorageError(f"cannot write to {str(out)!r}: {error.strerror or error}. Name another folder.") from error
    return [out / name for name in names]


def settle(out: Path) -> None:
    """Finishes the replacement of a folder that was cut off; does nothing where none was.

    Every step may have been made already, by a process that was killed or by one that is at it now.

    Raises:
        StorageError: It cannot be finished.
    """
    place = out.resolve()
    new, old = _beside(place, "new"), _beside(place, "old")
    if new.is_symlink() or old.is_symlink() or not (new.is_dir() or old.is_dir()):
        return  # a link was not put there by a replacement, and may lead anywhere
    try:
        if new.is_dir():
            if place.is_dir() and not old.is_dir():
                _rename(place, old)
            _rename(new, place)
        if not place.is_dir():
            _rename(old, place)
        if old.is_dir():
            theirs = [path for path in old.iterdir() if path.name not in _OURS and not _LEFT_OVER.fullmatch(path.name)]
            for path in theirs:
                _rename(path, place / path.name)
            if place.is_dir() and not any(map(os.path.lexists, theirs)):
                shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise StorageError(
            f"cannot put the run in place of {str(out)!r}: {error.strerror or error}. Look for it in {str(new)!r} and "
            f"for what was there in {str(old)!r}, or name another folder."
        ) from error


_LEFT_OVER = re.compile(r"\..*\.[0-9a-f]{16}\.tmp")
"""What a process that was killed while it wrote a file leaves."""


def _beside(place: Path, end: str) -> Path:
    return place.with_name(f".{place.name}.ranp-{end}")


def _rename(source: Path, target: Path) -> None:
    """Renames what is still there."""
    with suppress(FileNotFoundError):
        os.rename(source, target)


def read_run(folder: Path) -> dict[str, Any]:
    """The recipe of a run folder, which is also the one that its network was made by.

    Raises:
        StorageError: It is no run folder, or a file of it is missing, torn, changed, of another kind or another run.
    """
    from ranp.slimming import storage

    settle(folder)
    if not folder.is_dir():
        raise StorageError(f"{str(folder)!r} is not a folder. Pass one that ranp prune or ranp train wrote.")
    for name in ("recipe.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise StorageError(
                f"{str(folder)!r} is no folder of a finished run: it has no {name}. Pass one that ranp prune or ranp "
                "train wrote; a run that was stopped goes on with ranp train --resume."
            )
    recipe = atomic.read_json(folder / "recipe.json", kind=RECIPE, version=RECIPE_VERSION)
    if not isinstance(recipe.get("model"), str):
        raise StorageError(
            f'{str(folder / "recipe.json")!r} does not name the network: its "model" is {recipe.get("model")!r}. '
            "Restore it, or prune again."
        )
    if storage.metadata(folder / "model.safetensors").get("recipe") != recipe:
        raise StorageError(
            f"recipe.json and model.safetensors in {str(folder)!r} are of different runs, or of one that is going on. "
            "Finish it with ranp train --resume, or restore them."
        )
    return recipe


def shapes_of(example: Any) -> list[str]:
    """The sizes of inputs, as ``--input`` takes them."""
    tensors = example if isinstance(example, tuple | list) else (example,)
    return ["x".join(map(str, tensor.shape)) for tensor in tensors]

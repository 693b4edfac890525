"""A run folder: recipe, plan, report, raw scores, journal of training, checkpoints and network of one run.

``ranp prune`` replaces a folder as a whole. The new run is written beside it into ``.NAME.*.tmp``; when all of it is on
the disk it is named ``.NAME.ranp-new``, the old folder becomes ``.NAME.ranp-old``, the new one takes its name, what the
user kept in the old one is moved over, and the rest of the old one is removed. ``RunFolder.settle`` finishes that from
wherever it was cut off.

``ranp train`` fills a folder file by file: ``recipe.json`` last of what a run begins with, ``model.safetensors`` at its
end. So a folder with a recipe holds a run that was begun, and one with a network a run that is finished.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ranp.choosing.plan import Plan
from ranp.errors import StorageError
from ranp.files import atomic, journal
from ranp.files.checkpoints import Checkpoints, Mark
from ranp.reporting.report import Report
from ranp.scoring.scores import Scores
from ranp.slimming import storage

if TYPE_CHECKING:
    from ranp.reporting.pruned import Pruned

RECIPE = "ranp-recipe"
RECIPE_VERSION = 2
_PRUNED = frozenset({"plan.json", "report.json", "scores.safetensors"})
_OURS = _PRUNED | {"recipe.json", "model.safetensors"}
_OF_TRAINING = ("metrics.jsonl", "checkpoint-*.safetensors", "result.json")
_LEFT_OVER = re.compile(r"\..*\.[0-9a-f]{16}\.tmp")
"""What a process that was killed while it wrote a file leaves."""


def versions() -> dict[str, str]:
    """The versions that results are made with, to be written beside them."""
    from ranp import __version__

    return {"ranp": __version__, "torch": str(torch.__version__)}


def shapes_of(example: Any) -> list[str]:
    """The sizes of inputs, as ``--input`` takes them."""
    tensors = example if isinstance(example, tuple | list) else (example,)
    return ["x".join(map(str, tensor.shape)) for tensor in tensors]


def write_run(out: Path, pruned: Pruned, recipe: Mapping[str, Any]) -> list[Path]:
    """Makes the folder ``out`` that of a pruned network, see ``RunFolder.replace``."""
    return RunFolder(out).replace(pruned, recipe)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run, on the disk; nothing of it is read before it is asked for.

    Attributes:
        path: Where it lies, or will lie.
    """

    path: Path

    @property
    def recipe_file(self) -> Path:
        """``recipe.json``: what the run is."""
        return self.path / "recipe.json"

    @property
    def model_file(self) -> Path:
        """``model.safetensors``: the network, pruned or trained."""
        return self.path / "model.safetensors"

    @property
    def begun(self) -> bool:
        """Whether it holds a run, finished or not."""
        return self.recipe_file.is_file()

    @property
    def finished(self) -> bool:
        """Whether the network of its run is there."""
        return self.model_file.is_file()

    @property
    def barely_begun(self) -> bool:
        """Whether there is nothing but what a run that was killed at its very beginning may have left."""
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        return all(name in _PRUNED or name.startswith(".") for name in names)

    def recipe(self) -> dict[str, Any]:
        """What ``recipe.json`` says; its ``"model"`` is the name of a network.

        Raises:
            StorageError: It is missing, torn, changed or of another kind, or does not name the network.
        """
        recipe = atomic.read_json(self.recipe_file, kind=RECIPE, version=RECIPE_VERSION)
        if not isinstance(recipe.get("model"), str):
            raise StorageError(
                f'{str(self.recipe_file)!r} does not name the network: its "model" is {recipe.get("model")!r}. '
                "Restore it, or make the run again."
            )
        return recipe

    def finished_recipe(self) -> dict[str, Any]:
        """The recipe of a finished run, which is also the one that its network was made by.

        Raises:
            StorageError: It is not a run folder, or a file of it is missing, torn, changed, of another kind or another
                run.
        """
        self.settle()
        if not self.path.is_dir():
            raise StorageError(f"{str(self.path)!r} is not a folder. Pass one that ranp prune or ranp train wrote.")
        for path in (self.recipe_file, self.model_file):
            if not path.is_file():
                raise StorageError(
                    f"{str(self.path)!r} is not the folder of a finished run: it has no {path.name}. Pass one that "
                    "ranp prune or ranp train wrote; a run that was stopped goes on with ranp train --resume."
                )
        recipe = self.recipe()
        if storage.metadata(self.model_file).get("recipe") != recipe:
            raise StorageError(
                f"recipe.json and model.safetensors in {str(self.path)!r} are of different runs, or of one that is "
                "going on. Finish it with ranp train --resume, or restore them."
            )
        return recipe

    def plan(self) -> Plan | None:
        """What the run keeps of its network; None if it has no plan yet. A file that is not whole is refused."""
        return Plan.load(path) if (path := self.path / "plan.json").is_file() else None

    def report(self) -> Report | None:
        """What pruning did; None of a full network, and of one that was cut by another run's plan."""
        return Report.load(path) if (path := self.path / "report.json").is_file() else None

    def scores(self) -> Scores | None:
        """The raw scores of every channel; None where they were not kept."""
        return Scores.load(path) if (path := self.path / "scores.safetensors").is_file() else None

    def records(self) -> list[dict[str, Any]]:
        """What the journal of training says so far; a last line that was cut off by a crash is left out.

        Raises:
            StorageError: There is none, a line was changed, or lines are lost.
        """
        mark = Checkpoints(self.path, 0).journal()
        if mark is None and self.finished and (written := storage.metadata(self.model_file).get("journal")):
            mark = Mark.of(written)
        return journal.read(self.path, mark or Mark())

    def model(self, build: storage.Build | str, *, example: Any = None) -> nn.Module:
        """The network of a finished run, see ``ranp.load``: the caller says how the full one is made, never a file.

        Raises:
            StorageError: The file is missing, torn, changed or of another kind.
            PlanMismatchError: ``build`` makes another network.
        """
        return storage.load(self.model_file, build, example=example)

    def check(self, *, force: bool, remedy: str = "pass --force to replace the run in it") -> None:
        """Refuses a folder that results cannot go into; one that was being replaced is settled first.

        Args:
            force: Take it even if it holds something.
            remedy: What the user may do to have it taken, besides naming another.

        Raises:
            StorageError: It is a file, nothing can be written there, or it holds something and ``force`` is not given.
        """
        atomic.check_writable(self.path)
        self.settle()
        if self.path.exists() and not self.path.is_dir():
            raise StorageError(f"--out {str(self.path)!r} is a file. Name a folder.")
        if self.path.is_dir() and any(self.path.iterdir()) and not force:
            raise StorageError(f"--out {str(self.path)!r} is not empty. Name another folder, or {remedy}.")

    def check_replaceable(self, *, force: bool) -> None:
        """Refuses a folder that a pruned network cannot go into, before anything slow begins.

        Raises:
            StorageError: See ``check``; or it holds what training left, or is the folder that the process is in.
        """
        self.check(force=force)
        place = self.path.resolve()
        trained = [path.name for pattern in _OF_TRAINING for path in sorted(place.glob(pattern))]
        if trained:
            raise StorageError(
                f"--out {str(self.path)!r} holds a run of training ({trained[0]}), never replaced. Name another."
            )
        if Path.cwd().is_relative_to(place):
            raise StorageError(
                f"--out {str(self.path)!r} is the folder you are in, and a run folder is put in its place as a whole. "
                "Name a folder in it, or go elsewhere."
            )

    def write_recipe(self, recipe: Mapping[str, Any]) -> None:
        """Writes ``recipe.json``.

        Raises:
            StorageError: It is not plain JSON, or cannot be written.
        """
        atomic.write_json(self.recipe_file, recipe, kind=RECIPE, version=RECIPE_VERSION)

    def begin(self, recipe: Mapping[str, Any], plan: Plan, pruned: Pruned | None) -> None:
        """Writes down what a run is; ``recipe.json`` last, since it says that the rest is there.

        Raises:
            StorageError: Something cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make the folder {str(self.path)!r}: {error.strerror}. Name another.") from error
        plan.save(self.path / "plan.json")
        if pruned is not None:
            pruned.report.save(self.path / "report.json")
            pruned.raw.by_channel().save(self.path / "scores.safetensors")
        self.write_recipe(recipe)

    def finish(self, model: nn.Module, plan: Plan, end: Mark | None = None) -> None:
        """Writes the network, with the recipe it was made by and the end of the journal.

        Raises:
            StorageError: It cannot be written, or the recipe cannot be read.
        """
        more = {} if end is None else {"journal": asdict(end)}
        storage.save(self.model_file, model, plan, recipe=self.recipe(), **more)

    def replace(self, pruned: Pruned, recipe: Mapping[str, Any]) -> list[Path]:
        """Writes a pruned network beside the folder first, and puts it in its place when all files are there.

        Files in the folder that do not belong to a run stay in it.

        Returns:
            The files.

        Raises:
            StorageError: Something cannot be written, or ``check_replaceable`` refuses; the folder is then as it was.
        """
        self.check_replaceable(force=True)
        place = self.path.resolve()
        new, old = _beside(place)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            for left in place.parent.glob(f".{glob.escape(place.name)}.{'?' * 8}.tmp"):
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=f".{place.name}.", suffix=".tmp", dir=place.parent) as temporary:
                made = RunFolder(Path(temporary, "run"))
                made.path.mkdir()
                if place.is_dir():
                    shutil.copymode(place, made.path)
                made.begin(recipe, pruned.plan, pruned)
                made.finish(pruned.model, pruned.plan)
                names = sorted(path.name for path in made.path.iterdir())
                os.rename(made.path, new)
            try:
                self.settle()
            except StorageError:
                if not old.exists():  # nothing has moved
                    shutil.rmtree(new, ignore_errors=True)
                raise
        except OSError as error:
            raise StorageError(
                f"cannot write to {str(self.path)!r}: {error.strerror or error}. Name another folder."
            ) from error
        return [self.path / name for name in names]

    def settle(self) -> None:
        """Finishes the replacement of a folder that was cut off; does nothing where none was.

        Every step may have been made already, by a process that was killed or by one that is at it now.

        Raises:
            StorageError: It cannot be finished.
        """
        place = self.path.resolve()
        new, old = _beside(place)
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
                theirs = [p for p in old.iterdir() if p.name not in _OURS and not _LEFT_OVER.fullmatch(p.name)]
                for path in theirs:
                    _rename(path, place / path.name)
                if place.is_dir() and not any(map(os.path.lexists, theirs)):
                    shutil.rmtree(old, ignore_errors=True)
        except OSError as error:
            raise StorageError(
                f"cannot put the run in place of {str(self.path)!r}: {error.strerror or error}. Look for it in "
                f"{str(new)!r} and for what was there in {str(old)!r}, or name another folder."
            ) from error


def _beside(place: Path) -> tuple[Path, Path]:
    """Where the new and the old folder lie while one takes the place of the other."""
    new, old = (place.with_name(f".{place.name}.ranp-{end}") for end in ("new", "old"))
    return new, old


def _rename(source: Path, target: Path) -> None:
    """Renames what is still there."""
    with suppress(FileNotFoundError):
        os.rename(source, target)

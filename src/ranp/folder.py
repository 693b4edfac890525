"""A run folder: the recipe, the plan, the report, the raw scores and the network, all of them or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranp import files
from ranp.errors import StorageError

if TYPE_CHECKING:
    from ranp.pruning import Pruned

RECIPE = "ranp-recipe"
RECIPE_VERSION = 1


def check_folder(out: Path, *, force: bool, remedy: str = "pass --force to write into it") -> None:
    """Refuses a folder that results cannot go into.

    Args:
        out: The folder.
        force: Take it even if it holds something.
        remedy: What the user may do to have it taken, besides naming another.

    Raises:
        StorageError: It is a file, nothing can be written there, or it holds something and ``force`` is not given.
    """
    files.check_writable(out)
    if out.exists() and not out.is_dir():
        raise StorageError(f"--out {str(out)!r} is a file. Name a folder.")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise StorageError(f"--out {str(out)!r} is not empty. Name another folder, or {remedy}.")


def write_run(out: Path, pruned: Pruned, recipe: Mapping[str, Any]) -> list[Path]:
    """Writes the results beside the folder first, and moves them into place when all are there.

    Returns:
        The files.

    Raises:
        StorageError: Something cannot be written; the folder is then as it was.
    """
    from ranp import storage

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
            folder = Path(temporary, "run")
            folder.mkdir()
            files.write_json(folder / "recipe.json", recipe, kind=RECIPE, version=RECIPE_VERSION)
            pruned.plan.save(folder / "plan.json")
            pruned.report.save(folder / "report.json")
            pruned.raw.by_channel().save(folder / "scores.safetensors")
            storage.save(folder / "model.safetensors", pruned.model, pruned.plan, recipe=dict(recipe))
            names = sorted(path.name for path in folder.iterdir())
            if out.is_dir():
                for name in names:
                    os.replace(folder / name, out / name)
            else:
                os.rename(folder, out)
    except OSError as error:
        raise StorageError(f"cannot write to {str(out)!r}: {error.strerror or error}. Name another folder.") from error
    return [out / name for name in names]


def read_run(folder: Path) -> dict[str, Any]:
    """The recipe of a run folder.

    Raises:
        StorageError: It is no run folder, or a file of it is missing, torn, or of another kind.
    """
    if not folder.is_dir():
        raise StorageError(f"{str(folder)!r} is not a folder. Pass one that ranp prune or ranp train wrote.")
    for name in ("recipe.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise StorageError(
                f"{str(folder)!r} is no folder of a finished run: it has no {name}. Pass one that ranp prune or ranp "
                "train wrote; a run that was stopped goes on with ranp train --resume."
            )
    recipe = files.read_json(folder / "recipe.json", kind=RECIPE, version=RECIPE_VERSION)
    if not isinstance(recipe.get("model"), str):
        raise StorageError(
            f'{str(folder / "recipe.json")!r} does not name the network: its "model" is {recipe.get("model")!r}. '
            "Restore it, or prune again."
        )
    return recipe


def shapes_of(example: Any) -> list[str]:
    """The sizes of inputs, as ``--input`` takes them."""
    tensors = example if isinstance(example, tuple | list) else (example,)
    return ["x".join(map(str, tensor.shape)) for tensor in tensors]

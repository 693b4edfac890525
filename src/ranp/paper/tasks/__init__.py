"""The paper's tasks by name: data, loss, metrics and recipe of each; procedural data unless a folder is named.

Example:
    >>> task = get("shapenet")
    >>> volume, target = task.train_data(size=24, count=16, seed=0)[0]
    >>> volume.shape, target.shape
    (torch.Size([1, 24, 24, 24]), torch.Size([24, 24, 24]))
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path

from ranp.errors import UnsupportedError, unknown_name
from ranp.paper.tasks.task import Metrics, Sample, Samples, Source, Task, step_of

__all__ = ["Metrics", "Sample", "Samples", "Source", "Task", "get", "names", "step_of"]

_TASKS: Mapping[str, str] = {"brats": "BRATS", "sceneflow": "SCENEFLOW", "shapenet": "SHAPENET", "ucf101": "UCF101"}
"""Each task is the value of that name in the module of its own; it is imported when it is asked for."""


def names() -> tuple[str, ...]:
    """The names that ``get`` knows, sorted."""
    return tuple(sorted(_TASKS))


def get(name: str, data: str | os.PathLike[str] | None = None, *, allow_missing: bool = False, fold: int = 0) -> Task:
    """The task of that name.

    Args:
        name: One of ``names()``.
        data: Folder of the published data set; None for procedural samples, which need nothing.
        allow_missing: Take what is there of what the data set's own lists name.
        fold: Which part of a published data set validates, see ``Recipe.fold``.

    Raises:
        UnsupportedError: No task has that name.
        DataError: The folder does not look right.
    """
    if name not in _TASKS:
        raise UnsupportedError(unknown_name("task", name, _TASKS))
    task: Task = getattr(importlib.import_module(f"ranp.paper.tasks.{name}"), _TASKS[name])
    return task if data is None else task.reading(Path(data), allow_missing=allow_missing, fold=fold)

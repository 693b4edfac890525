"""The paper's tasks by name: data, loss, metrics and settings of each.

Example:
    >>> task = get("shapenet")
    >>> volume, target = task.train_data(size=24, count=16, seed=0)[0]
    >>> volume.shape, target.shape
    (torch.Size([1, 24, 24, 24]), torch.Size([24, 24, 24]))
"""

from __future__ import annotations

from collections.abc import Mapping

from ranp.errors import UnsupportedError, unknown_name
from ranp.paper.tasks.shapenet import SHAPENET
from ranp.paper.tasks.task import Task

__all__ = ["Task", "get", "names"]

_TASKS: Mapping[str, Task] = {task.name: task for task in (SHAPENET,)}


def names() -> tuple[str, ...]:
    """The names that ``get`` knows, sorted."""
    return tuple(sorted(_TASKS))


def get(name: str) -> Task:
    """The task of that name.

    Raises:
        UnsupportedError: No task has that name.
    """
    if name not in _TASKS:
        raise UnsupportedError(unknown_name("task", name, _TASKS))
    return _TASKS[name]

"""The two scales: the paper's own, and one that two cores can run.

What the small one changes is said here, setting by setting, and printed with every result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ranp.paper.recipe import Setting, setting_text

__all__ = ["CPU", "QUICK", "SCALES", "changes", "described"]

CPU: Mapping[str, Mapping[str, Any]] = {
    "shapenet": {
        "options.widths": (24, 48, 96),
        "epochs": 8,
        "batch": 8,
        "train_count": 160,
        "valid_count": 32,
        "optimiser": "adam",
        "learning_rate": 0.005,
        "weight_decay": 0.0,
        "schedule": "step",
        "decay": 0.1,
        "milestones": (6,),
    },
    "brats": {"epochs": 10, "milestones": (8,), "valid_every": 1, "valid_count": 8},
    "sceneflow": {
        "size": 48,
        "options.windows": (8, 4, 2, 1),
        "epochs": 8,
        "train_count": 96,
        "valid_count": 16,
    },
    "ucf101": {
        "size": 24,
        "epochs": 6,
        "milestones": (4,),
        "batch": 24,
        "train_count": 1616,
        "valid_count": 101,
    },
}
"""Changes to each task's ``cpu`` recipe, which trains one network in minutes: a table has a hundred of them."""

_LITTLE: Mapping[str, Any] = {"epochs": 2, "milestones": (1,)}
QUICK: Mapping[str, Mapping[str, Any]] = {
    "shapenet": {"options.widths": (8, 16), "size": 8, **_LITTLE, "train_count": 16, "valid_count": 8},
    "brats": {"options.widths": (8, 16), "size": 12, **_LITTLE, "train_count": 8, "valid_count": 4},
    "sceneflow": {"size": 32, "options.disparities": 16, "epochs": 2, "train_count": 4, "valid_count": 4},
    "ucf101": {"size": 16, **_LITTLE, "batch": 8, "train_count": 16, "valid_count": 8},
}
"""Changes on top of ``CPU`` that show that everything runs, and nothing else."""

SCALES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"paper": {}, "cpu": CPU}


def described(scale: str, task: str, *, quick: bool) -> str:
    """What a scale changes of the recipe of a task, in one line."""
    made = changes((*SCALES[scale].get(task, {}).items(), *(QUICK[task].items() if quick else ())))
    base = "the paper's recipe" if scale == "paper" else "its cpu recipe"
    return f"{task}: {base}" + (f" with {made}" if made else "")


def changes(settings: Iterable[Setting]) -> str:
    """Settings in words, of each key the last one."""
    return ", ".join(setting_text(key, value) for key, value in dict(settings).items())

"""What answers are worth that do not look at their input: what a network has to beat."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ranp.paper.recipe import Recipe
from ranp.paper.tasks.task import Samples, Task

__all__ = ["always", "frequencies", "trivial"]

_FEW = 8
"""Classes of which each is tried as the answer."""
_ENOUGH = 256
"""Training samples that tell what is frequent."""


def frequencies(task: Task, samples: Samples, count: int) -> Tensor:
    """How often each class of a task occurs in the first samples: scores of the most frequent answer."""
    labels = torch.cat([samples[index][1].flatten() for index in range(min(count, len(samples)))])
    return torch.bincount(labels[labels < task.classes], minlength=task.classes).to(torch.float32)


def always(task: Task, scores: Tensor, samples: Samples) -> dict[str, float]:
    """The figures of giving every sample the same scores of the classes."""

    def pairs() -> Iterable[tuple[Tensor, Tensor]]:
        for index in range(len(samples)):
            target = samples[index][1]
            yield scores.reshape(1, -1, *[1] * target.dim()).expand(1, -1, *target.shape), target[None]

    return task.evaluate(pairs())


def trivial(task: Task, recipe: Recipe, figure: str) -> float:
    """A figure of the best answer that does not look at its input, on the samples that a recipe validates on."""
    training = task.train_data(recipe.size, recipe.train_count, recipe.seed)
    validation = task.valid_data(recipe.size, recipe.valid_count, recipe.seed)
    if not task.classes:
        seen = (training[index][1][0] for index in range(min(len(training), _ENOUGH)))
        median = torch.cat([target[target >= 0] for target in seen]).median()
        targets = (validation[index][1] for index in range(len(validation)))
        return task.evaluate((median.expand(1, *target.shape[1:]), target[None]) for target in targets)[figure]
    answers = [frequencies(task, training, _ENOUGH)]
    if task.classes <= _FEW:  # the most frequent label need not have the best figure: background has no Dice
        answers += list(torch.eye(task.classes))
    return max(always(task, answer, validation)[figure] for answer in answers)

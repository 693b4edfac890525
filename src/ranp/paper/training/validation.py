"""How good a network is: the task's figures over validation data that all ranks share out among themselves."""

from __future__ import annotations

import torch
from torch import nn

from ranp.errors import DataError
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.task import Task
from ranp.paper.training.loading import Feed, validation_batches
from ranp.paper.training.placing import autocast, placed
from ranp.paper.training.team import Team
from ranp.progress import Progress

__all__ = ["validate"]


def validate(
    model: nn.Module,
    task: Task,
    recipe: Recipe,
    feed: Feed,
    team: Team,
    progress: Progress | None = None,
) -> dict[str, float]:
    """The figures of the whole, the same on every rank; the network is left in the mode it was in.

    Sums are added up, not means, so the figures do not depend on how many ranks there are; each sample counts once.

    Raises:
        DataError: There is nothing to validate on.
    """
    team.share_buffers(model)
    was_training = model.training
    model.eval()
    sums: dict[str, float] = {}
    total, done = len(range(team.rank, len(feed.data), team.size)), 0
    with torch.no_grad(), autocast(recipe, team.device):
        for inputs, target in validation_batches(feed, recipe.valid_batch, team.rank, team.size):
            output = task.predict(model, placed(inputs, recipe, team.device), recipe.size)
            for name, value in task.metrics.tally(output.float(), target.to(output.device)).items():
                sums[name] = sums.get(name, 0.0) + value
            done += len(target)
            if progress is not None:
                progress(done, total)
    model.train(was_training)
    # A rank without a sample knows no names; figures of a kind that only some batches have are named by some ranks.
    names = sorted({name for text in team.gather("\n".join(sums)) for name in text.split("\n") if name})
    if not names:
        raise DataError("there is nothing to validate on. Raise valid_count, or check the data.")
    added = team.total([sums.get(name, 0.0) for name in names])
    return task.metrics.figures(dict(zip(names, added, strict=True)))

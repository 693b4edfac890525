"""A fair clock: seconds of a training step of several networks, in turn, so that a busy machine is unfair to none."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ranp.paper.tasks.task import Task
from ranp.progress import Progress
from ranp.running.calling import call

__all__ = ["median_ratio", "step_seconds"]


def step_seconds(
    models: Mapping[str, nn.Module],
    task: Task,
    batch: tuple[Any, Tensor],
    rounds: int,
    progress: Progress | None = None,
) -> dict[str, tuple[float, ...]]:
    """Seconds of a training step of each network, round by round.

    Copies are timed; the networks themselves learn nothing. One untimed round warms up.

    Args:
        models: By name.
        task: Whose loss.
        batch: Inputs and target of a step.
        rounds: How many steps of each.
        progress: Called with rounds done and in all.
    """
    inputs, target = batch
    copies = {name: copy.deepcopy(model).train() for name, model in models.items()}
    optimisers = {name: torch.optim.Adam(model.parameters(), lr=0.0) for name, model in copies.items()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    names = list(models)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            start = time.perf_counter()
            optimisers[name].zero_grad(set_to_none=True)
            task.loss(call(copies[name], inputs), target).backward()  # type: ignore[no-untyped-call]
            optimisers[name].step()
            if number:
                seconds[name].append(time.perf_counter() - start)
        if progress is not None and number:
            progress(number, rounds)
    return {name: tuple(values) for name, values in seconds.items()}


def median_ratio(times: Sequence[float], reference: Sequence[float]) -> float:
    """The median over rounds of one time over the other of the same round."""
    return statistics.median(a / b for a, b in zip(times, reference, strict=True))

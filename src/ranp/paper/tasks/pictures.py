"""Example predictions of a task as plain values: truth beside what each network says.

Samples are those that the task validates on, predictions are made and judged as validation makes and judges them. The
module ``picture`` of each task makes the picture of one sample; ``ranp.reporting.drawing.examples`` draws it.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ranp.errors import DataError, UnsupportedError
from ranp.paper import tasks
from ranp.paper.tasks.task import Inputs, Samples, Task
from ranp.reporting.drawing.values import Panel, Picture, Scale

__all__ = ["TRUTH", "Panel", "Picture", "Scale", "Seen", "pictures"]

TRUTH = "Truth"
"""The title of the panel that shows it."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """One validation sample and what networks said of it.

    Attributes:
        task: Whose it is.
        samples: Among which it is.
        index: Its number there.
        inputs: Without a batch dimension.
        target: Likewise.
        outputs: Of each network, by name, likewise.
    """

    task: Task
    samples: Samples
    index: int
    inputs: Inputs
    target: Tensor
    outputs: Mapping[str, Tensor]

    @property
    def image(self) -> Tensor:
        """The first input."""
        return self.inputs[0] if isinstance(self.inputs, tuple) else self.inputs

    def figure(self, output: Tensor, name: str | None = None) -> float:
        """How good an output is by the task's main figure, or by another one."""
        figures = self.task.metrics(output.unsqueeze(0), self.target.unsqueeze(0))
        return figures[self.task.metrics.main if name is None else name]


def pictures(
    task: Task, models: Mapping[str, nn.Module], *, size: int, count: int = 2, seed: int = 0
) -> tuple[Picture, ...]:
    """Pictures of some validation samples, each with the truth and the prediction of every network.

    Networks predict in eval mode, each on the device that it is on, and are left in the mode they were in.

    Args:
        task: On procedural or on published data.
        models: Networks by name, in the order they are shown; none for the truth alone.
        size: Of the samples, and of the window that a volume is seen through; as in ``Recipe.size``.
        count: How many samples; fewer if there are not so many.
        seed: Of the samples. Published data are what they are; there it says with which sample to begin.

    Raises:
        DataError: A count below 1, or a sample that is not right.
        UnsupportedError: The task is not one of ``ranp.paper.tasks``.
    """
    if task.name not in tasks.names():
        raise UnsupportedError(f"there are no pictures of task {task.name!r}; there are of {', '.join(tasks.names())}.")
    if count < 1:
        raise DataError(f"count={count}: ask for at least one picture.")
    picture: Callable[[Seen], Picture] = importlib.import_module(f"ranp.paper.tasks.{task.name}.picture").picture
    samples = task.valid_data(size=size, seed=seed)
    total = len(samples)
    shown = []
    for index in ((seed * count + place) % total for place in range(min(count, total))):
        inputs, target = samples[index]
        outputs = {name: _answer(task, model, inputs, size) for name, model in models.items()}
        shown.append(picture(Seen(task, samples, index, inputs, target, outputs)))
    return tuple(shown)


def _answer(task: Task, model: nn.Module, inputs: Inputs, size: int) -> Tensor:
    """What a network says of one sample, without the batch dimension."""
    place = next(itertools.chain(model.parameters(), model.buffers()), torch.empty(0)).device
    batch: Inputs = tree_map(lambda one: one.unsqueeze(0).to(place), inputs)
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            return task.predict(model, batch, size)[0].float().cpu()
    finally:
        for module, mode in modes.items():
            module.training = mode

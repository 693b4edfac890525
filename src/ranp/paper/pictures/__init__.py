"""Example predictions of the four tasks as plain values: truth beside what each network says.

Samples are those that the task validates on, predictions are made and judged as validation makes and judges them.
``ranp.reporting.drawing.examples`` draws what this returns.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ranp.errors import DataError, UnsupportedError
from ranp.paper.pictures import brats, sceneflow, shapenet, ucf101
from ranp.paper.pictures.sample import Seen, Shown
from ranp.paper.tasks.task import Inputs, Task
from ranp.reporting.drawing.values import Panel, Picture, Scale

__all__ = ["Panel", "Picture", "Scale", "pictures"]

_TASKS: Mapping[str, Shown] = {
    "brats": brats.picture,
    "sceneflow": sceneflow.picture,
    "shapenet": shapenet.picture,
    "ucf101": ucf101.picture,
}


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
        UnsupportedError: The task is not one of the four.
    """
    if task.name not in _TASKS:
        raise UnsupportedError(
            f"there are no pictures of task {task.name!r}; there are of {', '.join(sorted(_TASKS))}."
        )
    if count < 1:
        raise DataError(f"count={count}: ask for at least one picture.")
    samples = task.valid_data(size=size, seed=seed)
    total = len(samples)
    shown = []
    for index in ((seed * count + place) % total for place in range(min(count, total))):
        inputs, target = samples[index]
        outputs = {name: _answer(task, model, inputs, size) for name, model in models.items()}
        shown.append(_TASKS[task.name](Seen(task, samples, index, inputs, target, outputs)))
    return tuple(shown)


def _answer(task: Task, model: nn.Module, inputs: Inputs, size: int) -> Tensor:
    """What a network says of one sample, without the batch dimension."""
    place = next(itertools.chain(model.parameters(), model.buffers()), torch.empty(0)).device
    batch: Inputs
    if isinstance(inputs, tuple):
        batch = tuple(one.unsqueeze(0).to(place) for one in inputs)
    else:
        batch = inputs.unsqueeze(0).to(place)
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            return task.predict(model, batch, size)[0].float().cpu()
    finally:
        for module, mode in modes.items():
            module.training = mode

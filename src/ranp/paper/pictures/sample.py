"""A sample and what networks said of it, and the figure by which the task judges them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from ranp.paper.tasks.task import Inputs, Samples, Task
from ranp.reporting.drawing.values import Picture

__all__ = ["TRUTH", "Seen", "Shown"]

TRUTH = "Truth"


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """One validation sample.

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


Shown = Callable[[Seen], Picture]
"""Makes the picture of a sample."""

"""What a training step of a network is made of, so that the step of any slim version of it can be traced."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ranp.costs.quantities import FORWARD, TRAINING
from ranp.costs.step.records import StepTrace, TrainingStep
from ranp.costs.step.running import PLAIN, trace_step
from ranp.errors import UnsupportedError
from ranp.running.calling import tensors_in

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class StepSetup:
    """What a training step is made of.

    Attributes:
        model: The full network; it is never run.
        example: Inputs of one call, at the size of the step; may be on meta.
        step: Batch, optimiser, precision, checkpointing.
        loss: ``loss(output, target)``, None for a stand-in.
        target: What it is given.
    """

    model: nn.Module
    example: Any
    step: TrainingStep = PLAIN
    loss: Callable[[Any, Any], Any] | None = None
    target: Any = None
    _full: dict[str, StepTrace] = field(default_factory=dict, init=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The step as plain values: sizes of the inputs, batch, optimiser, precision, checkpointing."""
        inputs = ["x".join(map(str, tensor.shape)) for tensor in tensors_in(self.example)]
        return {"inputs": inputs, **asdict(self.step)}

    def full(self, *, part: str = TRAINING) -> StepTrace:
        """The step of the full network, or a part of it; traced once."""
        if part not in self._full:
            self._full[part] = self.trace(self.model, part=part)
        return self._full[part]

    def trace(self, network: nn.Module, *, part: str = TRAINING) -> StepTrace:
        """The step of that network, its forward pass alone, or one inference."""
        if part != TRAINING:
            return trace_step(network, self.example, step=None, training=part == FORWARD)
        if self.loss is not None and self.target is not None:
            try:
                return trace_step(network, self.example, step=self.step, loss=self.loss, target=self.target)
            except UnsupportedError as error:
                logger.info("the step is traced with a stand-in for the loss: %s", error)
        return trace_step(network, self.example, step=self.step)


def target_for(example: Any, inputs: Any, target: Any) -> Any:
    """A target without data for the example, where a batch has this target for these inputs.

    Batch and space of the target follow those of the inputs; what has neither stays as it is.
    """
    new, old = (next(iter(tensors_in(tree)), None) for tree in (example, inputs))
    if new is None or old is None:
        return None
    space = max(old.dim() - 2, 0)

    def fitted(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        shape = list(value.shape)
        if shape and old.dim() and shape[0] == old.shape[0]:
            shape[0] = new.shape[0]
        if space and len(shape) > space and shape[-space:] == list(old.shape[-space:]):
            shape[-space:] = new.shape[-space:]
        return torch.empty(shape, dtype=value.dtype, device="meta")

    return tree_map(fitted, target)

"""The step of any choice of channels: rehearsed at a few widths, then known at all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ranp.choosing.budgets.probing import probes
from ranp.choosing.selection import Selection
from ranp.costs.step import Rehearsal, TrainingStep, rehearse
from ranp.costs.widths import Elastic
from ranp.errors import UnsupportedError
from ranp.running.calling import tensors_in, unwrap
from ranp.tracing.cutting import cut_copy
from ranp.tracing.layout import Flags

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
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
    step: TrainingStep
    loss: Callable[[Any, Any], Any] | None = None
    target: Any = None

    def rehearsed(self, network: nn.Module, *, inference: bool = False) -> Rehearsal:
        """The step of that network, or one inference."""
        if inference:
            return rehearse(network, self.example, step=None)
        if self.loss is not None and self.target is not None:
            try:
                return rehearse(network, self.example, step=self.step, loss=self.loss, target=self.target)
            except UnsupportedError as error:
                logger.info("the step is rehearsed with a stand-in for the loss: %s", error)
        return rehearse(network, self.example, step=self.step)


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


def cut(selection: Selection, model: nn.Module, stays: Flags, *, meta: bool = True) -> nn.Module:
    """A copy of the network with only these classes of channels; without data if ``meta``."""
    found = selection.coupling.keeps(stays)
    keeps = {name: {dim: keep for dim, (_, keep) in cuts.items()} for name, cuts in found.items()}
    return cut_copy(unwrap(model), keeps, meta=meta)


class Stage:
    """Rehearsals of one network at any choice of channels.

    Where sizes at a few widths do not tell those at all, every choice is rehearsed by itself.

    Args:
        scene: What is rehearsed.
        selection: The classes of channels.
        inference: One inference instead of a training step.
    """

    def __init__(self, scene: Scene, selection: Selection, *, inference: bool = False) -> None:
        self._scene, self._selection, self._inference = scene, selection, inference
        self._latest: tuple[bytes, Rehearsal] | None = None
        chosen = probes(selection)
        runs = [(stays, self.real(stays)) for stays in chosen]
        self.full = runs[0][1]
        """The step of the full network."""
        self._elastic: Elastic | None = None
        try:
            self._elastic = Elastic(selection.coupling.layout, runs)
        except UnsupportedError as error:
            logger.info("every candidate is rehearsed by itself: %s", error)

    def at(self, stays: Flags) -> Rehearsal:
        """The step of the network that keeps these classes."""
        key = stays.tobytes()
        if self._latest is None or self._latest[0] != key:
            self._latest = (key, self.real(stays) if self._elastic is None else self._elastic.at(stays))
        return self._latest[1]

    def real(self, stays: Flags) -> Rehearsal:
        """The same, rehearsed."""
        return self._scene.rehearsed(cut(self._selection, self._scene.model, stays), inference=self._inference)

    def mistrusted(self) -> None:
        """From now on every candidate is rehearsed by itself."""
        self._elastic = self._latest = None

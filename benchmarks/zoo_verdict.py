"""How far one side of the coverage table came with one network at one ratio."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.judges import called
from zoo.entry import floating, loss

STEPS = ("traced", "pruned", "forward", "backward")
DOING = ("tracing fails", "pruning fails", "forward dies", "backward dies")
SAID = 60
"""Characters of an error message that the table shows."""

Layers = Mapping[str, tuple[str, int]]
"""Where each layer has its output channels: tensor and dimension."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Parameters and multiply-adds of one call: those that ``torch.utils.flop_counter`` counts, halved."""

    params: int
    macs: int


@dataclass(slots=True)
class Verdict:
    """Filled in while the network is pruned, so that a failure leaves what was reached.

    Attributes:
        steps: Of ``STEPS``, those that went well.
        problem: What stopped it, or what is wrong with the result; empty if nothing is.
        checked: ``numeric``, ``certificate`` or empty: what the error rests on.
        error: Largest difference from the masked network; NaN if nobody can tell.
        removed: Output channels that the layers lost.
        requested: Those that were to go.
        before: Of the full network.
        after: Of the pruned network.
        even: Share of the parameters that is left where every layer loses the same share of its channels.
        seconds: To prune, all that is needed for it included.
        note: Anything else that the table should say.
    """

    steps: list[str] = field(default_factory=list)
    problem: str = ""
    checked: str = ""
    error: float = math.nan
    removed: int = 0
    requested: int = 0
    before: Cost | None = None
    after: Cost | None = None
    even: float = math.nan
    seconds: float = math.nan
    note: str = ""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Verdict:
        """From the plain values of ``dataclasses.asdict``."""
        costs = {side: Cost(**kept[side]) if kept[side] else None for side in ("before", "after")}
        return cls(**{**kept, **costs})

    @property
    def trains(self) -> bool:
        """Something was removed, and the result runs forward and backward."""
        return self.removed > 0 and tuple(self.steps) == STEPS

    @property
    def good(self) -> bool:
        """It trains, nothing is wrong, and somebody checked."""
        return self.trains and not self.problem and bool(self.checked)

    def stopped(self, error: Exception) -> None:
        """Notes what happened after the last step that went well."""
        text = " ".join(str(error).split()).replace("|", "/")
        said = text[:SAID] + "..." if len(text) > SAID else text
        self.problem = f"{DOING[min(len(self.steps), 3)]}: {type(error).__name__}: {said}".removesuffix(": ")


def follow(verdict: Verdict, full: nn.Module, slim: nn.Module, inputs: Any, layers: Layers) -> None:
    """Runs a pruned network forward and backward, and counts what it lost."""
    verdict.removed = removed(full, slim, layers)
    with torch.no_grad():
        shapes = [
            [tensor.shape for tensor in floating(called(net.eval(), copy.deepcopy(inputs)))] for net in (full, slim)
        ]
    verdict.steps.append("forward")
    verdict.before, verdict.after = cost(full, inputs), cost(slim, inputs)
    twin = copy.deepcopy(slim).train()  # a copy: running statistics move
    loss(called(twin, copy.deepcopy(inputs))).backward()
    if not all(p.grad is None or bool(torch.isfinite(p.grad).all()) for p in twin.parameters()):
        raise FloatingPointError("a gradient is not finite")
    verdict.steps.append("backward")
    if shapes[0] != shapes[1]:
        verdict.problem = "changes the shape of the output"
    elif not verdict.removed:
        verdict.problem = "prunes nothing"


def cost(model: nn.Module, inputs: Any) -> Cost:
    """Of one call, by running it."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        called(model.eval(), copy.deepcopy(inputs))
    return Cost(sum(parameter.numel() for parameter in model.parameters()), counter.get_total_flops() // 2)


def removed(full: nn.Module, slim: nn.Module, layers: Layers) -> int:
    """Output channels that all layers lost."""

    def width(model: nn.Module, name: str, dim: int) -> int | None:
        try:
            return int(attrgetter(name)(model).shape[dim])  # an attribute: a parametrised weight is no parameter
        except AttributeError:
            return None

    widths = [(width(full, *at), width(slim, *at)) for at in layers.values()]
    return sum(before - after for before, after in widths if before is not None and after is not None)


def guarded(verdict: Verdict, function: Callable[[], None]) -> Verdict:
    """Calls it; a failure becomes part of the verdict."""
    try:
        function()
    except Exception as error:
        verdict.stopped(error)
    return verdict

"""Seconds of one training step, or of one inference, of any network, from tables measured on this machine."""

from __future__ import annotations

from typing import Any

from torch import nn

from ranp import arguments
from ranp.costs.step import StepTrace, TrainingStep, trace_step
from ranp.costs.step.running import Loss
from ranp.costs.time.table import Table
from ranp.progress import Progress

_PLAIN = TrainingStep()


def step_time(
    model: nn.Module,
    example: Any,
    *,
    step: TrainingStep = _PLAIN,
    loss: Loss | None = None,
    target: Any = None,
    table: Table | None = None,
    progress: Progress | None = None,
) -> float:
    """Seconds of one training step: forward pass, loss, backward pass and optimiser.

    The network is not run. Operators that this machine has not been timed on yet are measured one by one, over a range
    of widths (minutes for a large network), and remembered; after that any slimmer version of it takes no time to
    predict.

    Args:
        model: The network, real or on the meta device.
        example: The inputs of one call; may be on the meta device.
        step: Batch, optimiser and precision.
        loss: Of output and target; default as in ``ranp.costs.step.trace_step``.
        target: What the loss compares with.
        table: Times of operators, default those of this machine.
        progress: Called with the number of measurements done and of all, while operators are measured.

    Raises:
        UnsupportedError: The network cannot run a step without data.
        StorageError: The file of the table is damaged or cannot be written.
    """
    arguments.kind("step", step, TrainingStep, "a ranp.TrainingStep; for an inference, call ranp.latency")
    _check(table, progress)
    return _seconds(trace_step(model, example, step=step, loss=loss, target=target), table, progress)


def latency(model: nn.Module, example: Any, *, table: Table | None = None, progress: Progress | None = None) -> float:
    """Seconds of one inference, in eval mode and without gradients. Otherwise as ``step_time``."""
    _check(table, progress)
    return _seconds(trace_step(model, example, step=None), table, progress)


def _check(table: object, progress: object) -> None:
    if table is not None:
        arguments.kind("table", table, Table, "a ranp.costs.time.Table, or None for that of this machine")
    if progress is not None:
        arguments.function("progress", progress, "a function (done, all), or None")


def _seconds(traced: StepTrace, table: Table | None, progress: Progress | None) -> float:
    table = Table.open(device=traced.device) if table is None else table
    table.cover(traced, progress=progress)
    return table.seconds(traced)

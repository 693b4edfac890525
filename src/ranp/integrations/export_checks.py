"""Whether what was exported computes the same as the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ranp.errors import DataError
from ranp.integrations.export_formats import Runner, tensors_of
from ranp.integrations.export_sizes import Inputs, Shape
from ranp.running.randomness import untouched_rng


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison with the network: shapes of the inputs, and the largest difference.

    Attributes:
        shapes: Of every tensor that went in.
        error: Largest absolute difference of any output, over the largest absolute value of that output.
    """

    shapes: tuple[Shape, ...]
    error: float


class DisagreesError(Exception):
    """The exported file computes something else."""


def run(network: nn.Module, inputs: Inputs) -> Any:
    """What a network returns; random numbers that it draws are the same every time.

    Raises:
        DataError: It does not run on these inputs.
    """
    try:
        with torch.no_grad(), untouched_rng():
            return inputs.run(network)
    except Exception as error:  # It is the user's code and may raise anything.
        shapes = ", ".join("x".join(map(str, shape)) for shape in inputs.shapes)
        raise DataError(
            f"{type(network).__name__} does not run on the example of {shapes} ({first_line(error)}). "
            "Pass inputs of one call that it takes."
        ) from error


def compare(network: nn.Module, exported: Runner, inputs: Inputs, tolerance: float) -> Check:
    """Compares one run of what was exported with one of the network.

    Raises:
        DisagreesError: The outputs are further apart than ``tolerance``.
    """
    expected = tensors_of(run(network, inputs))
    with torch.no_grad():
        got = exported(inputs)
    error = _difference(expected, got)
    if not error <= tolerance:
        again = _difference(expected, tensors_of(_run_again(network, inputs)))
        why = "the network is random in eval mode" if again > 0 else f"tolerance {tolerance:g}"
        shapes = ", ".join("x".join(map(str, shape)) for shape in inputs.shapes)
        raise DisagreesError(f"the file is off by {error:.1e} of the largest output at {shapes} ({why})")
    return Check(inputs.shapes, error)


def _run_again(network: nn.Module, inputs: Inputs) -> Any:
    with untouched_rng():
        torch.default_generator.manual_seed(0)
        return run(network, inputs)


def _difference(expected: list[Tensor], got: list[Tensor]) -> float:
    """Largest absolute difference of any output over its largest absolute value; infinite if they do not compare."""
    if [tuple(t.shape) for t in expected] != [tuple(t.shape) for t in got]:
        return float("inf")
    worst = 0.0
    for mine, theirs in zip(expected, got, strict=True):
        if not mine.numel():
            continue
        first, second = mine.double(), theirs.double()
        if not torch.equal(first.isfinite(), second.isfinite()):
            return float("inf")
        first, second = first.nan_to_num(), second.nan_to_num()
        scale = max(first.abs().max().item(), torch.finfo(torch.float32).tiny)
        worst = max(worst, (first - second).abs().max().item() / scale)
    return worst


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__

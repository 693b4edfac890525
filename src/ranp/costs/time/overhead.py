"""What a call costs beside its operator: Python, modules, autograd's bookkeeping. Measured on a network of no size."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import nn

from ranp.costs.step import Call, trace_step
from ranp.costs.time.timing import Stopwatch

PHASES = ("inference", "forward", "backward", "optimiser")
_BLOCKS = 8
_RUNS = 15


def measure_overhead(watch: Stopwatch, seconds: Callable[[Call], float], device: str = "cpu") -> dict[str, float]:
    """Seconds per call in each phase, beyond those of the operators alone.

    On other devices than the CPU it is zero: there Python runs ahead of the kernels.
    """
    if device != "cpu":
        return dict.fromkeys(PHASES, 0.0)
    with torch.random.fork_rng(devices=[]):
        blocks = [(nn.Conv3d(2, 2, 1), nn.BatchNorm3d(2), nn.ReLU()) for _ in range(_BLOCKS)]
    network = nn.Sequential(*(layer for block in blocks for layer in block))
    inputs = torch.full((2, 2, 2, 2, 2), 0.5)
    alone = dict.fromkeys(PHASES, 0.0)
    counts = dict.fromkeys(PHASES, 0)
    for phase, traced in (("", trace_step(network, inputs)), ("inference", trace_step(network, inputs, step=None))):
        for call in traced.calls:
            name = phase or ("forward" if call.phase == "loss" else call.phase)
            alone[name] += seconds(call)
            counts[name] += 1
    taken = _phases(watch, network, inputs)
    return {phase: max(0.0, taken[phase] - alone[phase]) / counts[phase] for phase in PHASES}


def _phases(watch: Stopwatch, network: nn.Module, inputs: torch.Tensor) -> dict[str, float]:
    """Seconds of the phases of real steps."""
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-6)
    target = torch.zeros((2, 2, 2, 2), dtype=torch.int64)
    kept: list[torch.Tensor] = []

    def forward() -> None:
        kept[:] = [nn.functional.cross_entropy(network(inputs), target)]

    def backward() -> None:
        torch.autograd.backward(kept)

    def inference() -> None:
        with torch.no_grad():
            network(inputs)

    taken: dict[str, list[float]] = {phase: [] for phase in PHASES}
    for _ in range(_RUNS):
        network.train()
        optimiser.zero_grad(set_to_none=True)
        for phase, part in (("forward", forward), ("backward", backward), ("optimiser", optimiser.step)):
            taken[phase].append(watch.once(part))
        network.eval()
        taken["inference"].append(watch.once(inference))
    return {phase: statistics.median(times) for phase, times in taken.items()}

"""At which size to compare: the example's own, or a smaller one where that would cost too much."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from ranp.running.calling import at_least_two, call, map_tensors, tensors_in
from ranp.running.copies import copy_model
from ranp.running.dataless import MetaMode, to_meta
from ranp.running.flops import OpRecorder
from ranp.running.randomness import untouched_rng
from ranp.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

FACTORS = (2, 3, 4, 6, 8, 12, 16)
EDGES = (256, 128, 64, 48, 32, 16, 8)
"""Networks that halve their input several times run at multiples of a power of two only."""


def affordable(tracer: Tracer, budget: float | None) -> tuple[Any, str, bool]:
    """The example, made smaller if a comparison would cost more FLOPs than the budget; a note; whether it costs less.

    Where nothing that runs is within the budget: the cheapest that runs, at the least the example itself.
    """
    flops = float(sum(op.flops for op in tracer.ops.values()))
    if budget is None or flops <= budget:
        return tracer.example, "", True
    one_row = map_tensors(lambda x: x[:1] if x.dim() > 1 else x, tracer.example)
    modes = [train for train, run in tracer.runs.items() if not run.failed]
    best, cost = tracer.example, math.inf
    sizes = {_sizes(smaller): smaller for smaller in _smaller(one_row)}
    likely = [s for s in sizes.values() if _volume(s) / _volume(tracer.example) * flops <= 8 * budget]
    for smaller in likely:  # costs follow the volume, within a small factor
        found = _cost(tracer.model, smaller, modes)
        if found is not None and found < cost:
            best, cost = smaller, found
        if cost <= budget:
            break
    for smaller in (*reversed(list(sizes.values())[: len(sizes) - len(likely)]), one_row):
        if cost < math.inf:
            break
        found = _cost(tracer.model, smaller, modes)
        if found is not None:
            best, cost = smaller, found
    same = _sizes(best) == _sizes(tracer.example)
    note = "" if same else f"compared at the smaller size {[tuple(size) for size in _sizes(best)]}"
    return best, note, cost <= budget


def _smaller(inputs: Any) -> Iterator[Any]:
    """Inputs with fewer positions in space, the largest first."""

    def divided(factor: int) -> Any:
        return _narrowed(inputs, lambda size: max(1, size // factor))

    def capped(edge: int) -> Any:
        return _narrowed(inputs, lambda size: min(size, edge))

    yield from sorted([*map(divided, FACTORS), *map(capped, EDGES)], key=_volume, reverse=True)


def _narrowed(inputs: Any, size: Callable[[int], int]) -> Any:
    def narrow(x: torch.Tensor) -> torch.Tensor:
        for dim in range(2, x.dim()):
            x = x.narrow(dim, 0, size(x.shape[dim]))
        return x

    return map_tensors(narrow, inputs)


def _sizes(inputs: Any) -> tuple[torch.Size, ...]:
    return tuple(tensor.shape for tensor in tensors_in(inputs))


def _volume(inputs: Any) -> int:
    return max((tensor.numel() for tensor in tensors_in(inputs)), default=1) or 1


def _cost(model: nn.Module, inputs: Any, modes: Sequence[bool]) -> float | None:
    """FLOPs of runs at another size without data, None if the network does not run there in one of the modes."""
    copy = copy_model(model, meta=True)
    try:
        with torch.no_grad(), untouched_rng(), MetaMode(), OpRecorder() as counter:
            for train in modes:
                call(copy.train(train), at_least_two(to_meta(inputs)) if train else to_meta(inputs))
    except Exception as error:
        logger.debug("not at this size: %s", error)
        return None
    return float(sum(op.flops for op in counter.ops))

"""What an operator allocates beyond its results while it runs: one rule per operator, none for pointwise ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ranp.footprint import convolutions
from ranp.rehearsal import Call, Sized

Rule = Callable[[Call], int]

_RULES: dict[str, Rule] = {
    "aten.convolution.default": convolutions.forward_transient,
    "aten.convolution_backward.default": convolutions.backward_transient,
}


def transient(call: Call) -> int:
    """Bytes that an operator allocates on the CPU beyond its results, at its worst moment.

    >>> import torch
    >>> size = Sized((2, 8), torch.float32)
    >>> transient(Call("aten.relu.default", (size,), (size,), '[["T"]]', "forward", ""))
    0
    """
    if call.op not in _RULES:
        return 0
    return _cached(call.op, _bare(call.inputs), _bare(call.outputs), call.settings)


def _bare(tensors: tuple[Sized, ...]) -> tuple[Sized, ...]:
    return tuple(Sized(x.shape, x.dtype, x.channels_last, -1, x.scattered) for x in tensors)


@lru_cache(maxsize=1 << 16)
def _cached(op: str, inputs: tuple[Sized, ...], outputs: tuple[Sized, ...], settings: str) -> int:
    return _RULES[op](Call(op, inputs, outputs, settings, "", ""))

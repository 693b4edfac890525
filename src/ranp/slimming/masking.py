"""The masked twin: the full network run so that removed channels reach no consumer.

Removed channels keep their (arbitrary) values and are silenced where they would be summed up with others: at the input
of convolutions and matrix products. Operators that take statistics over channels (group and layer norm, softmax, means)
are given the kept channels only, as they are in the slim network, and the default scale of attention counts these. How,
stands beside the rule of each operator (``tracing/rules``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ranp.running.operators import flat_tensors
from ranp.running.randomness import ambient_seed, drawn_anew, untouched_rng
from ranp.tracing.masked import Mask, MaskedOp
from ranp.tracing.operation import labels_of
from ranp.tracing.rules import MASKED

if TYPE_CHECKING:
    from typing_extensions import Self

_LOSSY = (torch.float32, torch.float16, torch.bfloat16)


def derandomised(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], double: bool = True) -> Any:
    """Runs an operator so that two networks can be compared: random numbers are constants, and no precision is lost.

    With ``double``, what the code asks to be made in a smaller type is made in float64.
    """
    name = func._schema.name.split("::")[-1]
    if double and kwargs.get("dtype") in _LOSSY:
        kwargs = {**kwargs, "dtype": torch.float64}
    elif double and kwargs.get("dtype") is torch.complex64:
        kwargs = {**kwargs, "dtype": torch.complex128}
    if name == "native_dropout":
        return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
    if not drawn_anew(func, kwargs):
        return func(*args, **kwargs)
    out = func(*args, **kwargs)
    return out.fill_(1) if isinstance(out, torch.Tensor) and out.numel() else out


class Derandomised(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, random operators give constants; ``before`` sees the number and the tensors of every operator.

    What code draws from a seed of its own are constants already, and stay what they are.
    """

    def __init__(self, before: Callable[[int, list[torch.Tensor]], None] | None = None, *, double: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.before, self.double = before, double
        self.count = 0
        self.random = ExitStack()

    def __enter__(self) -> Self:
        self.random.enter_context(untouched_rng())
        ambient_seed()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self.random.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.before is not None:
            self.before(self.count, list(flat_tensors((args, kwargs or {}))))
        self.count += 1
        return derandomised(func, args, kwargs or {}, self.double)


class MaskedRun:
    """Runs operators of the full network as the masked twin does. ``keep`` says of every label whether it stays."""

    def __init__(self, keep: Mask, *, double: bool = True) -> None:
        self.keep = keep
        self.run = partial(derandomised, double=double)

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one operator in its masked form, if it has one."""
        form = MASKED.get(func._schema.name.split("::")[-1])
        return self.run(func, args, kwargs) if form is None else form(MaskedOp(func, args, kwargs, self.keep, self.run))

    def head_size(self, query: torch.Tensor) -> int:
        """How many features of heads stay, of their queries."""
        labels = labels_of(query).get(query.dim() - 1)
        return int(query.shape[-1]) if labels is None else int(self.keep[labels].sum())

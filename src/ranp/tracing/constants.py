"""Constants: tensors that code makes from nothing, whose values are known even in a run without data.

``x / torch.tensor(float(x.shape[1])).sqrt()`` divides by a number that depends on how many channels there are, and so
does ``x / torch.ones(c).sum()``; ``torch.randn(c, generator=g)`` gives every channel a number of its own. Labels do not
show any of this. So the values of such tensors are followed beside the run, on real tensors as long as they are small,
and compared where they meet anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from ranp.running.operators import Schema, flat_tensors, schema_of
from ranp.running.randomness import drawn_anew

VALUE = "_ranp_value"
"""Where a tensor carries its value: a real tensor, or True if it is its own."""
LARGEST = 1 << 16
"""Elements up to which values are worked out; a tensor that is the same all along a dimension counts it once."""

Values = npt.NDArray[np.float64]

_FILLED = {"zeros": 0.0, "ones": 1.0, "zeros_like": 0.0, "ones_like": 1.0, "new_zeros": 0.0, "new_ones": 1.0}
_FULL = frozenset(["full", "full_like", "new_full"])
_UNWRITTEN = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
_MADE = frozenset([*_FILLED, *_FULL, *_UNWRITTEN])
_SAME = frozenset("mean amax amin clone contiguous _to_copy view _unsafe_view reshape expand permute slice".split())
"""What leaves a tensor of equal elements one of equal elements, with the same value."""
_MAKERS = (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)


class MadeFromNumbers(TorchFunctionMode):
    """While active, ``torch.tensor`` and its like let a tensor without data carry the value it would have."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in _MAKERS and isinstance(out, torch.Tensor) and out.is_meta:
            data = args[1] if func is torch.Tensor.new_tensor else args[0] if args else None
            if not flat_tensors(data):
                setattr(out, VALUE, torch.tensor(data, dtype=out.dtype, device="cpu"))
        return out


class Constants:
    """Follows the values of constants through one run. ``meta``: the run holds no data but theirs."""

    def __init__(self, *, meta: bool) -> None:
        self.meta = meta
        self.stale: dict[int, Any] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The value of a tensor, None if it is no constant or is not known."""
        found = getattr(tensor, VALUE, None)
        if found is None and (tensor.is_meta or not self.meta or tensor.numel() > LARGEST):
            return None
        if self.stale and tensor.untyped_storage()._cdata in self.stale:
            return None
        return found if isinstance(found, torch.Tensor) else tensor.detach()

    def follow(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        values: Sequence[torch.Tensor | None] | None = None,
    ) -> None:
        """Lets the results of an operator carry their values where those are known, and forgets what is overwritten.

        ``values`` are those of the tensors that went in, if somebody has looked them up.
        """
        schema = schema_of(func)
        if schema.name in _MADE:
            self._fill(schema.name, args, kwargs, out)
            return
        if values is not None and any(value is None for value in values) and not schema.mutable:
            return
        ins, results = flat_tensors((args, kwargs)), flat_tensors(out)
        values = [self.of(tensor) for tensor in ins] if values is None else values
        if results and not any(value is None for value in values) and not drawn_anew(func, kwargs):
            if not (self.meta and not any(tensor.is_meta for tensor in results)):  # else really made
                self._work_out(func, schema, args, kwargs, ins, values, results)
        elif schema.mutable and ins:
            for tensor in (*results, ins[0]):
                self._forget(tensor)

    def _fill(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: torch.Tensor) -> None:
        """A tensor of equal elements; one that nothing was written to yet is taken for zeros."""
        number = kwargs.get("fill_value", args[-1] if args else 0.0) if name in _FULL else _FILLED.get(name, 0.0)
        if isinstance(number, int | float) and out.dtype.is_floating_point:
            setattr(out, VALUE, _equal(out, float(number)) if out.is_meta else True)

    def _work_out(
        self,
        func: Any,
        schema: Schema,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        ins: list[torch.Tensor],
        values: Sequence[torch.Tensor | None],
        results: list[torch.Tensor],
    ) -> None:
        if not self.meta:
            for tensor in results:
                setattr(tensor, VALUE, True)
            return
        found = {id(tensor): value for tensor, value in zip(ins, values, strict=True)}
        large = max(tensor.numel() for tensor in (*ins, *results)) > LARGEST
        if large and not schema.mutable:
            made: Any = _of_equal(func, schema, args, kwargs, found, results[0])
        elif large:
            made = None
        else:
            if "device" in kwargs:
                kwargs = {**kwargs, "device": torch.device("cpu")}
            try:
                made = func(*_replaced(args, found), **_replaced(kwargs, found))
            except Exception:  # a kernel for real numbers may refuse what the one without data lets pass
                made = None
        worked_out = flat_tensors(made)
        if len(worked_out) != len(results):
            for tensor in results:
                self._forget(tensor)
            return
        for tensor, value in zip(results, worked_out, strict=True):
            setattr(tensor, VALUE, value)

    def _forget(self, tensor: torch.Tensor) -> None:
        """Whatever shares this memory has another value now."""
        storage = tensor.untyped_storage()
        self.stale[storage._cdata] = storage


def _replaced(tree: Any, values: dict[int, torch.Tensor | None]) -> Any:
    return tree_map(lambda x: values.get(id(x), x) if isinstance(x, torch.Tensor) else x, tree)


def _equal(like: torch.Tensor, number: float) -> torch.Tensor:
    """A tensor of equal elements, without their memory where there are many."""
    if like.numel() <= LARGEST:
        return torch.full(like.shape, number, dtype=like.dtype)
    return torch.full([1] * like.dim(), number, dtype=like.dtype).expand(like.shape)


def _of_equal(
    func: Any,
    schema: Schema,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    values: dict[int, torch.Tensor | None],
    out: torch.Tensor,
) -> torch.Tensor | None:
    """The value of an operator on large tensors: where all elements that it reads together are equal."""
    given = [value for value in values.values() if value is not None]
    if schema.pointwise:
        small = {key: None if value is None else _collapsed(value) for key, value in values.items()}
        if max((value.numel() for value in small.values() if value is not None), default=0) > LARGEST:
            return None
        kwargs = {key: item for key, item in kwargs.items() if key != "device"}
        made = func(*_replaced(args, small), **_replaced(kwargs, small))
        return made.expand(out.shape) if isinstance(made, torch.Tensor) else None
    if len(given) != 1 or _collapsed(given[0]).numel() != 1:
        return None
    number = float(_collapsed(given[0]))
    if schema.name == "sum" and out.numel():
        return _equal(out, number * given[0].numel() / out.numel())
    return _equal(out, number) if schema.name in _SAME else None


def _collapsed(value: torch.Tensor) -> torch.Tensor:
    """One index of every dimension along which nothing lies in memory."""
    for dim, stride in enumerate(value.stride()):
        if stride == 0 and value.shape[dim] > 1:
            value = value.narrow(dim, 0, 1)
    return value


def compact(value: torch.Tensor) -> Values | None:
    """The numbers of a value, one index of every dimension along which they are the same; None if they are too many."""
    value = _collapsed(value)
    if value.numel() > LARGEST or value.is_complex():
        return None
    numbers: Values = value.detach().to(torch.float64).numpy()
    for dim in range(numbers.ndim):
        first = numbers.take([0], axis=dim) if numbers.shape[dim] > 1 else numbers
        if numbers.shape[dim] > 1 and np.array_equal(np.broadcast_to(first, numbers.shape), numbers, equal_nan=True):
            numbers = first
    return numbers

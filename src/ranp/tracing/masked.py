"""One operator of the masked twin: what its masked form may ask, and how it runs the operator on other arguments.

The masked twin is the full network run so that removed channels reach no consumer. Masked forms stand beside the rules
in ``tracing/rules``, but know nothing of them: all they see are the labels that tensors carry, and which of these stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ranp.running.operators import Operator
from ranp.tracing.operation import labels_of

Mask = npt.NDArray[np.bool_]
Run = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class MaskedOp(Operator):
    """An operator of the full network that is about to run. ``keep`` holds for every label whether it stays."""

    __slots__ = ("_run", "keep")

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], keep: Mask, run: Run) -> None:
        super().__init__(func, args, kwargs)
        self.keep, self._run = keep, run

    def run(self, changes: Mapping[str, Any] | None = None) -> Any:
        """Runs the operator with some of its arguments replaced."""
        arguments = {**self.arguments, **(changes or {})}
        schema = [argument for argument in self.func._schema.arguments if argument.name in arguments]
        positional = tuple(arguments[argument.name] for argument in schema if not argument.kwarg_only)
        return self._run(self.func, positional, {a.name: arguments[a.name] for a in schema if a.kwarg_only})

    def stays(self, tensor: torch.Tensor, dim: int) -> Mask | None:
        """Which indices stay along a dimension; None if all do."""
        labels = labels_of(tensor).get(dim)
        if labels is None or self.keep[labels].all():
            return None
        stays: Mask = self.keep[labels]
        return stays

    def cut(self, tensor: torch.Tensor, dims: Sequence[int]) -> list[int]:
        """Those of the dimensions along which something goes."""
        return [dim for dim in dims if self.stays(tensor, dim) is not None]

    def silenced(self, tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """The tensor with zeros at removed indices along the dimensions that will be summed over."""
        labelled = tensor  # what is made of it carries no labels
        for dim in dims:
            stays = self.stays(labelled, dim)
            if stays is not None:
                shape = [1] * tensor.dim()
                shape[dim] = -1
                mask = torch.from_numpy(stays).to(tensor.device).reshape(shape)
                tensor = torch.where(mask, tensor, torch.zeros((), dtype=tensor.dtype, device=tensor.device))
        return tensor

    def taken(self, tensor: Any, dims: Sequence[int], like: torch.Tensor | None = None, shift: int = 0) -> Any:
        """Only the indices that stay along some dimensions (of another tensor that lines up with this one)."""
        if not isinstance(tensor, torch.Tensor):
            return tensor
        labelled = tensor if like is None else like
        for dim in dims:
            stays = self.stays(labelled, dim)
            if stays is not None:
                tensor = tensor.index_select(dim - shift, torch.from_numpy(np.flatnonzero(stays)).to(tensor.device))
        return tensor

    def put_back(self, small: torch.Tensor, full: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """The result on kept indices, at their places in a tensor of the full size."""
        for dim in reversed(dims):
            stays = self.stays(full, dim)
            if stays is not None:
                shape = list(small.shape)
                shape[dim] = full.shape[dim]
                index = torch.from_numpy(np.flatnonzero(stays)).to(small.device)
                small = small.new_zeros(shape).index_copy_(dim, index, small)
        return small

    def aligned(self, dims: Mapping[str, int], now: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Arguments that line up along one dimension each, at the indices where all of them stay."""
        changes = {name: self[name] for name in dims} if now is None else dict(now)
        size = max(self[name].shape[dim] for name, dim in dims.items())
        wide = [name for name, dim in dims.items() if self[name].shape[dim] == size]
        masks = [stays for name in wide if (stays := self.stays(self[name], dims[name])) is not None]
        if masks:
            index = torch.from_numpy(np.flatnonzero(np.logical_and.reduce(masks)))
            for name in wide:
                changes[name] = changes[name].index_select(dims[name], index.to(self[name].device))
        return changes

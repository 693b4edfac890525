"""The masked twin: the full network run so that removed channels reach no consumer.

Removed channels keep their (arbitrary) values and are silenced where they would be summed up with others: at the input
of convolutions and matrix products. Operators that take statistics over channels (group and layer norm, softmax, means)
are given the kept channels only, as they are in the slim network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from ranp.running.operators import Operator, flat_tensors
from ranp.running.randomness import ambient_seed, drawn_anew, untouched_rng
from ranp.tracing.constants import VALUE
from ranp.tracing.operation import labels_of
from ranp.tracing.rules.contraction import CONVOLUTIONS
from ranp.tracing.rules.losses import DISTANCES, ELEMENTWISE, unreduced
from ranp.tracing.rules.movement import wrap
from ranp.tracing.rules.reduction import EXTREMES, PLAIN, reduced_dims

if TYPE_CHECKING:
    from typing_extensions import Self

Mask = npt.NDArray[np.bool_]

_PRODUCTS = {
    "mm": "self", "bmm": "self", "addmm": "mat1", "baddbmm": "batch1", "addbmm": "batch1", "mv": "self",
    "addmv": "mat", "dot": "self", "vdot": "self", "matmul": "self", "linear": "input", "_addmm_activation": "mat1",
}  # fmt: skip
_LOSSY = (torch.float32, torch.float16, torch.bfloat16)
_BATCH_NORMS = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm")
_SOFTMAX = ("_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax")
_REDUCTIONS = (*PLAIN, *EXTREMES)


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
    """Runs operators of the full network as the masked twin does. ``keep`` tells of every label whether it stays."""

    def __init__(self, keep: Mask, *, double: bool = True) -> None:
        self.keep, self.double = keep, double

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one operator on its masked or taken inputs, by its name."""
        name = func._schema.name.split("::")[-1]
        op = Operator(func, args, kwargs)
        if name in CONVOLUTIONS:
            image = "input" if op["input"] is not None else "self"
            return self._with(func, op, image, self._silenced(op[image], [1]))
        if name in _PRODUCTS:
            x = op[_PRODUCTS[name]]
            return self._with(func, op, _PRODUCTS[name], self._silenced(x, [x.dim() - 1]))
        if name == "_weight_norm_interface":
            v = op["v"]
            return self._with(func, op, "v", self._silenced(v, [d for d in range(v.dim()) if d != (op["dim"] or 0)]))
        if name == "native_group_norm":
            return self._group_norm(func, op)
        if name in ("native_layer_norm", "_fused_rms_norm"):
            return self._layer_norm(func, op)
        if name in _BATCH_NORMS:
            return self._batch_norm(func, op)
        if name in _SOFTMAX:
            return self._softmax(func, op)
        if name.startswith("_scaled_dot_product"):
            return self._attention(func, op)
        if name == "_trilinear":
            return self._trilinear(func, op)
        if name in ELEMENTWISE and not unreduced(op):
            return self._loss(func, op)
        if name in DISTANCES:
            last = (op["x1"].dim() - 1, op["x2"].dim() - 1)
            return self._call(func, op, self._aligned(op, {"x1": last[0], "x2": last[1]}))
        if name == "_pdist_forward":
            return self._with(func, op, "self", self._taken(op["self"], [1]))
        if name in _REDUCTIONS and (op["self"] if op["self"] is not None else op["input"]) is not None:
            return self._reduction(func, op)
        return derandomised(func, args, kwargs, self.double)

    def _with(self, func: Any, op: Operator, name: str, value: Any) -> Any:
        """Runs the operator with one argument replaced."""
        return self._call(func, op, {name: value})

    def _call(self, func: Any, op: Operator, changes: dict[str, Any]) -> Any:
        arguments = {**op.arguments, **changes}
        schema = func._schema.arguments
        positional = [arguments[a.name] for a in schema if not a.kwarg_only and a.name in arguments]
        keyword = {a.name: arguments[a.name] for a in schema if a.kwarg_only and a.name in arguments}
        return derandomised(func, tuple(positional), keyword, self.double)

    def _stays(self, tensor: torch.Tensor, dim: int) -> Mask | None:
        """Which indices stay along a dimension; None if all do."""
        labels = labels_of(tensor).get(dim)
        if labels is None or self.keep[labels].all():
            return None
        stays: Mask = self.keep[labels]
        return stays

    def _silenced(self, tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """The tensor with zeros at removed indices along the dimensions that will be summed over."""
        for dim in dims:
            stays = self._stays(tensor, dim)
            if stays is not None:
                shape = [1] * tensor.dim()
                shape[dim] = -1
                mask = torch.from_numpy(stays).to(tensor.device).reshape(shape)
                tensor = torch.where(mask, tensor, torch.zeros((), dtype=tensor.dtype, device=tensor.device))
        return tensor

    def _taken(self, tensor: Any, dims: Sequence[int], like: torch.Tensor | None = None, shift: int = 0) -> Any:
        """Only the indices that stay along some dimensions (of another tensor that lines up with this one)."""
        if not isinstance(tensor, torch.Tensor):
            return tensor
        for dim in dims:
            stays = self._stays(tensor if like is None else like, dim)
            if stays is not None:
                tensor = tensor.index_select(dim - shift, torch.from_numpy(np.flatnonzero(stays)).to(tensor.device))
        return tensor

    def _put_back(self, small: torch.Tensor, full: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """The result on kept indices, at their places in a tensor of the full size."""
        for dim in reversed(dims):
            stays = self._stays(full, dim)
            if stays is not None:
                shape = list(small.shape)
                shape[dim] = full.shape[dim]
                wide = small.new_zeros(shape)
                wide.index_copy_(dim, torch.from_numpy(np.flatnonzero(stays)).to(small.device), small)
                small = wide
        return small

    def _group_norm(self, func: Any, op: Operator) -> Any:
        x = op["input"]
        if self._stays(x, 1) is None:
            return self._call(func, op, {})
        small = self._taken(x, [1]).contiguous()
        channels = small.shape[1]
        changes = {
            "input": small,
            "weight": self._taken(op["weight"], [1], x, 1),
            "bias": self._taken(op["bias"], [1], x, 1),
            "C": channels,
            "group": channels if op["group"] == x.shape[1] else op["group"],
        }
        out = self._call(func, op, changes)
        return (self._put_back(out[0], x, [1]), *out[1:])

    def _batch_norm(self, func: Any, op: Operator) -> Any:
        """Statistics are taken over all but channels: where channels lie there too, over those that stay."""
        x = op["input"]
        dims = [d for d in range(x.dim()) if d != 1 and self._stays(x, d) is not None]
        if not dims:
            return self._call(func, op, {})
        out = self._call(func, op, {"input": self._taken(x, dims).contiguous()})
        return (self._put_back(out[0], x, dims), *out[1:])

    def _layer_norm(self, func: Any, op: Operator) -> Any:
        x, first = op["input"], op["input"].dim() - len(op["normalized_shape"])
        dims = [d for d in range(first, x.dim()) if self._stays(x, d) is not None]
        if not dims:
            return self._call(func, op, {})
        small = self._taken(x, dims)
        changes = {
            "input": small,
            "normalized_shape": list(small.shape[first:]),
            "weight": self._taken(op["weight"], dims, x, first),
            "bias": self._taken(op["bias"], dims, x, first),
        }
        out = self._call(func, op, changes)
        return (self._put_back(out[0], x, dims), *out[1:])

    def _softmax(self, func: Any, op: Operator) -> Any:
        x = op["self"]
        dim = wrap(op["dim"], x.dim())
        if self._stays(x, dim) is None:
            return self._call(func, op, {})
        return self._put_back(self._call(func, op, {"self": self._taken(x, [dim])}), x, [dim])

    def _attention(self, func: Any, op: Operator) -> Any:
        query, key, value = op["query"], op["key"], op["value"]
        last = query.dim() - 1
        changes = {"query": self._taken(query, [last]), "key": self._taken(key, [last])}
        if changes["query"] is query and self._stays(value, last) is None:
            return self._call(func, op, {})
        changes["value"] = self._taken(value, [last])
        if changes["query"].shape[-1] == changes["value"].shape[-1]:
            out = self._call(func, op, changes)
        else:  # fused kernels refuse values that are as wide as the queries no more
            mask, causal, scale = op["attn_mask"], bool(op["is_causal"]), op["scale"]
            first = F.scaled_dot_product_attention(
                changes["query"],
                changes["key"],
                changes["value"],
                mask,
                is_causal=causal,
                scale=scale,
                enable_gqa=query.shape[1] != key.shape[1],
            )
            rest = self._call(func, op, {})  # for what a kernel returns beside its result
            out = first if isinstance(rest, torch.Tensor) else (first, *rest[1:])
        first = out if isinstance(out, torch.Tensor) else out[0]
        wide = self._put_back(first, value, [last])
        return wide if isinstance(out, torch.Tensor) else (wide, *out[1:])

    def _trilinear(self, func: Any, op: Operator) -> Any:
        rank = op["i1"].dim() + len(op["expand1"])
        changes = {}
        for name, expanded in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
            own = [d for d in range(rank) if d not in op[expanded]]
            changes[name] = self._silenced(op[name], [i for i, d in enumerate(own) if d in op["sumdim"]])
        return self._call(func, op, changes)

    def _loss(self, func: Any, op: Operator) -> Any:
        """A loss over all elements is one over those that stay."""
        names = [name for name, value in op.arguments.items() if isinstance(value, torch.Tensor)]
        changes: dict[str, Any] = {name: op[name] for name in names}
        for back in range(1, max(op[name].dim() for name in names) + 1):
            dims = {name: op[name].dim() - back for name in names if op[name].dim() >= back}
            changes = self._aligned(op, dims, changes)
        return self._call(func, op, changes)

    def _aligned(self, op: Operator, dims: dict[str, int], now: dict[str, Any] | None = None) -> dict[str, Any]:
        """Arguments that line up along one dimension each, at the indices where all of them stay."""
        changes = {name: op[name] for name in dims} if now is None else dict(now)
        size = max(op[name].shape[dim] for name, dim in dims.items())
        wide = [name for name, dim in dims.items() if op[name].shape[dim] == size]
        masks = [stays for name in wide if (stays := self._stays(op[name], dims[name])) is not None]
        if masks:
            index = torch.from_numpy(np.flatnonzero(np.logical_and.reduce(masks)))
            for name in wide:
                changes[name] = changes[name].index_select(dims[name], index.to(op[name].device))
        return changes

    def _reduction(self, func: Any, op: Operator) -> Any:
        name = "self" if op["self"] is not None else "input"
        x = op[name]
        if not isinstance(x, torch.Tensor) or getattr(x, VALUE, None) is not None:  # a constant counts all that it has
            return self._call(func, op, {})
        return self._with(func, op, name, self._taken(x, sorted(reduced_dims(op, x.dim()))))

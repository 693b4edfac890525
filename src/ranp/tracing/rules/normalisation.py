"""Norms: channels are united with the norm's own parameters and statistics."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ranp.running.operators import flat_tensors
from ranp.tracing.labels import Vector
from ranp.tracing.masked import MaskedOp
from ranp.tracing.operation import Labels, Op, labels_of, others
from ranp.tracing.rules.table import masked, rule

FIXED = "a norm of fixed size"
PER_CHANNEL = ("weight", "bias", "running_mean", "running_var", "mean", "invstd")


def _joined(op: Op, data: Vector | None, names: tuple[str, ...]) -> Vector | None:
    """Unites channels with every per-channel tensor of the norm that is present."""
    parts: list[Vector | None] = [data]
    for name in names:
        tensor = op[name]
        if isinstance(tensor, torch.Tensor) and tensor.numel() > 1:
            parts.append(labels_of(tensor).get(0))
    return op.merge(parts, FIXED)


def _first(op: Op) -> torch.Tensor:
    """The result itself, of those that come with statistics."""
    return flat_tensors(op.out)[0]


@rule(
    "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update", "_batch_norm_no_update", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm",
    "_native_batch_norm_legit_functional", "_batch_norm_with_update_functional", "batch_norm_elemt",
)  # fmt: skip
def batch_norm(op: Op) -> None:
    """Batch norm, and instance norm, which arrives as a batch norm over sample-channel pairs."""
    x = op["input"]
    labels = others(x, [1])
    if x.shape[1] != 1:
        labels[1] = _joined(op, labels_of(x).get(1), PER_CHANNEL)
    op.emit(labels, _first(op))


@masked("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm")
def masked_batch_norm(op: MaskedOp) -> Any:
    """Statistics are taken over all but channels: where channels lie there too, over those that stay."""
    x = op["input"]
    dims = op.cut(x, [d for d in range(x.dim()) if d != 1])
    if not dims:
        return op.run()
    out = op.run({"input": op.taken(x, dims).contiguous()})
    return (op.put_back(out[0], x, dims), *out[1:])


@rule("native_group_norm", "group_norm")
def group_norm(op: Op) -> None:
    """Group norm: groups keep equal counts; or whole groups go, since a module can be told how many it has left."""
    x, groups = op["input"], op["group"] or op["num_groups"]
    labels = others(x, [1])
    if x.shape[1] != 1:
        vector = labels[1] = _joined(op, labels_of(x).get(1), ("weight", "bias"))
        if vector is not None and 1 < groups < x.shape[1]:
            whole = isinstance(op.module, nn.GroupNorm)
            op.space.require_equal_counts(vector, groups, f"groups of a norm ({groups})", op.where, whole=whole)
    op.emit(labels, _first(op))


@masked("native_group_norm")
def masked_group_norm(op: MaskedOp) -> Any:
    """Statistics over the channels that stay."""
    x, stays = op["input"], op.stays(op["input"], 1)
    if stays is None:
        return op.run()
    small = op.taken(x, [1]).contiguous()
    changes = {name: op.taken(op[name], [1], x, 1) for name in ("weight", "bias")}
    left = stays.reshape(op["group"], -1).any(axis=1).sum()
    out = op.run({**changes, "input": small, "C": small.shape[1], "group": int(left)})
    return (op.put_back(out[0], x, [1]), *out[1:])


@rule("native_layer_norm", "layer_norm", "rms_norm", "_fused_rms_norm")
def layer_norm(op: Op) -> None:
    """Layer norm over the last dimensions."""
    x, shape = op["input"], op["normalized_shape"]
    labels: Labels = dict(labels_of(x))
    for i in range(len(shape)):
        dim = x.dim() - len(shape) + i
        if x.shape[dim] == 1:
            continue
        parts: list[Vector | None] = [labels_of(x).get(dim)]
        for name in ("weight", "bias"):
            if isinstance(op[name], torch.Tensor):
                parts.append(labels_of(op[name]).get(i))
        labels[dim] = op.merge(parts, FIXED)
    op.emit(labels, _first(op))


@masked("native_layer_norm", "_fused_rms_norm")
def masked_layer_norm(op: MaskedOp) -> Any:
    """Statistics over the channels that stay."""
    x, first = op["input"], op["input"].dim() - len(op["normalized_shape"])
    dims = op.cut(x, range(first, x.dim()))
    if not dims:
        return op.run()
    small = op.taken(x, dims)
    changes = {name: op.taken(op[name], dims, x, first) for name in ("weight", "bias")}
    out = op.run({**changes, "input": small, "normalized_shape": list(small.shape[first:])})
    return (op.put_back(out[0], x, dims), *out[1:])


@rule("_weight_norm_interface", "_weight_norm")
def weight_norm(op: Op) -> None:
    """Weight norm: direction and length of a weight share its output channels."""
    v, g, dim = op["v"], op["g"], op["dim"] or 0
    labels: Labels = dict(labels_of(v))
    if g.shape[dim] != 1:
        labels[dim] = op.merge([labels.get(dim), labels_of(g).get(dim)], FIXED)
    op.emit(labels, _first(op))


@masked("_weight_norm_interface")
def masked_weight_norm(op: MaskedOp) -> Any:
    """The length of a direction without its removed inputs."""
    v = op["v"]
    return op.run({"v": op.silenced(v, [d for d in range(v.dim()) if d != (op["dim"] or 0)])})

"""Element by element: dimensions that line up are one class, position by position."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ranp.running.operators import flat_tensors
from ranp.tracing.labels import has_filler
from ranp.tracing.operation import Labels, Op, labels_of, others
from ranp.tracing.rules.table import rule


def broadcast(op: Op, tensors: Sequence[torch.Tensor], shape: Sequence[int], reason: str) -> Labels:
    """Labels of an element-wise result: operands align from the right; an operand of size one takes no part."""
    result: Labels = {}
    for dim, size in enumerate(shape):
        if size == 1:
            continue
        back = len(shape) - dim
        aligned = [
            labels_of(t).get(t.dim() - back) for t in tensors if t.dim() >= back and t.shape[t.dim() - back] == size
        ]
        if aligned:
            merged = op.merge(aligned, reason)
            alone = merged is not None and len(aligned) == 1 and has_filler(merged)
            result[dim] = merged.copy() if alone and merged is not None else merged
    return result


@rule(
    "pointwise", "where", "masked_fill", "hardswish", "rsub", "floor_divide", "log_sigmoid_forward",
    "rrelu_with_noise", "rrelu_with_noise_functional", "_prelu_kernel", "native_dropout", "bernoulli", "addcmul",
    "addcdiv", "dropout", "fill", "zero", "normal", "uniform", "exponential", "random", "clone", "_to_copy",
    "contiguous", "lift_fresh", "polar", "convert_element_type", "_fused_dropout", "complex", "normal_functional",
    "log_normal", "cauchy", "geometric", "poisson", "binomial", "_standard_gamma", "lift_fresh_copy", "alias_copy",
    "detach_copy", "_conj_copy", "_neg_view_copy", "_lazy_clone", "_add_relu", "_masked_scale",
    "fake_quantize_per_tensor_affine_cachemask", "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "_fake_quantize_learnable_per_tensor_affine",
)  # fmt: skip
def pointwise(op: Op) -> None:
    """Every element of the result depends on the elements at the same place."""
    results = flat_tensors(op.out)
    first = results[0]
    operands = [t for t in op.tensors if not (op.in_place and t is first)]
    labels = broadcast(op, operands, tuple(first.shape), "meets a tensor of fixed size")
    if op.in_place:
        op.write(first, labels)
    else:
        op.emit(labels, *(out for out in results if out.shape == first.shape))


@rule("alias", "detach", "lift", "_conj", "conj", "positive", "_neg_view")
def alias(op: Op) -> None:
    """The same storage under another name: shares its labels, so that writes are seen on both sides."""
    op.emit(labels_of(op.tensors[0]))


@rule("copy")
def copy(op: Op) -> None:
    """Writes one tensor into another; where fillers were, the source's labels are now."""
    destination, source = op["self"], op["src"]
    op.write(destination, broadcast(op, [source], tuple(destination.shape), "copied into a tensor of fixed size"))
    if not op.in_place:
        op.emit(labels_of(destination))


@rule("fake_quantize_per_channel_affine_cachemask", "_fake_quantize_learnable_per_channel_affine")
def quantise_by_channel(op: Op) -> None:
    """Rounded element by element, with a step and an offset of each channel's own."""
    x, axis = op["self"], op["axis"]
    labels = others(x, [axis])
    if x.shape[axis] != 1:
        steps = [labels_of(tensor).get(at) for tensor, at in ((x, axis), (op["scale"], 0), (op["zero_point"], 0))]
        labels[axis] = op.merge(steps, "steps of a rounding, of fixed size")
    op.emit(labels)

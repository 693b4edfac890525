"""Sums of products: the input's labels meet the weight's input dimension, the weight's output labels come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ranp.tracing.labels import Vector
from ranp.tracing.masked import MaskedOp
from ranp.tracing.operation import Labels, Op, labels_of, others
from ranp.tracing.rules.pointwise import broadcast
from ranp.tracing.rules.table import masked, rule

FIXED = "weights meet input of fixed size"


CONVOLUTIONS = ("convolution", "_convolution", "convolution_overrideable", "cudnn_convolution", "mkldnn_convolution")
PRODUCTS = tuple("mm bmm addmm baddbmm addbmm mv addmv dot matmul vdot linear _addmm_activation".split())


@rule(*CONVOLUTIONS)
def convolution(op: Op) -> None:
    """Convolutions of 1 to 3 dimensions: plain, grouped, depthwise, transposed."""
    x, weight, bias = op["input"] if op["input"] is not None else op["self"], op["weight"], op["bias"]
    groups, transposed = op["groups"], bool(op["transposed"])
    op.pin_tensor(x, "a convolution runs along channels", range(2, x.dim()))
    op.pin_tensor(weight, "kernel", range(2, weight.dim()))
    data, first, second = labels_of(x).get(1), labels_of(weight).get(0), labels_of(weight).get(1)
    inputs, outputs = (first, second) if transposed else (second, first)
    if op.depthwise is None:  # cut to one channel in each group, a grouped convolution would look like one
        op.depthwise = groups > 1 and (x.shape[1] == groups or (weight.shape[0] == groups and not transposed))
    if op.depthwise:  # cut to a single group, it still is
        out = _depthwise(op, data, weight, transposed, groups)
    elif groups == 1:
        op.contract(data, inputs, FIXED)
        out = outputs
    else:
        out = _grouped(op, data, weight, transposed, groups)
    if bias is not None and op.out.shape[1] != 1:
        out = op.merge([out, labels_of(bias).get(0)], "a bias of fixed size")
    op.emit({0: labels_of(x).get(0), 1: out})
    op.on_layer(op, inputs, outputs, out)


@masked(*CONVOLUTIONS)
def masked_convolution(op: MaskedOp) -> Any:
    """Removed input channels are zeros."""
    name = "input" if op["input"] is not None else "self"
    return op.run({name: op.silenced(op[name], [1])})


def _depthwise(op: Op, data: Vector | None, weight: torch.Tensor, transposed: bool, groups: int) -> Vector | None:
    """One channel of each group, on one side: those on the other stand or fall with it, and so does the group."""
    if transposed:  # weight (channels, multiplier, ...): the multiplier is shared by all groups
        op.pin(labels_of(weight).get(1), "multiplier of a depthwise transposed convolution")
        rows = op.merge([data, labels_of(weight).get(0)], FIXED)
        return None if rows is None else np.repeat(rows, weight.shape[1])
    outputs, inputs = labels_of(weight).get(0), weight.shape[1]
    if inputs > 1:  # and one output
        op.pin(labels_of(weight).get(1), "inputs of a group that makes one channel")
        op.merge([data, None if outputs is None else np.repeat(outputs, inputs)], FIXED)
        return outputs
    each = weight.shape[0] // groups
    spread = data if data is None or each == 1 else np.repeat(data, each)
    return op.merge([spread, outputs], FIXED)


def _grouped(op: Op, data: Vector | None, weight: torch.Tensor, transposed: bool, groups: int) -> Vector | None:
    """Several channels per group: every group keeps the same positions inside, or as many of its own."""
    first, second = labels_of(weight).get(0), labels_of(weight).get(1)
    per_group = None if second is None else np.tile(second, groups)
    if second is not None and len(second) == groups * weight.shape[1]:  # numbered through all groups
        per_group = second
        op.space.require_equal_counts(second, groups, f"groups of a convolution ({groups})", op.where)
    if first is not None:
        op.space.require_equal_counts(first, groups, f"groups of a convolution ({groups})", op.where)
    if transposed:
        op.contract(data, first, FIXED)
        return per_group
    if data is None or per_group is None:
        op.pin(data, FIXED)
        op.pin(second, FIXED)
    else:
        op.contract(data, per_group, FIXED)
    return first


@rule(*(name for name in PRODUCTS if name != "linear"))
def matrix_product(op: Op) -> None:
    """Matrix products, batched or not, with or without an addend."""
    a, b = _operands(op)
    la, lb = labels_of(a), labels_of(b)
    inner_a, inner_b = a.dim() - 1, max(b.dim() - 2, 0)
    op.contract(_inner(a, inner_a), _inner(b, inner_b), FIXED)
    rank = op.out.dim()
    labels: Labels = {}
    if b.dim() >= 2:
        labels[rank - 1] = lb.get(b.dim() - 1)
    if a.dim() >= 2:
        labels[rank - (2 if b.dim() >= 2 else 1)] = la.get(a.dim() - 2)
    if a.dim() == b.dim() == 3 and rank == 3 and op.out.shape[0] != 1:
        labels[0] = op.merge([la.get(0), lb.get(0)], "meets a batch of fixed size")
    elif a.dim() == b.dim() == 3:
        op.pin_tensor(a, "summed over a batch", [0])
        op.pin_tensor(b, "summed over a batch", [0])
    addend = (
        op["bias"] if op["bias"] is not None else op["self"] if op.name.startswith(("add", "badd", "_add")) else None
    )
    if isinstance(addend, torch.Tensor):
        for dim, vector in broadcast(op, [addend], tuple(op.out.shape), "an addend of fixed size").items():
            if op.out.shape[dim] != 1:
                labels[dim] = op.merge([labels.get(dim), vector], "an addend of fixed size")
    op.emit(labels)
    op.on_layer(op, lb.get(inner_b), lb.get(b.dim() - 1), labels.get(rank - 1))


@masked(*PRODUCTS)
def masked_product(op: MaskedOp) -> Any:
    """Removed channels of the first factor are zeros where they are summed over."""
    name = next((name for name in ("input", "batch1", "mat1", "mat") if op[name] is not None), "self")
    return op.run({name: op.silenced(op[name], [op[name].dim() - 1])})


def _operands(op: Op) -> tuple[torch.Tensor, torch.Tensor]:
    """The two factors, whatever their names."""
    for a, b in (("batch1", "batch2"), ("mat1", "mat2"), ("mat", "vec"), ("self", "mat2"), ("self", "vec")):
        if op[a] is not None and op[b] is not None:
            return op[a], op[b]
    return op["self"], op["other"] if op["other"] is not None else op["tensor"]


def _inner(tensor: Any, dim: int) -> Vector | None:
    """Labels of the summed dimension; a single index is nothing to prune on either side."""
    return np.zeros(0, np.int64) if tensor.shape[dim] == 1 else labels_of(tensor).get(dim)


@rule("linear")
def linear(op: Op) -> None:
    """A product with a weight that holds its outputs first."""
    x, weight, bias = op["input"], op["weight"], op["bias"]
    last = x.dim() - 1
    op.contract(_inner(x, last), _inner(weight, 1), FIXED)
    out = labels_of(weight).get(0)
    if bias is not None and weight.shape[0] != 1:
        out = op.merge([out, labels_of(bias).get(0)], "a bias of fixed size")
    op.emit({**others(x, [last]), last: out})
    op.on_layer(op, labels_of(weight).get(1), labels_of(weight).get(0), out)


ATTENTIONS = (
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_attention_math", "_scaled_dot_product_attention_math_for_mps",
    "scaled_dot_product_attention",
)  # fmt: skip


@rule(*ATTENTIONS)
def attention(op: Op) -> None:
    """Fused attention: queries meet keys along features, values pass; tokens and heads line up."""
    query, key, value = op["query"], op["key"], op["value"]
    last = query.dim() - 1
    op.contract(labels_of(query).get(last), labels_of(key).get(last), "queries and keys of fixed size")
    for tensor in (query, key, value):
        op.pin_tensor(tensor, "tokens of an attention", [last - 1])
    out = op.out if isinstance(op.out, torch.Tensor) else op.out[0]
    labels: Labels = {last: labels_of(value).get(last)}
    bias = next((op[name] for name in ("attn_mask", "attn_bias") if isinstance(op[name], torch.Tensor)), None)
    parts = [query, key, value]
    if bias is not None:  # lines up from the right, with tokens in its last two dimensions
        op.pin_tensor(bias, "tokens of an attention", [bias.dim() - 2, bias.dim() - 1])
    for dim in range(last - 1):
        if out.shape[dim] == 1:
            continue
        if len({t.shape[dim] for t in parts}) > 1:  # several queries share a key
            for tensor in parts:
                op.pin_tensor(tensor, "heads are shared by a fixed count", [dim])
            op.pin(_lined_up(bias, dim, out), "heads are shared by a fixed count")
            continue
        mine = [labels_of(t).get(dim) for t in parts]
        if bias is not None and (at := dim - out.dim() + bias.dim()) >= 0 and bias.shape[at] != 1:
            mine.append(labels_of(bias).get(at))
        labels[dim] = op.merge(mine, "attention of fixed size")
    op.emit(labels, out)


@masked(*ATTENTIONS)
def masked_attention(op: MaskedOp) -> Any:
    """Only the features that stay: they set the scale of the products."""
    query, key, value = op["query"], op["key"], op["value"]
    last = query.dim() - 1
    changes = {name: op.taken(op[name], [last]) for name in ("query", "key", "value")}
    if changes["query"] is query and changes["value"] is value:
        return op.run()
    if changes["query"].shape[-1] == changes["value"].shape[-1]:
        out = op.run(changes)
    else:  # fused kernels refuse values that are as wide as the queries no more
        shared = query.shape[1] != key.shape[1]
        options: dict[str, Any] = {"is_causal": bool(op["is_causal"]), "scale": op["scale"], "enable_gqa": shared}
        first = F.scaled_dot_product_attention(
            changes["query"], changes["key"], changes["value"], op["attn_mask"], **options
        )
        rest = op.run()  # for what a kernel returns beside its result
        out = first if isinstance(rest, torch.Tensor) else (first, *rest[1:])
    if isinstance(out, torch.Tensor):
        return op.put_back(out, value, [last])
    return (op.put_back(out[0], value, [last]), *out[1:])


def _lined_up(tensor: torch.Tensor | None, dim: int, out: torch.Tensor) -> Vector | None:
    """Labels of a tensor that is laid over the result from the right, along one of the result's dimensions."""
    return None if tensor is None else labels_of(tensor).get(dim - out.dim() + tensor.dim())


@rule("_trilinear")
def trilinear(op: Op) -> None:
    """A sum of products of three (a bilinear layer): each summed dimension is one that two of them share."""
    summed, rank = set(op["sumdim"]), op["i1"].dim() + len(op["expand1"])
    tables: list[Labels] = []
    for name, expanded in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        tensor = op[name]
        own = [d for d in range(rank) if d not in op[expanded]]
        tables.append({d: labels_of(tensor).get(i) for i, d in enumerate(own) if tensor.shape[i] != 1})
    result: Labels = {}
    for dim in range(rank):
        vectors = [table[dim] for table in tables if dim in table]
        if dim not in summed:
            result[dim] = op.merge(vectors, FIXED) if vectors else None
        elif len(vectors) == 2:
            op.contract(vectors[0], vectors[1], FIXED)
        else:
            for vector in vectors:
                op.pin(vector, FIXED)
    kept = [d for d in range(rank) if d not in summed]
    op.emit({new: result[old] for new, old in enumerate(kept)})


@masked("_trilinear")
def masked_trilinear(op: MaskedOp) -> Any:
    """Removed channels of all three are zeros where they are summed over."""
    rank = op["i1"].dim() + len(op["expand1"])
    changes = {}
    for name, expanded in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        own = [d for d in range(rank) if d not in op[expanded]]
        changes[name] = op.silenced(op[name], [i for i, d in enumerate(own) if d in op["sumdim"]])
    return op.run(changes)


@rule("addr")
def outer(op: Op) -> None:
    """Every element of one vector times every one of another, and an addend."""
    labels: Labels = {0: labels_of(op["vec1"]).get(0), 1: labels_of(op["vec2"]).get(0)}
    shape = tuple(op.out.shape)
    if op.in_place:
        op.write(op["self"], {d: v for d, v in labels.items() if shape[d] != 1})
        return
    for dim, vector in broadcast(op, [op["self"]], shape, "an addend of fixed size").items():
        labels[dim] = op.merge([labels[dim], vector], "an addend of fixed size")
    op.emit(labels)


@rule("affine_grid_generator", "cudnn_affine_grid_generator")
def affine_grid(op: Op) -> None:
    """Coordinates of a resampling from matrices: one grid for each sample."""
    theta = op["theta"]
    op.pin_tensor(theta, "coordinates of a resampling", [1, 2])
    op.emit({0: labels_of(theta).get(0)})


@rule("grid_sampler_2d", "grid_sampler_3d", "cudnn_grid_sampler", "grid_sampler")
def grid_sample(op: Op) -> None:
    """Resamples space by a computed grid; channels pass."""
    x, grid = op["input"], op["grid"]
    op.pin_tensor(grid, "coordinates of a resampling", range(1, grid.dim()))
    op.pin_tensor(x, "space of a resampling", range(2, x.dim()))
    labels: Labels = {1: labels_of(x).get(1)}
    if x.shape[0] != 1:
        labels[0] = op.merge([labels_of(x).get(0), labels_of(grid).get(0)], "meets a grid of fixed size")
    op.emit(labels)

"""OneDNN's convolution by matrix products: the one it falls back on, the same for every CPU.

It unfolds one plane of patches at a time into its scratchpad, on one thread or on all of them. Everything is used as it
lies, but torch copies the result. Channels-last, the weight is reordered and the scratchpad holds a sample too.
"""

from __future__ import annotations

from math import prod

from ranp.costs.memory.layouts import Pass
from ranp.costs.memory.shapes import Shapes
from ranp.costs.step.cpu import Cpu

_MOST = 1 << 30
"""Bytes that a scratchpad may have."""
_SHARE = 15
"""The same as a multiple of the operands, for every thread."""
_SUM = 4
"""Bytes of a sum, which 16 bits have in the scratchpad."""
_ROUNDING = 128
"""Bytes lost to the alignment of each part of a scratchpad."""
_SMALL = 1 << 16
"""Multiplications per thread below which threads share samples rather than one product."""


def forward_by_products(shapes: Shapes, cpu: Cpu) -> Pass:
    """The forward pass."""
    plane = prod(shapes.reach[-2:])
    planes = shapes.groups * shapes.batch * prod(shapes.reach[:-2])
    is_shared = len(shapes.space) < 3 or (
        plane // cpu.threads < 512
        and (shapes.reach[0] != 1 or _has_samples(shapes))
        and _is_balanced(shapes, cpu, planes, plane, shapes.out)
    )
    threads = cpu.threads if is_shared else 1
    sums = threads * _SUM * plane * shapes.out // shapes.groups + _ROUNDING if shapes.is_half else 0
    result = prod((shapes.batch, shapes.out, *shapes.reach))
    return Pass(0, result * shapes.item, threads * _patches(shapes) + sums + _ROUNDING)


def data_by_products(shapes: Shapes, cpu: Cpu) -> Pass:
    """The gradient of the input."""
    plane, points = prod(shapes.reach[-2:]), prod(shapes.space[-2:])
    is_shared = (
        (plane // cpu.threads < 512 or prod(shapes.kernel) < 64)
        and _has_samples(shapes)
        and _is_balanced(shapes, cpu, shapes.groups * shapes.batch, points, shapes.into)
    )
    if shapes.is_last:
        volume = _patches(shapes) * prod(shapes.reach[:-2])
        summed = _sample(shapes) if shapes.groups > 1 else 0
        return Pass(shapes.weight * shapes.item, 0, volume + summed + 2 * _ROUNDING)
    result = prod((shapes.batch, shapes.into, *shapes.space)) * shapes.item
    threads = cpu.threads if is_shared else 1
    patches = _bounded(shapes, cpu, threads, 0, 0.1)
    if not shapes.is_half:
        return Pass(0, result, patches + _ROUNDING)
    wide = _SUM // shapes.item
    return Pass(0, result, wide * (patches + threads * _sample(shapes)) + 2 * _ROUNDING)


def weight_by_products(shapes: Shapes, cpu: Cpu) -> Pass:
    """The gradient of the weight: every thread sums one of its own, in four times the room that it takes."""
    plane = prod(shapes.reach[-2:])
    weight = shapes.weight * shapes.item
    wanted = cpu.threads * (4 * weight + _patches(shapes) // plane * cpu.block)
    is_shared = wanted < _limit(shapes, cpu) and plane // cpu.threads < 256 and _has_samples(shapes)
    threads = cpu.threads if is_shared else 1
    sums = 4 * weight * (threads + (1 if shapes.is_half else 0))
    if shapes.is_last:
        scratch = sums + threads * (_patches(shapes) + _sample(shapes)) + 3 * _ROUNDING
        return Pass(0, weight, scratch, is_last=True)
    return Pass(0, weight, sums + _bounded(shapes, cpu, threads, sums, 0.05) + 2 * _ROUNDING)


def _has_samples(shapes: Shapes) -> bool:
    return shapes.batch != 1 or shapes.groups > 2


def _is_balanced(shapes: Shapes, cpu: Cpu, outer: int, points: int, channels: int) -> bool:
    """Whether threads do better on whole samples than on parts of one product."""
    inner = -(-points // cpu.block) * -(-(channels // shapes.groups) // cpu.block)
    used, used_inside = (work / (-(-work // cpu.threads) * cpu.threads) for work in (outer, inner))
    work = points * (shapes.into // shapes.groups) * (shapes.out // shapes.groups) // cpu.threads
    return used >= used_inside or work < _SMALL


def _patches(shapes: Shapes) -> int:
    """Bytes of the patches of one plane; none where they are the input itself."""
    if shapes.is_pointwise and not shapes.is_strided and shapes.space == shapes.reach:
        return 0
    return prod(shapes.reach[-2:]) * shapes.into // shapes.groups * prod(shapes.kernel) * shapes.item


def _sample(shapes: Shapes) -> int:
    """Bytes of one sample of one group of the input."""
    return prod(shapes.space) * shapes.into // shapes.groups * shapes.item


def _limit(shapes: Shapes, cpu: Cpu) -> int:
    inputs = prod((shapes.batch, shapes.into, *shapes.space))
    outputs = prod((shapes.batch, shapes.out, *shapes.reach))
    return min(_MOST, _SHARE * cpu.threads * (inputs + outputs + shapes.weight) * shapes.item)


def _bounded(shapes: Shapes, cpu: Cpu, threads: int, beside: int, share: float) -> int:
    """Bytes of the patches of all threads; where they pass the limit, of a share of a plane."""
    patches = _patches(shapes)
    left = _limit(shapes, cpu) - beside
    if threads * patches <= left:
        return threads * patches
    point = patches // prod(shapes.reach[-2:])
    return threads * point * max(cpu.block, int(left // (threads * point) * share))

"""A convolution in numbers, as the rules for its memory need them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from ranp.costs.step import Sized


@dataclass(frozen=True, slots=True)
class Shapes:
    """A convolution as both passes see it: sizes in elements, ``into`` and ``out`` for the data.

    Attributes:
        batch: Samples.
        into: Channels of the input.
        out: Channels of the output.
        space: Extents of the input.
        reach: Extents of the output.
        kernel: Extents of the kernel.
        stride: Steps of the kernel.
        padding: Of the input.
        dilation: Gaps of the kernel.
        groups: Independent groups of channels.
        is_transposed: A transposed convolution.
        weight: Elements of the weight.
        dtype: Type of an element.
        is_last: The data lie with their channels last, or are brought to it.
        is_last_weight: The weight does.
    """

    batch: int
    into: int
    out: int
    space: tuple[int, ...]
    reach: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    is_transposed: bool
    weight: int
    dtype: torch.dtype
    is_last: bool
    is_last_weight: bool

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def is_half(self) -> bool:
        """16 bits an element."""
        return self.item == 2

    @property
    def is_strided(self) -> bool:
        """Steps over points."""
        return any(step != 1 for step in self.stride)

    @property
    def is_dilated(self) -> bool:
        """Has gaps."""
        return any(gap != 1 for gap in self.dilation)

    @property
    def is_depthwise(self) -> bool:
        """Every channel by itself."""
        return self.groups > 1 and self.groups == self.into

    @property
    def is_pointwise(self) -> bool:
        """A kernel of one."""
        return prod(self.kernel) == 1

    def mirrored(self) -> Shapes:
        """The ordinary convolution of which this transposed one is the gradient."""
        return Shapes(
            self.batch, self.out, self.into, self.reach, self.space, self.kernel, self.stride, self.padding,
            self.dilation, self.groups, False, self.weight, self.dtype, self.is_last,
            self.is_last_weight,
        )  # fmt: skip


def shapes_of(x: Sized, weight: Sized, y: Sized, arguments: list[object]) -> Shapes:
    """Reads a call: input, weight, output and the arguments from the stride to the groups."""
    stride, padding, dilation, is_transposed, _, groups = arguments
    dims = len(x.shape) - 2
    kernel = weight.shape[2:]

    def full(values: object) -> tuple[int, ...]:
        numbers = [int(value) for value in values]  # type: ignore[attr-defined]
        return tuple(numbers * dims if len(numbers) == 1 else numbers)

    return Shapes(
        x.shape[0], x.shape[1], y.shape[1], x.shape[2:], y.shape[2:], kernel, full(stride), full(padding),
        full(dilation), int(groups), bool(is_transposed), prod(weight.shape), x.dtype,  # type: ignore[call-overload]
        x.channels_last or weight.channels_last, weight.channels_last,
    )  # fmt: skip

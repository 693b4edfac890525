"""Drop-in convolutions for where torch takes a slow kernel: the same parameters, the same numbers."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_SMALL = 20480
"""Up to this product of batch, channels, depth and height, torch leaves oneDNN to a batch of two or more."""


class DropIn(nn.Conv3d):
    """A convolution that is computed another way where that is faster, and as torch does elsewhere."""

    @classmethod
    def of(cls, module: nn.Conv3d) -> DropIn:
        """The same module, with the same parameters, hooks and mode."""
        twin = cls.__new__(cls)
        twin.__dict__.update(vars(module))
        return twin

    @classmethod
    def serves(cls, module: nn.Module) -> bool:
        """Whether a module is one that this one can replace."""
        return type(module) is nn.Conv3d and module.groups == 1 and cls._suits(module)

    @classmethod
    def serves_in(cls, model: nn.Module) -> bool:
        """Whether a network has such a module."""
        return any(map(cls.serves, model.modules()))

    @classmethod
    def replace_in(cls, model: nn.Module) -> nn.Module:
        """Puts drop-ins into a network, and returns it; modules that are shared stay shared."""
        made: dict[int, nn.Module] = {}
        for module in list(model.modules()):
            for name, child in module._modules.items():
                if child is not None and cls.serves(child):
                    made.setdefault(id(child), cls.of(child))  # type: ignore[arg-type]
                    module._modules[name] = made[id(child)]
        return cls.of(model) if cls.serves(model) else model  # type: ignore[arg-type]

    @staticmethod
    @abstractmethod
    def _suits(module: nn.Conv3d) -> bool:
        """Whether an ordinary convolution without groups is one that this one can replace."""


class HalvedConv3d(DropIn):
    """A convolution that computes a single small volume as a batch of two halves.

    Torch gives a batch of one to oneDNN only where it is large, and a slow kernel to all others. Two halves that
    overlap by what the kernel reaches are a batch of two; the results are those of the convolution.

    >>> plain = nn.Conv3d(2, 3, 3, stride=2, padding=1)
    >>> x = torch.randn(1, 2, 9, 8, 8)
    >>> torch.allclose(HalvedConv3d.of(plain)(x), plain(x), atol=1e-5)
    True
    """

    @staticmethod
    def _suits(module: nn.Conv3d) -> bool:
        return module.padding_mode == "zeros" and max(module.kernel_size) > 1

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        shape, sizes = input.shape, tuple(weight.shape[2:])
        large = input.dim() != 5 or shape[0] > 1 or math.prod(shape[:4]) > _SMALL or (sizes[1] > 3 and sizes[2] > 3)
        before, after = self._reversed_padding_repeated_twice[4:6]
        reach, stride = self.dilation[0] * (sizes[0] - 1), self.stride[0]
        count = (0 if large else shape[2] + before + after - reach - 1) // stride + 1
        if large or count < 2 or input.device.type != "cpu" or input.dtype != torch.float32:
            plain: Tensor = super()._conv_forward(input, weight, bias)
            return plain
        half = (count + 1) // 2
        rows, second = (half - 1) * stride + reach + 1, (count - half) * stride
        padded = F.pad(input, (0, 0, 0, 0, before, after)) if before or after else input
        both = torch.cat([padded.narrow(2, 0, rows), padded.narrow(2, second, rows)])
        across = self.padding if isinstance(self.padding, str) else (0, *self.padding[1:])
        if isinstance(across, str):
            pads = self._reversed_padding_repeated_twice[:4]
            both, across = F.pad(both, (*pads, 0, 0)), (0, 0, 0)
        out = F.conv3d(both, weight, bias, self.stride, across, self.dilation)
        return torch.cat([out.narrow(0, 0, 1), out.narrow(0, 1, 1).narrow(2, 2 * half - count, count - half)], 2)


class PointwiseConv3d(DropIn):
    """A convolution of single voxels as a matrix product, for volumes that lie channels last.

    On one thread, or for a batch of one, torch takes a kernel for it that knows no memory format, so that the gradients
    behind it lie otherwise than the volumes they meet.

    >>> plain = nn.Conv3d(3, 2, 1)
    >>> x = torch.randn(2, 3, 4, 4, 4).contiguous(memory_format=torch.channels_last_3d)
    >>> torch.allclose(PointwiseConv3d.of(plain)(x), plain(x), atol=1e-5)
    True
    """

    @staticmethod
    def _suits(module: nn.Conv3d) -> bool:
        sizes = {*module.kernel_size, *module.stride}
        return sizes == {1} and module.padding in ((0, 0, 0), "valid", "same")

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        is_last = input.dim() == 5 and input.is_contiguous(memory_format=torch.channels_last_3d)
        has_kernel = len(input) > 1 and torch.get_num_threads() > 1
        if not is_last or has_kernel or input.device.type != "cpu" or input.dtype != torch.float32:
            plain: Tensor = super()._conv_forward(input, weight, bias)
            return plain
        voxels = input.movedim(1, -1)
        out = F.linear(voxels.flatten(0, -2), weight.flatten(1), bias)
        return out.view(*voxels.shape[:-1], -1).movedim(-1, 1)

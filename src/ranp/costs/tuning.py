"""The fastest way to run a network here: its memory format, its convolutions, ``torch.compile``; tried, not guessed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ranp import arguments
from ranp.costs.step import StepSetup, TrainingStep
from ranp.costs.step.running import PLAIN, Loss
from ranp.costs.timing import Care, Stepper, ratio
from ranp.errors import UnsupportedError
from ranp.running import calling, copies

FORMATS = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}
"""Memory formats by name."""
_DIMS = {"channels_last": 4, "channels_last_3d": 5}
_SMALL = 20480
"""Up to this product of batch, channels, depth and height, torch leaves oneDNN to a batch of two or more."""
_WORTH = 0.97
"""Another way than the plain one must take at most this share of its time."""
_CARE = Care(least=5, most=15, settled=0.01, seconds=10.0)


class HalvedConv3d(nn.Conv3d):
    """A convolution that computes a single small volume as a batch of two halves.

    Torch gives a batch of one to oneDNN only where it is large, and a slow kernel to all others. Two halves that
    overlap by what the kernel reaches are a batch of two; the results are those of the convolution.

    >>> plain = nn.Conv3d(2, 3, 3, stride=2, padding=1)
    >>> x = torch.randn(1, 2, 9, 8, 8)
    >>> torch.allclose(HalvedConv3d.of(plain)(x), plain(x), atol=1e-5)
    True
    """

    @classmethod
    def of(cls, module: nn.Conv3d) -> HalvedConv3d:
        """The same module, with the same parameters, hooks and mode."""
        twin = cls.__new__(cls)
        twin.__dict__.update(vars(module))
        return twin

    @staticmethod
    def serves(module: nn.Module) -> bool:
        """Whether a module is one that this one can stand in for."""
        return (
            type(module) is nn.Conv3d
            and module.groups == 1
            and module.padding_mode == "zeros"
            and max(module.kernel_size) > 1
        )

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


class _Formatted:
    """A hook that brings inputs into a memory format before a network runs."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        def placed(tensor: Tensor) -> Tensor:
            return tensor.contiguous(memory_format=FORMATS[self._name]) if tensor.dim() == _DIMS[self._name] else tensor

        return calling.map_tensors(placed, (args, kwargs))


@dataclass(frozen=True, slots=True)
class Tuned:
    """How a network runs fastest on this machine.

    Attributes:
        memory_format: ``"contiguous"``, ``"channels_last_3d"`` or ``"channels_last"``.
        halved: Whether small volumes are convolved as two halves, see ``HalvedConv3d``.
        compiled: Whether ``torch.compile`` pays.
        ratios: Time of every way that was tried, over the plain way; measured in turn on this machine.
    """

    memory_format: str = "contiguous"
    halved: bool = False
    compiled: bool = False
    ratios: Mapping[str, float] = field(default_factory=dict, compare=False)

    @classmethod
    def named(cls, name: str) -> Tuned:
        """The way of a name, such as ``"channels_last_3d+halved"``.

        >>> Tuned.named("contiguous+halved")
        Tuned(memory_format='contiguous', halved=True, compiled=False, ratios={})
        """
        memory_format, *more = name.split("+")
        return cls(memory_format, "halved" in more, "compiled" in more)

    @property
    def name(self) -> str:
        """The way in words, as in ``ratios``."""
        return "+".join([self.memory_format, *["halved"] * self.halved, *["compiled"] * self.compiled])

    def apply(self, model: nn.Module) -> nn.Module:
        """A copy of a network, set up to run this way: an ordinary module, with the same names in its state.

        Inputs are brought into the memory format when it is called. Gradients, saving and export work as before.
        """
        return self.prepare(copies.copy_model(calling.unwrap(model), meta=False))

    def prepare(self, model: nn.Module) -> nn.Module:
        """The same, to the network itself instead of a copy."""
        if self.halved:
            model = _with_halves(model)
        if self.memory_format != "contiguous":
            _lay_out(model, self.memory_format)
            model.register_forward_pre_hook(_Formatted(self.memory_format), with_kwargs=True)
        if self.compiled:
            model.compile()
        return model

    def __str__(self) -> str:
        wide = max(map(len, self.ratios), default=0)
        rows = [
            f"{name:<{wide}}  {share:.3f}{'  <- fastest' if name == self.name else ''}"
            for name, share in self.ratios.items()
        ]
        return "\n".join(["time over that of the plain way, measured on this machine", *rows])


PLAINLY = Tuned()
"""As the network is."""


def tune(
    model: nn.Module,
    example: Any,
    step: TrainingStep | None = PLAIN,
    *,
    loss: Loss | None = None,
    target: Any = None,
    compile_seconds: float = 0.0,
) -> Tuned:
    """Finds the fastest way to run a network on this machine; the network is left as it is.

        >>> net = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 2, 1))
        >>> found = tune(net, torch.zeros(1, 1, 8, 8, 8))
        >>> found.apply(net)(torch.zeros(1, 1, 8, 8, 8)).shape
        torch.Size([1, 2, 8, 8, 8])

    Args:
        model: The network.
        example: The inputs of one call.
        step: Batch, optimiser and precision of a training step; None for one inference.
        loss: Of output and target; default: a stand-in.
        target: What the loss compares with.
        compile_seconds: ``torch.compile`` is tried too, and taken if it is faster and compiling took no longer than
            this; 0: not tried.

    Raises:
        UnsupportedError: The network does not run on the example.
    """
    if step is not None:
        arguments.kind("step", step, TrainingStep, "a ranp.TrainingStep, or None for an inference")
    allowed = "a number of seconds, 0 for none"
    compile_seconds = arguments.number("compile_seconds", compile_seconds, allowed)
    model = calling.unwrap(model)
    setup = StepSetup(model, example, PLAIN if step is None else step, loss, target)
    return tuned(setup, model, inference=step is None, compile_seconds=compile_seconds)


def tuned(setup: StepSetup, model: nn.Module, *, inference: bool = False, compile_seconds: float = 0.0) -> Tuned:
    """As ``tune``, for a step that is set up already, of the full network or of a slim one."""
    with Stepper(setup, model, inference=inference) as plain:
        shares = {PLAINLY: 1.0}
        for way in _ways(model, plain):
            if (share := _share(setup, model, way, plain, inference=inference)) is not None:
                shares[way] = share
        best = min(shares, key=shares.__getitem__)
        if compile_seconds:
            way, begun = replace(best, compiled=True), time.perf_counter()
            share = _share(setup, model, way, plain, inference=inference)
            if share is not None and time.perf_counter() - begun <= compile_seconds + 2 * _CARE.seconds:
                shares[way] = share
        best = min(shares, key=shares.__getitem__)
        best = best if shares[best] <= _WORTH else PLAINLY
    return replace(best, ratios={way.name: share for way, share in shares.items()})


def _share(setup: StepSetup, model: nn.Module, way: Tuned, plain: Stepper, *, inference: bool) -> float | None:
    """The time of a way over that of the plain one; None where it does not run."""
    try:
        with Stepper(setup, model, inference=inference, prepare=way.prepare) as other:
            return ratio(other, plain, _CARE)
    except UnsupportedError:
        return None


def _ways(model: nn.Module, plain: Stepper) -> list[Tuned]:
    """What there is to try, beside the plain way."""
    is_single = plain.batch == 1 and plain.device.type == "cpu"
    dims = {parameter.dim() for parameter in model.parameters()}
    formats = ["contiguous", *(name for name, dim in _DIMS.items() if dim in dims)]
    halves = [False, True] if is_single and any(map(HalvedConv3d.serves, model.modules())) else [False]
    return [Tuned(name, half) for name in formats for half in halves][1:]


def _lay_out(model: nn.Module, name: str) -> None:
    """Brings parameters and buffers into a memory format, each in place."""
    for _, tensor in calling.named_tensors(model):
        if tensor.dim() == _DIMS[name]:
            tensor.data = tensor.data.contiguous(memory_format=FORMATS[name])


def _with_halves(model: nn.Module) -> nn.Module:
    made: dict[int, nn.Module] = {}
    for module in list(model.modules()):
        for name, child in module._modules.items():
            if child is not None and HalvedConv3d.serves(child):
                made.setdefault(id(child), HalvedConv3d.of(child))  # type: ignore[arg-type]
                module._modules[name] = made[id(child)]
    return HalvedConv3d.of(model) if HalvedConv3d.serves(model) else model  # type: ignore[arg-type]

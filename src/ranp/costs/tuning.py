"""The fastest way to run a network here: its memory format, its convolutions, ``torch.compile``; tried, not guessed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ranp import arguments
from ranp.costs.drop_ins import HalvedConv3d, PointwiseConv3d
from ranp.costs.step import StepSetup, TrainingStep
from ranp.costs.step.running import PLAIN, Loss
from ranp.costs.timing import Care, Stepper, ratios
from ranp.errors import UnsupportedError
from ranp.running import calling, copies

FORMATS = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}
"""Memory formats by name."""
_DIMS = {"channels_last": 4, "channels_last_3d": 5}
_WORTH = 0.97
"""Another way than the plain one must take at most this share of its time."""
_CARE = Care(least=5, most=15, settled=0.01, seconds=10.0)
_PARTS = ("halved", "pointwise", "compiled")
"""What a way may add to a memory format, in the order of the fields of ``Tuned``."""


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
        pointwise: Whether convolutions of single voxels are matrix products, see ``PointwiseConv3d``.
        compiled: Whether ``torch.compile`` pays.
        ratios: Time of every way that was tried, over the plain way; measured in turn on this machine.
    """

    memory_format: str = "contiguous"
    halved: bool = False
    pointwise: bool = False
    compiled: bool = False
    ratios: Mapping[str, float] = field(default_factory=dict, compare=False)

    @classmethod
    def named(cls, name: str) -> Tuned:
        """The way of a name, such as ``"channels_last_3d+halved"``.

        >>> Tuned.named("contiguous+halved")
        Tuned(memory_format='contiguous', halved=True, pointwise=False, compiled=False, ratios={})
        """
        memory_format, *more = name.split("+")
        halved, pointwise, compiled = (part in more for part in _PARTS)
        return cls(memory_format, halved, pointwise, compiled)

    @property
    def name(self) -> str:
        """The way in words, as in ``ratios``."""
        return "+".join([self.memory_format, *(part for part in _PARTS if getattr(self, part))])

    def apply(self, model: nn.Module) -> nn.Module:
        """A copy of a network, set up to run this way: an ordinary module, with the same names in its state.

        Inputs are brought into the memory format when it is called. Gradients, saving and export work as before.
        """
        return self.prepare(copies.copy_model(calling.unwrap(model), meta=False))

    def prepare(self, model: nn.Module) -> nn.Module:
        """The same, to the network itself instead of a copy."""
        if self.halved:
            model = HalvedConv3d.replace_in(model)
        if self.pointwise:
            model = PointwiseConv3d.replace_in(model)
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

        def measure(ways: Iterable[Tuned]) -> None:
            with ExitStack() as stack:
                steppers = {}
                for way in ways:
                    with suppress(UnsupportedError):  # it does not run this way
                        stepper = Stepper(setup, model, inference=inference, prepare=way.prepare)
                        steppers[way] = stack.enter_context(stepper)
                if steppers:
                    shares.update(zip(steppers, ratios([*steppers.values()], plain, _CARE), strict=True))

        measure(_ways(model, plain))
        if compile_seconds:
            way, begun = replace(min(shares, key=shares.__getitem__), compiled=True), time.perf_counter()
            measure([way])
            if time.perf_counter() - begun > compile_seconds + 2 * _CARE.seconds:
                shares.pop(way, None)
        best = min(shares, key=shares.__getitem__)
        best = best if shares[best] <= _WORTH else PLAINLY
    return replace(best, ratios={way.name: share for way, share in shares.items()})


def _ways(model: nn.Module, plain: Stepper) -> list[Tuned]:
    """What there is to try, beside the plain way."""
    on_cpu, single = plain.device.type == "cpu", plain.batch == 1
    dims = {parameter.dim() for parameter in model.parameters()}
    formats = ["contiguous", *(name for name, dim in _DIMS.items() if dim in dims)]
    halves = [False, True] if on_cpu and single and HalvedConv3d.serves_in(model) else [False]
    found = [Tuned(name, half) for name in formats for half in halves]
    if on_cpu and (single or torch.get_num_threads() == 1) and PointwiseConv3d.serves_in(model):
        found.append(Tuned("channels_last_3d", halves[-1], pointwise=True))
    return found[1:]


def _lay_out(model: nn.Module, name: str) -> None:
    """Brings parameters and buffers into a memory format, each in place."""
    for _, tensor in calling.named_tensors(model):
        if tensor.dim() == _DIMS[name]:
            tensor.data = tensor.data.contiguous(memory_format=FORMATS[name])

"""Time is measured: real training steps and inferences of real networks on this machine, in turn, by medians.

A figure by itself means little on a machine that does other things, too. So a network runs beside another one, A B B A,
and the median of the ratios of each round is what counts.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ranp import arguments
from ranp.costs.memory.peak import peak
from ranp.costs.quantities import INFERENCE, TRAINING
from ranp.costs.step import StepSetup, TrainingStep, optimisers
from ranp.costs.step.losses import stand_in_loss
from ranp.costs.step.recorder import Recorder, owned
from ranp.costs.step.records import WHOLE
from ranp.costs.step.running import PLAIN, Loss, casting, checkpointing
from ranp.costs.step.stand_ins import batch_of, device_of
from ranp.errors import UnsupportedError
from ranp.running import calling, copies, randomness
from ranp.running.quiet import quiet
from ranp.running.recording import ModuleStack

Run = Callable[[], object]

_SAMPLE = 0.01
"""Seconds that one sample takes at least: shorter steps are repeated."""


@dataclass(frozen=True, slots=True)
class Care:
    """How long to measure.

    Attributes:
        least: Rounds in any case.
        most: Rounds at most.
        settled: Standard error of the median, as a share of it, from which on it is believed.
        seconds: Time after which no further round begins.
    """

    least: int
    most: int
    settled: float
    seconds: float


QUICK = Care(least=3, most=9, settled=0.01, seconds=4.0)
"""For one of many candidates."""
SURE = Care(least=7, most=31, settled=0.004, seconds=20.0)
"""For what is handed out."""


def clocked(run: Run, device: torch.device) -> float:
    """Seconds of one run, to the end of what it started.

    On one thread of a CPU, the time of the process: what else the machine does is not in it.
    """
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3
    if device.type != "cpu":
        wait = torch.get_device_module(device).synchronize
        wait()
        begun = time.perf_counter()
        run()
        wait()
        return time.perf_counter() - begun
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begun = clock()
    run()
    return clock() - begun


class Stepper:
    """Runs training steps, or inferences, of one network on data of the example's shapes. Close it after use.

    The network is copied; learning rates are 0, so that every step does the same.

    Args:
        setup: Example, step, loss and target.
        network: The full network or a slim one; real or on the meta device.
        inference: One inference in eval mode without gradients, instead of a step.
        prepare: What else to do to the copy before it runs.

    Raises:
        UnsupportedError: The network or the loss does not run on such data, or not in the memory that there is.
    """

    def __init__(
        self,
        setup: StepSetup,
        network: nn.Module,
        *,
        inference: bool = False,
        prepare: Callable[[nn.Module], nn.Module] | None = None,
    ) -> None:
        self.network, self._setup = network, setup
        self._step = None if inference else setup.step
        self.device = device_of(setup.model, setup.example)
        self._open = ExitStack()
        batch = batch_of(setup.example)
        size = batch if inference or setup.step.batch is None else setup.step.batch
        sizes = [1, 2] if size == 1 and not inference else [size]  # train mode may refuse a batch of one
        losses = [None] if setup.loss is None or setup.target is None or inference else [setup.loss, None]
        tries = [(size, loss) for size in sizes for loss in losses]
        for number, (size, loss) in enumerate(tries):
            try:
                with randomness.untouched_rng():
                    self._begin(setup, prepare, loss, (batch, size))
                return
            except Exception as error:  # the network's own code may raise anything
                self.close()
                if number + 1 == len(tries) or isinstance(error, torch.OutOfMemoryError):
                    what = "an inference" if inference else "a training step"
                    raise UnsupportedError(
                        f"{type(network).__name__} cannot run {what} here, so its time cannot be measured "
                        f"({arguments.described(error)}). Pass an example on which it runs, of a size that fits in "
                        "memory."
                    ) from error

    def _begin(
        self,
        setup: StepSetup,
        prepare: Callable[[nn.Module], nn.Module] | None,
        loss: Loss | None,
        batch: tuple[int | None, int | None],
    ) -> None:
        self.batch = batch[1]
        dtype = None if self._step is None else WHOLE.get(self._step.precision)
        model = _real_copy(self.network, self.device)
        model = model if dtype in (None, torch.float32) else model.to(dtype)
        self._inputs = _real(setup.example, self.device, dtype, batch)
        self._target = _real(setup.target, self.device, dtype, batch)
        self._loss, self._labels = loss, dict[tuple[Any, ...], Tensor]()
        model.train(self._step is not None)
        if self._step is not None:
            self._open.enter_context(checkpointing(self._step, model, self._inputs))
        self._model = model if prepare is None else prepare(model)
        self._optimiser = None if self._step is None else optimisers.make(self._step.optimiser, self._model)
        for group in [] if self._optimiser is None else self._optimiser.param_groups:
            group["lr"] = 0.0
        self()  # memory is taken, kernels are chosen, the optimiser gets its state
        self()

    def __call__(self) -> None:
        """One step, or one inference."""
        if self._step is None:
            with torch.no_grad():
                calling.call(self._model, self._inputs)
            return
        self.forward_and_backward()
        if self._optimiser is not None:
            self._optimiser.step()

    def forward_and_backward(self, turn: Callable[[], object] = lambda: None) -> None:
        """A step up to its gradients; ``turn`` is called between its two passes."""
        assert self._step is not None
        (self._model if self._optimiser is None else self._optimiser).zero_grad()
        with torch.enable_grad(), casting(self._step, self.device.type):
            output = calling.call(self._model, self._inputs)
            value = stand_in_loss(output, self._label) if self._loss is None else self._loss(output, self._target)
        turn()
        value.backward()  # type: ignore[no-untyped-call]

    def seconds_by_module(self, rounds: int = 3) -> dict[str, float]:
        """Seconds of the operators of each module that runs some itself, forward and backward: medians of rounds."""
        found: list[dict[str, float]] = []
        owners = {id(tensor): module for module, tensor in owned(self._model, "parameter")}
        with randomness.untouched_rng(), ModuleStack(self._model) as stack:
            for _ in range(rounds):
                watch = _OperatorClock(stack, owners, self.device)
                with watch:
                    self.forward_and_backward(watch.turn)
                found.append(watch.seconds)
        return {name: statistics.median(one.get(name, 0.0) for one in found) for name in found[0]}

    def _label(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        if (shape, dtype) not in self._labels:
            self._labels[shape, dtype] = torch.zeros(shape, dtype=dtype, device=device)
        return self._labels[shape, dtype]

    @property
    def room(self) -> int:
        """Bytes that the full network needs at its peak, where it can be known beforehand and lies on the C heap."""
        try:
            found = peak(self._setup.full(part=INFERENCE if self._step is None else TRAINING))
        except UnsupportedError:
            return 0
        return found.peak if self.device.type == "cpu" else 0

    def close(self) -> None:
        """Gives the copy back."""
        self._open.close()
        self._model = self._inputs = self._target = self._optimiser = None  # type: ignore[assignment]

    def __enter__(self) -> Stepper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _OperatorClock(Recorder):  # type: ignore[no-untyped-call]
    """Sums the seconds of operators by module."""

    def __init__(self, stack: ModuleStack, owners: dict[int, str], device: torch.device) -> None:
        super().__init__(stack, owners)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._device = device

    def turn(self) -> None:
        """From here on it is the backward pass."""
        self.phase = "backward"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        module, out = self._module(), []
        self.seconds[module] += clocked(lambda: out.append(func(*args, **(kwargs or {}))), self._device)
        return out[0]


def seconds(stepper: Stepper, care: Care = QUICK) -> float:
    """Seconds of one step: the median of several."""
    with quiet(stepper.room):
        return _medians(lambda: [_sample(stepper)], care)[0]


def ratio(one: Stepper, other: Stepper, care: Care = QUICK) -> float:
    """How long a step of one takes, as a share of a step of the other: the median over rounds of both in turn."""
    return ratios([one], other, care)[0]


def ratios(several: Sequence[Stepper], other: Stepper, care: Care = QUICK) -> list[float]:
    """How long a step of each of several takes, as a share of a step of another: medians over rounds of all in turn."""
    turns = [*several, other]
    order = list(range(len(turns)))

    def shares() -> list[float]:
        taken = {number: _sample(turns[number]) for number in order}
        order.reverse()  # A B B A
        return [taken[number] / taken[len(several)] for number in range(len(several))]

    with quiet(other.room):
        for stepper in turns:
            _sample(stepper)
        return _medians(shares, care)


def _sample(stepper: Stepper) -> float:
    """Seconds of one step, from one that takes long, or from several short ones."""
    taken = clocked(stepper, stepper.device)
    more = math.ceil(_SAMPLE / max(taken, _SAMPLE / 100)) - 1
    return (taken + sum(clocked(stepper, stepper.device) for _ in range(more))) / (1 + more)


def _medians(sample: Callable[[], Sequence[float]], care: Care) -> list[float]:
    """Of each figure of a sample the median over samples, as many as it takes until all of them can be believed."""
    found: list[Sequence[float]] = []
    begun = time.perf_counter()
    while len(found) < care.most:
        found.append(sample())
        if len(found) < max(care.least, 2):  # one figure has no spread
            continue
        settled = all(_is_settled(figures, care) for figures in zip(*found, strict=True))
        if settled or time.perf_counter() - begun > care.seconds:
            break
    return [statistics.median(figures) for figures in zip(*found, strict=True)]


def _is_settled(figures: Sequence[float], care: Care) -> bool:
    """Whether the standard error of their median is small."""
    # Of a median: 1.25 standard deviations, here from the quartiles, over the root of the count.
    low, middle, high = statistics.quantiles(figures, n=4, method="inclusive")
    return 0.93 * (high - low) <= care.settled * middle * math.sqrt(len(figures))


def _real_copy(network: nn.Module, device: torch.device) -> nn.Module:
    copy = copies.copy_model(network, meta=False)
    if any(tensor.device.type == "meta" for _, tensor in calling.named_tensors(copy)):
        copy = copy.to_empty(device=device)
        with torch.no_grad():
            for _, tensor in calling.named_tensors(copy):
                tensor.zero_()
        copies.redraw_weights(copy, 0)
    return copy


def _real(tree: Any, device: torch.device, dtype: torch.dtype | None, batch: tuple[int | None, int | None]) -> Any:
    """Inputs or targets with data, of the batch of the step: their own values where they have some."""
    before, after = batch

    def convert(given: Tensor) -> Tensor:
        x = given
        if x.device.type == "meta":
            draw = torch.rand if x.is_floating_point() else torch.zeros
            x = draw(x.shape, dtype=x.dtype, device=device)
        if after is not None and before and before != after and x.dim() and x.shape[0] == before:
            x = x[torch.arange(after, device=x.device) % before]
        x = x.detach().to(device)
        x = x.to(dtype) if dtype is not None and x.is_floating_point() else x
        last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim(), torch.contiguous_format)
        is_last = not given.is_contiguous() and given.is_contiguous(memory_format=last)
        return x.contiguous(memory_format=last) if is_last else x

    return calling.map_tensors(convert, tree)


def step_time(
    model: nn.Module, example: Any, *, step: TrainingStep = PLAIN, loss: Loss | None = None, target: Any = None
) -> float:
    """Seconds of one training step on this machine: forward pass, loss, backward pass and optimiser, measured.

    Args:
        model: The network; a copy of it runs.
        example: The inputs of one call; on the meta device, numbers are drawn in their place.
        step: Batch, optimiser, precision, checkpointing.
        loss: Of output and target; default as in ``ranp.costs.step.trace_step``.
        target: What the loss compares with.

    Raises:
        UnsupportedError: The network does not run on the example.
    """
    arguments.kind("step", step, TrainingStep, "a ranp.TrainingStep; for an inference, call ranp.latency")
    with Stepper(StepSetup(calling.unwrap(model), example, step, loss, target), calling.unwrap(model)) as stepper:
        return seconds(stepper, replace(SURE, seconds=10.0))


def latency(model: nn.Module, example: Any) -> float:
    """Seconds of one inference on this machine, in eval mode and without gradients, measured.

    Raises:
        UnsupportedError: The network does not run on the example.
    """
    model = calling.unwrap(model)
    with Stepper(StepSetup(model, example), model, inference=True) as stepper:
        return seconds(stepper, replace(SURE, seconds=10.0))

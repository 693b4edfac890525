"""What the callback for Lightning does to modules and trainers; Lightning itself is not imported here.

A module's own ``training_step`` is taken apart into the inputs of its network and a loss of their output.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ranp.costs.step import TrainingStep
from ranp.costs.step.optimisers import name_of
from ranp.errors import DataError, RanpError, UnsupportedError
from ranp.integrations.placing import network_of
from ranp.running.randomness import reseed, untouched_rng

logger = logging.getLogger(__name__)

_PRECISIONS = {
    "16-mixed": "amp-float16",
    "bf16-mixed": "amp-bfloat16",
    "16-true": "float16",
    "bf16-true": "bfloat16",
    "64-true": "float64",
}
"""Lightning's words; all others are float32."""

HOW = "Pass loss=(output, target) -> scalar, and unpack=(batch) -> (inputs, target) unless batches are such pairs."


class _Seen(Exception):  # noqa: N818 - not an error: it ends a step as soon as the network's inputs are known
    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.inputs, self.keywords = args, kwargs


class _StandIn(nn.Module):
    """Takes the network's place: hands what it is called with to a function."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = answer


class OwnStep:
    """The module's ``training_step`` as an ``unpack`` and a ``loss``.

    The step runs up to its call of the network, which shows the inputs, and later again with the output put in.
    """

    def __init__(self, module: Any, attribute: str | None, devices: Iterable[torch.device]) -> None:
        self.module, self.attribute, self.devices = module, attribute, list(devices)
        self.network = network_of(module, attribute)
        arguments = inspect.signature(module.training_step).parameters
        if not module.automatic_optimization or "dataloader_iter" in arguments or not 1 <= len(arguments) <= 2:
            raise DataError(f"training_step optimises or fetches by itself, so it is not a loss. {HOW}")
        self.extra = (0,) * (len(arguments) - 1)
        self.batches = 0

    def unpack(self, batch: Any) -> tuple[Any, Any]:
        """What the step calls the network with; the target is all that the step needs to run again."""

        def see(*args: Any, **kwargs: Any) -> None:
            raise _Seen(args, kwargs)

        self.batches += 1
        try:
            self._run(batch, self.batches, see)
        except _Seen as seen:
            if not seen.keywords:
                return seen.inputs, (batch, self.batches)
            return self._by_name(seen), (batch, self.batches)
        raise DataError(f"training_step does not call {self._name()}. Name the network it calls: attribute=. {HOW}")

    def _by_name(self, seen: _Seen) -> dict[str, Any]:
        """Arguments given partly by name: all of them by name."""
        call = inspect.signature(self.network.forward)
        bound = call.bind(*seen.inputs, **seen.keywords)
        if any(call.parameters[name].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for name in bound.arguments):
            raise DataError(f"training_step calls {self._name()} with arguments that have no single name. {HOW}")
        return dict(bound.arguments)

    def loss(self, output: Any, target: tuple[Any, int]) -> torch.Tensor:
        """The step's loss for this output of the network."""
        outputs = iter([output])

        def give(*_: Any, **__: Any) -> Any:
            for value in outputs:
                return value
            raise DataError(
                f"training_step calls {self._name()} more than once, so its loss has no single output. {HOW}"
            )

        result = self._run(*target, give)
        value: torch.Tensor = result["loss"] if isinstance(result, Mapping) else result
        return value

    def _run(self, batch: Any, number: int, answer: Callable[..., Any]) -> Any:
        """Both runs of a batch draw the same random numbers, so that augmentation in the step is the same."""
        names = ("log", "log_dict") if self.attribute is not None else ("log", "log_dict", "forward")
        with untouched_rng(self.devices):
            reseed(number, self.devices)
            for name in names:
                setattr(self.module, name, answer if name == "forward" else lambda *_, **__: None)
            if self.attribute is not None:
                self.module.set_submodule(self.attribute, _StandIn(answer))
            try:
                return self.module.training_step(batch, *self.extra)
            except (_Seen, RanpError):
                raise
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                raise DataError(f"training_step cannot be run on its own ({reason}). {HOW}") from error
            finally:
                for name in names:
                    delattr(self.module, name)
                if self.attribute is not None:
                    self.module.set_submodule(self.attribute, self.network)

    def _name(self) -> str:
        return "the module's forward" if self.attribute is None else f"self.{self.attribute}"


def step_of(module: Any, trainer: Any, network: nn.Module) -> TrainingStep:
    """A training step as the module's optimiser and the trainer's precision make it, on a batch of the loader.

    ``configure_optimizers`` is asked on the full network; where it cannot answer yet, or makes an optimiser that
    ``ranp.TrainingStep`` has no word for, the step is one of Adam.
    """
    precision = _PRECISIONS.get(str(trainer.precision), "float32")
    try:
        found = _optimisers(module.configure_optimizers())
    except Exception as error:  # It is the user's code, and may want what only a trainer at work has.
        logger.info("configure_optimizers cannot be asked yet (%s: %s): Adam is assumed", type(error).__name__, error)
        return TrainingStep(precision=precision)
    own = {id(parameter) for parameter in network.parameters()}

    def share(optimiser: torch.optim.Optimizer) -> int:
        return sum(id(parameter) in own for group in optimiser.param_groups for parameter in group["params"])

    chosen = max(found, key=share, default=None)
    name = "none" if chosen is None else name_of(chosen)
    if name is None:
        logger.info("%s has no name in ranp.TrainingStep: Adam is assumed, or pass step=", type(chosen).__name__)
    return TrainingStep(optimiser=name or "adam", precision=precision)


def _optimisers(configured: Any) -> list[torch.optim.Optimizer]:
    """Those in what ``configure_optimizers`` returned, whichever of its forms that has."""
    if isinstance(configured, torch.optim.Optimizer):
        return [configured]
    if isinstance(configured, Mapping):
        return _optimisers(configured.get("optimizer"))
    return [one for part in configured for one in _optimisers(part)] if isinstance(configured, list | tuple) else []


@contextmanager
def state_kept(module: nn.Module, loaders: Iterable[Any]) -> Iterator[None]:
    """Puts back what steps do to the rest of a module and to its data, so that training runs as it would have.

    That is statistics and gradients of other networks, metrics, and the loaders' own generators, which shuffle.
    """
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in module.parameters()]
    holders = [holder for loader in loaders for holder in (loader, getattr(loader, "sampler", None))]
    generators = [getattr(holder, "generator", None) for holder in holders]
    states = [(one, one.get_state()) for one in generators if isinstance(one, torch.Generator)]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        metric = getattr(sys.modules.get("torchmetrics"), "Metric", ())
        for part in module.modules():
            if isinstance(part, metric):
                part.reset()
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for generator, state in states:
            generator.set_state(state)


def as_pair(batch: Any) -> tuple[Any, Any]:
    """The batch, if it is a pair.

    Raises:
        DataError: It is something else.
    """
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    what = f"a dict with {', '.join(map(repr, batch))}" if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
    raise DataError(
        f"a batch is {what}, not a pair. Pass unpack=, for one: lambda batch: (batch['image'], batch['label'])."
    )


def check_trainer(trainer: Any) -> None:
    """Refuses trainers in whose processes a module cannot become slim.

    Raises:
        UnsupportedError: The strategy, or another callback, does not allow it.
    """
    strategy, first = trainer.strategy, "Make the network slim before: module.model = ranp.prune(...).model."
    if any(kind.__name__ == "_MultiProcessingLauncher" for kind in type(strategy.launcher).__mro__):
        raise UnsupportedError(
            "this strategy trains in processes that hand their weights back to a module that is still full-sized. "
            f"Use strategy='ddp'. {first}"
        )
    if strategy.restore_checkpoint_after_setup:
        raise UnsupportedError(f"{type(strategy).__name__} splits the network before checkpoints are read. {first}")
    kinds = {kind.__name__ for other in getattr(trainer, "callbacks", ()) for kind in type(other).__mro__}
    if "WeightAveraging" in kinds:
        raise UnsupportedError(f"WeightAveraging copies the network while it is still full-sized. {first}")


def in_front(owner: Any, name: str, act: Callable[..., Any]) -> Callable[[], None]:
    """Runs ``act`` before the next call of one method of one object, with its arguments; returns how to undo it."""
    inherited, method = vars(owner).get(name), getattr(owner, name)

    def undo() -> None:
        if vars(owner).get(name) is once:
            if inherited is None:
                delattr(owner, name)
            else:
                setattr(owner, name, inherited)

    def once(*args: Any, **kwargs: Any) -> Any:
        undo()
        act(*args, **kwargs)
        return method(*args, **kwargs)

    setattr(owner, name, once)
    return undo

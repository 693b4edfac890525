"""From the words of a command line to values: networks, examples, batches and losses, by name or by code."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ranp.errors import UnsupportedError, unknown_name

if TYPE_CHECKING:
    from torch import nn

_CODE = re.compile(r"[\w.]+:[\w.]+")
_SHAPE = re.compile(r"\d+(x\d+)*")
TASK_BATCHES = 10
"""How many batches of a task are scored unless told otherwise; the paper takes the whole training set once."""


@dataclass(frozen=True, slots=True)
class Network:
    """MODEL of the command line.

    Attributes:
        name: As it was typed.
        build: Makes the full network.
        example: ``example(device)`` makes the inputs it is known by; None for code of the user's.
    """

    name: str
    build: Callable[[], nn.Module]
    example: Callable[[str], Any] | None


@dataclass(frozen=True, slots=True)
class Data:
    """What to score on. ``used`` tells a recipe what it was."""

    batches: Iterable[Any]
    loss: Callable[[Any, Any], Any]
    strength: float | None
    used: dict[str, Any]


def code(text: str, option: str) -> Any:
    """The value that ``package.module:name`` names; the current folder is searched too.

    Raises:
        UnsupportedError: Not of that form, or there is no such module or name.
    """
    if not _CODE.fullmatch(text):
        raise UnsupportedError(f"{option} {text!r} is not code. Write package.module:function.")
    module_name, _, path = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise UnsupportedError(
                f"{option} {text!r}: there is no module {error.name!r} here or installed. Check its name."
            ) from error
        raise
    for part in path.split("."):
        if not hasattr(value, part):
            raise UnsupportedError(f"{option} {text!r}: {unknown_name('name', part, _public(value))}")
        value = getattr(value, part)
    return value


def find_network(text: str) -> Network:
    """The network that MODEL names.

    Raises:
        UnsupportedError: No registered name, and no code either.
    """
    from ranp.paper import models
    from ranp.storage import NETWORKS

    if ":" in text:
        function = code(text, "MODEL")
        if not callable(function):
            raise UnsupportedError(
                f"MODEL {text!r} is a {type(function).__name__}. Name a function that makes a network."
            )
        return Network(text, function, None)
    if text not in NETWORKS:
        raise UnsupportedError(f"{unknown_name('network', text, NETWORKS)} Or write package.module:function.")
    known = (lambda device: models.example(text, device)) if text in models.names() else None
    return Network(text, NETWORKS.get(text), known)


def make(network: Network, device: str) -> nn.Module:
    """Builds a network for real and puts it on a device.

    Raises:
        UnsupportedError: The function makes something else, or there is no such device.
    """
    import torch
    from torch import nn

    model = network.build()
    if not isinstance(model, nn.Module):
        raise UnsupportedError(f"MODEL {network.name!r} makes a {type(model).__name__}. Return an nn.Module.")
    try:
        return model.to(torch.device(device))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UnsupportedError(f"--device {device!r} cannot be used ({reason}). Try --device cpu.") from error


def find_example(network: Network, shapes: Sequence[str], function: str | None, device: str = "meta") -> Any:
    """The inputs of one call: ``--example``, ``--input``, or those the network is known by; None if nothing says.

    Raises:
        UnsupportedError: Both options are given, or a shape is not written as ``1x1x64x64x64``.
    """
    import torch

    if shapes and function:
        raise UnsupportedError("--input and --example both say what goes in. Pass one of them.")
    if function:
        return code(function, "--example")()
    for shape in shapes:
        if not _SHAPE.fullmatch(shape) or "0" in shape.split("x"):
            raise UnsupportedError(f"--input {shape!r} is not a shape. Write the sizes with an x: 1x1x64x64x64.")
    if shapes:
        tensors = tuple(torch.empty([int(n) for n in shape.split("x")], device=device) for shape in shapes)
        return tensors if len(tensors) > 1 else tensors[0]
    return None if network.example is None else network.example(device)


def needed_example(network: Network, shapes: Sequence[str], function: str | None) -> Any:
    """``find_example``, where nothing else could tell the size.

    Raises:
        UnsupportedError: Nothing says what goes in.
    """
    example = find_example(network, shapes, function)
    if example is None:
        raise UnsupportedError(
            f"nothing says what goes into {network.name!r}. Pass --input 1x1x64x64x64 (once for each input), "
            "or --example package.module:function."
        )
    return example


def find_data(
    network: Network,
    *,
    task: str | None,
    batches: str | None,
    loss: str | None,
    size: int | None,
    max_batches: int | None,
    seed: int,
) -> Data | None:
    """What to score on: ``--batches`` and ``--loss``, ``--task``, or the task of a network of the paper; else None.

    Raises:
        UnsupportedError: Options that do not go together, or an unknown task.
    """
    from ranp.paper import tasks

    if batches or loss:
        if not batches or not loss or task:
            raise UnsupportedError("--batches and --loss go together, and not with --task. Pass both, or --task alone.")
        function, chosen = code(batches, "--batches"), code(loss, "--loss")
        return Data(
            function() if callable(function) else function,
            chosen() if isinstance(chosen, type) else chosen,
            None,
            {"batches": batches, "loss": loss},
        )
    known = {tasks.get(name).network: name for name in tasks.names()}
    task = task or known.get(network.name)
    if task is None:
        return None
    found = tasks.get(task)
    count = max_batches or TASK_BATCHES
    edge = size or 64
    samples = found.train_data(size=edge, count=count, seed=seed)
    return Data(_Volumes(samples, count), found.loss, found.strength, {"task": task, "size": edge, "objects": count})


class _Volumes:
    """Batches of one object each, as the paper scores, made when asked for."""

    def __init__(self, samples: Any, count: int) -> None:
        self.samples, self.count = samples, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Any:
        for index in range(self.count):
            volume, target = self.samples[index]
            yield volume[None], target[None]


def _public(value: Any) -> list[str]:
    return [name for name in dir(value) if not name.startswith("_")]

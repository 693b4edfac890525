"""Networks by name or by code. The command line may name code; a file names registered networks only, unless trusted.

Code is imported from what is installed, and from the working folder last, so that no file there can take the place of
an installed module.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ranp.errors import StorageError, UnsupportedError, brief, unknown_name

if TYPE_CHECKING:
    from torch import nn

_CODE = re.compile(r"[\w.]+:[\w.]+")
_SHAPE = re.compile(r"\d+(x\d+)*", re.ASCII)
_TYPED, _STORED = 2**40, 2**30
"""The most elements of inputs that are typed, and of those that a file asks for: 4 GiB of float32."""
_MOST = 100
"""Inputs of a network, and characters of a shape."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network that can be made.

    Attributes:
        name: As it was typed or stored.
        build: Makes the full network.
        example: ``example(device)`` makes the inputs it is known by; None for code of the user's.
    """

    name: str
    build: Callable[[], nn.Module]
    example: Callable[[str], Any] | None


@dataclass(frozen=True, slots=True)
class Trust:
    """What somebody says of run folders, whose own files may name registered networks only.

    Attributes:
        model: Makes the network instead of what the folder names: a registered name, or code.
        inputs: Shapes of the inputs of one call, instead of the folder's.
        example: Or code that makes them.
        everything: Run whatever code the folder names.
    """

    model: str | None = None
    inputs: Sequence[str] = ()
    example: str | None = None
    everything: bool = False


NOTHING = Trust()
"""Registered networks only."""


def code(text: str, option: str) -> Any:
    """The value that ``package.module:name`` names; the working folder is searched too, after all others.

    Raises:
        UnsupportedError: Not of that form, or there is no such module or name.
    """
    if not _CODE.fullmatch(text):
        raise UnsupportedError(f"{option} {text!r} is not code. Write package.module:function.")
    module_name, _, path = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    value = running(f"{option} {text!r}: importing {module_name}", _imported, module_name, f"{option} {text!r}")
    for part in path.split("."):
        if not hasattr(value, part):
            raise UnsupportedError(f"{option} {text!r}: {unknown_name('name', part, _public(value))}")
        value = getattr(value, part)
    return value


def _imported(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UnsupportedError(
                f"{what}: there is no module {error.name!r} here or installed. Check its name."
            ) from error
        raise UnsupportedError(f"{what}: {name} needs {error.name!r}, which is not installed. Install it.") from error


def running(what: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Calls code that somebody named; where it fails, the message says whose it is, and where.

    Raises:
        UnsupportedError: It failed.
    """
    from ranp import arguments

    with arguments.blamed(what, error=UnsupportedError):
        return function(*args, **kwargs)


def find_network(text: str, option: str = "MODEL") -> Network:
    """The network that the command line names.

    Raises:
        UnsupportedError: No registered name, and no code either.
    """
    if ":" in text:
        function = code(text, option)
        if not callable(function):
            raise UnsupportedError(
                f"{option} {text!r} is a {type(function).__name__}. Name a function that makes a network."
            )
        return Network(text, partial(running, f"{option} {text!r}", function), None)
    try:
        return _registered(text)
    except UnsupportedError as error:
        raise UnsupportedError(f"{error} Or write package.module:function.") from error


def with_options(network: Network, options: Mapping[str, Any]) -> Network:
    """The network built with other arguments than its name says; it is then no longer known by that name's example."""
    if not options:
        return network
    from ranp.paper.recipe import as_arguments

    return replace(network, build=partial(network.build, **as_arguments(options)), example=None)


def find_example(network: Network, shapes: Sequence[str], function: str | None, device: str = "meta") -> Any:
    """The inputs of one call: ``--example``, ``--input``, or those the network is known by; None if nothing says.

    Raises:
        UnsupportedError: Both options are given, or a shape is not written as ``1x1x64x64x64``.
    """
    if shapes and function:
        raise UnsupportedError("--input and --example both say what goes in. Pass one of them.")
    if function:
        return running(f"--example {function!r}", code(function, "--example"))
    if shapes:
        return _empty(shapes, "--input", _TYPED, device)
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


def stored_network(recipe: Mapping[str, Any], where: Path, trust: Trust) -> Network:
    """The full network of a run folder, not made yet.

    Args:
        recipe: What the folder's ``recipe.json`` says.
        where: That file, for the message.
        trust: What may run beside registered networks.

    Raises:
        UnsupportedError: The file names code or gives arguments to code, and nobody trusts it; or no network has that
            name.
        StorageError: The file gives a network arguments that it does not take.
    """
    from ranp.paper import models

    name, options = str(recipe["model"]), recipe.get("options") or {}
    if not isinstance(options, Mapping):
        raise StorageError(f'{str(where)!r}: its "options" are {brief(options)}, not an object. Restore it.')
    if trust.model is not None:
        network = find_network(trust.model, "--model")
    elif ":" not in name:
        network = _registered(name)
    elif trust.everything:
        network = find_network(name, f"{where.name}:")
    else:
        given = ", ".join(f"{key}={brief(value)}" for key, value in options.items())
        refuse_code(where, f"{brief(name)}{f' with {given}' if given else ''}", "network", "--model")
    if network.name in models.names():
        try:
            models.check_arguments(network.name, options)
        except UnsupportedError as error:
            raise StorageError(f"{str(where)!r} was edited wrongly: {error}") from error
    elif options and not trust.everything:
        given = ", ".join(f"{key}={brief(value)}" for key, value in options.items())
        raise UnsupportedError(
            f"{str(where)!r} gives {given} to {network.name!r}, which is not a network of the paper; nothing was run. "
            "Pass --trust to run it with them."
        )
    return with_options(network, options)


def stored_example(network: Network, recipe: Mapping[str, Any], where: Path, trust: Trust) -> Any:
    """The inputs of one call of a run folder's network, on the meta device; None if nothing says.

    See ``stored_network`` for the arguments.

    Raises:
        UnsupportedError: The file names code that makes them, and nobody trusts it.
        StorageError: It holds shapes that are none.
    """
    if trust.inputs or trust.example:
        return find_example(network, trust.inputs, trust.example)
    shapes, function = recipe.get("inputs"), recipe.get("example")
    if shapes:
        if not isinstance(shapes, list | tuple) or len(shapes) > _MOST:
            raise StorageError(f'{str(where)!r}: its "inputs" are {brief(shapes)}, not a list of shapes. Restore it.')
        return _empty(shapes, f"{str(where)!r}: the input", _STORED, "meta")
    if function:
        if not trust.everything:
            refuse_code(where, brief(function), "example", "--input")
        return running(f"the example {function!r}", code(str(function), f"{where.name}:"))
    return find_example(network, (), None)


def named_code(recipe: Mapping[str, Any]) -> bool:
    """Whether a recipe names code to make its network or the inputs of one call."""
    return ":" in str(recipe["model"]) or bool(recipe.get("example") and not recipe.get("inputs"))


def refuse_code(where: Path, what: str, part: str, option: str) -> NoReturn:
    """Refuses code that a file names.

    Raises:
        UnsupportedError: Always.
    """
    raise UnsupportedError(
        f"{str(where)!r} names {what} as its {part}; nothing was run. Pass {option} to say it yourself, or --trust to "
        "run it."
    )


def _registered(name: str) -> Network:
    from ranp.paper import models
    from ranp.slimming.storage import NETWORKS

    if name not in NETWORKS:
        raise UnsupportedError(unknown_name("network", name, NETWORKS))
    known = (lambda device: models.example(name, device)) if name in models.names() else None
    return Network(name, NETWORKS.get(name), known)


def _empty(shapes: Sequence[Any], what: str, most: int, device: str) -> Any:
    """Tensors without values; a tuple if there are several."""
    import torch

    tensors = []
    for shape in shapes:
        sizes = [int(size[:20]) for size in shape.split("x")] if _is_shape(shape) else [0]
        if 0 in sizes:
            raise UnsupportedError(f"{what} {brief(shape)} is not a shape. Write the sizes with an x: 1x1x64x64x64.")
        if math.prod(sizes) > most:
            raise UnsupportedError(
                f"{what} {brief(shape)} has more than {most} elements. Pass a smaller one with --input."
            )
        tensors.append(torch.empty(sizes, device=device))
    return tuple(tensors) if len(tensors) > 1 else tensors[0]


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, str) and _SHAPE.fullmatch(shape) is not None and len(shape) <= _MOST


def _public(value: Any) -> list[str]:
    return [name for name in dir(value) if not name.startswith("_")]

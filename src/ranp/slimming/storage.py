"""A slim network in one file: its tensors as safetensors, its plan and what else is known of it as JSON in the header.

A file never names code to run: whoever loads it says how the full network is built, the plan says what to cut out of
it, and the tensors fill what is left. No pickle is read or written. A checksum over all of it is tested on loading.
"""

from __future__ import annotations

import functools
import logging
import os
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ranp import arguments
from ranp.choosing.plan import Plan
from ranp.errors import PlanMismatchError, UnsupportedError
from ranp.files import sealed
from ranp.registry import Registry
from ranp.running.calling import attributes, named_tensors, unwrap
from ranp.running.randomness import untouched_rng
from ranp.slimming.slim import apply_plan
from ranp.tracing.attributes import plain_tensors

FORMAT = sealed.Format("ranp-model", 2, ("network", "plan", "metadata"), "ranp.save")

Build = Callable[[], nn.Module]
"""Makes the full network; what weights it starts from does not matter."""

NETWORKS: Registry[Build] = Registry("network")
"""The networks that ``load`` and the command line know by name in this process."""

logger = logging.getLogger(__name__)


def register_network(name: str, build: Build) -> Build:
    """Makes a network known by name, for ``load(path, name)`` and the command line, and returns ``build``."""
    return NETWORKS.register(name, build)


def save(path: str | os.PathLike[str], model: nn.Module, plan: Plan, **metadata: Any) -> None:
    """Writes a slim network, trained or not, with its plan, so that ``load`` needs only the code of the full one.

    Parameters and buffers are written with their own precision, tensors that modules share once, and so are tensors in
    plain attributes that the plan cuts; ``build`` makes all else. Which parameters are frozen and which modules are in
    train mode is remembered.

    Args:
        path: The file; what it held before is replaced in one step, or not at all.
        model: The slim network. DataParallel, DDP and compiled ones are unwrapped.
        plan: What made it slim.
        **metadata: Anything JSON can say, to be read back with ``storage.metadata``.

    Raises:
        StorageError: The file cannot be written, ``metadata`` is not plain JSON, or a tensor holds no data.
    """
    network = unwrap(model)
    arguments.path(path)
    arguments.kind("plan", plan, Plan, "the plan that made the network slim, a ranp.Plan")
    for name, module in network.named_modules():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            logger.warning("module %r has extra state, which is not saved: only parameters and buffers are", name)
    first = {id(tensor): name for name, tensor in named_tensors(network)}
    about = {
        "tied": {name: first[id(t)] for name, t in _all_tensors(network) if first[id(t)] != name},
        "frozen": [name for name, parameter in network.named_parameters() if not parameter.requires_grad],
        "training": network.training,
        "unlike": [name for name, module in network.named_modules() if module.training != network.training],
    }
    entries: dict[str, Any] = {"network": about, "plan": plan.to_json(), "metadata": metadata}
    beside = {name: tensor for name, tensor in plain_tensors(network) if name in plan.cuts}
    FORMAT.write(path, {**dict(named_tensors(network)), **beside}, entries)


def load(path: str | os.PathLike[str], build: Build | str, *, example: Any = None) -> nn.Module:
    """Reads a slim network: builds the full one, cuts it by the plan in the file, and fills in the tensors of the file.

    The full network is built on the meta device, so that it never takes memory; a ``build`` that cannot run there is
    called again for real. Torch's random state is left as it was. The result is on the CPU, in the precision it was
    saved with.

        >>> net = nn.Sequential(nn.Conv3d(1, 4, 1), nn.ReLU(), nn.Conv3d(4, 2, 1))
        >>> import tempfile; from pathlib import Path; from ranp.choosing.plan import Sparsity
        >>> whole = Plan({"0": (0, 1, 2, 3), "2": (0, 1)}, {"0": 4, "2": 2}, {}, Sparsity(0.0, 0, 6, 4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(Path(folder, "net.safetensors"), net, whole)
        ...     again = load(Path(folder, "net.safetensors"), lambda: nn.Sequential(
        ...         nn.Conv3d(1, 4, 1), nn.ReLU(), nn.Conv3d(4, 2, 1)))
        >>> torch.equal(again[0].weight, net[0].weight)
        True

    Args:
        path: A file that ``save`` wrote.
        build: Makes the full network (a class or function without arguments), or a name known to ``NETWORKS``, such as
            ``"unet3d-shapenet"`` once ``ranp.paper.models`` is imported.
        example: Inputs of one call; only for a plan that was transferred to another input size, see ``ranp.slim``.

    Raises:
        StorageError: The file is missing, torn, changed since it was written, or of another kind.
        PlanMismatchError: The file was made from another network than ``build`` makes.
        UnsupportedError: No network is registered under that name, or ``build`` does not make a network.
    """
    arguments.path(path)
    make = NETWORKS.get(build) if isinstance(build, str) else build
    if not callable(make):
        raise arguments.refused("build", build, "a function that makes the full network, or a registered name")
    header, tensors = FORMAT.read(path)
    about = header.object("network")
    plan = Plan.from_json(header["plan"], source=f"the plan inside {str(path)!r}")
    with untouched_rng():
        with arguments.blamed("build", error=UnsupportedError):
            full = hollow(make)
        network = apply_plan(full, plan, example=example)
    try:
        _fill(network, tensors, about)
    except PlanMismatchError as error:
        raise PlanMismatchError(f"{str(path)!r} is not of the network that was built: {error}") from error
    return network


def metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What ``save`` was given as ``metadata``; only the header of the file is read, which has a seal of its own.

    Raises:
        StorageError: The file is missing, torn, or of another kind.
    """
    return FORMAT.header(arguments.path(path)).object("metadata")


def plan_of(path: str | os.PathLike[str]) -> Plan:
    """The plan in a file that ``save`` wrote; only the header is read, which has a seal of its own.

    Raises:
        StorageError: The file is missing, torn, or of another kind.
    """
    return Plan.from_json(FORMAT.header(arguments.path(path))["plan"], source=f"the plan inside {str(path)!r}")


def _all_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer under each of its names."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def hollow(build: Build) -> nn.Module:
    """The full network, on the meta device if it can be built there: nothing is allocated for its weights."""
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of weights that cannot be copied to meta: they come from the file
            network = build()
        if isinstance(network, nn.Module) and not _loses_data(network):
            return unwrap(network)
    except Exception as error:  # The builder is the user's code and may raise anything.
        logger.info("the network cannot be built without data (%s: %s)", type(error).__name__, error)
    network = build()
    if not isinstance(network, nn.Module):
        raise UnsupportedError(f"build made a {type(network).__name__}. Pass a function that returns the full network.")
    return unwrap(network)


_WITHOUT_TENSORS = (str, bytes, int, float, complex, type(None), type, types.ModuleType, types.BuiltinFunctionType)


def _loses_data(network: nn.Module) -> bool:
    """True if something holds a tensor that is neither parameter nor buffer: no file would give it values again.

    It may be an attribute, or hide in a container, an object, a function, or a module that is not registered.
    """
    known = {id(value) for value in (*network.modules(), *(tensor for _, tensor in named_tensors(network)))}
    todo: list[Any] = [value for module in network.modules() for value in vars(module).values()]
    while todo:
        value = todo.pop()
        if id(value) in known or isinstance(value, _WITHOUT_TENSORS):
            continue
        known.add(id(value))
        if isinstance(value, Tensor) and value.is_meta:
            return True
        todo.extend(_parts(value))
    return False


def _parts(value: Any) -> Iterable[Any]:
    """What an object holds, whatever it is."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, types.MethodType):
        return value.__self__, value.__func__
    if isinstance(value, types.FunctionType):
        empty = types.CellType()  # of a name that is not bound yet
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != empty]
        return cells, value.__defaults__, value.__kwdefaults__
    return [getattr(value, name) for name in attributes(value)]


def _fill(network: nn.Module, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Gives every parameter and buffer the tensor of the file, shared where the saved network shared it.

    And every plain attribute that the file holds.
    """
    tied, frozen = dict(about["tied"]), set(about["frozen"])
    beside = {name: tensor for name, tensor in plain_tensors(network) if name in tensors}
    wanted = {name: tied.get(name, name) for name, _ in (*_all_tensors(network), *beside.items())}
    stray = sorted(set(wanted.values()) ^ set(tensors))
    if stray:
        raise PlanMismatchError(
            f"only {'the file' if stray[0] in tensors else 'the network'} has {stray[0]!r}. "
            "Build the network the file was made from."
        )
    for name, current in (*_all_tensors(network), *beside.items()):
        if current.shape != tensors[wanted[name]].shape:
            raise PlanMismatchError(
                f"{name!r} has shape {tuple(tensors[wanted[name]].shape)} in the file and {tuple(current.shape)} after "
                "cutting. Build the network the file was made from."
            )
    parameters = {
        name: nn.Parameter(tensors[name], requires_grad=name not in frozen)
        for name in {wanted[name] for name, _ in network.named_parameters(remove_duplicate=False)}
    }
    fresh = {id(old): tensors[name].requires_grad_(old.requires_grad) for name, old in beside.items()}
    for prefix, module in network.named_modules(remove_duplicate=False):
        start = f"{prefix}." if prefix else ""
        vars(module).update({key: fresh[id(old)] for key, old in vars(module).items() if id(old) in fresh})
        for key, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[key] = parameters[wanted[start + key]]
        for key, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[key] = tensors[wanted[start + key]]
    network.train(bool(about["training"]))
    unlike = set(about["unlike"])
    for name, module in network.named_modules():
        if name in unlike:
            module.training = not network.training

"""The paper's networks by name: ``build`` makes one, ``example`` makes the input its tables were measured with.

Example:
    >>> build("unet3d-shapenet", widths=(4, 8))(example("unet3d-shapenet")).shape
    torch.Size([1, 50, 64, 64, 64])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ranp.errors import UnsupportedError, brief, unknown_name
from ranp.paper.models.i3d import I3D
from ranp.paper.models.mobilenetv2 import MobileNetV2
from ranp.paper.models.psmnet import PSMNet
from ranp.paper.models.unet3d import UNet3d
from ranp.slimming.initialisation import Initialiser, initialise
from ranp.slimming.storage import register_network

__all__ = ["I3D", "MobileNetV2", "PSMNet", "UNet3d", "arguments", "build", "check_arguments", "example", "names"]


@dataclass(frozen=True, slots=True)
class _Network:
    """How to make a network of the paper, and the shapes of the tensors it was profiled with."""

    make: Callable[..., nn.Module]
    inputs: tuple[tuple[int, ...], ...]
    options: Mapping[str, Any] = field(default_factory=dict)


_LARGEST, _WIDEST, _LONGEST, _PARAMETERS = 4096, 16.0, 64, 2**31
"""Bounds of the arguments of a network and of the parameters it gets memory for: 8 GiB of float32."""

_DEEP = (64, 128, 256, 512, 1024, 1024)
_SHAPENET = {"in_channels": 1, "classes": 50, "softmax_in_eval": True}
_BRATS = {"in_channels": 4, "classes": 5}
_VOXELS = ((1, 1, 64, 64, 64),)
_SCAN = ((1, 4, 128, 128, 128),)

_NETWORKS: Mapping[str, _Network] = {
    "unet3d-shapenet": _Network(UNet3d, _VOXELS, {**_SHAPENET, "widths": (64, 128, 256, 512)}),
    "unet3d-shapenet-23": _Network(UNet3d, _VOXELS, {**_SHAPENET, "widths": _DEEP}),
    "unet3d-brats": _Network(UNet3d, _SCAN, {**_BRATS, "widths": (32, 64, 128, 256)}),
    # As wide as the ShapeNet network of its depth: the paper transfers widths between the two.
    "unet3d-brats-23": _Network(UNet3d, _SCAN, {**_BRATS, "widths": _DEEP}),
    "mobilenetv2-ucf101": _Network(MobileNetV2, ((1, 3, 16, 112, 112),), {"classes": 101}),
    "i3d-ucf101": _Network(I3D, ((1, 3, 16, 224, 224),), {"classes": 101}),
    "psm-sceneflow": _Network(PSMNet, ((3, 3, 256, 512), (3, 3, 256, 512)), {"disparities": 192}),
}


def names() -> tuple[str, ...]:
    """The names that ``build`` and ``example`` know, sorted."""
    return tuple(sorted(_NETWORKS))


def arguments(name: str) -> tuple[str, ...]:
    """What ``build`` takes as ``overrides`` for a network.

    Raises:
        UnsupportedError: No network has that name.
    """
    return tuple(inspect.signature(_find(name).make).parameters)


def check_arguments(name: str, overrides: Mapping[str, Any], prefix: str = "") -> None:
    """Refuses arguments that a network does not take, or that would ask for more than a machine has.

    Args:
        name: One of ``names()``.
        overrides: As ``build`` takes them.
        prefix: Of each argument, where people write one.

    Raises:
        UnsupportedError: No network has that name, it has no such argument, or the value is of another kind or too
            large.
    """
    known = inspect.signature(_find(name).make).parameters
    for key, value in overrides.items():
        if key not in known:
            raise UnsupportedError(f"{prefix}{key}: {unknown_name(f'argument of {name}', key, known)}")
        usual = known[key].default
        if not _is_like(value, usual):
            raise UnsupportedError(
                f"{prefix}{key}={brief(value)}: {name} takes {_allowed(usual)}. "
                f"Set another, such as {prefix}{key}={usual}."
            )


def _is_like(value: Any, usual: Any) -> bool:
    """Whether a value is of the kind of another, and of a sane size."""
    if isinstance(usual, bool) or isinstance(value, bool):
        return isinstance(usual, bool) and isinstance(value, bool)
    if isinstance(usual, int):
        return isinstance(value, int) and 1 <= value <= _LARGEST
    if isinstance(usual, float):
        return isinstance(value, int | float) and 0 <= value <= _WIDEST
    fits = isinstance(value, list | tuple) and 1 <= len(value) <= _LONGEST
    return fits and all(_is_like(item, usual[0]) for item in value)


def _allowed(usual: Any) -> str:
    if isinstance(usual, bool):
        return "true or false"
    if isinstance(usual, int):
        return f"a whole number from 1 to {_LARGEST}"
    if isinstance(usual, float):
        return f"a number from 0 to {_WIDEST:g}"
    return f"1 to {_LONGEST} numbers from 1 to {_LARGEST}"


def build(name: str, *, init: Initialiser = "glorot", seed: int = 0, **overrides: Any) -> nn.Module:
    """Make a network of the paper with freshly drawn weights, on the device of the surrounding ``torch.device``.

    Nothing is drawn from torch's global generator. On the meta device no memory is used at all.

    Args:
        name: One of ``names()``.
        init: How to draw the weights, see ``ranp.slimming.initialisation.initialise``.
        seed: Same seed, same weights.
        **overrides: Arguments of the network's class, for example ``widths=(4, 8)`` or ``classes=3``.

    Raises:
        UnsupportedError: No network has that name, it does not take such an argument, or it would be too large.
    """
    network = _find(name)
    check_arguments(name, overrides)
    device = torch.get_default_device()
    with torch.device("meta"):
        model = network.make(**{**network.options, **overrides})
    if device.type != "meta":
        params = sum(parameter.numel() for parameter in model.parameters())
        if params > _PARAMETERS:
            raise UnsupportedError(f"{name} would have {params} parameters, more than {_PARAMETERS}. Make it smaller.")
        model.to_empty(device=device)
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase):
                module.reset_parameters()
        initialise(model, "glorot", seed)  # every parameter has a value, whatever a function of the user's leaves out
        if init != "glorot":
            initialise(model, init, seed)
    return model


def example(name: str, device: torch.device | str = "cpu") -> Tensor | tuple[Tensor, ...]:
    """The input of one call that the paper's tables were measured with: a tensor, or a pair of images for PSM.

    Args:
        name: One of ``names()``.
        device: Where to put it; ``"meta"`` needs no memory.

    Raises:
        UnsupportedError: No network has that name.
    """
    shapes = _find(name).inputs
    if torch.device(device).type == "meta":
        tensors = tuple(torch.empty(shape, device="meta") for shape in shapes)
    else:
        generator = torch.Generator().manual_seed(0)
        tensors = tuple(torch.randn(shape, generator=generator, device="cpu").to(device) for shape in shapes)
    return tensors if len(tensors) > 1 else tensors[0]


def _find(name: str) -> _Network:
    if name not in _NETWORKS:
        raise UnsupportedError(unknown_name("network", name, _NETWORKS))
    return _NETWORKS[name]


for _name in _NETWORKS:
    register_network(_name, partial(build, _name))
del _name

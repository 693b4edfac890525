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

from ranp.errors import UnsupportedError, unknown_name
from ranp.initialisation import Initialiser, initialise
from ranp.paper.models.i3d import I3D
from ranp.paper.models.mobilenetv2 import MobileNetV2
from ranp.paper.models.psmnet import PSMNet
from ranp.paper.models.unet3d import UNet3d
from ranp.storage import register_network

__all__ = ["I3D", "MobileNetV2", "PSMNet", "UNet3d", "arguments", "build", "example", "names"]


@dataclass(frozen=True, slots=True)
class _Network:
    """How to make a network of the paper, and the shapes of the tensors it was profiled with."""

    make: Callable[..., nn.Module]
    inputs: tuple[tuple[int, ...], ...]
    options: Mapping[str, Any] = field(default_factory=dict)


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


def build(name: str, *, init: Initialiser = "glorot", seed: int = 0, **overrides: Any) -> nn.Module:
    """Make a network of the paper with freshly drawn weights, on the device of the surrounding ``torch.device``.

    Nothing is drawn from torch's global generator. On the meta device no memory is used at all.

    Args:
        name: One of ``names()``.
        init: How to draw the weights, see ``ranp.initialisation.initialise``.
        seed: Same seed, same weights.
        **overrides: Arguments of the network's class, for example ``widths=(4, 8)`` or ``classes=3``.

    Raises:
        UnsupportedError: No network has that name.
    """
    network = _find(name)
    device = torch.get_default_device()
    with torch.device("meta"):
        model = network.make(**{**network.options, **overrides})
    if device.type != "meta":
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

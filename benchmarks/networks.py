"""The networks and batches that the benchmarks share, at sizes that a laptop runs in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ranp.paper import models

Batch = tuple[Any, Tensor]


@dataclass(frozen=True, slots=True)
class Case:
    """A network, its inputs, and a loss that suits its output.

    Attributes:
        name: What the tables call it.
        build: Makes it, with the same weights every time.
        shapes: Shapes of the inputs of one call, batch first.
        kind: ``"voxels"`` and ``"clip"`` (cross-entropy), or ``"stereo"`` (three disparity maps).
        classes: Labels of the cross-entropy.
        sparsity: The paper's sparsity for this network, if it is one of the paper's.
    """

    name: str
    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    kind: str = "voxels"
    classes: int = 2
    sparsity: float = 0.5

    def batch(self, seed: int = 0) -> Batch:
        """Random inputs and targets."""
        generator = torch.Generator().manual_seed(seed)
        inputs = tuple(torch.randn(shape, generator=generator) for shape in self.shapes)
        size, space = self.shapes[0][0], self.shapes[0][2:]
        if self.kind == "stereo":
            target = torch.rand((size, *space), generator=generator) * 16
        else:
            where = space if self.kind == "voxels" else ()
            target = torch.randint(self.classes, (size, *where), generator=generator)
        return inputs, target

    @property
    def size(self) -> str:
        return " + ".join("x".join(str(extent) for extent in shape) for shape in self.shapes)

    def loss(self, output: Any, target: Tensor) -> Tensor:
        if self.kind == "stereo":
            weights = (0.5, 0.7, 1.0)
            return sum((w * F.smooth_l1_loss(o, target) for w, o in zip(weights, output, strict=True)), torch.zeros(()))
        return F.cross_entropy(output, target)


def segresnet(filters: int) -> nn.Module:
    """MONAI's SegResNet, with weights that do not depend on what ran before."""
    from monai.networks.nets import SegResNet

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return SegResNet(spatial_dims=3, init_filters=filters, in_channels=1, out_channels=2)


def train_step(model: nn.Module, optimiser: torch.optim.Optimizer, case: Case, batch: Batch) -> None:
    """A plain training step."""
    inputs, target = batch
    optimiser.zero_grad(set_to_none=True)
    case.loss(model(*inputs), target).backward()
    optimiser.step()


def paper_cases(quick: bool) -> list[Case]:
    """Every network of the paper at its full widths, in a small space."""

    def build(name: str, **options: Any) -> Callable[[], nn.Module]:
        return lambda: models.build(name, **options)

    stereo = {"disparities": 32, "windows": (32, 16, 8, 4)}
    cases = [
        Case("3D-UNet 15, ShapeNet", build("unet3d-shapenet"), ((1, 1, 32, 32, 32),), "voxels", 50, 0.7824),
        Case("3D-UNet 15, BraTS", build("unet3d-brats"), ((1, 4, 32, 32, 32),), "voxels", 5, 0.7817),
        Case("MobileNetV2-3D", build("mobilenetv2-ucf101"), ((1, 3, 16, 112, 112),), "clip", 101, 0.3315),
        Case("I3D", build("i3d-ucf101"), ((1, 3, 16, 224, 224),), "clip", 101, 0.2532),
        Case("PSM", build("psm-sceneflow", **stereo), ((2, 3, 128, 128),) * 2, "stereo", sparsity=0.462),
        Case("3D-UNet 23, ShapeNet", build("unet3d-shapenet-23"), ((2, 1, 32, 32, 32),), "voxels", 50, 0.8),
    ]
    return cases[:3] if quick else cases

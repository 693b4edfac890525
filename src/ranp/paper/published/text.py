"""Figures that stand in the paper's text only, each with the words it stands in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["LARGEST_BY_RANP_F", "QUOTES", "Quote"]

LARGEST_BY_RANP_F: Mapping[str, float] = MappingProxyType(
    {
        "unet3d-shapenet": 98.57,
        "unet3d-shapenet-23": 97.99,
        "unet3d-brats": 96.24,
        "mobilenetv2-ucf101": 80.83,
        "i3d-ucf101": 85.3,
        "psm-sceneflow": 92.32,
    }
)
"""The largest share of neurons that RANP-f removes and leaves every layer one, in percent."""


@dataclass(frozen=True, slots=True)
class Quote:
    """A statement of the text.

    Attributes:
        network: By our name.
        method: By our name.
        sparsity: Share of neurons removed in percent; None if the words tell none.
        figures: By the names of a row's fields and figures, in the units of a row; ``*_loss`` and ``*_rise`` are
            differences to the full network, ``*_reduction`` percent of it, ``*_below`` an upper bound.
        words: What the paper says, as plain text.
    """

    network: str
    method: str
    sparsity: float | None
    figures: Mapping[str, float]
    words: str


def _quote(network: str, method: str, sparsity: float | None, words: str, **figures: float) -> Quote:
    return Quote(network, method, sparsity, MappingProxyType(figures), words)


_ON_ONE_GPU = (
    "using a 23-layer 3D-UNet with 80% neuron sparsity on a single GPU. With this setup, RANP-f reduces ~35x GFLOPs "
    "(from 259.59 to 7.39) and ~3.9x memory (from 1005.96MB to 255.57MB)"
)
_AT_70 = "RANP-f achieves <3% accuracy loss at 70% sparsity"
_EPOCHS = "the full network executed 6 epochs while RANP-f reached 26 epochs"

QUOTES: tuple[Quote, ...] = (
    _quote(
        "unet3d-shapenet",
        "ranp-f",
        98.57,
        "With the maximum neuron sparsity 98.57%, however, the 15-layer 3D-UNet achieves only 61.42%.",
        miou=61.42,
    ),
    _quote(
        "unet3d-shapenet-23",
        "ranp-f",
        97.99,
        "the 23-layer 3D-UNet achieves a higher mIoU than the 15-layer one. Extremely, when pruned with the maximum "
        "neuron sparsity 97.99%, it can achieve 78.10% mIoU.",
        miou=78.10,
    ),
    _quote("unet3d-shapenet-23", "full", None, _ON_ONE_GPU, gflops=259.59, memory_mb=1005.96),
    _quote("unet3d-shapenet-23", "ranp-f", 80, _ON_ONE_GPU, gflops=7.39, memory_mb=255.57),
    _quote(
        "unet3d-shapenet-23",
        "ranp-f",
        80,
        "we trained on ShapeNet with a transferred 3D-UNet by RANP on BraTS'18 with 80% neuron sparsity. "
        "Interactively, with the same neuron sparsity, a transferred 3D-UNet by RANP on ShapeNet was applied to train "
        "on BraTS'18.",
    ),
    _quote("unet3d-shapenet-23", "full", None, _EPOCHS, epochs=6),
    _quote("unet3d-shapenet-23", "ranp-f", None, _EPOCHS, epochs=26),
    _quote("mobilenetv2-ucf101", "ranp-f", 70, _AT_70, accuracy_loss_below=3),
    _quote("i3d-ucf101", "ranp-f", 70, _AT_70, accuracy_loss_below=3),
    _quote(
        "psm-sceneflow",
        "ranp-f",
        70,
        "pruning at roughly 70% neuron sparsity achieves 2.8% decrease in Acc-1, 1.27% decrease in Acc-3, and 0.3 "
        "pixels decrease in EPE while reducing 68.0% FLOPs and 49.3% memory.",
        acc1_loss=2.8,
        acc3_loss=1.27,
        epe_rise=0.3,
        gflops_reduction=68.0,
        memory_reduction=49.3,
    ),
)

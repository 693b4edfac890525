"""BraTS, tumour segmentation: four modalities of a brain, five labels, the regions whole tumour, core and enhancing.

Procedural brains unless a folder of the published data is opened. Loss and recipe are the paper's; the metrics are
both what the paper says (IoU) and what its code computes (Dice).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ranp.errors import DataError
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.brats.cases import open_folder
from ranp.paper.tasks.brats.preprocessing import LABELS
from ranp.paper.tasks.brats.procedural import train_data, valid_data
from ranp.paper.tasks.reading import optional
from ranp.paper.tasks.task import Inputs, Metrics, Source, Task
from ranp.running.calling import call

__all__ = ["BRATS", "CLASSES", "REGIONS", "figures", "loss", "predict", "tally"]

CLASSES = len(LABELS)

REGIONS: Mapping[str, tuple[int, ...]] = {"wt": (1, 2, 3, 4), "tc": (1, 3, 4), "et": (4,)}
"""Whole tumour, tumour core, enhancing tumour. Label 3 exists in 2015 only, where it is part of the core."""

_ALPHA = 0.25
_OVERLAP = 0.25  # of neighbouring windows


def loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy + .25 * (1 - soft Dice), a mean over samples.

    The Dice (MONAI's ``DiceLoss``) is taken of the softmax, for each sample and each class apart, background included
    as in the paper's sum over all classes, and then averaged: so a batch is worth its parts.

    Deviation: the paper's equation adds the Dice itself, which training would make small.

    Args:
        output: (B, C, D, H, W) logits.
        target: (B, D, H, W) labels below C.

    Raises:
        DataError: The shapes do not fit, or a label is out of range.
        UnsupportedError: MONAI is not installed.
    """
    _check(output, target, output.shape[1] if output.dim() == 5 else CLASSES)
    monai = optional("monai.losses.dice", "the Dice loss is MONAI's", "medical")
    if output.dtype in (torch.float16, torch.bfloat16):
        output = output.float()  # the Dice sums over millions of voxels
    dice: Tensor = monai.DiceLoss(softmax=True, to_onehot_y=True)(output, target.unsqueeze(1))
    return F.cross_entropy(output, target) + _ALPHA * dice


def tally(output: Tensor, target: Tensor) -> dict[str, float]:
    """Sums over the cases of a batch: Dice and IoU of each region, and the number of cases.

    A region that neither prediction nor target has counts 1, one that only the prediction has counts 0.

    Args:
        output: (B, 5, D, H, W) logits or probabilities.
        target: (B, D, H, W) labels.

    Raises:
        DataError: The shapes do not fit, or a label is out of range.
    """
    _check(output, target, CLASSES)
    found = output.detach().argmax(dim=1)
    sums = {"cases": float(len(target))}
    for region, labels in REGIONS.items():
        wanted, given = (torch.isin(x, torch.tensor(labels, device=x.device)).flatten(1) for x in (target, found))
        common, both = (wanted & given).sum(dim=1), wanted.sum(dim=1) + given.sum(dim=1)
        union = both - common
        sums[f"dice_{region}"] = float(torch.where(both > 0, 2 * common.double() / both.clamp(min=1), 1.0).sum())
        sums[f"iou_{region}"] = float(torch.where(union > 0, common.double() / union.clamp(min=1), 1.0).sum())
    return sums


def figures(sums: Mapping[str, float]) -> dict[str, float]:
    """Means over cases: ``dice_wt``, ``dice_tc``, ``dice_et``, the same of ``iou``, and ``dice`` and ``iou`` of all."""
    means = {name: value / sums["cases"] for name, value in sums.items() if name != "cases"}
    of_all = {name: sum(means[f"{name}_{region}"] for region in REGIONS) / len(REGIONS) for name in ("dice", "iou")}
    return {**of_all, **means}


def predict(model: nn.Module, inputs: Inputs, size: int) -> Tensor:
    """What a network says of whole volumes, seen through a sliding window of the size that it was trained on.

    MONAI's inferer: a quarter of overlap, windows blended with Gaussian weights, a volume smaller than a window padded
    with zeros.

    Args:
        model: In eval mode.
        inputs: (B, C, D, H, W).
        size: Edge of the window.

    Returns:
        (B, classes, D, H, W).

    Raises:
        UnsupportedError: MONAI is not installed.
    """
    monai = optional("monai.inferers.utils", "the sliding window is MONAI's", "medical")
    output: Tensor = monai.sliding_window_inference(
        inputs, (size,) * 3, 4, lambda window: call(model, window), overlap=_OVERLAP, mode="gaussian"
    )
    return output


def _check(output: Tensor, target: Tensor, classes: int) -> None:
    """Refuses what cross-entropy would answer with an index error, and metrics with a number that means nothing."""
    if output.dim() != 5 or output.shape[1] != classes or output.shape[:1] + output.shape[2:] != target.shape:
        raise DataError(
            f"output {tuple(output.shape)} and target {tuple(target.shape)} do not fit: an output of "
            f"(B, {classes}, D, H, W) and a target of (B, D, H, W) are needed."
        )
    if target.is_meta or not target.numel():
        return
    low, high = int(target.min()), int(target.max())
    if low < 0 or high >= classes:
        raise DataError(f"target has label {low if low < 0 else high}; allowed are 0 to {classes - 1}.")


_PAPER = Recipe(
    network="unet3d-brats",
    size=128,
    epochs=200,
    batch=2,
    optimiser="adam",
    learning_rate=1e-3,
    amsgrad=True,
    weight_decay=1e-4,
    schedule="step",
    decay=0.1,
    milestones=(150,),
    workers=4,
)

_CPU = replace(
    _PAPER,
    options={"widths": (16, 32, 64)},
    size=24,
    epochs=20,
    batch=4,
    learning_rate=3e-3,
    milestones=(15,),
    train_count=64,
    valid_count=16,
    valid_every=5,
    workers=0,
)

BRATS = Task(
    name="brats",
    classes=CLASSES,
    strength=15.0,
    sparsity=0.9624,
    recipe=_PAPER,
    cpu=_CPU,
    source=Source(train_data, valid_data, {"in_channels": 4}, "procedural brains of four modalities"),
    loss=loss,
    metrics=Metrics(tally, figures, main="dice"),
    open=open_folder,
    predict=predict,
    needs={"monai": "medical"},
    readers={"nibabel": "medical"},
)
"""Tumour segmentation."""

"""How part segmentation is judged: cross-entropy to learn by, part mIoU to compare by, both over occupied voxels."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from ranp.errors import DataError
from ranp.paper.tasks.shapenet.catalogue import FIRST, PARTS
from ranp.paper.tasks.shapenet.solids import EMPTY
from ranp.paper.tasks.task import Metrics

CLASSES = sum(PARTS)
_CATEGORY_OF = torch.tensor([category for category, parts in enumerate(PARTS) for _ in range(parts)])


def loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over the voxels that are not empty.

    Args:
        output: (B, C, S, S, S) logits. The paper's network gives logits in training mode, probabilities in eval mode.
        target: (B, S, S, S) labels below C, or 255.

    Raises:
        DataError: The shapes do not fit, a label is out of range, or every voxel is empty.
    """
    _check(output, target, output.shape[1])
    return F.cross_entropy(output, target, ignore_index=EMPTY)


def weight(target: Tensor) -> float:
    """Over how many voxels the loss of a batch is a mean: those that are not empty."""
    return float((target != EMPTY).sum())


def tally(output: Tensor, target: Tensor) -> dict[str, float]:
    """Sums of one batch: of the objects' IoU, of objects, of voxels that are right, and of voxels.

    Only occupied voxels count, and the prediction of a voxel is the best among the parts of its object's category. An
    object's IoU is the mean over the parts of its category, 1 for a part that neither prediction nor target has.

    Args:
        output: (B, 50, S, S, S) logits or probabilities.
        target: (B, S, S, S) labels.

    Raises:
        DataError: Shapes that do not fit, a label out of range, an object that is empty or of two categories.
    """
    _check(output, target, CLASSES)
    sums = dict.fromkeys(("iou", "objects", "right", "voxels"), 0.0)
    for scores, labels in zip(output.detach(), target, strict=True):
        iou, right, voxels = _object_sums(scores, labels)
        for name, value in zip(sums, (iou, 1, right, voxels), strict=True):
            sums[name] += value
    return sums


def figures(sums: Mapping[str, float]) -> dict[str, float]:
    """Part mIoU and voxel accuracy.

    The mean over objects is the mean over categories weighted by their number of objects, as the paper has it.
    """
    return {"miou": sums["iou"] / sums["objects"], "accuracy": sums["right"] / sums["voxels"]}


metrics = Metrics(tally, figures, main="miou")
"""Part mIoU (``"miou"``) and voxel accuracy (``"accuracy"``), of a batch or of many."""


def _object_sums(scores: Tensor, labels: Tensor) -> tuple[float, int, int]:
    """Mean IoU over the category's parts, voxels that are right, voxels."""
    occupied = labels != EMPTY
    wanted = labels[occupied]
    if not len(wanted):
        raise DataError("an object has no occupied voxel; leave it out.")
    categories = _CATEGORY_OF.to(wanted.device)[wanted]
    category, last = int(categories.min()), int(categories.max())
    if category != last:
        raise DataError(f"an object has parts of categories {category} and {last}; an object is of one category.")
    first, count = FIRST[category], PARTS[category]
    found = scores[first : first + count, occupied].argmax(dim=0)
    pairs = torch.bincount((wanted - first) * count + found, minlength=count * count).reshape(count, count).cpu()
    common = pairs.diagonal()
    union = pairs.sum(dim=0) + pairs.sum(dim=1) - common
    iou = torch.where(union > 0, common.double() / union.clamp(min=1), 1.0)
    return float(iou.mean()), int(common.sum()), len(wanted)


def _check(output: Tensor, target: Tensor, classes: int) -> None:
    """Refuse what cross-entropy would answer with an index error, a NaN, or a number that means nothing."""
    if output.dim() < 2 or output.shape[1] != classes or output.shape[:1] + output.shape[2:] != target.shape:
        want = (output.shape[0], *output.shape[2:]) if output.dim() >= 2 else ("B", "S", "S", "S")
        raise DataError(
            f"output {tuple(output.shape)} and target {tuple(target.shape)} do not fit: "
            f"{classes} channels in dimension 1 of the output and a target of {want} are needed."
        )
    if target.is_meta:
        return
    labels = target[target != EMPTY]
    if not labels.numel():
        raise DataError(f"every voxel of the target is empty ({EMPTY}); leave such batches out.")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise DataError(
            f"target has label {low if low < 0 else high}; allowed are 0 to {classes - 1}, and {EMPTY} for empty."
        )

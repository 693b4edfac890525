"""ShapeNet part segmentation, procedurally: 16 categories, 50 parts, nothing to download.

Each object is put together from solids (``catalogue``), bent at its joints, turned, scanned with noise and holes, and
voxelised as the paper voxelises ShapeNet's point clouds. Loss and metrics are those of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from ranp.errors import DataError
from ranp.paper.tasks.catalogue import CATEGORIES, PARTS
from ranp.paper.tasks.solids import EMPTY, Labels, Points, sample_points, turning, voxelise
from ranp.paper.tasks.task import Sample, Task

__all__ = ["SHAPENET", "ProceduralShapes", "evaluate", "loss", "metrics", "train_data", "valid_data"]

CLASSES = sum(PARTS)
_FIRST = np.concatenate(([0], np.cumsum(PARTS)[:-1]))
_CATEGORY_OF = torch.from_numpy(np.repeat(np.arange(len(PARTS)), PARTS))
_SPLITS = ("train", "valid")
_POINTS = 2600  # as many as a ShapeNet shape has, about
_HOLE = 0.12  # radius of what the scanner missed, relative to the object
_JITTER = 0.008


class ProceduralShapes(Dataset[Sample]):
    """Objects of all categories, equally often: occupancy (1, S, S, S) float32, and labels (S, S, S) int64.

    A label is a part's number, 0 to 49 over all categories, or 255 where there is nothing. Sample ``i`` depends on the
    seed, the split and ``i`` alone, not on ``count`` or on what was asked before.

    Args:
        split: ``"train"`` or ``"valid"``: never the same objects, whatever the seeds.
        size: Edge length S of the grid, at least 8.
        count: Number of objects.
        seed: Same seed, same objects.

    Raises:
        DataError: A size, a count or a seed out of range, or an unknown split.
    """

    def __init__(self, split: str, size: int, count: int, seed: int) -> None:
        if split not in _SPLITS:
            raise DataError(f"split={split!r}: there are {' and '.join(_SPLITS)}.")
        if size < 8:
            raise DataError(f"size={size}: parts vanish in a grid of less than 8 voxels; pass 8 or more.")
        if count < 1 or seed < 0:
            raise DataError(f"count={count}, seed={seed}: pass at least one object and a seed that is not negative.")
        self.split, self.size, self.count, self.seed = split, size, count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        """Occupancy and labels of one object.

        Raises:
            IndexError: There is no such object.
        """
        if not 0 <= index < self.count:
            raise IndexError(f"object {index} of {self.count}")
        target = torch.from_numpy(self._grid(index))
        return (target != EMPTY).to(torch.float32).unsqueeze(0), target

    def category(self, index: int) -> int:
        """Category of an object: every block of 16 objects has each of them once, in an order of its own."""
        block, position = divmod(index, len(CATEGORIES))
        return int(self._generator(block, 0).permutation(len(CATEGORIES))[position])

    def _generator(self, index: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, _SPLITS.index(self.split), purpose, index))

    def _grid(self, index: int) -> Labels:
        rng, category = self._generator(index, 1), self.category(index)
        points, parts = sample_points(CATEGORIES[category](rng.uniform), rng, _POINTS)
        points = points - (points.max(axis=0) + points.min(axis=0)) / 2
        points = points * rng.uniform(0.9, 1.1, 3)
        points = points @ turning((rng.uniform(-0.1, 0.1), rng.uniform(-0.1, 0.1), rng.uniform(-0.35, 0.35))).T
        points = points * (rng.uniform(0.88, 1.0) / np.linalg.norm(points, axis=1).max())
        seen = _seen(points, parts, rng)
        points = points[seen] + rng.normal(0, _JITTER, (int(seen.sum()), 3))
        return voxelise(points, _FIRST[category] + parts[seen], self.size)


def _seen(points: Points, parts: Labels, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Which points the scanner saw: all but a hole somewhere on the object, and at least some of each part."""
    hole = points[rng.integers(len(points))]
    seen = np.linalg.norm(points - hole, axis=1) > _HOLE
    hidden = np.setdiff1d(parts, parts[seen])
    whole: npt.NDArray[np.bool_] = seen | np.isin(parts, hidden)
    return whole


def train_data(size: int = 64, count: int = 6955, seed: int = 0) -> Dataset[Sample]:
    """Objects to score and train on; as many as the paper has unless told otherwise."""
    return ProceduralShapes("train", size, count, seed)


def valid_data(size: int = 64, count: int = 7052, seed: int = 0) -> Dataset[Sample]:
    """Objects to validate on; as many as the paper has unless told otherwise."""
    return ProceduralShapes("valid", size, count, seed)


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


def metrics(output: Tensor, target: Tensor) -> dict[str, float]:
    """Part mIoU (``"miou"``) and voxel accuracy (``"accuracy"``) of one batch, see ``evaluate``."""
    return evaluate([(output, target)])


def evaluate(pairs: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Part mIoU (``"miou"``) and voxel accuracy (``"accuracy"``) over batches of outputs and targets.

    Only occupied voxels count, and the prediction of a voxel is the best among the parts of its object's category. An
    object's IoU is the mean over the parts of its category, 1 for a part that neither prediction nor target has. The
    mean over objects weights each category by its number of objects.

    Args:
        pairs: (B, 50, S, S, S) logits or probabilities, and (B, S, S, S) labels. An iterator needs only one batch's
            memory at a time.

    Raises:
        DataError: No pairs, shapes that do not fit, a label out of range, an object that is empty or of two categories.
    """
    total, objects, right, voxels = 0.0, 0, 0, 0
    for output, target in pairs:
        _check(output, target, CLASSES)
        for scores, labels in zip(output.detach(), target, strict=True):
            iou, hits, count = _object_metrics(scores, labels)
            total, objects, right, voxels = total + iou, objects + 1, right + hits, voxels + count
    if not objects:
        raise DataError("there is no object to evaluate; pass at least one batch.")
    return {"miou": total / objects, "accuracy": right / voxels}


def _object_metrics(scores: Tensor, labels: Tensor) -> tuple[float, int, int]:
    """Mean IoU over the category's parts, voxels that are right, voxels."""
    occupied = labels != EMPTY
    wanted = labels[occupied]
    if not len(wanted):
        raise DataError("an object has no occupied voxel; leave it out.")
    categories = _CATEGORY_OF.to(wanted.device)[wanted]
    category, last = int(categories.min()), int(categories.max())
    if category != last:
        raise DataError(f"an object has parts of categories {category} and {last}; an object is of one category.")
    first, count = int(_FIRST[category]), PARTS[category]
    found = scores[first : first + count, occupied].argmax(dim=0)
    pairs = torch.bincount((wanted - first) * count + found, minlength=count * count).reshape(count, count)
    common = pairs.diagonal()
    union = pairs.sum(dim=0) + pairs.sum(dim=1) - common
    iou = torch.where(union > 0, common / union.clamp(min=1), 1.0)
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


SHAPENET = Task(
    name="shapenet",
    network="unet3d-shapenet",
    classes=CLASSES,
    strength=11.0,
    train_data=train_data,
    valid_data=valid_data,
    loss=loss,
    metrics=metrics,
    evaluate=evaluate,
)

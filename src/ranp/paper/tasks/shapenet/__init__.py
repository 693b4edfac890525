"""ShapeNet part segmentation: which part of its object is each occupied voxel? 16 categories, 50 parts."""

from __future__ import annotations

import dataclasses

from ranp.paper.recipe import Recipe
from ranp.paper.tasks.shapenet.folder import open_folder
from ranp.paper.tasks.shapenet.metrics import CLASSES, loss, metrics, weight
from ranp.paper.tasks.shapenet.procedural import ProceduralShapes, train_data, valid_data
from ranp.paper.tasks.task import Source, Task

__all__ = ["SHAPENET", "ProceduralShapes", "loss", "metrics", "train_data", "valid_data"]

_PAPER = Recipe(
    network="unet3d-shapenet",
    size=64,
    epochs=100,
    batch=12,
    optimiser="sgd",
    learning_rate=0.1,
    momentum=0.9,
    nesterov=True,
    weight_decay=1e-4,
    schedule="exponential",
    decay=0.04,
    workers=4,
)

# About two minutes on two cores; the rate falls as far in 8 epochs as it takes the paper's some 70 to fall.
_CPU = dataclasses.replace(
    _PAPER,
    options={"widths": (16, 32, 64)},
    size=16,
    epochs=8,
    decay=0.35,
    train_count=768,
    valid_count=128,
    valid_batch=16,
    workers=0,
)

SHAPENET = Task(
    name="shapenet",
    classes=CLASSES,
    strength=11.0,
    sparsity=0.9857,
    recipe=_PAPER,
    cpu=_CPU,
    source=Source(train_data, valid_data, summary="procedural shapes, not ShapeNet's"),
    loss=loss,
    metrics=metrics,
    weight=weight,
    open=open_folder,
)

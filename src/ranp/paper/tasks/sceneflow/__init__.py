"""SceneFlow, stereo matching: the disparity of every pixel of the left view of a pair.

Samples are procedural scenes (``scenes``: seeded, with exact disparity and occlusion) unless a folder is named;
then they are the published renderings (``files``). Either way inputs are a pair of (3, H, W) images,
normalised as for ImageNet, and a target is (2, H, W): disparity and occlusion (``metrics``). Training samples are
``size`` high and twice as wide.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from ranp.errors import DataError
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.reading import check_samples
from ranp.paper.tasks.sceneflow.files import open_folder
from ranp.paper.tasks.sceneflow.metrics import METRICS, loss, weight
from ranp.paper.tasks.sceneflow.pairs import normalised
from ranp.paper.tasks.sceneflow.scenes import draw_scene
from ranp.paper.tasks.task import Sample, Samples, Source, Task

__all__ = ["SCENEFLOW", "ProceduralPairs"]

_PAIRS = {"train": 35454, "valid": 4370}  # as many as the paper has


class ProceduralPairs(Samples):
    """Views of random scenes, S high and 2S wide, with disparities from about 1 to below .72 S.

    The cameras differ a little in gain, offset and noise. Sample ``i`` depends on the seed, the split and ``i`` alone.

    Args:
        split: ``"train"`` or ``"valid"``: never the same scenes, whatever the seeds.
        size: Height S; the paper's network needs a multiple of 16.
        count: Number of scenes; None for as many as the paper has.
        seed: Same seed, same scenes.

    Raises:
        DataError: A size, a count or a seed out of range, or an unknown split.
    """

    def __init__(self, split: str, size: int = 256, count: int | None = None, seed: int = 0) -> None:
        if split not in _PAIRS:
            raise DataError(f"split={split!r}: there are {' and '.join(_PAIRS)}.")
        check_samples(size, 16, "nothing can be matched in so few pixels", count, seed, "pair")
        self.split, self.size, self.seed = split, size, seed
        self.count = _PAIRS[split] if count is None else count

    def draw(self, index: int, visit: int = 0) -> Sample:
        """Both views of a scene, and the left one's disparity and occlusion; the same on every visit."""
        rng = np.random.default_rng((self.seed, list(_PAIRS).index(self.split), 0, index))
        scene = draw_scene(rng, self.size, 2 * self.size)
        left, disparity, hidden = scene.left()
        images = []
        for view in (left, scene.right()):
            view = view * rng.uniform(0.95, 1.05, 3) + rng.uniform(-0.02, 0.02)
            view = view + rng.normal(0, rng.uniform(0, 0.02), view.shape)
            images.append(normalised(view.clip(0, 1)))
        target = torch.from_numpy(np.stack((disparity, hidden)).astype(np.float32))
        return (images[0], images[1]), target


_PAPER = Recipe(network="psm-sceneflow", size=256, epochs=15, batch=12, optimiser="adam", learning_rate=1e-3, workers=4)

_CPU = replace(
    _PAPER,
    options={"disparities": 48, "width": 0.25, "blocks": (1, 1, 1, 1), "windows": (16, 8, 4, 2)},
    size=64,
    epochs=6,
    batch=4,
    learning_rate=3e-3,
    schedule="exponential",
    decay=0.2,
    train_count=256,
    valid_count=64,
    valid_batch=4,
    workers=0,
)
"""A quarter of the width, a block a stage, and as many disparities as scenes of that size have."""

SCENEFLOW = Task(
    name="sceneflow",
    classes=0,
    strength=100.0,
    sparsity=0.9232,
    recipe=_PAPER,
    cpu=_CPU,
    source=Source(partial(ProceduralPairs, "train"), partial(ProceduralPairs, "valid"), summary="procedural scenes"),
    loss=loss,
    weight=weight,
    metrics=METRICS,
    open=open_folder,
    readers={"PIL": "stereo"},
)

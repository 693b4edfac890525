"""Procedural brains: four modalities of a head with a nested tumour, nothing to download.

A brain is an ellipsoid bent by smooth noise: folded grey matter around white matter, ventricles, deep nuclei. Its
tumour is edema (2) around a core (1) with an enhancing rim (4), which one in four lacks; each is bent by noise of its
own. Small lesions as bright as edema and vessels as bright as the rim are no tumour, so that brightness alone does not
tell. Contrast and gamma of each modality, a bias field and Rician noise differ from brain to brain. Not anatomy: it is
there to tell networks apart, and to run without the real data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ranp.paper.tasks.brats.cache import Recent
from ranp.paper.tasks.brats.files import Floats
from ranp.paper.tasks.brats.preprocessing import Volume, normalise
from ranp.paper.tasks.brats.samples import Crops, Wholes
from ranp.paper.tasks.task import Samples
from ranp.progress import Progress

__all__ = ["ProceduralBrains", "train_data", "valid_data"]

Reals = npt.NDArray[np.float64]

_TRAIN, _VALID = 0, 1
_COUNTS = (228, 57)  # 285 cases in BraTS'18, four folds of five to train on
_LARGER = 1.375  # edge of a brain's volume, relative to a crop's
_BRAIN = 1  # purpose of the generator
_WITHOUT_RIM = 0.25

# Brightness of each tissue in flair, t1ce, t1 and t2. Lesions look like edema, vessels like an enhancing rim.
_TISSUES = np.array(
    [
        [0.52, 0.68, 0.72, 0.44],  # white matter
        [0.62, 0.52, 0.50, 0.58],  # grey matter
        [0.18, 0.20, 0.20, 0.95],  # fluid
        [0.86, 0.50, 0.44, 0.80],  # edema
        [0.55, 0.30, 0.30, 0.86],  # necrosis
        [0.74, 0.95, 0.46, 0.66],  # enhancing rim
        [0.88, 0.50, 0.44, 0.82],  # lesion
        [0.45, 0.98, 0.55, 0.35],  # vessel
    ],
    dtype=np.float32,
)
_WHITE, _GREY, _FLUID, _EDEMA, _NECROSIS, _RIM, _LESION, _VESSEL = range(len(_TISSUES))
_LABELS = {_EDEMA: 2, _NECROSIS: 1, _RIM: 4}


class ProceduralBrains:
    """Brains by number; a brain depends on seed, split, its number and the edge of its volume alone.

    Args:
        split: 0 to train on, 1 to validate on: never the same brains, whatever the seeds.
        edge: Voxels along each axis of a volume.
        count: Number of brains.
        seed: Same seed, same brains.
    """

    def __init__(self, split: int, edge: int, count: int, seed: int) -> None:
        self.split, self.edge, self.count, self.seed = split, edge, count, seed
        self._recent = Recent()

    def __len__(self) -> int:
        return self.count

    def volume(self, number: int) -> Volume:
        """A brain with its labels, normalised as the real ones are."""
        return self._recent.get(number, lambda: self._make(number))

    def check(self, progress: Progress | None = None) -> None:
        """Nothing to check."""

    def _make(self, number: int) -> Volume:
        rng = np.random.default_rng((self.seed, self.split, _BRAIN, number))
        head = _bend(self.edge, rng)
        brightness, inside = _anatomy(head, rng)
        brain = head.brain
        image = np.zeros((brightness.shape[0], *brain.shape), dtype=np.float32)
        image[:, brain] = _scan(brightness, head, rng)
        labels = np.zeros(brain.shape, dtype=np.uint8)
        labels[brain] = inside
        return Volume(np.stack([normalise(channel, brain) for channel in image]).astype(np.float16), labels)


def train_data(size: int = 128, count: int | None = None, seed: int = 0) -> Samples:
    """Crops of brains to score and train on; one of each of 228 brains unless told otherwise."""
    return Crops(_brains(_TRAIN, size, count, seed), size, count, seed)


def valid_data(size: int = 128, count: int | None = None, seed: int = 0) -> Samples:
    """Whole brains to validate on, larger than a crop; 57 unless told otherwise."""
    return Wholes(_brains(_VALID, size, count, seed), size, count, seed)


def _brains(split: int, size: int, count: int | None, seed: int) -> ProceduralBrains:
    return ProceduralBrains(split, round(size * _LARGER), _COUNTS[split] if count is None else count, seed)


@dataclass(frozen=True, slots=True)
class _Head:
    """A head; everything is computed for the voxels of its brain alone, which are n of them.

    Attributes:
        brain: (edge, edge, edge).
        depth: (n,), 0 in the middle, 1 at the surface.
        where: (3, n), each voxel's place before the head was bent, from -1 to 1.
        half: Half axes.
        soft: Half a voxel, over which one tissue becomes the other: partial volume.
    """

    brain: npt.NDArray[np.bool_]
    depth: Floats
    where: Floats
    half: Reals
    soft: float

    def noise(self, rng: np.random.Generator, cells: int, count: int) -> Floats:
        """Smooth noise (count, n) from about -1 to 1, with so many bumps along each axis."""
        return _noise(rng, cells, count, len(self.brain))[:, self.brain]


def _bend(edge: int, rng: np.random.Generator) -> _Head:
    """The shape of a head: an ellipsoid in space that smooth noise bends."""
    bent = _axes(edge) + 0.07 * _noise(rng, 3, 3, edge)
    half = rng.uniform(0.82, 0.95, 3)
    depth = _radius(bent, np.zeros(3), half)
    brain = depth < 1
    return _Head(brain, depth[brain], bent[:, brain], half, 2 / edge)


def _noise(rng: np.random.Generator, cells: int, count: int, edge: int) -> Floats:
    return _smooth(rng.uniform(-1.5, 1.5, (count, *(cells + 1,) * 3)).astype(np.float32), edge)


@lru_cache(maxsize=4)
def _axes(edge: int) -> Floats:
    along = np.linspace(-1, 1, edge, dtype=np.float32)
    return np.stack(np.meshgrid(along, along, along, indexing="ij"))


def _smooth(coarse: Floats, edge: int) -> Floats:
    """Values on a coarse grid, brought to a fine one without a kink: an axis at a time, which is one product each."""
    weights = _weights(coarse.shape[-1], edge)
    x = np.tensordot(weights, coarse, (0, 1))  # (edge, count, nodes, nodes)
    xy = np.tensordot(weights, x, (0, 2))  # (edge y, edge x, count, nodes)
    fine: Floats = np.ascontiguousarray((xy @ weights).transpose(2, 1, 0, 3))
    return fine


@lru_cache(maxsize=32)
def _weights(nodes: int, edge: int) -> Floats:
    """(nodes, edge): how much of each node goes into each voxel."""
    at = np.linspace(0, nodes - 1, edge)[None] - np.arange(nodes)[:, None]
    inside = np.clip(1 - np.abs(at), 0, 1)
    smooth: Floats = (inside * inside * (3 - 2 * inside)).astype(np.float32)
    return smooth


def _anatomy(head: _Head, rng: np.random.Generator) -> tuple[Floats, npt.NDArray[np.uint8]]:
    """Brightness (4, n) and label (n,) of each voxel: tissues are laid one over the other."""
    contrast = np.clip(_TISSUES + rng.normal(0, 0.035, _TISSUES.shape), 0.05, 1)
    contrast[_EDEMA] += (contrast[_WHITE] - contrast[_EDEMA]) * rng.uniform(0, 0.45)
    bright = (contrast ** rng.uniform(0.75, 1.35, _TISSUES.shape[1])).astype(np.float32)[:, :, None]
    image = np.repeat(bright[_WHITE], len(head.depth), axis=1)
    labels = np.zeros(len(head.depth), dtype=np.uint8)

    def lay(tissue: int, inside: Floats, soft: float) -> None:
        """Puts a tissue where ``inside`` is above 0, with a slope of that many half voxels to each side."""
        share = np.clip(0.5 + inside * np.float32(0.5 / (soft * head.soft)), 0, 1)
        there = np.flatnonzero(share)
        image[:, there] += share[there] * (bright[tissue] - image[:, there])

    folds = head.noise(rng, 10, 1)[0]
    lay(_GREY, head.depth - 0.8 + 0.14 * folds, 1)
    lay(_FLUID, head.depth - 0.9 + 0.2 * folds, 1)
    slant = rng.uniform(-0.08, 0.08)
    for side in (-1, 1):
        at, half = (side * rng.uniform(0.14, 0.2), slant, 0.08), rng.uniform((0.06, 0.22, 0.1), (0.13, 0.4, 0.2))
        lay(_FLUID, 1 - _radius(head.where, at, half), 4)
        at, half = (side * rng.uniform(0.26, 0.34), slant, -0.12), rng.uniform(0.1, 0.18, 3)
        lay(_GREY, 1 - _radius(head.where, at, half), 4)
    for _ in range(rng.integers(3, 9)):
        lay(_LESION, 1 - _radius(head.where, rng.uniform(-0.5, 0.5, 3) * head.half, rng.uniform(0.07, 0.2, 3)), 4)
    for _ in range(rng.integers(1, 4)):
        lay(_VESSEL, _vessel(head, rng), 1)
    for tissue, inside in _tumour(head, rng):
        lay(tissue, inside, 3)
        labels[inside > 0] = _LABELS[tissue]
    return image, labels


def _tumour(head: _Head, rng: np.random.Generator) -> list[tuple[int, Floats]]:
    """The tumour from outside to inside: each tissue, and by how much (0 to 1) a voxel is inside of it."""
    outward = rng.normal(size=3)
    at = outward / np.linalg.norm(outward) * rng.uniform(0.2, 0.62) * head.half
    size = rng.uniform(0.32, 0.56) * rng.uniform(0.8, 1.25, 3)
    whole, core, within = head.noise(rng, 5, 3)
    edema = 1 - _radius(head.where, at, size) * (1 + 0.28 * whole)
    middle, share = at + rng.uniform(-0.15, 0.15, 3) * size, rng.uniform(0.55, 0.85)
    inner = np.minimum(1 - _radius(head.where, middle, share * size) * (1 + 0.25 * core), edema - 0.15)
    if rng.random() < _WITHOUT_RIM:
        return [(_EDEMA, edema), (_NECROSIS, inner)]
    return [(_EDEMA, edema), (_RIM, inner), (_NECROSIS, inner - rng.uniform(0.25, 0.5) - 0.3 * within)]


def _vessel(head: _Head, rng: np.random.Generator) -> Floats:
    """A tube that winds along one axis: how far inside of it a voxel is."""
    axis = int(rng.integers(3))
    along = head.where[axis]
    offset, swing, phase = rng.uniform(-0.5, 0.5, 3), rng.uniform(0.05, 0.2, 3), rng.uniform(0, 6.28, 3)
    square = np.zeros_like(along)
    for other in {0, 1, 2} - {axis}:
        winding = np.float32(swing[other]) * np.sin(4 * along + np.float32(phase[other]))
        square += (head.where[other] - np.float32(offset[other] * head.half[other]) - winding) ** 2
    tube: Floats = np.float32(rng.uniform(0.03, 0.06)) - np.sqrt(square)
    return tube


def _scan(image: Floats, head: _Head, rng: np.random.Generator) -> Floats:
    """The modalities (4, n) as a scanner would give them: with a bias field, and Rician noise."""
    strength = rng.uniform(0.1, 0.35, (len(image), 1)).astype(np.float32)
    image = image * np.exp(strength * head.noise(rng, 2, len(image)))
    sigma = rng.uniform(0.04, 0.08, (len(image), 1)).astype(np.float32)
    real, other = (sigma * rng.standard_normal(image.shape, dtype=np.float32) for _ in range(2))
    scanned: Floats = np.sqrt((image + real) ** 2 + other**2)
    return scanned


def _radius(where: Floats, at: Sequence[float] | Reals, half: Reals) -> Floats:
    """How far from the middle of an ellipsoid, relative to its surface."""
    total = np.zeros_like(where[0])
    for axis in range(3):
        total += ((where[axis] - np.float32(at[axis])) * np.float32(1 / half[axis])) ** 2
    radius: Floats = np.sqrt(total)
    return radius

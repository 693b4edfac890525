"""Brain tumours of four real patients, one held out in turn, at a third of the resolution.

The scans are those of ``RANP_DATA`` (default: shared/data beside the project), folder ``brats2015``.
"""

from __future__ import annotations

import math
import os
from functools import lru_cache
from pathlib import Path

import nibabel
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.evidence import candidates  # noqa: F401 - makes its arms known
from benchmarks.evidence.training import Draw, Samples, first_batches, trained
from ranp.comparing import Training
from ranp.paper import models

PATIENTS = 4
COARSE = 3
"""Voxels of the scans that one voxel here is the mean of, along each axis."""
EDGE = 24
REGIONS = {"whole": (1, 2, 3), "core": (2, 3), "enhancing": (3,)}


def model() -> nn.Module:
    """A 3D-UNet of three levels, 32 channels at full resolution, for two modalities and four classes."""
    return models.UNet3d(2, 4, (32, 64, 128))


def batches(seed: int) -> list[Samples]:
    """What networks are scored on: patches of the patients that are not held out."""
    return first_batches(_patches(_others(seed)), seed, 2)


def train(network: nn.Module, training: Training) -> dict[str, float]:
    """600 steps of two patches; the seed tells the patient that is held out."""
    scan, label = _patient(training.seed % PATIENTS)
    draw = _patches(_others(training.seed))
    return trained(network, training, draw, lambda slim: judged(slim, scan, label), steps=600, batch=2)


def judged(network: nn.Module, scan: Tensor, label: Tensor) -> dict[str, float]:
    """On the whole brain of a patient that the training never saw."""
    output = network(scan[None])
    found, dices = output[0].argmax(0), []
    for members in REGIONS.values():
        ours, true = (torch.isin(part, torch.tensor(members)) for part in (found, label))
        dices.append((2 * (ours & true).sum() / (ours.sum() + true.sum()).clamp(min=1)).item())
    loss = F.cross_entropy(output, label[None]).item()
    return {"log_loss": math.log(loss), "dice": sum(dices) / len(dices), "worst_dice": min(dices)}


def _others(seed: int) -> list[int]:
    return [patient for patient in range(PATIENTS) if patient != seed % PATIENTS]


@lru_cache(maxsize=PATIENTS)
def _patient(number: int) -> Samples:
    """Two modalities, and no tumour, oedema, core or enhancing core at each voxel; the box of the brain alone."""
    root = Path(os.environ.get("RANP_DATA", "../shared/data")) / "brats2015"
    folder = sorted(path for path in root.iterdir() if path.is_dir())[number]

    def volume(name: str) -> Tensor:
        return torch.from_numpy(nibabel.load(folder / f"{name}.nii.gz").get_fdata(dtype="float32"))

    scans = torch.stack([volume("Flair_subtrMeanDivStd"), volume("T1c_subtrMeanDivStd")])
    inside = F.max_pool3d(volume("brainmask")[None], COARSE)[0] > 0.5
    label = torch.tensor([0, 2, 1, 2, 3])[volume("OTMultiClass").long()][1::COARSE, 1::COARSE, 1::COARSE]
    label = label[tuple(map(slice, inside.shape))]
    ends = [(int(found.min()), int(found.max()) + 1) for found in inside.nonzero().unbind(1)]
    box = tuple(slice(start, start + (end - start) // 4 * 4) for start, end in ends)
    return F.avg_pool3d(scans, COARSE)[(slice(None), *box)], label[box]


def _patches(patients: list[int]) -> Draw:
    """Patches of these patients, two in three around a voxel of the tumour, turned over at random."""
    tumours = [_patient(patient)[1].nonzero() for patient in patients]

    def draw(batch: int, generator: torch.Generator) -> Samples:
        def number(high: int) -> int:
            return int(torch.randint(high, (), generator=generator))

        inputs, targets = [], []
        for _ in range(batch):
            which = number(len(patients))
            scan, label = _patient(patients[which])
            centre = [number(size) for size in label.shape]
            if number(3):
                centre = tumours[which][number(len(tumours[which]))].tolist()
            corner = [min(max(at - EDGE // 2, 0), size - EDGE) for at, size in zip(centre, label.shape, strict=True)]
            box = tuple(slice(at, at + EDGE) for at in corner)
            over = [axis for axis in range(3) if number(2)]
            inputs.append(scan[(slice(None), *box)].flip([axis + 1 for axis in over]))
            targets.append(label[box].flip(over))
        return torch.stack(inputs), torch.stack(targets)

    return draw

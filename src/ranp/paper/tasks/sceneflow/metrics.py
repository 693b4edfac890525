"""What a disparity map gets wrong: the loss that PSMNet is trained with, and the paper's figures.

A target is (B, 2, H, W): the disparity of the left view, negative where nobody knows it, and whether the point is
occluded in the right view: 1 yes, 0 no, -1 nobody knows. A plain (B, H, W) of disparities will do; then nobody knows.
Only pixels with ``0 <= disparity < 192`` count anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ranp.errors import DataError
from ranp.paper.tasks.task import Metrics

DISPARITIES = 192
"""Disparities that count are below, in the paper and here, whatever a network searches."""

UNKNOWN = -1.0
"""A disparity, or an occlusion, that nobody knows."""

_MAPS = (0.5, 0.7, 1.0)
_NEAR, _FAR = 1.0, 3.0


def loss(output: Tensor | Sequence[Tensor], target: Tensor) -> Tensor:
    """Smooth-L1, a mean over the pixels that count; of three maps .5, .7 and 1.0 times each.

    Deviation: the paper's equation leaves occluded pixels out; most releases have no masks, so they are in here.
    A batch in which no pixel counts gives exactly 0, with a graph: such crops exist (a close-up, all at 192 or more).

    Args:
        output: Three (B, H, W) maps of a network in training mode, or the one it answers in eval mode.
        target: (B, 2, H, W) or (B, H, W).

    Raises:
        DataError: The shapes do not fit, or there are not three maps or one.
    """
    maps = [output] if isinstance(output, Tensor) else list(output)
    if len(maps) not in (1, len(_MAPS)):
        raise DataError(f"the network answers {len(maps)} maps; the loss takes {len(_MAPS)}, or one of a map alone.")
    factors = _MAPS if len(maps) == len(_MAPS) else (1.0,)
    wanted, counts, _ = _read(maps[-1], target)
    pixels = counts.sum().clamp(min=1)
    wanted = torch.where(counts, wanted, 0.0)
    total = torch.zeros((), device=wanted.device)
    for factor, found in zip(factors, maps, strict=True):
        if found.shape != wanted.shape:
            raise DataError(f"a map of {tuple(found.shape)} beside one of {tuple(wanted.shape)}; all are (B, H, W).")
        errors = F.smooth_l1_loss(found.float(), wanted, reduction="none")
        total = total + factor * torch.where(counts, errors, 0.0).sum() / pixels
    return total


def weight(target: Tensor) -> float:
    """Over how many pixels the loss of a target is a mean."""
    return float(_counts(_disparity(target)).sum())


def _tally(output: Tensor, target: Tensor) -> dict[str, float]:
    """Sums over the pixels that count, and over those of them that are known to be visible in both views."""
    found = output if isinstance(output, Tensor) else output[-1]
    wanted, counts, occluded = _read(found, target)
    errors = (found.detach().float() - wanted).abs().double()
    sums: dict[str, float] = {}
    for suffix, where in (("", counts), ("_visible", counts & (occluded == 0))):
        chosen = errors[where]
        sums[f"pixels{suffix}"] = float(chosen.numel())
        sums[f"error{suffix}"] = float(chosen.sum())
        sums[f"within1{suffix}"] = float((chosen < _NEAR).sum())  # a NaN is within nothing
        sums[f"within3{suffix}"] = float((chosen < _FAR).sum())
    return sums


def _figures(sums: Mapping[str, float]) -> dict[str, float]:
    """Means of the sums; those over visible pixels only where some are known to be visible."""
    if not sums["pixels"]:
        raise DataError(f"no pixel has a known disparity from 0 to below {DISPARITIES}; there is nothing to evaluate.")
    figures: dict[str, float] = {}
    for suffix in ("", "_visible"):
        pixels = sums[f"pixels{suffix}"]
        if pixels:
            figures[f"epe{suffix}"] = sums[f"error{suffix}"] / pixels
            figures[f"acc1{suffix}"] = sums[f"within1{suffix}"] / pixels
            figures[f"acc3{suffix}"] = sums[f"within3{suffix}"] / pixels
    return figures


METRICS = Metrics(tally=_tally, figures=_figures, main="epe", higher_is_better=False)
"""End-point error in pixels (``epe``), and the shares of pixels that are less than 1 (``acc1``) and 3 (``acc3``) off.

Over all pixels that count; with ``_visible`` over those the right camera sees too, which are the paper's.
"""


def _disparity(target: Tensor) -> Tensor:
    if target.dim() == 3:
        return target.float()
    if target.dim() != 4 or target.shape[1] != 2:
        raise DataError(
            f"target of {tuple(target.shape)}: (B, 2, H, W) of disparity and occlusion is needed, "
            "or (B, H, W) of disparity."
        )
    return target[:, 0].float()


def _counts(disparity: Tensor) -> Tensor:
    return (disparity >= 0) & (disparity < DISPARITIES)  # false for NaN


def _read(found: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Disparity, which pixels count, and occlusion of a target that fits a map."""
    wanted = _disparity(target)
    if found.shape != wanted.shape:
        raise DataError(
            f"output {tuple(found.shape)} and target {tuple(target.shape)} do not fit: "
            f"a map of {tuple(wanted.shape)} is needed. Crop or pad both alike."
        )
    if target.dim() == 3:
        return wanted, _counts(wanted), torch.full_like(wanted, UNKNOWN)
    occluded = target[:, 1]
    if not target.is_meta:
        odd = occluded[(occluded != 0) & (occluded != 1) & (occluded != UNKNOWN)]
        if odd.numel():
            raise DataError(
                f"target has occlusion {float(odd[0]):g}; allowed are 1 (occluded), 0 (visible) and -1 (unknown)."
            )
    return wanted, _counts(wanted), occluded

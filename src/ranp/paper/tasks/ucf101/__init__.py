"""UCF101, action classification: 16-frame clips of 101 classes, real or procedural, with the paper's loss and metrics.

The paper's light network, MobileNetV2, is the default. Its large one takes ``network=i3d-ucf101`` with ``size=224``; a
smaller size needs a smaller ``options.window`` too, such as 2,1,1 for 32.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ranp.errors import DataError
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.reading import look_at_all
from ranp.paper.tasks.task import Inputs, Metrics, Sample, Samples, Source, Task, available
from ranp.paper.tasks.ucf101.clips import CLIPS, FRAMES, centre, corner, cut, inspect, open_reel, read_clip, starts
from ranp.paper.tasks.ucf101.files import CLASSES, Split, Video, read_split
from ranp.paper.tasks.ucf101.procedural import train_data, valid_data
from ranp.progress import Progress
from ranp.running.calling import call

__all__ = ["UCF101", "Clips", "loss", "metrics", "open_videos", "predict"]

_SPLITS = ("train", "valid")
_ORDER, _VISIT = range(2)  # what a generator is for
_BEST = 5


class Clips(Samples):
    """Clips of UCF101's videos.

    A training sample (3, 16, S, S) is a clip at a random moment, cropped at random; a validation sample
    (3, 3, 16, S, S) is three clips of a video, evenly spaced, cropped in the middle. Values go from 0 to 255, less the
    mean colour. The target is the class, 0 to 100. The lists' order, class by class, is mixed once and for all, so that
    any number of videos from the first on has many classes in it.

    Args:
        split: What is there.
        part: ``"train"`` or ``"valid"``.
        size: Edge length S.
        count: How many videos; None for all there are, and no more than those.
        seed: Same seed, same moments and crops.

    Raises:
        DataError: The part has no videos, or the size, the count or the seed is out of range.
    """

    def __init__(self, split: Split, part: str, size: int = 112, count: int | None = None, seed: int = 0) -> None:
        videos = split.train if part == "train" else split.valid
        if not videos:
            name = f"{'trainlist' if part == 'train' else 'testlist'}{split.number:02}.txt"
            purpose = "train on" if part == "train" else "validate on"
            raise DataError(
                f"there is nothing to {purpose}: no video of {name} is there ({split.summary}). "
                "Add some of them, or choose another fold."
            )
        if size < 8 or seed < 0:
            raise DataError(f"size={size}, seed={seed}: pass at least 8 pixels and a seed that is not negative.")
        taken = available(count, len(videos), f"{part} videos")
        order = np.random.default_rng((0, _SPLITS.index(part), _ORDER)).permutation(len(videos))[:taken]
        self.videos: tuple[Video, ...] = tuple(videos[place] for place in order)
        self.part, self.size, self.seed, self.count = part, size, seed, taken
        self.varies = part == "train"

    def draw(self, index: int, visit: int = 0) -> Sample:
        """A clip of the video, or three.

        Raises:
            DataError: The video is torn; its name is in the message.
        """
        video = self.videos[index]
        target = torch.tensor(video.label)
        with open_reel(video.path) as reel:
            if self.part == "valid":
                clips = [read_clip(reel, start) for start in starts(reel.length, CLIPS)]
                height, width = clips[0][0].shape[1:]
                crop = centre(height, width)
                return torch.stack([cut(clip, crop, self.size) for clip in clips]), target
            rng = np.random.default_rng((self.seed, 0, _VISIT, index, visit))
            clip = read_clip(reel, int(rng.integers(max(reel.length - FRAMES, 0) + 1)))
            height, width = clip[0].shape[1:]
            return cut(clip, corner(height, width, rng), self.size), target

    def check(self, progress: Progress | None = None) -> None:
        """Looks whether every video can be opened and has the frames that it promises."""
        look_at_all([video.path for video in self.videos], inspect, progress)


def open_videos(folder: Path, *, allow_missing: bool, fold: int) -> Source:
    """UCF101 as published: videos or folders of frames, and the official lists; ``fold`` 0 is split 1.

    Raises:
        DataError: The folder does not look right, a list is wrong, or videos are missing. A part of which no video is
            there is refused when it is asked for, so that a partial data set can be of use for the other part.
    """
    split = read_split(folder, allow_missing=allow_missing, fold=fold)
    return Source(partial(Clips, split, "train"), partial(Clips, split, "valid"), summary=split.summary)


def predict(model: nn.Module, inputs: Inputs, size: int) -> Tensor:
    """Logits of each clip of each video.

    Args:
        model: In eval mode.
        inputs: (B, K, 3, T, S, S), or (B, 3, T, S, S) for one clip each.
        size: Of a clip; clips are never larger.

    Returns:
        (B, K, classes), or (B, classes).
    """
    if isinstance(inputs, tuple) or inputs.dim() != 6:
        logits: Tensor = call(model, inputs)
        return logits
    flat: Tensor = call(model, inputs.flatten(0, 1))
    return flat.reshape(*inputs.shape[:2], -1)


def loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy, the mean over the clips.

    Args:
        output: (B, C) logits.
        target: (B,) labels below C.

    Raises:
        DataError: The shapes do not fit, or a label is out of range.
    """
    if output.dim() != 2:
        raise DataError(f"output {tuple(output.shape)}: the loss needs logits (clips, classes).")
    _check(output, target)
    return F.cross_entropy(output, target)


def _tally(output: Tensor, target: Tensor) -> dict[str, float]:
    """How many clips, and how many videos, have their class first or among the first five.

    A video's probabilities are the mean over those of its clips. Of equal ones the lower class comes first. What has a
    NaN in it is wrong.

    Args:
        output: (B, K, C) logits of K clips a video, or (B, C) of one.
        target: (B,).
    """
    _check(output, target)
    clips = output.detach().to(torch.float64)
    clips = clips.unsqueeze(1) if clips.dim() == 2 else clips
    wanted = target.unsqueeze(1).expand(clips.shape[:2])
    of_clips = _places(clips, wanted)
    of_videos = _places(clips.softmax(dim=-1).mean(dim=1), target)
    return {
        "top1_clip": float((of_clips < 1).sum()),
        "top5_clip": float((of_clips < _BEST).sum()),
        "clips": float(of_clips.numel()),
        "top1_video": float((of_videos < 1).sum()),
        "top5_video": float((of_videos < _BEST).sum()),
        "videos": float(of_videos.numel()),
    }


def _places(scores: Tensor, wanted: Tensor) -> Tensor:
    """How many classes come before the wanted one; all of them where there is a NaN."""
    own = scores.gather(-1, wanted.unsqueeze(-1))
    lower = torch.arange(scores.shape[-1], device=scores.device) < wanted.unsqueeze(-1)
    before = (scores > own) | ((scores == own) & lower)
    broken = scores.isnan().any(dim=-1)
    return torch.where(broken, max(scores.shape[-1], _BEST), before.sum(dim=-1))


def _figures(sums: Mapping[str, float]) -> dict[str, float]:
    """Shares of clips and of videos."""
    return {name: sums[name] / sums["clips" if name.endswith("clip") else "videos"] for name in _FIGURES}


_FIGURES = ("top1_video", "top5_video", "top1_clip", "top5_clip")

metrics = Metrics(_tally, _figures, main="top1_video")
"""Top-1 and top-5 accuracy per video (``"top1_video"``, ``"top5_video"``) and per clip, from 0 to 1."""


def _check(output: Tensor, target: Tensor) -> None:
    """Refuse what cross-entropy would answer with an index error, or a number that means nothing."""
    if output.dim() not in (2, 3) or target.shape != output.shape[:1] or not target.numel():
        raise DataError(
            f"output {tuple(output.shape)} and target {tuple(target.shape)} do not fit: (videos, classes) or (videos, "
            "clips, classes) and one label for each of at least one video are needed."
        )
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise DataError(f"target is {target.dtype}: labels are whole numbers, torch.int64.")
    if target.is_meta:
        return
    low, high, classes = int(target.min()), int(target.max()), output.shape[-1]
    if low < 0 or high >= classes:
        raise DataError(
            f"target has label {low if low < 0 else high}; allowed are 0 to {classes - 1}, the outputs of the network. "
            "Mend the data, or give the network more classes."
        )


UCF101 = Task(
    name="ucf101",
    classes=CLASSES,
    strength=80.0,
    sparsity=0.8083,  # of MobileNetV2; the paper's I3D loses 0.853
    recipe=Recipe(
        network="mobilenetv2-ucf101",
        size=112,
        epochs=100,
        batch=8,
        optimiser="sgd",
        learning_rate=0.1,
        momentum=0.9,
        weight_decay=1e-3,
        schedule="step",
        decay=0.1,
        milestones=(40, 55, 60, 70),
        workers=4,
    ),
    cpu=Recipe(
        network="mobilenetv2-ucf101",
        # Fewer strides than the paper's: at 32 pixels those would leave batch norm one value a channel and clip.
        options={"width": 0.5, "stages": ((1, 16, 1, 2), (4, 32, 2, 1), (4, 64, 2, 2), (4, 96, 1, 1)), "dropout": 0.0},
        size=32,
        epochs=6,
        batch=32,
        optimiser="adam",
        learning_rate=2e-3,
        schedule="step",
        decay=0.2,
        milestones=(5,),
        train_count=3232,
        valid_count=303,
        valid_batch=16,
        channels_last=True,
    ),
    source=Source(
        train_data,
        valid_data,
        summary="procedural: textured bodies whose motion is the class, 101 of them; not UCF101",
    ),
    loss=loss,
    metrics=metrics,
    open=open_videos,
    predict=predict,
    readers={"av": "video"},
)

"""Four frames of a video, and the five classes that each network holds most likely."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ranp.errors import DataError
from ranp.paper.tasks.pictures import Seen
from ranp.paper.tasks.ucf101 import Clips
from ranp.paper.tasks.ucf101.clips import MEAN
from ranp.paper.tasks.ucf101.motions import MOTIONS
from ranp.reporting.drawing.values import Panel, Picture

__all__ = ["FRAMES", "names_of", "picture", "shares"]

FRAMES = 4
"""Of a clip."""

_BEST = 5


def picture(seen: Seen) -> Picture:
    """Frames of the clip in the middle; a class's share is its probability, a mean over the clips as in the metric."""
    label = int(seen.target)
    names = names_of(seen)
    clips = seen.image if seen.image.dim() == 5 else seen.image.unsqueeze(0)
    clip = (clips[len(clips) // 2] + torch.tensor(MEAN).view(3, 1, 1, 1)) / 255
    frames = np.linspace(0, clip.shape[1] - 1, FRAMES).round().astype(int)
    panels = [
        Panel(f"Frame {frame + 1}", "image", clip[:, frame].permute(1, 2, 0).clamp(0, 1).numpy()) for frame in frames
    ]
    for network, output in seen.outputs.items():
        probable = shares(output)
        best = [int(place) for place in torch.sort(probable, descending=True, stable=True).indices[:_BEST]]
        rank = int((probable > probable[label]).sum() + (probable[:label] == probable[label]).sum()) + 1
        note = "" if label in best else f"truth: {100 * float(probable[label]):.1f} %, place {rank}"
        panels.append(
            Panel(
                network,
                "bars",
                probable[best].numpy().astype(np.float64),
                legend=tuple(names.get(place, f"class {place + 1}") for place in best),
                marked=best.index(label) if label in best else -1,
                note=note,
            )
        )
    return Picture(f"Truth: {names.get(label, f'class {label + 1}')}", tuple(panels))


def shares(output: Tensor) -> Tensor:
    """Probabilities (C,) of logits (K, C) of a video's clips, or (C,) of one."""
    clips = output.double()
    return clips.softmax(dim=-1).reshape(-1, clips.shape[-1]).mean(dim=0)


def names_of(seen: Seen) -> dict[int, str]:
    """What classes are called: motions of procedural videos, the folders of real ones, as far as there are any."""
    if not isinstance(seen.samples, Clips):
        return dict(enumerate(MOTIONS))
    videos = list(seen.samples.videos)
    try:
        trained = seen.task.train_data(size=seen.samples.size)
    except DataError:  # a partial data set may have nothing to train on
        trained = seen.samples
    videos.extend(trained.videos if isinstance(trained, Clips) else ())
    return {video.label: video.name.split("/")[0] for video in videos}

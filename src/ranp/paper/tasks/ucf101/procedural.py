"""Procedural videos whose class is a motion: textured bodies that move and bend, before textures that tell nothing.

Shape, texture, background, bystanders, camera and noise are drawn independently of the class. Bystanders are made as
the moving body is, and stand still. All of it is procedural: it stands in for UCF101 where that is not at hand, and
says nothing about figures on UCF101.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ranp.errors import DataError
from ranp.paper.tasks.reading import check_samples
from ranp.paper.tasks.task import Sample, Samples
from ranp.paper.tasks.ucf101.clips import CLIPS, FRAMES, less_mean
from ranp.paper.tasks.ucf101.motions import CLASSES, Poses, move

__all__ = ["ProceduralMotions", "train_data", "valid_data"]

_VIDEOS = {"train": 9537, "valid": 3783}
_LENGTH = CLIPS * FRAMES  # frames of a video
_CANVAS = 32  # texture elements along a body's edge
_RADIUS = (0.26, 0.32)  # of a body, relative to the picture
_BYSTANDERS = 1
_PAN, _SHAKE = 0.006, 0.006  # of the camera, relative to the picture, a frame
_NOISE = 6.0
_CLASS, _VIDEO, _VISIT = range(3)  # what a generator is for


class ProceduralMotions(Samples):
    """Videos of all motions, equally often.

    A training sample is a clip (3, 16, S, S), from another moment of its video on every visit; a validation sample is a
    whole video in three clips (3, 3, 16, S, S). Values go from 0 to 255, less the mean. The target is the motion, 0 to
    100.

    Args:
        split: ``"train"`` or ``"valid"``: never the same videos, whatever the seeds.
        size: Edge length S of a frame, at least 16.
        count: Number of videos; None for as many as UCF101's first split has.
        seed: Same seed, same videos.

    Raises:
        DataError: A size, a count or a seed out of range, or an unknown split.
    """

    def __init__(self, split: str, size: int = 112, count: int | None = None, seed: int = 0) -> None:
        if split not in _VIDEOS:
            raise DataError(f"split={split!r}: there are {' and '.join(_VIDEOS)}.")
        check_samples(size, 16, "motions vanish in frames of less than 16 pixels", count, seed, "video")
        self.split, self.size, self.seed = split, size, seed
        self.count = _VIDEOS[split] if count is None else count
        self.varies = split == "train"

    def motion(self, index: int) -> int:
        """Class of a video: every block of 101 videos has each of them once, in an order of its own."""
        block, position = divmod(index, CLASSES)
        return int(self._generator(_CLASS, block).permutation(CLASSES)[position])

    def draw(self, index: int, visit: int = 0) -> Sample:
        """A clip of the video, or all of its clips."""
        label = self.motion(index)
        rng = self._generator(_VIDEO, index)
        if self.split == "train":
            chance = self._generator(_VISIT, index, visit)
            frames = chance.integers(_LENGTH - FRAMES + 1) + np.arange(FRAMES)
            return _film(label, frames, self.size, rng, chance), torch.tensor(label)
        clips = _film(label, np.arange(_LENGTH), self.size, rng, self._generator(_VISIT, index, 0))
        return clips.reshape(3, CLIPS, FRAMES, self.size, self.size).transpose(0, 1).contiguous(), torch.tensor(label)

    def _generator(self, purpose: int, index: int, visit: int = 0) -> np.random.Generator:
        return np.random.default_rng((self.seed, list(_VIDEOS).index(self.split), purpose, index, visit))


train_data = partial(ProceduralMotions, "train")
"""Videos to score and train on; as many as UCF101's first split has unless a count is given."""

valid_data = partial(ProceduralMotions, "valid")
"""Videos to validate on; as many as UCF101's first split has unless a count is given."""


def _film(
    label: int, frames: np.typing.NDArray[np.int64], size: int, rng: np.random.Generator, chance: np.random.Generator
) -> Tensor:
    """Frames of a video, (3, T, S, S). ``rng`` makes the video, ``chance`` the camera's noise."""
    times = frames.astype(np.float64)
    poses = move(label, times, rng)
    radius = rng.uniform(*_RADIUS)
    body = _body(rng)
    scene = _texture(rng, 6, size, spread=0.3)
    for _ in range(_BYSTANDERS):
        still = move(0, np.zeros(1), rng)
        scene = _paint(scene.unsqueeze(1), _body(rng), rng.uniform(*_RADIUS), still)[:, 0]
    heading, pan = rng.uniform(0, 2 * math.pi), rng.uniform(0, _PAN)
    shake = chance.normal(0, _SHAKE, (2, len(times)))
    across = pan * math.cos(heading) * times + shake[0]
    down = pan * math.sin(heading) * times + shake[1]
    film = _paint(_roll(scene, across, down), body, radius, poses)
    noise = torch.from_numpy(chance.standard_normal(film.shape, dtype=np.float32))
    return less_mean((film * 255 + _NOISE * noise).clamp(0, 255).round())


def _texture(rng: np.random.Generator, cells: int, size: int, spread: float) -> Tensor:
    """Smooth random colours about grey, (3, size, size), that go on at the opposite edge."""
    colours = 0.5 + spread * (rng.random((3, cells, cells)) - 0.5)
    padded = torch.from_numpy(np.pad(colours, ((0, 0), (1, 2), (1, 2)), mode="wrap").astype(np.float32))
    steps = torch.arange(size, dtype=torch.float32) * cells / size + 1
    place = (2 * steps + 1) / (cells + 3) - 1
    grid = torch.stack(torch.meshgrid(place, place, indexing="xy"), dim=-1)
    return F.grid_sample(padded.unsqueeze(0), grid.unsqueeze(0), align_corners=False)[0]


def _body(rng: np.random.Generator) -> Tensor:
    """Colours and opacity of a body within (-1, 1) squared, (4, canvas, canvas): a lobed outline, soft at the edge."""
    place = np.linspace(-1, 1, _CANVAS)
    x, y = np.meshgrid(place, place)
    around = np.arctan2(y, x)
    sizes, phases = rng.uniform(0, 0.16, 3), rng.uniform(0, 2 * math.pi, 3)
    outline = 0.72 + sum(s * np.cos(k * around + p) for k, s, p in zip((1, 2, 3), sizes, phases, strict=True))
    opacity = torch.from_numpy(np.clip(6 * (outline - np.hypot(x, y)) + 0.5, 0, 1).astype(np.float32))
    return torch.cat((_texture(rng, 4, _CANVAS, spread=2.0).clamp(0, 1), opacity.unsqueeze(0)))


def _roll(scene: Tensor, across: np.typing.NDArray[np.float64], down: np.typing.NDArray[np.float64]) -> Tensor:
    """The scene as a camera sees it that has moved so far in each frame, (3, T, S, S); it goes on at its edges."""
    size = scene.shape[-1]
    edge = F.pad(scene.unsqueeze(0), (0, 1, 0, 1), mode="circular")
    steps = np.arange(size)
    rows = torch.from_numpy((steps + down[:, None] * size) % size)
    columns = torch.from_numpy((steps + across[:, None] * size) % size)
    grid = torch.stack(
        (
            columns[:, None, :].expand(-1, size, -1) * (2 / size) - 1,
            rows[:, :, None].expand(-1, -1, size) * (2 / size) - 1,
        ),
        dim=-1,
    )
    frames = F.grid_sample(edge, grid.to(torch.float32).reshape(1, -1, size, 2), align_corners=True)
    return frames.reshape(3, len(rows), size, size)


def _paint(film: Tensor, body: Tensor, radius: float, poses: Poses) -> Tensor:
    """The film with a body before it: each pixel is traced back to the body's own coordinates, and they are sampled."""
    size = film.shape[-1]
    steps = (torch.arange(size, dtype=torch.float32) + 0.5) / size
    cosine, sine, across, down, scale, shear, wave, opacity = (
        torch.from_numpy(track.astype(np.float32)).view(-1, 1, 1)
        for track in (
            np.cos(poses.angle),
            np.sin(poses.angle),
            poses.across,
            poses.down,
            poses.size * radius,
            poses.shear,
            poses.wave,
            poses.opacity,
        )
    )
    x = (steps.view(1, 1, -1) - across + 0.5).remainder(1) - 0.5
    y = (steps.view(1, -1, 1) - down + 0.5).remainder(1) - 0.5
    u = (cosine * x + sine * y) / scale
    v = (cosine * y - sine * x) / scale
    u = u - shear * v + 0.25 * torch.sin(4.5 * v + wave)
    drawn = F.grid_sample(body.unsqueeze(0), torch.stack((u, v), dim=-1).reshape(1, -1, size, 2), align_corners=False)
    drawn = drawn.reshape(4, -1, size, size)
    return torch.lerp(film, drawn[:3], drawn[3] * opacity)

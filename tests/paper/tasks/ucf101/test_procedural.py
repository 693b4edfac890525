"""Procedural motions: what each class does, that no single frame tells it, and that what is drawn is what moves."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from ranp.errors import DataError
from ranp.paper.tasks import get
from ranp.paper.tasks.ucf101 import procedural as procedural
from ranp.paper.tasks.ucf101.clips import MEAN
from ranp.paper.tasks.ucf101.motions import CLASSES, MOTIONS, Poses, move
from ranp.paper.tasks.ucf101.procedural import ProceduralMotions, train_data, valid_data

TRACKS = tuple(field.name for field in dataclasses.fields(Poses))


def test_there_are_101_different_motions() -> None:
    assert CLASSES == len(MOTIONS) == len(set(MOTIONS)) == 101
    assert MOTIONS[0] == "stands still"


def changes(track: np.ndarray, period: float) -> np.ndarray:
    """Steps from frame to frame on a cycle, each to the nearer side."""
    return (np.diff(track) + period / 2) % period - period / 2


@pytest.mark.parametrize("label", range(CLASSES))
def test_a_motion_is_what_its_name_says(label: int) -> None:
    poses = move(label, np.arange(48.0), np.random.default_rng(label))
    name = MOTIONS[label]
    right, down = changes(poses.across, 1), changes(poses.down, 1)
    for word, steps, sign in (("right", right, 1), ("left", right, -1), ("down", down, 1), ("up", down, -1)):
        if name.startswith("moves"):
            assert (sign * steps > 0.01).all() == (word in name.split(",")[0].split())
    if name.startswith("circles"):
        cross = right[:-1] * down[1:] - right[1:] * down[:-1]  # clockwise where down is positive
        assert ((cross > 0) == ("circles clockwise" in name)).all()
    if name == "stands still":
        assert np.abs(right).max() < 1e-9 > np.abs(down).max()
    turned = changes(poses.angle, 2 * math.pi)
    assert (turned > 0.1).all() == name.endswith("turning clockwise")
    assert (turned < -0.1).all() == name.endswith("turning anticlockwise")
    assert (turned.max() > 0.1 and turned.min() < -0.1) == name.endswith("rocking")
    grown = np.diff(poses.size)
    assert (np.mean(grown > 0.01) > 0.8) == name.endswith("growing")
    assert (np.mean(grown < -0.01) > 0.8) == name.endswith("shrinking")
    assert (0.3 < np.mean(grown > 0) < 0.7) == name.endswith("pulsing")
    for ending, track in (("swaying", poses.shear), ("rippling", poses.wave), ("flickering", poses.opacity)):
        assert bool(np.ptp(track) > 0.2) == name.endswith(ending)
        assert bool(np.ptp(track) > 1e-9) == name.endswith(ending)


def test_the_pose_of_any_frame_has_the_same_distribution_whatever_the_motion() -> None:
    """Kolmogorov's distance between the motions of a course, or with a change, and all motions, for every track."""
    each, rng = 60, np.random.default_rng(0)
    poses = [[move(label, np.array([0.0, 11.0]), rng) for _ in range(each)] for label in range(1, CLASSES)]
    for track in TRACKS:
        values = np.array([[getattr(pose, track) for pose in row] for row in poses])  # motions, draws, frames
        values = values % (2 * math.pi) if track in ("angle", "wave") else values
        table = values.reshape(10, 10, each, 2)
        for frame in range(2):
            pooled = np.sort(table[..., frame].ravel())
            for group in (*table[..., frame], *table[..., frame].swapaxes(0, 1)):
                ordered = np.sort(group.ravel())
                below = np.searchsorted(pooled, ordered, side="right") / pooled.size
                distance = np.abs(below - np.arange(1, ordered.size + 1) / ordered.size).max()
                # 1.36 / sqrt(n) is exceeded once in 20 times, 2.2 / sqrt(n) once in 8,000.
                assert distance < 2.2 / math.sqrt(ordered.size), track


def ridge(features: torch.Tensor, labels: torch.Tensor, classes: int) -> float:
    """Accuracy of a linear classifier on the last third, fitted to the rest."""
    split = len(features) * 2 // 3
    features = (features - features[:split].mean(0)) / (features[:split].std(0) + 1e-6)
    wanted = torch.nn.functional.one_hot(labels, classes).float()
    known = features[:split]
    weights = torch.linalg.solve(
        known.T @ known + 100 * torch.eye(known.shape[1]), known.T @ (wanted[:split] - wanted[:split].mean(0))
    )
    return float(((features[split:] @ weights).argmax(1) == labels[split:]).float().mean())


def test_a_frame_tells_nothing_and_the_frames_after_it_tell_much() -> None:
    """Energies of random filters over space, and over space and time, by which a linear classifier finds the course."""
    data = train_data(24, 606)
    generator = torch.Generator().manual_seed(0)
    filters = torch.randn(32, 3, 3, 5, 5, generator=generator)
    filters = filters - filters.mean(dim=(1, 2, 3, 4), keepdim=True)
    moving, still, labels = [], [], []
    for index in range(len(data)):
        clip, target = data[index]
        for kept, frames in ((moving, clip), (still, clip[:, 7:8].expand(-1, 3, -1, -1))):
            answer = torch.nn.functional.conv3d(frames / 255, filters, stride=(1, 2, 2))
            kept.append(torch.cat((answer.relu().mean(dim=(1, 2, 3)), answer.square().mean(dim=(1, 2, 3)).log())))
        labels.append(int(target))
    course, change = (torch.tensor(labels) + 9) // 10, (torch.tensor(labels) + 9) % 10
    for part in (course, change):
        assert ridge(torch.stack(still), part, 11) < 0.17, "a tenth by chance; three deviations of 202 trials are 0.06"
    assert ridge(torch.stack(moving), course, 11) > 0.3


def pose(**tracks: float) -> Poses:
    plain = {"across": 0.5, "down": 0.5, "angle": 0.0, "size": 1.0, "shear": 0.0, "wave": 0.0, "opacity": 1.0}
    return Poses(**{name: np.array([value]) for name, value in {**plain, **tracks}.items()})


def painted(**tracks: float) -> torch.Tensor:
    """A body before black, 32 pixels wide."""
    body = procedural._body(np.random.default_rng(5))
    return procedural._paint(torch.zeros(3, 1, 32, 32), body, 0.3, pose(**tracks))[:, 0]


def test_a_body_is_where_its_pose_says() -> None:
    middle = painted()
    assert float(middle.max()) > 0.5
    moved = painted(across=0.5 + 5 / 32, down=0.5 - 20 / 32)
    assert torch.allclose(moved, middle.roll((5, -20), dims=(2, 1)), atol=1e-4), "and goes on at the other edge"
    assert torch.allclose(painted(angle=math.pi / 2), middle.rot90(-1, dims=(1, 2)), atol=1e-4), "clockwise"
    assert torch.allclose(painted(opacity=0.4), 0.4 * middle, atol=1e-5)
    covered = [(painted(size=size).amax(0) > 0).float().sum() for size in (0.5, 1.0)]
    assert float(covered[1] / covered[0]) == pytest.approx(4, rel=0.15)


def test_shear_and_waves_move_rows_sideways_only() -> None:
    body = torch.ones(4, 32, 32)
    body[3, :, :12] = body[3, :, 20:] = 0  # a post
    film = torch.zeros(3, 1, 64, 64)
    for tracks in ({"shear": 0.6}, {"shear": -0.6}, {"wave": 2.0}):
        post = procedural._paint(film, body, 0.35, pose(**tracks))[0, 0]
        rows = [row for row in post if float(row.sum()) > 0]
        places = [float((row * torch.arange(64.0)).sum() / row.sum()) - 31.5 for row in rows]
        heights = (torch.arange(len(rows)) - (len(rows) - 1) / 2) / 64 / 0.35
        expected = (
            64 * 0.35 * (tracks.get("shear", 0.0) * heights - 0.25 * torch.sin(4.5 * heights + tracks.get("wave", 0.0)))
        )
        assert np.allclose(places[2:-2], expected[2:-2], atol=0.35)


def test_samples_have_the_form_of_real_ones() -> None:
    task = get("ucf101")
    clip, target = task.train_data(32, 3)[0]
    assert clip.shape == (3, 16, 32, 32)
    assert clip.dtype == torch.float32
    assert (target.shape, target.dtype) == ((), torch.int64)
    clips, _ = task.valid_data(32, 3)[0]
    assert clips.shape == (3, 3, 16, 32, 32)
    assert clips.is_contiguous()
    pixels = clip + torch.tensor(MEAN).view(3, 1, 1, 1)
    assert float((pixels - pixels.round()).abs().max()) < 1e-3, "whole numbers, as in a video"
    assert -1e-3 < float(pixels.min()) < float(pixels.max()) < 255 + 1e-3
    assert len(train_data()) == 9537
    assert len(valid_data()) == 3783


def test_the_clips_of_a_video_follow_each_other() -> None:
    """The step from one clip to the next is no larger than the steps within."""
    data = valid_data(32, 30)
    within, between = [], []
    for index in range(30):
        clips, _ = data[index]
        within.append((clips[:, :, 1:] - clips[:, :, :-1]).abs().mean())
        between.append((clips[1:, :, 0] - clips[:-1, :, -1]).abs().mean())
    assert float(torch.stack(between).mean()) < 1.3 * float(torch.stack(within).mean())


def test_every_block_of_101_has_every_motion() -> None:
    data = ProceduralMotions("train", 16, 303, 0)
    blocks = [[data.motion(index) for index in range(start, start + 101)] for start in (0, 101, 202)]
    assert all(sorted(block) == list(range(101)) for block in blocks)
    assert blocks[0] != blocks[1]
    assert int(data[150][1]) == blocks[1][49]


def test_a_sample_depends_on_seed_split_index_and_visit_alone() -> None:
    data, fewer = train_data(16, 500, seed=1), train_data(16, 12, seed=1)
    expected = data.draw(11, 2)[0]
    data.draw(3)
    assert torch.equal(fewer.draw(11, 2)[0], expected)
    assert not torch.equal(data.draw(11, 3)[0], expected), "another moment of the video"
    assert data.varies
    assert not torch.equal(train_data(16, 12, seed=2).draw(11, 2)[0], expected)
    valid = valid_data(16, 12, seed=1)
    assert not valid.varies
    assert torch.equal(valid.draw(11, 0)[0], valid.draw(11, 5)[0])
    assert not torch.equal(valid.draw(11)[0][0], train_data(16, 12, seed=1).draw(11)[0])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("test", 32, 1, 0), "there are train and valid"),
        (("train", 15, 1, 0), "size=15"),
        (("train", 32, 0, 0), "count=0"),
        (("train", 32, 1, -1), "seed=-1"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: tuple[str, int, int, int], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        ProceduralMotions(*arguments)

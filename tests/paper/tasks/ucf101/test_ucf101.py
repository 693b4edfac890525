"""The UCF101 task: samples of real and written videos, loss and metrics against brute force, the recipe."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ranp.errors import DataError
from ranp.paper.models import build
from ranp.paper.tasks import get
from ranp.paper.tasks.ucf101 import UCF101, loss, metrics, predict
from ranp.paper.tasks.ucf101.clips import MEAN
from tests.support.real_data import real_data

av = pytest.importorskip("av")

CLASSES = [f"Act{number:03}" for number in range(1, 102)]


def data_set(root: Path, frames: dict[str, int]) -> Path:
    """Lists and videos whose brightness is constant: ``frames`` counts them by name; train has g10 and up."""
    lists = root / "ucfTrainTestlist"
    lists.mkdir()
    (lists / "classInd.txt").write_text("".join(f"{number} {name}\n" for number, name in enumerate(CLASSES, 1)))
    train, valid = [], []
    for name, count in frames.items():
        label, group = int(name[3:6]), int(name.split("_g")[1][:2])
        (train if group >= 10 else valid).append(f"{name} {label}" if group >= 10 else name)
        path = root / "UCF-101" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(path), "w") as container:
            stream = container.add_stream("rawvideo", rate=25)
            stream.width, stream.height, stream.pix_fmt = 40, 32, "bgr24"
            rng = np.random.default_rng(label)
            for _ in range(count):
                pixels = rng.integers(0, 256, (32, 40, 3), dtype=np.uint8)
                for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                    container.mux(packet)
    (lists / "trainlist01.txt").write_text("\n".join(train))
    (lists / "testlist01.txt").write_text("\n".join(valid))
    return root


def name(label: int, group: int) -> str:
    return f"{CLASSES[label - 1]}/v_{CLASSES[label - 1]}_g{group:02}_c01.avi"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return data_set(tmp_path, {name(1, 10): 30, name(50, 11): 9, name(101, 12): 40, name(2, 1): 33, name(101, 2): 7})


def test_real_videos_give_samples() -> None:
    task = get("ucf101", real_data("ucf101"), allow_missing=True)
    data = task.train_data()
    assert len(data) == 2
    assert data.varies
    for index in range(2):
        clip, target = data[index]
        assert clip.shape == (3, 16, 112, 112)
        assert clip.dtype == torch.float32
        assert target.shape == ()
        assert target.dtype == torch.int64
        assert int(target) == 83
        pixels = clip + torch.tensor(MEAN).view(3, 1, 1, 1)
        assert float(pixels.min()) >= -1e-3
        assert float(pixels.max()) <= 255 + 1e-3
        assert float(pixels.std()) > 20, "a picture, not a plain colour"
        moved = (clip[:, 1:] - clip[:, :-1]).abs().mean()
        assert 0.1 < float(moved) < float(pixels.std()), "neighbouring frames resemble each other"
    data.check()
    assert "2 of 9537 training and 0 of 3783 validation" in task.source.summary
    with pytest.raises(DataError, match=r"nothing to validate on: no video of testlist01\.txt is there .*Add some"):
        task.valid_data()


def test_a_sample_depends_on_seed_index_and_visit_alone(small: Path) -> None:
    task = get("ucf101", small)
    data, again = task.train_data(24, seed=3), task.train_data(24, count=3, seed=3)
    first = {(index, visit): data.draw(index, visit)[0] for index in range(3) for visit in range(2)}
    for index, visit in reversed(first):
        assert torch.equal(again.draw(index, visit)[0], first[index, visit])
    other = task.train_data(24, seed=4)
    assert any(not torch.equal(other.draw(index)[0], first[index, 0]) for index in range(3))
    assert any(not torch.equal(first[index, 0], first[index, 1]) for index in range(3))
    assert [int(data[index][1]) for index in range(3)] == [int(other[index][1]) for index in range(3)]
    assert sorted(int(target) for _, target in (data[index] for index in range(3))) == [0, 49, 100]


def test_fewer_videos_are_the_first_of_all(small: Path) -> None:
    task = get("ucf101", small)
    everything, one = task.train_data(16), task.train_data(16, count=1)
    assert len(one) == 1
    assert torch.equal(one[0][0], everything[0][0])


def test_validation_looks_at_three_clips_in_the_middle(small: Path) -> None:
    data = get("ucf101", small).valid_data(32)
    assert not data.varies
    assert len(data) == 2
    for index in range(2):
        clips, target = data[index]
        assert clips.shape == (3, 3, 16, 32, 32)
        path, length, begins = {1: (name(2, 1), 33, (0, 8, 17)), 100: (name(101, 2), 7, (0, 0, 0))}[int(target)]
        with av.open(str(small / "UCF-101" / path)) as container:
            frames = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
        assert len(frames) == length
        for clip, begin in zip(clips, begins, strict=True):
            wanted = frames[(begin + np.arange(16)) % length][:, :, 4:36] - np.array(MEAN, dtype=np.float32)
            assert np.allclose(clip.permute(1, 2, 3, 0).numpy(), wanted, atol=1e-4)


def test_checking_counts_and_names_a_torn_video(small: Path) -> None:
    data = get("ucf101", small).train_data(16)
    seen: list[tuple[int, int]] = []
    data.check(lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    path = small / "UCF-101" / name(101, 12)
    path.write_bytes(path.read_bytes()[:60_000])
    with pytest.raises(DataError, match=r"v_Act101_g12_c01\.avi is torn: it has \d+ of the 40 frames it promises"):
        data.check()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"size": 7}, "size=7"),
        ({"size": 16, "seed": -1}, "seed=-1"),
        ({"size": 16, "count": 0}, "count=0"),
    ],
)
def test_arguments_out_of_range_are_refused(small: Path, arguments: dict[str, int], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        get("ucf101", small).train_data(**arguments)


class Mean(nn.Module):
    """The mean colour and frame of a clip, as logits."""

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        assert clips.dim() == 5
        return clips.flatten(2).mean(dim=2)


def test_predicting_takes_every_clip_by_itself() -> None:
    clips = torch.randn(2, 3, 3, 4, 5, 5)
    output = predict(Mean(), clips, 5)
    assert output.shape == (2, 3, 3)
    for video in range(2):
        for clip in range(3):
            assert torch.allclose(output[video, clip], clips[video, clip].flatten(1).mean(dim=1))
    assert torch.equal(predict(Mean(), clips[:, 0], 5), Mean()(clips[:, 0]))


def brute(output: torch.Tensor, target: torch.Tensor) -> dict[str, float]:
    """The figures by sorting in plain Python."""
    right = {"top1_clip": 0, "top5_clip": 0, "top1_video": 0, "top5_video": 0}
    for clips, label in zip(output.double().tolist(), target.tolist(), strict=True):
        shares = []
        for logits in clips:
            order = sorted(range(len(logits)), key=lambda entry: -logits[entry])
            right["top1_clip"] += label in order[:1]
            right["top5_clip"] += label in order[:5]
            powers = [math.exp(value - max(logits)) for value in logits]
            shares.append([power / sum(powers) for power in powers])
        means = [sum(column) / len(shares) for column in zip(*shares, strict=True)]
        order = sorted(range(len(means)), key=lambda entry: -means[entry])
        right["top1_video"] += label in order[:1]
        right["top5_video"] += label in order[:5]
    videos, clips_each = output.shape[:2]
    return {key: value / (videos * (clips_each if key.endswith("clip") else 1)) for key, value in right.items()}


def test_metrics_equal_brute_force_and_add_up() -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(0, 20, (40,), generator=generator)
    output = torch.randn(40, 3, 20, generator=generator) + 1.5 * F.one_hot(target, 20).unsqueeze(1)
    expected = brute(output, target)
    assert metrics(output, target) == pytest.approx(expected)
    assert 0.1 < expected["top1_clip"] < expected["top1_video"] < expected["top5_video"] < 1, (
        "all figures say something"
    )
    parts = [(output[:7], target[:7]), (output[7:], target[7:])]
    assert metrics.over(parts) == pytest.approx(expected)
    top = output.topk(5, dim=-1).indices == target.view(-1, 1, 1)
    assert metrics(output, target)["top5_clip"] == pytest.approx(float(top.any(-1).float().mean()))
    assert UCF101.metrics.main == "top1_video"


def test_one_clip_needs_no_dimension_of_its_own() -> None:
    output, target = torch.randn(6, 10), torch.arange(6)
    figures = metrics(output, target)
    assert figures == metrics(output.unsqueeze(1), target)
    assert figures["top1_clip"] == figures["top1_video"]


def test_equal_scores_and_nan_are_no_help() -> None:
    target = torch.tensor([0, 3, 7])
    assert metrics(torch.zeros(3, 10), target) == {
        "top1_video": 1 / 3,
        "top5_video": 2 / 3,
        "top1_clip": 1 / 3,
        "top5_clip": 2 / 3,
    }
    broken = F.one_hot(target, 10).float().unsqueeze(1).repeat(1, 2, 1) * 9
    assert metrics(broken, target)["top1_video"] == 1
    broken[0, 0, 5] = math.nan
    broken[1] = math.inf
    figures = metrics(broken, target)
    assert figures["top1_video"] == figures["top5_video"] == 1 / 3
    assert metrics(torch.full((1, 3), math.nan), torch.tensor([0]))["top5_clip"] == 0


def test_the_loss_is_the_mean_of_what_cross_entropy_means() -> None:
    output, target = torch.randn(5, 7, dtype=torch.float64), torch.tensor([0, 6, 3, 3, 1])
    pairs = zip(output.tolist(), target.tolist(), strict=True)
    by_hand = sum(math.log(sum(math.exp(value) for value in row)) - row[label] for row, label in pairs)
    assert float(loss(output, target)) == pytest.approx(by_hand / 5)
    parts = [(output[:2], target[:2]), (output[2:], target[2:])]
    weights = [UCF101.weight(part) for _, part in parts]
    mean = sum(w * loss(*part) for w, part in zip(weights, parts, strict=True)) / sum(weights)
    assert float(mean) == pytest.approx(float(loss(output, target)), rel=1e-12)


@pytest.mark.parametrize(
    ("output", "target", "expected"),
    [
        (torch.zeros(2, 5), torch.tensor([0, 5]), "label 5; allowed are 0 to 4"),
        (torch.zeros(2, 5), torch.tensor([-1, 0]), "label -1; allowed are 0 to 4"),
        (torch.zeros(2, 5), torch.tensor([0, 1, 2]), "do not fit"),
        (torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64), "at least one video"),
        (torch.zeros(2, 5), torch.tensor([0.0, 1.0]), "labels are whole numbers"),
    ],
)
def test_what_the_loss_cannot_use_is_refused(output: torch.Tensor, target: torch.Tensor, expected: str) -> None:
    for function in (loss, metrics):
        with pytest.raises(DataError, match=expected):
            function(output, target)


def test_the_loss_wants_clips_not_videos() -> None:
    with pytest.raises(DataError, match="logits"):
        loss(torch.zeros(2, 3, 5), torch.tensor([0, 1]))


def test_the_recipe_is_the_papers() -> None:
    recipe = UCF101.recipe
    assert (recipe.network, recipe.size, recipe.batch, recipe.epochs) == ("mobilenetv2-ucf101", 112, 8, 100)
    assert (recipe.optimiser, recipe.momentum, recipe.nesterov, recipe.weight_decay) == ("sgd", 0.9, False, 1e-3)
    rates = [recipe.rate(epoch) for epoch in (0, 39, 40, 55, 60, 70, 99)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.001, 1e-4, 1e-5, 1e-5])
    assert (UCF101.strength, UCF101.sparsity, UCF101.classes) == (80, 0.8083, 101)


def test_the_small_recipe_fits_its_data_and_network() -> None:
    recipe = UCF101.cpu
    model = build(recipe.network, **recipe.options).eval()
    clips, target = UCF101.valid_data(recipe.size, 1)[0]
    with torch.no_grad():
        output = UCF101.predict(model, clips.unsqueeze(0), recipe.size)
    assert output.shape == (1, 3, 101)
    assert set(UCF101.metrics(output, target.unsqueeze(0))) == {"top1_video", "top5_video", "top1_clip", "top5_clip"}

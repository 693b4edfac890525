"""Pictures of predictions: networks whose answer is known, against what their pictures show."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from ranp.errors import DataError, UnsupportedError
from ranp.paper import tasks
from ranp.paper.tasks.brats.files import MODALITIES
from ranp.paper.tasks.pictures import pictures
from ranp.paper.tasks.shapenet.catalogue import FIRST, NAMES, PARTS
from ranp.paper.tasks.task import Samples, Source
from ranp.paper.tasks.ucf101 import Clips
from ranp.paper.tasks.ucf101.clips import MEAN
from ranp.paper.tasks.ucf101.files import read_split
from ranp.paper.tasks.ucf101.motions import MOTIONS
from ranp.reporting import drawing
from tests.support.real_data import real_data


class Answering(nn.Module):
    """Answers as a function says; it has a parameter, a buffer and a child with a mode of its own."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer
        self.scale = nn.Parameter(torch.ones(()))
        self.child = nn.Dropout()
        self.modes = []

    def forward(self, *inputs):
        self.modes.append((self.training, self.child.training, torch.is_grad_enabled()))
        return self.answer(*inputs) * self.scale


def knowing(samples, make):
    """A network that knows the target of each sample and makes its answer of it."""
    known = [(inputs[0] if isinstance(inputs, tuple) else inputs, target) for inputs, target in samples]

    def answer(*inputs):
        return torch.stack([make(next(t for i, t in known if torch.equal(i, one))) for one in inputs[0]])

    return Answering(answer)


def first_of(task, size, count):
    data = task.valid_data(size=size)
    return [data[index] for index in range(count)]


def one_hot(labels, classes):
    return nn.functional.one_hot(labels, classes).movedim(-1, 0).float()


def parts(target):
    """Logits whose best class of all is never of the object's category, and within the category is the truth."""
    logits = one_hot(target.clamp(max=49), 50)
    category = max(number for number, first in enumerate(FIRST) if first <= int(target[target != 255][0]))
    others = [c for c in range(50) if not FIRST[category] <= c < FIRST[category] + PARTS[category]]
    logits[others] += 5
    return logits


def test_parts_are_those_of_the_objects_category():
    task = tasks.get("shapenet")
    samples = first_of(task, 12, 3)
    right = knowing(samples, parts)
    wrong = knowing(samples, lambda target: -parts(target))
    shown = pictures(task, {"full": right, "ranp-f": wrong}, size=12, count=3)
    assert len({picture.title for picture in shown}) == 3
    for picture, (_, target) in zip(shown, samples, strict=True):
        truth, full, slim = picture.panels
        category = NAMES.index(picture.title)
        expected = np.where(target.numpy() == 255, -1, target.numpy() - FIRST[category])
        assert expected.max() < PARTS[category]
        np.testing.assert_array_equal(truth.values, expected)
        np.testing.assert_array_equal(full.values, expected)
        assert full.note == "mIoU 100.0 %"
        assert ((slim.values >= 0) == (expected >= 0)).all()
        assert (slim.values != expected)[expected >= 0].all()
        assert truth.views == ((30.0, -45.0), (30.0, 45.0))


class Encoded(Samples):
    """Volumes whose first modality is the labels, so that a network can read them off."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return 2

    def draw(self, index, visit=0):
        labels = torch.zeros(18, 14, 16, dtype=torch.long)
        labels[4:14, 3:12, 2 : 9 + index] = 2
        labels[5:11, 4:10, 5:8] = 1
        labels[6:9, 5:8, 6:8] = 4
        image = torch.stack([labels + 1.0, *(torch.randn(18, 14, 16) for _ in range(3))])
        return image, labels


def test_regions_of_a_tumour_lie_over_the_slice_with_most_of_it():
    brats = tasks.get("brats")

    def data(size=8, count=None, seed=0):
        return Encoded(size)

    task = dataclasses.replace(brats, source=Source(data, data))
    right = Answering(lambda x: one_hot((x[:, 0] - 1).round().clamp(0, 4).long(), 5).movedim(0, 1))
    blind = Answering(lambda x: one_hot(torch.zeros_like(x[:, 0], dtype=torch.long), 5).movedim(0, 1))
    (picture, _) = pictures(task, {"full": right, "ranp-f": blind}, size=8)
    scan, truth, full, slim = picture.panels
    assert scan.title.lower() == MODALITIES[0]
    labels = Encoded(8)[0][1]
    place = int((labels > 0).sum(dim=(0, 1)).argmax())
    assert picture.title == f"Brain 1, slice {place + 1} of 16"
    flat = labels[:, :, place].numpy()
    whole, core, enhancing = flat > 0, np.isin(flat, (1, 3, 4)), flat == 4
    expected = (whole.astype(int) + core + enhancing).T[::-1]
    np.testing.assert_array_equal(truth.labels, expected)
    np.testing.assert_array_equal(full.labels, expected)
    np.testing.assert_array_equal(full.values, scan.values)
    assert (full.note, slim.note) == ("Dice 100.0 %", "Dice 0.0 %")
    assert not slim.labels.any()
    assert set(np.unique(expected)) <= {0, 1, 2, 3}


def test_five_classes_with_the_truth_among_them_or_not():
    task = tasks.get("ucf101")
    ((clips, label),) = first_of(task, 16, 1)
    place = int(label)
    logits = torch.linspace(0, 1, 101)
    logits[place] = 4.0
    sure = Answering(lambda x: logits.expand(len(x), -1))
    unsure = Answering(lambda x: -logits.expand(len(x), -1))
    (picture,) = pictures(task, {"full": sure, "ranp-f": unsure}, size=16, count=1)
    *frames, full, slim = picture.panels
    assert picture.title == f"Truth: {MOTIONS[place]}"
    assert [panel.title for panel in frames] == ["Frame 1", "Frame 6", "Frame 11", "Frame 16"]
    for panel, frame in zip(frames, (0, 5, 10, 15), strict=True):
        pixels = clips[1, :, frame].permute(1, 2, 0) + torch.tensor(MEAN)
        np.testing.assert_allclose(255 * panel.values, pixels.clamp(0, 255), atol=1e-3)
    order = np.argsort(-logits.numpy())[:5]
    shares = np.exp(logits.double().numpy()) / np.exp(logits.double().numpy()).sum()
    assert full.legend == tuple(MOTIONS[best] for best in order)
    np.testing.assert_allclose(full.values, shares[order], rtol=1e-6)
    assert (full.marked, full.note) == (0, "")
    assert slim.marked == -1
    assert slim.note.endswith("place 101")


def test_disparities_and_the_error_of_every_pixel():
    task = tasks.get("sceneflow")
    samples = first_of(task, 16, 1)
    truth = samples[0][1][0].numpy()
    right = knowing(samples, lambda target: target[0])
    off = knowing(samples, lambda target: target[0] + 2)
    (picture,) = pictures(task, {"full": right, "ranp-f": off}, size=16, count=1)
    known, view, full, full_error, slim, slim_error = picture.panels
    np.testing.assert_allclose(known.values, truth)
    np.testing.assert_allclose(full.values, truth)
    assert not full_error.values.any()
    np.testing.assert_allclose(slim_error.values, 2, rtol=1e-5)
    assert full_error.note == "EPE 0.00 px, 100.0 % within 3 px"
    assert slim_error.note.startswith("EPE 2.00 px")
    assert known.scale is full.scale is slim.scale
    assert known.scale.high == pytest.approx(truth.max())
    assert view.values.shape == (16, 32, 3)
    assert view.values.min() >= 0
    assert picture.lines == 2


def test_unknown_disparities_have_no_error_and_padding_is_cut_off():
    task = tasks.get("sceneflow")

    class Padded(Samples):
        def __len__(self):
            return 1

        def draw(self, index, visit=0):
            target = torch.full((2, 16, 32), -1.0)
            target[0, 4:, :30] = 5.0
            target[0, 8, 8] = -1.0
            target[0, 9, 9] = 200.0
            return (torch.zeros(3, 16, 32), torch.zeros(3, 16, 32)), target

    padded = dataclasses.replace(task, source=Source(lambda **_: Padded(), lambda **_: Padded()))
    (picture,) = pictures(padded, {"full": Answering(lambda *x: torch.full((1, 16, 32), 6.0))}, size=16)
    known, view, full, error = picture.panels
    assert {panel.values.shape[:2] for panel in picture.panels} == {(12, 30)}
    missing = np.argwhere(np.isnan(error.values)).tolist()
    assert missing == [[4, 8], [5, 9]] == np.argwhere(np.isnan(known.values)).tolist()
    assert np.nanmax(error.values) == np.nanmin(error.values) == 1.0
    assert (full.values == 6).all()
    np.testing.assert_allclose(view.values[0, 0], (0.485, 0.456, 0.406))


def test_networks_keep_their_modes_and_samples_follow_the_seed():
    task = tasks.get("shapenet")
    network = knowing(first_of(task, 12, 1), lambda target: one_hot(target.clamp(max=49), 50))
    network.train()
    network.child.eval()
    pictures(task, {"full": network}, size=12, count=1)
    assert network.modes == [(False, False, False)]
    assert network.training
    assert not network.child.training
    one, two, again = (pictures(task, {}, size=12, count=2, seed=seed) for seed in (0, 1, 0))
    assert all((a.panels[0].values == b.panels[0].values).all() for a, b in zip(one, again, strict=True))
    assert any((a.panels[0].values != b.panels[0].values).any() for a, b in zip(one, two, strict=True))
    assert [len(picture.panels) for picture in one] == [1, 1]


def test_what_cannot_be_shown_is_refused():
    task = tasks.get("shapenet")
    with pytest.raises(DataError, match="count=0"):
        pictures(task, {}, size=12, count=0)
    with pytest.raises(UnsupportedError, match="'cifar'"):
        pictures(dataclasses.replace(task, name="cifar"), {}, size=12)


def test_real_shapes_stand_upright():
    task = tasks.get("shapenet", data=real_data("shapenetpart"), allow_missing=True)
    data = task.valid_data(size=24)
    shown = pictures(task, {}, size=24, count=len(data))
    assert {picture.title for picture in shown} <= set(NAMES)
    for picture, index in zip(shown, range(len(data)), strict=True):
        target = data[index][1].numpy()
        grid = picture.panels[0].values
        assert (grid >= 0).sum() == (target != 255).sum()
        np.testing.assert_array_equal(grid >= 0, (target != 255).transpose(2, 0, 1))
    assert len(drawing.rendered(drawing.examples(shown[:2]))) < 150_000


@pytest.mark.slow
def test_real_patients_are_shown_with_their_names():
    task = tasks.get("brats", data=real_data("brats2015"), allow_missing=True)
    blind = Answering(lambda x: one_hot(torch.zeros_like(x[:, 0], dtype=torch.long), 5).movedim(0, 1))
    (picture,) = pictures(task, {"full": blind}, size=96, count=1)
    scan, truth, full = picture.panels
    assert "pat" in picture.title
    assert scan.title == "FLAIR"
    assert set(np.unique(truth.labels)) == {0, 1, 2, 3}
    assert not full.labels.any()
    assert len(drawing.rendered(drawing.examples([picture]))) < 150_000


def test_real_videos_are_shown_with_their_classes():
    folder = real_data("ucf101")
    split = read_split(folder, allow_missing=True, fold=0)
    swapped = dataclasses.replace(split, valid=split.train)
    task = tasks.get("ucf101", data=folder, allow_missing=True)

    def data(size=112, count=None, seed=0):
        return Clips(swapped, "valid", size, count, seed)

    task = dataclasses.replace(task, source=dataclasses.replace(task.source, valid_data=data))
    by_label = {video.label: video.name.split("/")[0] for video in split.train}
    first = Clips(swapped, "valid", 64, None, 0).videos[0]
    logits = torch.zeros(101)
    logits[first.label] = 3.0
    (picture,) = pictures(task, {"full": Answering(lambda x: logits.expand(len(x), -1))}, size=64, count=1)
    assert picture.title == f"Truth: {by_label[first.label]}"
    assert picture.panels[-1].legend[0] == by_label[first.label]
    assert picture.panels[-1].legend[1:] == tuple(
        by_label.get(label, f"class {label + 1}") for label in [n for n in range(101) if n != first.label][:4]
    )


def test_real_pairs_are_shown_whole(tmp_path):
    source = real_data("sceneflow")
    for path in source.rglob("*"):
        if path.is_file() and path.suffix in (".png", ".pfm"):
            for name in ("0001", "0002"):
                copy = tmp_path / path.relative_to(source).with_name(f"{name}{path.suffix}")
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.symlink_to(path)
    task = tasks.get("sceneflow", data=tmp_path, allow_missing=True)
    samples = first_of(task, 128, 1)
    network = knowing(samples, lambda target: target[0].clamp(min=0))
    (picture,) = pictures(task, {"full": network}, size=128, count=1)
    known, view, _, error = picture.panels
    assert view.values.shape == (540, 960, 3)
    assert np.nanmax(error.values) == 0
    assert known.scale.high < 192
    assert len(drawing.rendered(drawing.examples([picture]))) < 150_000


def test_pictures_have_their_old_name_too():
    import ranp.paper.pictures as old

    from ranp.paper.tasks import pictures as new

    assert old is new

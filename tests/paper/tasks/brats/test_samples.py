"""Crops and whole volumes: where a crop lies, what it holds, and that it depends on its number and visit alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from ranp.errors import DataError
from ranp.paper.tasks.brats.preprocessing import Volume
from ranp.paper.tasks.brats.samples import Crops, Wholes, crop
from ranp.paper.tasks.task import Progress

SHAPE = (30, 26, 22)


class Numbered:
    """Cases whose first channel is the number of each voxel, and whose second is that of the case."""

    def __init__(self, shape: tuple[int, int, int], tumour: tuple[slice, ...] | None, count: int = 3) -> None:
        numbers = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        self.coarse, self.fine = np.floor(numbers / 1024), numbers % 1024 + 1
        self.labels: npt.NDArray[np.uint8] = np.zeros(shape, dtype=np.uint8)
        if tumour is not None:
            self.labels[tumour] = 4
        self.shape, self.count = shape, count

    def __len__(self) -> int:
        return self.count

    def volume(self, number: int) -> Volume:
        case = np.full(self.shape, number + 1.0)
        return Volume(np.stack((self.coarse, self.fine, case)).astype(np.float16), self.labels)

    def check(self, progress: Progress | None = None) -> None: ...


def place(image: torch.Tensor, shape: tuple[int, int, int]) -> list[int]:
    """The corner of a crop that lies inside its volume, read from the voxel numbers that are in it."""
    number = int(image[0, 0, 0, 0]) * 1024 + int(image[1, 0, 0, 0]) - 1
    return [int(n) for n in np.unravel_index(number, shape)]


def test_a_crop_is_a_part_of_its_volume() -> None:
    cases = Numbered(SHAPE, np.s_[20:24, 3:6, 8:10])
    data = Crops(cases, 12, 60, 0)
    for index in range(60):
        image, labels = data[index]
        assert (image.shape, image.dtype) == ((3, 12, 12, 12), torch.float32)
        assert (labels.shape, labels.dtype) == ((12, 12, 12), torch.int64)
        where = tuple(slice(n, n + 12) for n in place(image, SHAPE))
        volume = cases.volume(index % 3)
        np.testing.assert_array_equal(image, volume.image[(slice(None), *where)])
        np.testing.assert_array_equal(labels, volume.labels[where])


def test_about_two_thirds_of_the_crops_are_around_the_tumour() -> None:
    tumour = np.s_[28:30, 0:2, 20:22]  # in a corner: a crop at random holds it with probability 1 / (19 * 15 * 11)
    data = Crops(Numbered(SHAPE, tumour), 12, 600, 3)
    share = np.mean([bool(data[index][1].any()) for index in range(600)])
    assert abs(share - 2 / 3) < 4 * np.sqrt(2 / 9 / 600)


def test_crops_at_random_go_everywhere() -> None:
    data = Crops(Numbered(SHAPE, None), 12, 400, 0)
    places = np.array([place(data[index][0], SHAPE) for index in range(400)])
    assert places.min(axis=0).tolist() == [0, 0, 0]
    assert places.max(axis=0).tolist() == [18, 14, 10]
    assert np.abs(places.mean(axis=0) - [9, 7, 5]).max() < 1.2


def test_crops_around_the_tumour_are_not_always_centred() -> None:
    data = Crops(Numbered(SHAPE, np.s_[15:16, 13:14, 11:12]), 8, 300, 0)
    within = [np.argwhere(labels.numpy())[0] for _, labels in (data[i] for i in range(300)) if labels.any()]
    assert len(within) > 150
    assert np.ptp(within, axis=0).min() >= 3


@pytest.mark.parametrize("tumour", [None, np.s_[2:4, 2:4, 2:4]])
def test_a_small_volume_is_padded_all_around(tumour: tuple[slice, ...] | None) -> None:
    shape = (9, 30, 6)
    cases = Numbered(shape, tumour)
    for index in range(20):
        image, labels = Crops(cases, 12, 20, 0)[index]
        filled = np.argwhere(image[2].numpy())
        assert filled.min(axis=0).tolist() == [1, 0, 3]
        assert filled.max(axis=0).tolist() == [9, 11, 8]
        assert not labels.numpy()[image[2].numpy() == 0].any()


def test_cropping_outside_of_a_volume_gives_zeros() -> None:
    image, labels = crop(Numbered((4, 4, 4), np.s_[:, :, :]).volume(0), np.array([-3, 2, 0]), 8)
    there = np.zeros((8, 8, 8), dtype=bool)
    there[3:7, 0:2, 0:4] = True
    np.testing.assert_array_equal(image[2] > 0, there)
    np.testing.assert_array_equal(labels == 4, there)


def test_a_crop_depends_on_seed_number_and_visit_alone() -> None:
    cases = Numbered(SHAPE, np.s_[10:20, 10:20, 10:20])
    data = Crops(cases, 12, 30, 5)
    assert data.varies
    several = [data.draw(index, 2)[0] for index in (7, 3, 7, 0)]
    assert torch.equal(several[0], several[2])
    assert torch.equal(several[0], Crops(cases, 12, 500, 5).draw(7, 2)[0])
    others = [data.draw(7, 3)[0], data.draw(10, 2)[0], Crops(cases, 12, 30, 6).draw(7, 2)[0]]
    assert all(not torch.equal(several[0], other) for other in others)
    assert int(data.draw(10)[0][2, 0, 0, 0]) == 10 % 3 + 1


def test_whole_volumes_do_not_vary_and_there_are_no_more_than_there_are() -> None:
    cases = Numbered(SHAPE, np.s_[1:3, 1:3, 1:3])
    data = Wholes(cases, 12, 10, 0)
    assert len(data) == len(Wholes(cases, 12)) == 3
    assert len(Wholes(cases, 12, 2)) == 2
    assert not data.varies
    image, labels = data.draw(1, 4)
    assert (image.shape, labels.shape) == ((3, *SHAPE), SHAPE)
    assert torch.equal(image, data[1][0])
    assert len(Crops(cases, 12)) == 3
    with pytest.raises(IndexError, match="sample 3 of 3"):
        data[3]


@pytest.mark.parametrize(
    ("size", "count", "seed", "said"),
    [(7, 3, 0, "size=7: .* pass 8 or more"), (12, 0, 0, "count=0, seed=0"), (12, 3, -1, "count=3, seed=-1")],
)
def test_what_cannot_be_is_refused(size: int, count: int, seed: int, said: str) -> None:
    for make in (Crops, Wholes):
        with pytest.raises(DataError, match=said):
            make(Numbered(SHAPE, None), size, count, seed)

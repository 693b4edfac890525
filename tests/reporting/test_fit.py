"""What fits a memory is what the memory model says of that batch and size, and one more does not fit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import ranp
from ranp.costs.step import TrainingStep
from ranp.errors import UnsupportedError
from ranp.reporting.fit import CARDS, _largest, room, space_of, whether_fits, which_cards, with_space


class Strided(nn.Module):
    """Runs at multiples of four only."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv3d(1, 8, 4, stride=4)
        self.up = nn.ConvTranspose3d(8, 4, 4, stride=4)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x)) + x


def needs(model: nn.Module, batch: int, space: tuple[int, ...], step: TrainingStep) -> int:
    return ranp.training_memory(model, torch.empty(batch, 1, *space, device="meta"), step=step).peak


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("room_for", [2.5, 7.0, 40.0])
def test_the_largest_batch_and_size_fit_and_the_next_do_not(room_for: float, checkpointing: bool) -> None:
    model, step = Strided(), TrainingStep(optimiser="sgd", checkpointing=checkpointing)
    memory = room_for * needs(model, 1, (12, 12, 12), step)
    found = room(model, torch.empty(1, 1, 12, 12, 12, device="meta"), memory, step)
    assert needs(model, found.batch, (12, 12, 12), step) <= memory < needs(model, found.batch + 1, (12, 12, 12), step)
    assert found.size is not None
    edge = found.size[0]
    assert edge % 4 == 0
    assert needs(model, 1, (edge,) * 3, step) <= memory < needs(model, 1, (edge + 4,) * 3, step)
    assert found.needed == needs(model, 1, (12, 12, 12), step)


def test_what_is_too_large_shrinks_and_what_cannot_shrink_says_so() -> None:
    step = TrainingStep(optimiser="sgd")
    model = Strided()
    memory = 0.3 * needs(model, 1, (32, 32, 32), step)
    found = room(model, torch.empty(1, 1, 32, 32, 32, device="meta"), memory, step)
    assert found.batch == 0
    assert found.size is not None
    assert found.size[0] < 32
    assert needs(model, 1, found.size, step) <= memory
    assert room(model, torch.empty(1, 1, 32, 32, 32, device="meta"), 10.0, step).size is None
    fixed = nn.Sequential(nn.Conv3d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 8, 3))
    found = room(fixed, torch.empty(2, 1, 4, 4, 4, device="meta"), 1e9, step)
    assert found.fixed
    assert found.size == (4, 4, 4)


def test_a_clip_keeps_its_frames_while_its_edges_grow() -> None:
    step = TrainingStep(optimiser="none")
    model = nn.Conv3d(1, 2, 3, padding=1)
    memory = 2.2 * needs(model, 1, (4, 32, 32), step)
    found = room(model, torch.empty(1, 1, 4, 32, 32, device="meta"), memory, step)
    assert found.size is not None
    assert needs(model, 1, found.size, step) <= memory
    assert found.size[1] == found.size[2] > 32


@given(st.integers(1, 300), st.integers(1, 300), st.floats(0.0, 5.0), st.integers(1, 3))
def test_the_search_finds_the_last_count_that_fits(start: int, last: int, offset: float, power: int) -> None:
    tried = []

    def needed(count: int) -> float:
        tried.append(count)
        return offset * 1000 + count**power

    memory = offset * 1000 + last**power
    assert _largest(needed, memory, start=start, like=lambda count: count**2, most=400) == min(last, 400)
    assert len(set(tried)) < 60


def test_examples_are_resized_without_data() -> None:
    example = {"image": torch.zeros(2, 1, 4, 5, 6), "index": torch.zeros(2, 3), "flag": True}
    changed = with_space(example, (8, 8, 8), 3)
    assert changed["image"].shape == (3, 1, 8, 8, 8)
    assert changed["index"].shape == (3, 3)
    assert changed["image"].is_meta
    assert changed["flag"] is True
    assert space_of(example) == (4, 5, 6)
    with pytest.raises(UnsupportedError, match="space"):
        space_of(torch.zeros(2, 3))


GIB = 2**30


@pytest.mark.parametrize(
    ("full", "slim", "words"),
    [
        (7 * GIB, 3 * GIB, "A card of 4 GiB holds a training step of the slim network, one of 8 GiB that of the full"),
        (7 * GIB, 6.5 * GIB, "A card of 8 GiB holds a training step of either network."),
        (CARDS[-1] + 1, CARDS[0], "A card of 2 GiB holds a training step of the slim network, none that of the full"),
        (CARDS[-1] + 2, CARDS[-1] + 1, "No usual card, up to 192 GiB, holds a training step of the slim network."),
    ],
)
def test_the_smallest_card_that_holds_a_step_is_named(full: float, slim: float, words: str) -> None:
    assert which_cards(full, slim).startswith(words)


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (8, "In 8 GiB a training step of either network fits."),
        (4, "In 4 GiB a training step of the slim network fits, that of the full network does not."),
        (2, "In 2 GiB a training step of neither network fits."),
    ],
)
def test_whether_a_memory_holds_a_step(memory: int, words: str) -> None:
    assert whether_fits(7 * GIB, 3 * GIB, memory * GIB) == words

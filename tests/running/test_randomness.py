"""Every global generator goes on from where it was written down."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from ranp.errors import StorageError
from ranp.running import randomness
from ranp.running.randomness import untouched_rng

CPU = torch.device("cpu")


def drawn() -> list[float]:
    legacy = np.random.random()  # noqa: NPY002 -- the global generator is what is tested
    return [random.random(), random.gauss(0, 1), legacy, np.random.normal(), *torch.randn(3).tolist()]  # noqa: NPY002


def test_generators_go_on_from_where_they_were() -> None:
    with untouched_rng({CPU}):
        randomness.seed_rank(3, 0, CPU)
        drawn()  # an odd number of normal draws leaves a second one waiting in Python's and numpy's generators
        text = randomness.capture(CPU)
        first = drawn()
        randomness.seed_rank(4, 0, CPU)
        assert drawn() != first
        randomness.restore(text, CPU)
        assert drawn() == first


def test_ranks_and_seeds_draw_different_numbers_and_the_same_ones_again() -> None:
    with untouched_rng({CPU}):
        seen = []
        for seed, rank in ((0, 0), (0, 1), (1, 0), (0, 0)):
            randomness.seed_rank(seed, rank, CPU)
            seen.append(tuple(drawn()))
    assert seen[0] == seen[3]
    assert len(set(seen)) == 3


@pytest.mark.parametrize("text", ["", "{}", '{"python": [3, [1], null], "numpy": {}, "torch": ""}'])
def test_a_text_that_is_none_is_refused(text: str) -> None:
    with untouched_rng({CPU}), pytest.raises(StorageError, match="another checkpoint"):
        randomness.restore(text, CPU)

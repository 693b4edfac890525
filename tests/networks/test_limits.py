"""Under a real limit of memory: what the full step dies of, pruning and the slim network live with."""

from __future__ import annotations

import sys

import pytest

from benchmarks.limit import PRUNING, TRAINING, Job, full_step, outcome, pruned

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA counts mappings on Linux only"),
]

NETWORK = "chain"


@pytest.fixture(scope="module")
def full() -> int:
    return full_step(NETWORK)


def test_the_full_step_does_not_fit(full: int) -> None:
    found = outcome(Job(NETWORK, int(TRAINING * full)))
    assert found.out_of_memory, found.error


def test_scoring_plainly_does_not_fit_either(full: int) -> None:
    """So it is checkpointing, or smaller inputs, that make pruning fit below."""
    found = pruned(NETWORK, full)
    assert found.pruning.out_of_memory, found.pruning.error


@pytest.mark.parametrize("way", ["checkpointing", "halved"])
def test_it_is_pruned_within_less_and_then_trains(full: int, way: str) -> None:
    found = pruned(NETWORK, full, **{way: True})
    assert found.pruning.error == found.training.error == ""
    assert found.pruning.held <= PRUNING * full
    assert found.training.held <= TRAINING * full
    assert 0 < found.pruning.kept < 1

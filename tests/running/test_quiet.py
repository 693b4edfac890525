"""While something is measured, nothing else of the process gets in its way, and nothing stays changed after it."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys

import pytest
import torch

from ranp.running.quiet import quiet

FAULTS = """
import resource, torch
from ranp.running.quiet import quiet

SIZE = 96 << 20

def faults():
    def step():
        return [torch.ones(SIZE // 96) for _ in range(96)]
    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.empty((32 << 20) - 8192, dtype=torch.uint8)
alone = faults()
with quiet(4 * SIZE):
    kept = faults()
print(alone, kept)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="how memory is given back is the C library's affair")
def test_memory_that_a_step_needs_is_taken_from_the_kernel_once() -> None:
    """In a process of its own, whose heap holds nothing else."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    alone, kept = map(int, done.stdout.split())
    assert alone > 40, "memory is not given back here, so nothing shows"
    assert 4 * kept < alone


def test_the_cycle_collector_and_random_numbers_are_as_before() -> None:
    state = torch.get_rng_state()
    assert gc.isenabled()
    with quiet():
        assert not gc.isenabled()
        torch.rand(3)
    assert gc.isenabled()
    assert torch.equal(state, torch.get_rng_state())

"""While something is measured, nothing else of the process gets in its way, and nothing stays changed after it."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys

import pytest
import torch

from ranp.running.quiet import quiet

BLOCKS, PAGES = 96, 1024
"""Of a step, and of each block."""
FAULTS = f"""
import resource, torch
from ranp.running.quiet import quiet

def faults():
    counts = []
    for _ in range(8):
        [torch.ones({PAGES} * 1024) for _ in range({BLOCKS})]
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    return sorted(after - before for before, after in zip(counts[2:], counts[3:]))[2]

alone = faults()
with quiet({BLOCKS} * {PAGES} * 4096):
    print(alone, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="how memory is given back is the C library's affair")
def test_memory_that_a_step_needs_is_taken_from_the_kernel_once() -> None:
    """In a process of its own, where nearly always every step takes all of its memory anew if nothing is done."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    alone, kept = map(int, done.stdout.split())
    assert kept < BLOCKS * PAGES / 8, f"{kept} faults a step, {alone} without"


def test_the_cycle_collector_and_random_numbers_are_as_before() -> None:
    state = torch.get_rng_state()
    assert gc.isenabled()
    with quiet():
        assert not gc.isenabled()
        torch.rand(3)
    assert gc.isenabled()
    assert torch.equal(state, torch.get_rng_state())

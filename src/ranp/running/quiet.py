"""Measuring without disturbance by what else the process does."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ranp.running import randomness

_BLOCK = 1 << 24
"""Bytes; the GNU C library takes blocks of up to twice this size from its heap, if it has seen one."""


@contextmanager
def quiet(room: int = 0) -> Iterator[None]:
    """Keeps Python's cycle collector and the kernel's memory out of a measurement, and the random states untouched.

    Whether the C library gives memory back after a step, to take it from the kernel again in the next one, depends on
    what else lies on its heap: a step of a large network takes longer then, one of a slim network hardly. So a block
    above as much free memory as is needed lies there while something is measured.

    Args:
        room: Bytes that what is measured needs at its peak.
    """
    torch.empty(2 * _BLOCK - 8192, dtype=torch.uint8)  # freed at once: from now on, smaller blocks lie on the heap
    blocks = [torch.empty(_BLOCK, dtype=torch.uint8) for _ in range(1 + 5 * room // 4 // _BLOCK)]
    above = torch.empty(_BLOCK // 256, dtype=torch.uint8)
    del blocks
    gc.collect(1)  # a search measures often, and all garbage of a large process takes long
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with randomness.untouched_rng():
            yield
    finally:
        if was_enabled:
            gc.enable()
        del above

"""What all tests share: no test fails for being slow, and continuous integration draws the same examples every time."""

from __future__ import annotations

import gc
import os

import pytest
import torch
from hypothesis import settings

settings.register_profile("ranp", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("ranp")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A slow test may take half an hour on a busy machine, if it does not say more itself."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1800))


def pytest_collection_finish() -> None:
    """What was imported and collected stays: measurements that collect garbage first need not look through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Every test draws the same numbers, whichever ran before it in its process."""
    torch.manual_seed(0)

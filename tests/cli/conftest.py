"""The command line in tests: nothing that it prints depends on how fast the machine is."""

from __future__ import annotations

import pytest

from ranp.cli import console


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that come every few seconds would stand beside a refusal on a slow machine."""
    monkeypatch.setattr(console, "EVERY", 3600.0)

"""Other processes that tests start: they import what the tests do."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Of the checkout."""
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
"""Ends a process that cannot refuse; on Windows any signal does."""


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that may import the package and ``tests.support``."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **more}


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

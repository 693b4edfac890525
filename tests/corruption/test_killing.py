"""Killed at any moment, also in the middle of writing a file, every verb comes to the same bytes when started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def kill(tmp_path: Path, *arguments: str, timeout: float = 550) -> dict[str, Any]:
    """Runs the program and returns its summary."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.killing", *arguments],
        capture_output=True,
        text=True,
        env=processes.environment(OMP_NUM_THREADS="1", TMPDIR=str(tmp_path)),
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def test_a_killed_verb_ends_at_the_same_bytes(tmp_path: Path) -> None:
    assert kill(tmp_path, "--verbs", "train", "--kills", "1")["kills"] >= 1


@pytest.mark.slow
@pytest.mark.timeout(5500)
def test_two_hundred_kills_end_at_the_same_bytes(tmp_path: Path) -> None:
    told = kill(tmp_path, "--kills", "200", "--seed", "1", timeout=5400)
    assert told["kills"] >= 200
    assert min(told[verb] for verb in ("train", "prune", "reproduce", "report")) > 0

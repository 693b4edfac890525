"""Killed at any moment, also in the middle of writing a checkpoint, a run goes on to the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("killing.py")

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def kill(folder: Path, count: int, seed: int) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(count), str(seed)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    kills = [kill for run in told["runs"] for kill in run["kills"]]
    assert len(told["runs"]) == count
    assert len(kills) >= count // 2, "hardly any run was killed: the moments are badly chosen"
    assert [run for run in told["runs"] if not run["same"]] == []


def test_killed_runs_end_at_the_same_bits(tmp_path: Path) -> None:
    kill(tmp_path, 4, 0)


@pytest.mark.slow
def test_twenty_killed_runs_end_at_the_same_bits(tmp_path: Path) -> None:
    kill(tmp_path, 20, 1)

"""An engineer at the command line: every verb once with good input, and with bad input: one line, exit status 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import environment

pytestmark = pytest.mark.slow
SMALL = "--size 16 --max-batches 2"
GOOD = (
    ("profile --list", "unet3d-shapenet"),
    ("profile unet3d-shapenet --convention paper", "237.85"),
    (f"search unet3d-shapenet --method ranp-f {SMALL}", "largest"),
    (f"prune unet3d-shapenet --sparsity 0.5 --init glorot {SMALL} --out slim", "certificate"),
    (f"prune unet3d-shapenet --budget flops=10% --dry-run {SMALL} --out dry", "allowed"),
    ("plan show slim/plan.json", "encoders.0.conv1.0"),
    ("plan diff slim/plan.json slim/plan.json", ""),
    ("fit unet3d-shapenet --memory 1GiB --batch 2", "ranp prune"),
    ("export slim --format onnx --input 1x1x16x16x16 --out slim.onnx", "slim.onnx"),
    ("train shapenet --scale cpu --set epochs=1 --budget flops=20% --out trained", "trained"),
    ("evaluate trained", "miou"),
    ("report slim trained --out report.html", "report.html"),
    ("reproduce --list", "main"),
)
BAD = (
    ("profile unet3d-shapnet", "unet3d-shapenet"),
    ("prune unet3d-shapenet --sparsity 1.5 --out x", "--sparsity"),
    ("prune unet3d-shapenet --out x", "--budget"),
    (f"prune unet3d-shapenet --budget flops=0.0001% {SMALL} --out x", "smallest"),
    ("prune no.such:function --sparsity 0.5 --out x", "no"),
    ("plan", "show"),
    ("plan show nowhere.json", "nowhere.json"),
    ("fit unet3d-shapenet --memory 8G", "8GiB or 8GB"),
    ("export nowhere --format onnx --out x.onnx", "nowhere"),
    ("train shapnet --out x", "shapenet"),
    ("evaluate nowhere", "nowhere"),
    ("report nowhere --out x.html", "nowhere"),
    ("reproduce tabel --out x", "tabel"),
    ("compare --out x", "--model"),
    ("nonsense", "nonsense"),
)


def ranp(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ranp", *words.split()]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=900)


def test_every_verb_with_good_input(tmp_path: Path) -> None:
    for words, said in GOOD:
        done = ranp(words, tmp_path)
        assert done.returncode == 0, (words, done.stderr)
        assert said in done.stdout + done.stderr, (words, done.stdout, done.stderr)
    shown = ranp("plan show slim/plan.json --json", tmp_path)
    assert json.loads(shown.stdout)
    assert not (tmp_path / "dry").exists()


@pytest.mark.parametrize(("words", "said"), BAD)
def test_every_verb_with_bad_input(words: str, said: str, tmp_path: Path) -> None:
    done = ranp(words, tmp_path)
    assert done.returncode == 2, (done.stdout, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert said in lines[0]
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())  # nothing is written half

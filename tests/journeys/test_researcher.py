"""A researcher who must compare: an own network, data and training, from the files of docs/compare.md to a table."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import KILL, ROOT, environment

pytestmark = pytest.mark.slow
ASKED = (
    "compare --model mytask:model --batches mytask:batches --loss torch.nn.functional:cross_entropy "
    "--train mytask:train --arm flat --arm ranp-f --arm random --arm snip --budget flops=20% "
    "--seeds 6 --rate 0.01 --jobs 2 --out runs"
)


def test_an_own_network_is_compared_killed_and_gone_on_with(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "compare.md").read_text(), re.S)
    (tmp_path / "mytask.py").write_text(blocks[0])
    command = [sys.executable, "-m", "ranp", *ASKED.split()]
    begun = subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL)
    for _ in range(600):
        time.sleep(0.2)
        if len(list((tmp_path / "runs").glob("cells/*.json"))) > 3:
            break
    begun.send_signal(KILL)
    begun.wait()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("cells/*.json")}
    assert before

    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())  # nothing was run twice
    rows = list(csv.DictReader((tmp_path / "runs" / "compare.csv").read_text().splitlines()))
    assert len(rows) == 4 * 6
    assert {row["arm"] for row in rows} == {"flat", "ranp-f", "random", "snip"}
    table = (tmp_path / "runs" / "compare.md").read_text()
    assert "RANP-f" in table
    assert "SNIP" in table
    assert "<html" in (tmp_path / "runs" / "compare.html").read_text()

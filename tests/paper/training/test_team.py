"""Two processes that train together: the same plan, scores and curve as one, and a clear end if one of them is lost."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import distributed

from ranp.choosing.plan import Plan
from ranp.cli import main
from ranp.errors import UnsupportedError
from ranp.paper.training.team import Team, joined
from ranp.scoring.scores import Scores
from tests.support import processes
from tests.support.together import CASES, curve, scored

PROGRAM = processes.ROOT / "tests" / "support" / "together.py"

pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="torch is built without torch.distributed")


def start(folder: Path, work: str, *options: str) -> subprocess.CompletedProcess[str]:
    return launch(*options, str(PROGRAM), str(folder), work)


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Starts two processes with torchrun."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
    return subprocess.run(
        [sys.executable, *torchrun, *arguments],
        capture_output=True,
        text=True,
        env=processes.environment(OMP_NUM_THREADS="1"),
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes made of everything in ``together.learn``."""
    folder = tmp_path_factory.mktemp("two")
    done = start(folder, "learn")
    assert done.returncode == 0, done.stderr
    return folder


def told(folder: Path, rank: int) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / f"told-{rank}.json").read_text())
    return value


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_learn_what_one_process_learns(name: str, learnt: Path, tmp_path: Path) -> None:
    """Without batch statistics, or with synchronised ones; ranks see unequal numbers of labelled voxels."""
    alone, model = curve(name, tmp_path, Team())
    together = told(learnt, 0)[name]
    assert [r["loss"] for r in together] == pytest.approx([r["loss"] for r in alone], rel=1e-5)
    assert [r["valid"] for r in together] == [r["valid"] for r in alone]
    tensors = [load_file(learnt / f"{name}-{rank}.safetensors") for rank in (0, 1)]
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensors[0][key], tensors[1][key])
        torch.testing.assert_close(tensors[0][key], tensor, rtol=0, atol=1e-5)


def test_ranks_report_the_same_figures(learnt: Path) -> None:
    first, second = told(learnt, 0), told(learnt, 1)
    assert first["usual"] == second["usual"]
    for name in CASES:
        assert [{**r, "seconds": 0} for r in first[name]] == [{**r, "seconds": 0} for r in second[name]]


def test_scores_are_those_of_one_process_on_the_same_batches(learnt: Path) -> None:
    alone = scored(Team())
    for rank in (0, 1):
        together = Scores.load(learnt / f"scores-{rank}.safetensors")
        assert list(together) == list(alone)
        for name in alone:
            torch.testing.assert_close(together[name], alone[name], rtol=1e-6, atol=0)


def test_both_ranks_have_the_same_plan(learnt: Path) -> None:
    plans = [(learnt / f"plan-{rank}.json").read_text() for rank in (0, 1)]
    assert plans[0] == plans[1]
    assert (learnt / "pruned" / "plan.json").read_text() == plans[0]
    assert '"batches": 5' in plans[0]


@pytest.mark.slow
def test_the_command_prunes_alike_on_one_rank_and_on_two(tmp_path: Path) -> None:
    words = "prune unet3d-shapenet --task shapenet --scale cpu --size 8 --max-batches 4 --sparsity 0.4 --out".split()
    done = launch("-m", "ranp", *words, str(tmp_path / "two"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("wrote ") == 1
    assert main([*words, str(tmp_path / "one")]) == 0
    plans = [Plan.load(tmp_path / name / "plan.json") for name in ("one", "two")]
    assert plans[0].kept == plans[1].kept
    assert plans[0].sparsity.removed > 0


@pytest.mark.slow
def test_a_lost_rank_ends_the_job_and_the_next_start_goes_on(tmp_path: Path) -> None:
    (tmp_path / "unbroken").mkdir()
    (tmp_path / "unbroken" / "spare").touch()
    (tmp_path / "broken").mkdir()
    assert start(tmp_path / "unbroken", "lose").returncode == 0
    began = time.monotonic()
    lost = start(tmp_path / "broken", "lose")
    assert time.monotonic() - began < 60  # a bound of the promise, not a measurement
    assert lost.returncode != 0
    assert "another rank is gone" in lost.stderr
    assert "go on with --resume" in lost.stderr
    restarted = start(tmp_path / "restarted", "lose", "--max-restarts", "1")
    assert restarted.returncode == 0, restarted.stderr
    assert "another rank is gone" in restarted.stderr
    one, other = (load_file(tmp_path / name / "run" / "model.safetensors") for name in ("unbroken", "restarted"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_ranks_that_were_told_different_things_refuse(tmp_path: Path) -> None:
    assert start(tmp_path, "disagree").returncode == 0
    for rank in (0, 1):
        assert "another plan, recipe or version" in (tmp_path / f"refused-{rank}").read_text()


def test_a_refusal_of_the_first_rank_reaches_all(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    assert start(tmp_path / "full", "fill").returncode == 0
    for rank in (0, 1):
        assert "is not empty" in (tmp_path / f"refused-{rank}").read_text()


def test_alone_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with joined() as team:
        assert (team.rank, team.size, team.leads) == (0, 1, True)
        assert team.total([1.5, 2.0]) == [1.5, 2.0]
        assert team.gather("é") == ["é"]
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(UnsupportedError, match=r"WORLD_SIZE='two'.*torchrun"), joined():
        pass


def test_a_device_that_is_not_there_is_refused() -> None:
    if not torch.cuda.is_available():
        with (
            pytest.raises(UnsupportedError, match=r"--device 'cuda' cannot be used .*Try --device cpu"),
            joined("cuda"),
        ):
            pass
    with pytest.raises(UnsupportedError, match="--device 'abacus'"), joined("abacus"):
        pass

"""Scoring by two processes: the mean over all batches, the same bits on both, and no rank left waiting."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, distributed, multiprocessing, nn

from ranp.errors import RanpError
from ranp.scoring.score import score
from ranp.scoring.scores import Scores
from tests.support.processes import free_port
from tests.support.scored import trace_of

pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="torch is built without torch.distributed")

SHARES = {0: [0, 1, 2], 1: [3]}
"""Which batches each rank scores: unevenly many."""
CRITERIA = ("mpmg-sum", "mnmg-mean", "mpmg-max", "mnmg-max", "neuron-mask", "snip", "magnitude", "random")


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(4, 3, 5, 5, generator=generator), torch.tensor([0, 1, 2, 0])) for _ in range(4)]


def scored(share: list[int], criterion: str) -> Scores:
    model = net()
    mine = [batches()[index] for index in share]
    return score(model, mine, F.cross_entropy, trace=trace_of(model, {"0": "1"}), criterion=criterion)


def agreeing(rank: int, folder: Path) -> None:
    for criterion in CRITERIA:
        scored(SHARES[rank], criterion).save(folder / f"{criterion}-{rank}")
    scored([[0, 1], []][rank], "mpmg-sum").save(folder / f"idle-{rank}")
    wrapped = nn.parallel.DistributedDataParallel(net())
    trace = trace_of(net(), {"0": "1"})
    mine = [batches()[index] for index in SHARES[rank]]
    score(wrapped, mine, F.cross_entropy, trace=trace).save(folder / f"wrapped-{rank}")


def failing(rank: int, folder: Path) -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target) * (float("nan") if rank == 1 else 1.0)

    def attempt(name: str, run: Callable[[], object]) -> None:
        try:
            run()
        except RanpError as error:
            (folder / f"{name}-{rank}").write_text(f"{type(error).__name__}: {error}")

    model = net()
    attempt("nan", lambda: score(model, batches(), loss, trace=trace_of(model)))
    other = net() if rank == 0 else nn.Sequential(nn.Flatten(), nn.Linear(75, 3))
    attempt("layout", lambda: score(other, batches(), F.cross_entropy, trace=trace_of(other)))
    attempt("empty", lambda: score(model, [], F.cross_entropy, trace=trace_of(model)))


def worker(rank: int, port: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        agreeing(rank, folder)
        failing(rank, folder)
    finally:
        gc.collect()  # a wrapped network holds the group, and is part of a circle itself
        distributed.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes wrote down; starting them costs more than all they do, so they are started once."""
    folder = tmp_path_factory.mktemp("ranks")
    multiprocessing.spawn(worker, (free_port(), folder), nprocs=2)
    return folder


def test_all_ranks_end_with_the_mean_over_all_batches(folder: Path):
    for criterion in CRITERIA:
        first, second = (Scores.load(folder / f"{criterion}-{rank}") for rank in (0, 1))
        assert first == second
        alone = scored([0, 1, 2, 3], criterion)
        assert first.batches == alone.batches
        for name in alone:
            torch.testing.assert_close(first[name], alone[name], rtol=1e-5, atol=1e-9)
        for name in alone.weights:
            torch.testing.assert_close(first.weights[name], alone.weights[name], rtol=1e-5, atol=1e-7)


def test_a_rank_may_have_no_batches_and_a_wrapped_model(folder: Path):
    for rank in (0, 1):
        assert Scores.load(folder / f"wrapped-{rank}") == Scores.load(folder / "mpmg-sum-0")
        idle, alone = Scores.load(folder / f"idle-{rank}"), scored([0, 1], "mpmg-sum")
        assert idle.batches == 2
        for name in alone:
            torch.testing.assert_close(idle[name], alone[name], rtol=1e-5, atol=1e-9)


def test_an_error_on_one_rank_stops_all(folder: Path):
    told = {
        name: (folder / name).read_text() for name in ("nan-0", "nan-1", "layout-0", "layout-1", "empty-0", "empty-1")
    }
    assert told["nan-1"].startswith("DataError: the loss is nan in batch 1")
    assert told["nan-0"].startswith("DataError: scoring failed on rank 1: DataError: the loss is nan in batch 1")
    assert told["layout-0"].startswith("DataError: rank 1 scores 1 layers with 3 channels")
    assert told["layout-1"].startswith("DataError: rank 0 scores 2 layers with 7 channels")
    assert "no batches" in told["empty-0"]
    assert "no batches" in told["empty-1"]

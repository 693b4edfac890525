"""Times of real operators: finite, positive, the same whenever they are asked for. No test looks at how long."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ranp.costs.step import TrainingStep, trace_step
from ranp.costs.time import Table, latency, step_time
from ranp.costs.time.overhead import PHASES
from ranp.errors import UnsupportedError


class Tiny(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(1, width, 3, padding=1)
        self.norm = nn.BatchNorm3d(width)
        self.head = nn.Conv3d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))))


EXAMPLE = torch.zeros(1, 1, 6, 6, 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("times")


@pytest.fixture(autouse=True)
def _own_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANP_CACHE", str(folder))


def test_a_step_and_an_inference_from_end_to_end(folder: Path) -> None:
    seconds = step_time(Tiny(8), EXAMPLE)
    once = latency(Tiny(8), EXAMPLE)
    assert math.isfinite(seconds)
    assert seconds > once > 0
    assert seconds == step_time(Tiny(8), EXAMPLE) == step_time(Tiny(8).to("meta"), EXAMPLE.to("meta"))
    assert len(list(folder.iterdir())) == 1

    table = Table.open()
    full = trace_step(Tiny(8), EXAMPLE)
    assert table.seconds(full) == seconds
    assert all(math.isfinite(t) and t >= 0 for t in table.by_call(full))
    for width in range(1, 9):
        assert math.isfinite(table.seconds(trace_step(Tiny(width), EXAMPLE)))
    assert table.reference > 0
    assert set(table._content.overhead) == set(PHASES)


def test_a_given_table_and_loss_are_used(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    table = Table.open(tmp_path)
    seconds = step_time(
        Tiny(4),
        EXAMPLE,
        step=TrainingStep(batch=2, optimiser="sgd"),
        loss=lambda output, target: (output * target).mean(),
        target=torch.zeros(1, 2, 6, 6, 6),
        table=table,
        progress=lambda done, total: told.append((done, total)),
    )
    assert math.isfinite(seconds)
    assert seconds > 0
    assert told[-1][0] == told[-1][1] == len(told)
    assert table.path.exists()


def test_a_table_of_another_number_of_threads_measures_nothing(tmp_path: Path) -> None:
    table = Table.open(tmp_path)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        with pytest.raises(UnsupportedError, match="Open the table again"):
            table.cover(trace_step(Tiny(2), EXAMPLE))
    finally:
        torch.set_num_threads(threads)
    assert not table.path.exists()


def test_what_cannot_be_traced_is_refused() -> None:
    with pytest.raises(UnsupportedError):
        step_time(Tiny(4), torch.zeros(1, 3, 6, 6, 6))

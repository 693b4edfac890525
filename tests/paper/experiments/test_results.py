from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranp.errors import StorageError
from ranp.files import atomic
from ranp.paper.experiments.results import (
    KIND,
    VERSION,
    Costs,
    Result,
    Spread,
    over_last_epochs,
    over_seeds,
    read,
    write,
)
from tests.support.small_cells import cell


def made(seed: int, values: list[float]) -> Result:
    epochs = tuple({"epoch": n, "loss": 1.0, "seconds": 2.0 * n, "valid": {"miou": v}} for n, v in enumerate(values, 1))
    return Result(
        cell("ranp-f", seed),
        Costs(100, 10, 8),
        Costs(20, 2, 4),
        0.3,
        0.25,
        0.6,
        False,
        {"conv": (3, 4)},
        epochs,
        {"ranp": "1"},
    )


def test_a_result_comes_back_from_disk(tmp_path: Path) -> None:
    result = made(0, [0.1, 0.2])
    write(tmp_path / "deep", result)
    assert read(tmp_path / "deep") == result
    assert read(tmp_path) is None
    assert result.figures == {"miou": 0.2}
    assert result.seconds == 4.0 == made(0, [0.1] * 2).epochs[-1]["seconds"]


def test_a_damaged_result_is_refused(tmp_path: Path) -> None:
    write(tmp_path, made(0, [0.1]))
    path = tmp_path / "result.json"
    whole = path.read_text()
    value = atomic.read_json(path, kind=KIND, version=VERSION)
    del value["slim"]["flops"]
    atomic.write_json(path, value, kind=KIND, version=VERSION)
    with pytest.raises(StorageError, match=r"flops.*Remove it to run the cell again"):
        read(tmp_path)
    path.write_text(whole.replace('"sparsity": 0', '"sparsity": 9'))
    with pytest.raises(StorageError, match=r"was changed since it was written.*Remove it to run the cell again"):
        read(tmp_path)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=9))
def test_spread_is_numpys(values: list[float]) -> None:
    spread = Spread.of(values)
    assert spread.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert spread.deviation == pytest.approx(np.std(values, ddof=1), abs=1e-9)


def test_seeds_and_epochs_are_told_apart() -> None:
    runs = [made(0, [0.0, 0.5, 0.1, 0.2, 0.3, 0.4, 0.5]), made(1, [0.9] * 6 + [0.7])]
    seeds = over_seeds(runs, "miou")
    assert (seeds.mean, seeds.count) == (pytest.approx(0.6), 2)
    assert seeds.deviation == pytest.approx(np.std([0.5, 0.7], ddof=1))
    epochs = over_last_epochs(runs, "miou")
    last = [[0.1, 0.2, 0.3, 0.4, 0.5], [0.9] * 4 + [0.7]]
    assert epochs.mean == pytest.approx(np.mean([np.mean(one) for one in last]))
    assert epochs.deviation == pytest.approx(np.mean([np.std(one, ddof=1) for one in last]))
    assert epochs.count == 5


def test_costs_are_told_in_the_papers_units() -> None:
    costs = Costs(1024**2, 2 * 10**9, 1024**2 // 2)
    assert (costs.params_mb, costs.gflops, costs.memory_mb) == (4.0, 2.0, 2.0)

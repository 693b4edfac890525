from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from ranp.choosing.plan import Plan
from ranp.errors import RanpError
from ranp.paper.experiments.results import read
from ranp.paper.experiments.running import Place, run_all, run_cell
from tests.support import processes
from tests.support.small_cells import cell


def weights(folder: Path) -> dict[str, bytes]:
    """Bit by bit; the header of the file is in no particular order."""
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(folder / "model.safetensors").items()}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("cells"))
    run_all([cell("full"), cell("ranp-f"), cell("random")], place)
    return place


def test_a_cell_is_a_run_folder_with_a_result(done: Place) -> None:
    result = read(done.of(cell("ranp-f")))
    assert result is not None
    names = {path.name for path in done.of(cell("ranp-f")).iterdir()}
    assert {"recipe.json", "plan.json", "report.json", "scores.safetensors", "metrics.jsonl", "result.json"} <= names
    plan = Plan.load(done.of(cell("ranp-f")) / "plan.json")
    assert {name: pair[0] for name, pair in result.widths.items()} == plan.widths
    assert result.slim.flops < result.full.flops
    assert len(result.epochs) == 2
    assert 0 <= result.figures["miou"] <= 1
    full = read(done.of(cell("full")))
    assert full is not None
    assert full.slim == full.full == result.full
    assert (full.removed, full.largest) == (0.0, None)


def test_a_finished_cell_is_not_touched(done: Place) -> None:
    folder = done.of(cell("full"))
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    run_all([cell("full"), cell("full")], done)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.slow
def test_cells_are_the_same_whoever_runs_them_and_however_many_at_once(done: Place, tmp_path: Path) -> None:
    place = Place(tmp_path)
    told: list[str] = []
    results = run_all(
        [cell("full"), cell("ranp-f"), cell("random")],
        place,
        jobs=2,
        progress=lambda label, n, of, remark: told.append(label),
    )
    for result in results:
        assert weights(place.of(result.cell)) == weights(done.of(result.cell))
    assert told.count("cell") == 3


def test_one_cell_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    wrong = cell("ranp-f", data=str(tmp_path / "nowhere"))
    with pytest.raises(RanpError, match=r"1 of 2 cells could not be run: .*run the same command again") as refused:
        run_all([wrong, cell("full")], Place(tmp_path))
    assert wrong.id in str(refused.value)
    assert read(Place(tmp_path).of(cell("full"))) is not None


def test_a_killed_cell_goes_on_to_the_same_end(done: Place, tmp_path: Path) -> None:
    place = Place(tmp_path)
    program = (
        "import sys; from pathlib import Path\n"
        "from tests.support.small_cells import cell\n"
        "from ranp.paper.experiments.running import Place, run_all\n"
        "if __name__ == '__main__': run_all([cell('full')], Place(Path(sys.argv[1])), jobs=2)\n"
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    command = [sys.executable, str(script), str(tmp_path)]
    with subprocess.Popen(command, env=processes.environment()) as running:
        folder = place.of(cell("full"))
        while not list(folder.glob("checkpoint-*")) and running.poll() is None:
            time.sleep(0.01)
        running.kill()
    result = run_all([cell("full")], place)[0]  # waits until the orphaned worker has let go of the cell
    assert weights(folder) == weights(done.of(cell("full")))
    assert result == replace(read(done.of(cell("full"))), epochs=result.epochs)  # type: ignore[type-var]
    assert [record["valid"] for record in result.epochs] == [
        record["valid"]
        for record in read(done.of(cell("full"))).epochs  # type: ignore[union-attr]
    ]


def test_costs_alone_are_those_of_the_trained_cell(done: Place, tmp_path: Path) -> None:
    trained = read(done.of(cell("ranp-f")))
    assert trained is not None
    costs = run_cell(cell("ranp-f", trains=False), Place(tmp_path))
    assert (costs.slim, costs.widths, costs.epochs) == (trained.slim, trained.widths, ())
    full = run_cell(cell("full", trains=False), Place(tmp_path))
    assert full.slim == trained.full


def test_a_plan_of_another_task_is_taken_as_it_is(tmp_path: Path) -> None:
    from ranp.paper.experiments.cell import Cell

    settings = (
        ("options.widths", (4, 8)),
        ("size", 8),
        ("epochs", 1),
        ("milestones", ()),
        ("batch", 4),
        ("train_count", 4),
        ("valid_count", 2),
    )
    origin = cell("ranp-f")
    transferred = Cell("brats", "ranp-f", 0, sparsity=0.3, settings=settings, batches=1, batch=4, origin=origin)
    place = Place(tmp_path)
    for one in (transferred, replace(transferred, trains=False)):
        result = run_cell(one, place)
        own = run_cell(replace(origin, trains=False), place)
        assert dict(list(result.widths.items())[:-1]) == dict(list(own.widths.items())[:-1])
        assert result.full.flops != own.full.flops

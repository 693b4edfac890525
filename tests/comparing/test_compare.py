from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import ranp
from ranp.comparing.arms import Arm
from ranp.comparing.cells import Cell, Place, decide
from ranp.comparing.sources import LightningTraining, TaskTraining
from ranp.comparing.subject import Subject
from ranp.errors import FULL_DISK, InfeasibleError, RanpError, UnsupportedError, exit_status
from ranp.page.build import build
from tests.support import comparable, processes
from tests.support.reading import read

ARMS = ("full", "flat", "ranp-f", "bare=ranp-f,min_channels=1")


def run(out: Path, **changes: Any) -> ranp.Comparison:
    given: dict[str, Any] = {"arms": ARMS, "budgets": "flops=30%", "seeds": 3, "rates": (1e-2,), **changes}
    train = given.pop("train", comparable.train)
    return ranp.compare(comparable.model, comparable.batches, F.cross_entropy, train, out=out, **given)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ranp.Comparison]:
    out = tmp_path_factory.mktemp("compare")
    return out, run(out, rates=(3e-3, 1e-2), exploration=1, random_widths=3, random_seeds=2)


def test_every_arm_is_at_the_same_budget_by_torchs_count(done: tuple[Path, ranp.Comparison]) -> None:
    out, found = done
    subject = Subject(comparable.model, comparable.batches, F.cross_entropy, comparable.train)

    def counted(network: torch.nn.Module) -> int:
        with FlopCounterMode(display=False) as counter:
            network(comparable.batches(0)[0][0])
        return counter.get_total_flops()

    limit = 0.3 * counted(comparable.model())
    for outcome in found.runs:
        if not outcome.cell.arm.prunes:
            continue
        plan = decide(outcome.cell, subject, Place(out)).plan
        assert plan is not None
        slim = counted(ranp.slim(subject.full(outcome.cell.seed), plan))
        assert slim <= limit
        assert slim == outcome.decision.costs["flops"]
        assert outcome.decision.used["flops=30%"] == pytest.approx(slim / limit)


def test_what_is_written_holds_every_run(done: tuple[Path, ranp.Comparison]) -> None:
    out, found = done
    rows = list(csv.DictReader((out / "compare.csv").read_text().splitlines()))
    compared = [row for row in rows if row["phase"] == "comparison"]
    assert len(compared) == 4 * 3 + 3 * 2
    assert len(rows) - len(compared) == 4 * 2  # two rates on one exploration seed
    assert {row["seed"] for row in compared} == {"0", "1", "2"}
    assert {row["seed"] for row in rows if row["phase"] == "exploration"} == {"10000"}
    text = (out / "compare.md").read_text()
    assert "flat widths" in text
    assert "bare" in text
    assert "Percentiles are among 3 random vectors" in text
    assert "flops=30%" in (out / "compare.html").read_text()
    (row,) = (row for row in found.rows("flops=30%") if row.arm.name == "ranp-f")
    assert row.step_time is not None
    assert row.percentile is not None
    assert len(row.runs) == 3


def test_every_figure_of_the_training_is_told_in_its_page_and_in_a_report(done: tuple[Path, ranp.Comparison]) -> None:
    out, found = done
    runs = [run for run in found.runs if run.cell.arm.name == "flat"]
    means = [sum(run.figures[name] for run in runs) / len(runs) for name in ("loss", "right")]
    for page in ((out / "compare.html").read_text(encoding="utf-8"), build([out])):
        told = read(page)
        head, *rows = told.table("Mean ± standard deviation")
        assert head == ["arm", "loss", "right"]
        (row,) = (row for row in rows if row[0] == "flat widths")
        assert [cell.split(" ± ")[0] for cell in row[1:]] == [f"{mean:.4f}" for mean in means]
    assert told.headings[:3] == [(1, found.table().title), (2, "What came out"), (2, "Every figure of the training")]


def test_one_figure_alone_needs_no_table_of_its_own(tmp_path: Path) -> None:
    found = run(tmp_path, train=comparable.diverging, rates=(0.01,), seeds=1, arms=("flat",))
    assert found.figures() is None
    assert not (tmp_path / "compare-figures.json").exists()


def test_nothing_is_run_twice_and_seeds_can_be_added(done: tuple[Path, ranp.Comparison], tmp_path: Path) -> None:
    out, before = done
    cells = {path: path.stat().st_mtime_ns for path in (out / "cells").glob("*.json")}
    again = run(out, rates=(3e-3, 1e-2), exploration=1, random_widths=3, random_seeds=2)
    assert again.table().to_markdown() == before.table().to_markdown()
    more = run(out, rates=(3e-3, 1e-2), exploration=1, seeds=4)
    assert {path: path.stat().st_mtime_ns for path in cells} == cells
    assert len(more.runs) == 4 * 4


def test_arms_of_a_seed_begin_with_the_same_weights_and_draws(tmp_path: Path) -> None:
    found = run(tmp_path, train=comparable.first_weights, metric="first", goal="max")
    torch.manual_seed(1)
    full = next(comparable.model().parameters()).flatten()[0].item()
    runs = [one for one in found.runs if one.cell.seed == 1]
    assert {one.figures["first"] for one in runs} == {full}  # the first layer has one input in all
    assert len({one.figures["channels"] for one in runs}) > 1
    assert len({one.figures["drawn"] for one in runs}) == 1
    assert len({one.figures["drawn"] for one in found.runs}) == 3


def test_the_rate_is_chosen_on_exploration_seeds_and_what_diverged_is_never_best(tmp_path: Path) -> None:
    found = run(tmp_path, train=comparable.diverging, rates=(0.01, 0.02, 0.5), seeds=2, arms=("flat",))
    assert {one.cell.lr for one in found.runs} == {0.02}
    assert not any(row.at_edge for row in found.rows("flops=30%"))
    edge = run(tmp_path / "edge", train=comparable.diverging, rates=(0.01, 0.02), seeds=2, arms=("flat",))
    assert all(row.at_edge for row in edge.rows("flops=30%"))
    assert "least or the largest" in "".join(edge.notes())


def test_runs_without_a_number_are_failures(tmp_path: Path) -> None:
    found = run(tmp_path, train=comparable.diverging, rates=(0.5,), seeds=2, arms=("full", "flat"))
    assert [row.failures(found.measure) for row in found.rows("flops=30%")] == [2, 2]
    assert "2 of 2" in found.table().to_markdown()
    assert json.loads(json.dumps(found.records(), allow_nan=False))[0]["loss"] is None


def test_code_of_the_users_that_fails_is_named_and_the_others_are_finished(tmp_path: Path) -> None:
    with pytest.raises(RanpError, match=r"2 of 6 cells could not be run: .*no disk for seed 1.*comparable.py") as told:
        run(tmp_path, train=comparable.failing, arms=("full", "flat"))
    assert exit_status(told.value) == FULL_DISK
    assert len(list((tmp_path / "cells").glob("*.json"))) == 4


def test_other_code_does_not_take_over_a_folder(done: tuple[Path, ranp.Comparison]) -> None:
    with pytest.raises(UnsupportedError, match=r"train changed since the cells in"):
        run(done[0], train=comparable.diverging)
    with pytest.raises(UnsupportedError, match=r"init changed since"):
        run(done[0], init="glorot")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reference": "flap"}, "reference='flap' is not an arm that is pruned. Pass one of flat, ranp-f, bare"),
        ({"reference": "full"}, "reference='full' is not an arm that is pruned"),
        ({"arms": ("full",)}, "nothing to compare"),
        ({"arms": ("flat", "flat")}, "two arms are called 'flat'"),
        ({"arms": ("flat", "rnap-f")}, "arm 'rnap-f': unknown method 'rnap-f'"),
        ({"arms": ("flat,budget=5",)}, "budget is the comparison's own"),
        ({"arms": ("flat,width=5",)}, "unknown option 'width'"),
        ({"budgets": "flop=3%"}, "flop.*flops"),
        ({"goal": "best"}, "unknown goal 'best'. Allowed: max, min"),
        ({"rates": (-1.0,)}, "rates=-1.0"),
        ({"seeds": ()}, "seeds"),
        ({"rates": (0.0, 0.1)}, "rates"),
        ({"seeds": (0, 10_001), "rates": (0.1, 0.2)}, "seeds=10001 is not allowed. Pass others than those"),
        ({"init": "gloror"}, "gloror"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(RanpError, match=f"(?i){words}"):
        run(tmp_path, **changes)


def test_a_budget_that_cannot_be_met_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError, match=r"arm 'flat': .*smallest possible"):
        run(tmp_path, budgets="flops=0.1%", train=comparable.failing)
    assert not list((tmp_path / "cells").glob("*.json")) if (tmp_path / "cells").exists() else True


def test_a_figure_that_no_training_returns_is_refused_after_one_cell(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"unknown metric 'dice'\. Allowed: loss, right"):
        run(tmp_path, metric="dice", rates=(3e-3, 1e-2), arms=("flat",))
    assert len(list((tmp_path / "cells").glob("*.json"))) == 1


def test_functions_that_nobody_can_import_are_refused_before_the_first_cell(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"jobs=2 needs functions that other processes can import"):
        run(tmp_path, train=lambda network, training: {"loss": 1.0}, jobs=2)


def test_a_changed_file_is_found(tmp_path: Path) -> None:
    run(tmp_path, seeds=1, arms=("flat",))
    (path,) = (tmp_path / "cells").glob("*.json")
    path.write_text(path.read_text().replace('"seconds": ', '"seconds": 1'))
    with pytest.raises(RanpError, match="Remove it to run the cell again"):
        run(tmp_path, seeds=1, arms=("flat",))


@pytest.mark.slow
def test_a_killed_comparison_goes_on_to_the_same_end(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from tests.comparing.test_compare import run\n"
        "if __name__ == '__main__': run(Path(sys.argv[1]), jobs=2)\n"
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    out = tmp_path / "killed"
    for wanted in (1, 5):
        with subprocess.Popen([sys.executable, str(script), str(out)], env=processes.environment()) as running:
            while len(list(out.glob("cells/*.json"))) < wanted and running.poll() is None:
                time.sleep(0.02)
            running.kill()
    killed, whole = run(out), run(tmp_path / "whole")
    assert [one.figures for one in killed.runs] == [one.figures for one in whole.runs]
    assert [one.decision.widths for one in killed.runs] == [one.decision.widths for one in whole.runs]


def test_random_widths_are_where_others_are_and_differ(tmp_path: Path) -> None:
    subject = Subject(comparable.model, comparable.batches, F.cross_entropy, comparable.train)
    found = [decide(Cell(Arm.of(f"widths-{draw}"), "flops=30%", 0, 0.1), subject, Place(tmp_path)) for draw in range(6)]
    assert len({tuple(one.widths.values()) for one in found}) > 2
    assert all(one.used["flops=30%"] <= 1 for one in found)
    again = decide(Cell(Arm.of("widths-2"), "flops=30%", 1, 0.1), subject, Place(tmp_path / "again"))
    assert again.widths == found[2].widths  # the draw, not the seed, says how wide


def test_a_random_vector_with_a_name_is_an_arm_like_the_others(tmp_path: Path) -> None:
    found = run(tmp_path, arms=("flat", "best=widths-2"), seeds=2)
    assert [row.arm.name for row in found.rows("flops=30%")] == ["flat", "best"]
    assert Arm.of("widths-2").is_drawn
    assert not Arm.of("best=widths-2").is_drawn


def test_a_criterion_of_ones_own_is_an_arm(tmp_path: Path) -> None:
    arm = Arm.of("mine=ranp-f,criterion=tests.support.comparable:last_first,min_channels=1")
    options = arm.pruning("flops=30%", 3)
    assert (options.rule.name, options.min_channels, options.seed) == ("last first", 1, 3)
    subject = Subject(comparable.model, comparable.batches, F.cross_entropy, comparable.train)
    found = decide(Cell(arm, "flops=30%", 0, 0.1), subject, Place(tmp_path)).plan
    assert found is not None
    assert found.kept["0"] == tuple(range(12 - len(found.kept["0"]), 12))
    with pytest.raises(UnsupportedError, match="no module"):
        Arm.of("ranp-f,criterion=nowhere:it")


def test_a_task_of_the_paper_is_a_subject(tmp_path: Path) -> None:
    settings = ("options.widths=4,8", "size=8", "epochs=1", "batch=4", "train_count=8", "valid_count=4")
    training = TaskTraining("shapenet", settings=settings, batches=1, batch=4)
    how: dict[str, Any] = {"arms": ("full", "flat"), "budgets": "flops=60%", "seeds": 2, "rates": (1e-2,)}
    found = ranp.compare(subject=training.subject(), out=tmp_path, **how)
    assert found.measure.higher
    assert all(0 <= found.measure.of(one) <= 1 for one in found.runs)
    again = ranp.compare(subject=training.subject(), out=tmp_path / "again", **how)
    assert [one.figures for one in again.runs] == [one.figures for one in found.runs]


def test_a_lightning_module_is_a_subject(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    training = LightningTraining(comparable.module_and_data, trainer={"max_epochs": 1, "accelerator": "cpu"}, batches=2)
    how: dict[str, Any] = {"arms": ("full", "flat"), "budgets": "flops=30%", "seeds": 2, "rates": (3e-3, 2e-2)}
    found = ranp.compare(subject=training.subject(), out=tmp_path, exploration=1, metric="val_loss", **how)
    assert not found.measure.higher
    assert sorted({one.figures["rate"] for one in found.explored}) == pytest.approx([3e-3, 2e-2])
    slim = [one for one in found.runs if one.cell.arm.prunes]
    assert all(one.decision.used["flops=30%"] <= 1 for one in slim)

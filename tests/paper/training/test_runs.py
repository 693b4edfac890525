"""Whole runs: prune and train in one, plans from elsewhere, folders that are refused, runs that go on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import ranp
from ranp import Plan
from ranp.costs.tuning import Tuned
from ranp.errors import DataError, InfeasibleError, PlanMismatchError, StorageError, UnsupportedError
from ranp.paper import training
from ranp.paper.models import build
from ranp.paper.recipe import Recipe
from ranp.paper.training.network import make_full, whole
from ranp.reporting.folder import RunFolder, versions, write_run
from ranp.slimming import storage
from tests.support.toy import NOISY, VOLUMES

PRUNING = training.Pruning("ranp-f", 0.2, batches=4)


def test_prune_and_train_in_one(tmp_path: Path) -> None:
    run = training.train(VOLUMES, tmp_path / "run", pruning=PRUNING)
    names = {path.name for path in run.folder.iterdir()}
    assert {"recipe.json", "plan.json", "report.json", "metrics.jsonl", "model.safetensors"} <= names
    assert any(name.startswith("checkpoint-") for name in names)
    assert Plan.load(run.folder / "plan.json").widths == run.plan.widths
    assert run.plan.sparsity.removed > 0
    assert run.plan.settings["batches"] == 4
    options = dict(VOLUMES.recipe.options)
    loaded = storage.load(run.folder / "model.safetensors", lambda: build("unet3d-shapenet", **options))
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    assert training.evaluate(run.folder, VOLUMES) == run.figures
    told = json.loads((run.folder / "recipe.json").read_text())
    assert Recipe.from_dict(told["recipe"]) == VOLUMES.recipe
    assert told["inputs"] == ["1x1x8x8x8"]
    assert told["pruning"]["method"] == "ranp-f"


def test_a_batch_that_no_data_fill_is_refused_before_anything_is_scored(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(DataError, match=r"batch=64 is more than the \d+ training samples"):
        training.train(
            VOLUMES,
            tmp_path / "run",
            settings=["batch=64"],
            pruning=PRUNING,
            progress=lambda label, *_: told.append(label),
        )
    assert not told
    assert not (tmp_path / "run").exists()


def test_a_budget_of_memory_is_about_the_step_of_the_recipe(tmp_path: Path) -> None:
    pruning = training.Pruning("ranp-f", batches=4, more={"budget": "train-memory=95%"})
    run = training.train(VOLUMES, tmp_path / "run", settings=["batch=2", "epochs=1"], pruning=pruning)
    step = replace(VOLUMES.recipe, batch=2).step()
    told = run.plan.settings["step"]
    assert (told["batch"], told["optimiser"]) == (2, step.optimiser)
    (spent,) = ranp.Report.load(run.folder / "report.json").spent()
    full = make_full(VOLUMES, replace(VOLUMES.recipe, batch=2))
    example = torch.empty(1, 1, 8, 8, 8, device="meta")
    stand_in = ranp.training_memory(full, example, step=step).peak
    assert spent.before == pytest.approx(stand_in, rel=0.1)


def test_what_a_step_needs_is_in_the_report_of_a_run(tmp_path: Path) -> None:
    run = training.train(VOLUMES, tmp_path / "run", settings=["epochs=1"], pruning=PRUNING)
    (spent,) = ranp.Report.load(run.folder / "report.json").spent()
    assert spent.quantity.name == "train-memory"
    assert 0 < spent.after < spent.before


def test_a_run_whose_recipe_has_older_words_goes_on(tmp_path: Path) -> None:
    run = RunFolder(training.train(NOISY, tmp_path / "run", settings=["precision=bf16", "epochs=1"]).folder)
    stored = run.recipe()
    run.write_recipe({**stored, "recipe": {**stored["recipe"], "precision": "bf16"}})
    again = training.train(NOISY, run.path, settings=["epochs=2"], resume=True)
    assert [record["epoch"] for record in again.records if record["kind"] == "epoch"] == [1, 2]
    assert run.finished_recipe()["recipe"]["precision"] == "amp-bfloat16"


def test_prune_then_train_by_the_plan_is_the_same(tmp_path: Path) -> None:
    one = training.train(VOLUMES, tmp_path / "one", pruning=PRUNING)
    other = training.train(VOLUMES, tmp_path / "other", plan=Plan.load(one.folder / "plan.json"))
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(other.model.state_dict()[name], tensor)


def test_a_plan_of_one_size_trains_at_another_and_on_another_task(tmp_path: Path) -> None:
    small = training.train(VOLUMES, tmp_path / "small", pruning=PRUNING)
    large = training.train(VOLUMES, tmp_path / "large", settings=["size=12", "epochs=1"], plan=small.plan)
    assert {n: t.shape for n, t in large.model.state_dict().items()} == {
        n: t.shape for n, t in small.model.state_dict().items()
    }
    other = replace(VOLUMES, source=replace(VOLUMES.source, options={"classes": 7}))
    moved = training.train(other, tmp_path / "moved", settings=["epochs=1"], plan=small.plan)
    widths = {name: width for name, width in small.plan.widths.items() if name != "head"}
    shapes = {name: len(module.weight) for name, module in moved.model.named_modules() if name in widths}
    assert shapes == widths
    assert moved.model.head.out_channels == 7  # type: ignore[union-attr]


def test_scores_may_come_from_another_size(tmp_path: Path) -> None:
    run = training.train(
        VOLUMES, tmp_path / "run", settings=["epochs=1"], pruning=replace(PRUNING, size=12, method="ranp-m")
    )
    assert json.loads((run.folder / "recipe.json").read_text())["inputs"] == ["1x1x8x8x8"]


def test_a_full_network_is_trained_and_stored_with_the_plan_that_removes_nothing(tmp_path: Path) -> None:
    run = training.train(VOLUMES, tmp_path / "run", settings=["epochs=1"])
    assert run.plan.sparsity.removed == 0
    assert run.plan.kept == whole(make_full(VOLUMES, VOLUMES.recipe)).kept
    assert training.evaluate(run.folder, VOLUMES) == run.figures


def test_a_longer_run_is_the_continuation_of_a_shorter_one(tmp_path: Path) -> None:
    training.train(NOISY, tmp_path / "grown", settings=["epochs=2"])
    grown = training.train(NOISY, tmp_path / "grown", settings=["epochs=3"], resume=True)
    whole_run = training.train(NOISY, tmp_path / "whole")
    for name, tensor in whole_run.model.state_dict().items():
        assert torch.equal(grown.model.state_dict()[name], tensor)
    assert len([r for r in grown.records if r["kind"] == "epoch"]) == 3
    assert Recipe.from_dict(json.loads((grown.folder / "recipe.json").read_text())["recipe"]).epochs == 3


def test_what_would_make_past_steps_wrong_cannot_change(tmp_path: Path) -> None:
    training.train(VOLUMES, tmp_path / "run", settings=["epochs=1"])
    with pytest.raises(UnsupportedError, match=r"learning_rate=0.5: the run in .* was begun with 0.1"):
        training.train(VOLUMES, tmp_path / "run", settings=["learning_rate=0.5"], resume=True)
    pruned = training.train(VOLUMES, tmp_path / "pruned", settings=["epochs=1"], pruning=PRUNING)
    assert training.train(VOLUMES, tmp_path / "pruned", pruning=PRUNING, resume=True).plan == pruned.plan
    with pytest.raises(UnsupportedError, match=r"ranp-f at 0\.1: the run in .* was begun with ranp-f at 0\.2"):
        training.train(VOLUMES, tmp_path / "pruned", pruning=replace(PRUNING, sparsity=0.1), resume=True)
    with pytest.raises(UnsupportedError, match="was begun without pruning"):
        training.train(VOLUMES, tmp_path / "run", pruning=PRUNING, resume=True)
    with pytest.raises(UnsupportedError, match="another plan"):
        training.train(VOLUMES, tmp_path / "run", plan=pruned.plan, resume=True)


def test_folders_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    training.train(VOLUMES, folder, settings=["epochs=1"])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(StorageError, match=r"is not empty"):
        training.train(VOLUMES, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"is not empty"):
        training.train(VOLUMES, tmp_path / "mine", resume=True)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StorageError, match="is a file"):
        training.train(VOLUMES, tmp_path / "file")


def test_resume_begins_where_nothing_was_begun(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "barely").mkdir()
    whole(make_full(VOLUMES, VOLUMES.recipe)).save(tmp_path / "barely" / "plan.json")
    for name in ("empty", "barely", "none"):
        assert training.train(VOLUMES, tmp_path / name, settings=["epochs=1"], resume=True).figures


def test_torn_checkpoints_and_recipes_are_named(tmp_path: Path) -> None:
    run = training.train(VOLUMES, tmp_path / "run", settings=["epochs=1"])
    for path in run.folder.glob("checkpoint-*"):
        path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(StorageError, match="none of the 1 checkpoints"):
        training.train(VOLUMES, run.folder, settings=["epochs=2"], resume=True)
    (run.folder / "recipe.json").write_text("{")
    with pytest.raises(StorageError, match=r"recipe\.json' is not readable JSON"):
        training.train(VOLUMES, run.folder, resume=True)


def test_wrong_plans_and_sparsities_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    plan = whole(make_full(VOLUMES, VOLUMES.recipe))
    cut = training.train(VOLUMES, tmp_path / "cut", settings=["epochs=1"], pruning=PRUNING).plan
    with pytest.raises(UnsupportedError, match="Pass one of them"):
        training.train(VOLUMES, tmp_path / "run", plan=plan, pruning=PRUNING)
    with pytest.raises(PlanMismatchError):
        training.train(VOLUMES, tmp_path / "run", settings=["options.widths=8,16"], plan=cut)
    with pytest.raises(InfeasibleError):
        training.train(VOLUMES, tmp_path / "run", pruning=replace(PRUNING, sparsity=0.99))
    assert not (tmp_path / "run").exists()


def test_only_trained_folders_are_evaluated(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a folder"):
        training.evaluate(tmp_path / "nothing", VOLUMES)
    made = ranp.prune(
        make_full(VOLUMES, VOLUMES.recipe), [], None, example=torch.zeros(1, 1, 8, 8, 8), method="random", sparsity=0.2
    )
    write_run(tmp_path / "pruned", made, {"model": "unet3d-shapenet"})
    with pytest.raises(StorageError, match="was not trained"):
        training.evaluate(tmp_path / "pruned", VOLUMES)


def test_a_changed_recipe_is_not_evaluated(tmp_path: Path) -> None:
    run = training.train(VOLUMES, tmp_path / "run", settings=["epochs=1"])
    path = run.folder / "recipe.json"
    text = path.read_text()
    assert '"seed": 0' in text
    path.write_text(text.replace('"seed": 0', '"seed": 3'))
    with pytest.raises(StorageError, match="changed since it was written"):
        training.evaluate(run.folder, VOLUMES)
    path.write_text(text)
    assert training.evaluate(run.folder, VOLUMES) == run.figures


def test_lost_lines_of_a_journal_are_found_by_readers_and_by_a_run_that_goes_on(tmp_path: Path) -> None:
    run = training.train(VOLUMES, tmp_path / "run", settings=["epochs=2"])
    path = run.folder / "metrics.jsonl"
    text = path.read_text()
    path.write_text(text[: text.rindex("{")])
    with pytest.raises(StorageError, match="lost lines at its end"):
        training.records(run.folder)
    with pytest.raises(StorageError, match="lost lines at its end"):
        training.train(VOLUMES, run.folder, settings=["epochs=3"], resume=True)
    for checkpoint in run.folder.glob("checkpoint-*"):
        checkpoint.unlink()
    with pytest.raises(StorageError, match="lost lines at its end"):  # the network remembers too
        training.records(run.folder)
    with pytest.raises(StorageError, match="checkpoints are gone"):
        training.train(VOLUMES, run.folder, settings=["epochs=3"], resume=True)
    path.write_text(text)
    assert training.records(run.folder) == run.records


def test_going_on_from_an_older_checkpoint_tells_the_rest_again(tmp_path: Path) -> None:
    run = training.train(NOISY, tmp_path / "run")
    newest = max(run.folder.glob("checkpoint-*"))
    data = newest.read_bytes()
    newest.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    again = training.train(NOISY, run.folder, resume=True)
    assert untimed(again.records) == untimed(run.records)
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor)
    assert training.records(run.folder) == again.records


def untimed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def test_another_version_of_torch_is_told_in_the_log_and_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = training.train(VOLUMES, tmp_path / "run", settings=["epochs=1"])
    assert "goes on with" not in caplog.text
    old, new = versions(), {**versions(), "torch": "99.0"}
    monkeypatch.setattr("ranp.paper.training.engine.versions", lambda: new)
    again = training.train(VOLUMES, run.folder, settings=["epochs=2"], resume=True)
    assert "torch 99.0" in caplog.text
    assert [record for record in again.records if record["kind"] == "versions"] == [
        {"kind": "versions", "step": run.records[-1]["step"], "before": old, "now": new}
    ]
    caplog.clear()
    training.train(VOLUMES, run.folder, settings=["epochs=3"], resume=True)
    assert "goes on with" not in caplog.text, "it was told already"


def test_the_fastest_way_to_run_is_found_once_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Tuned] = []

    def tune(*_: Any) -> Tuned:
        asked.append(Tuned("channels_last_3d", halved=True))
        return asked[-1]

    monkeypatch.setattr("ranp.paper.training.runs.tune", tune)
    first = training.train(NOISY, tmp_path / "run", settings=["memory_format=auto", "epochs=1"])
    assert RunFolder(first.folder).recipe()["recipe"]["memory_format"] == "channels_last_3d+halved"
    training.train(NOISY, tmp_path / "run", settings=["memory_format=auto", "epochs=2"], resume=True)
    assert len(asked) == 1

"""``ranp train`` and ``ranp evaluate``: what a run leaves, plans from elsewhere, runs that go on, real data."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import ranp
from ranp.cli import main
from ranp.files import atomic
from ranp.paper import tasks
from ranp.paper.recipe import Recipe
from tests.support import processes
from tests.support.real_data import real_data

SMALL = "--scale cpu --set tensorboard=false --set train_count=8 --set valid_count=4 --set batch=4".split()
TINY = [*SMALL, *"--set epochs=1 --set size=8 --set options.widths=4,8".split()]
PRUNING = "--method ranp-f --sparsity 0.2 --prune-batches 4".split()


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def figures(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(told(capsys, *arguments, "--json"))
    return value


@pytest.fixture(scope="module")
def pruned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of ``ranp prune`` at the small scale."""
    folder = tmp_path_factory.mktemp("pruned") / "run"
    options = "--task shapenet --scale cpu --size 8 --max-batches 2 --sparsity 0.5 --strength 1 --seed 3".split()
    assert main(["prune", "unet3d-shapenet", *options, "--no-tune", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that pruned and trained two epochs; tests may not change it."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "shapenet", *TINY, "--set", "epochs=2", *PRUNING, "--out", str(folder)]) == 0
    return folder


def test_less_than_was_asked_for_is_told_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "shapenet", *TINY, *PRUNING, "--out", str(tmp_path / "run")]) == 0
    plan, lines = ranp.Plan.load(tmp_path / "run" / "plan.json"), capsys.readouterr().err.splitlines()
    (said,) = [number for number, line in enumerate(lines) if line.startswith("pruning 1 of 1: ")]
    assert f"20.00% asked for, {plan.sparsity.of_channels:.2%} removed: " in lines[said]
    assert "--exact removes" in lines[said]
    assert said < next(number for number, line in enumerate(lines) if line.startswith("epoch"))


def recipe_of(folder: Path) -> dict[str, Any]:
    return atomic.read_json(folder / "recipe.json", kind="ranp-recipe", version=2)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: Path, other: Path) -> bool:
    mine, others = weights(one), weights(other)
    return mine.keys() == others.keys() and all(torch.equal(mine[name], others[name]) for name in mine)


def test_a_run_leaves_everything_to_go_on_from_and_to_read(trained: Path) -> None:
    assert sorted(path.name for path in trained.iterdir()) == [
        "checkpoint-000000002.safetensors",
        "checkpoint-000000004.safetensors",
        "metrics.jsonl",
        "model.safetensors",
        "plan.json",
        "recipe.json",
        "report.json",
        "scores.safetensors",
    ]
    told = recipe_of(trained)
    recipe = Recipe.from_dict(told["recipe"])
    assert (recipe.size, recipe.epochs, recipe.batch, recipe.options["widths"]) == (8, 2, 4, (4, 8))
    assert recipe.network == told["model"] == tasks.get("shapenet").cpu.network
    assert told["options"] == {"widths": [4, 8]}
    assert told["inputs"] == ["1x1x8x8x8"]
    assert told["data"]["scale"] == "cpu"
    assert told["data"]["folder"] is None
    assert told["pruning"]["sparsity"] == 0.2
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [(one["kind"], one["step"]) for one in lines] == [
        ("step", 1),
        ("step", 2),
        ("epoch", 2),
        ("step", 3),
        ("step", 4),
        ("epoch", 4),
    ]
    assert ranp.Plan.load(trained / "plan.json").sparsity.removed > 0
    assert ranp.Report.load(trained / "report.json").sparsity.requested == 0.2


def test_json_has_the_figures_and_a_table_says_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = figures(capsys, "train", "shapenet", *TINY, "--out", tmp_path / "one")
    assert value["folder"] == str(tmp_path / "one")
    assert value["figures"].keys() == {"miou", "accuracy"}
    assert [record["epoch"] for record in value["epochs"]] == [1]
    assert value["epochs"][0]["valid"] == value["figures"]
    assert value["widths"]["encoders.1.conv2.0"] == 8
    text = told(capsys, "train", "shapenet", *TINY, "--out", tmp_path / "two")
    assert f"{value['figures']['miou']:.4f}" in text
    assert "7 layers, 0.0% of the channels removed" in text
    assert f"wrote {tmp_path / 'two'}" in text
    assert same(tmp_path / "one", tmp_path / "two")


def test_tensorboard_is_written_unless_told_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    told(capsys, "train", "shapenet", *TINY, "--set", "tensorboard=true", "--out", tmp_path / "run")
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))


def test_evaluating_repeats_the_last_figures(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = json.loads((trained / "metrics.jsonl").read_text().splitlines()[-1])
    value = figures(capsys, "evaluate", trained)
    assert value == {"folder": str(trained), "task": "shapenet", "data": None, **last["valid"]}
    text = told(capsys, "evaluate", trained)
    assert "procedural" in text
    assert f"{last['valid']['miou']:.4f}" in text


def test_a_finished_run_is_resumed_to_itself_and_then_further(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, whole = tmp_path / "run", tmp_path / "whole"
    first = figures(capsys, "train", "shapenet", *TINY, *PRUNING, "--out", folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    trained = weights(folder)
    again = figures(capsys, "train", "shapenet", "--out", folder, "--resume")
    assert again == first
    for path in folder.iterdir():  # safetensors writes the entries of its header in any order
        assert path.name == "model.safetensors" or path.read_bytes() == before[path.name]
    assert all(torch.equal(tensor, trained[name]) for name, tensor in weights(folder).items())
    further = figures(capsys, "train", "shapenet", "--out", folder, "--resume", "--set", "epochs=3")
    assert [record["epoch"] for record in further["epochs"]] == [1, 2, 3]
    figures(capsys, "train", "shapenet", *TINY, *PRUNING, "--set", "epochs=3", "--out", whole)
    assert same(folder, whole)
    assert recipe_of(folder)["recipe"]["epochs"] == 3


def test_resume_begins_a_run_that_was_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert figures(capsys, "train", "shapenet", *TINY, "--out", tmp_path / "run", "--resume")["epochs"]


def test_prune_then_train(pruned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan of one size at another size, by the same small network."""
    plan = ranp.Plan.load(pruned / "plan.json")
    assert recipe_of(pruned)["data"]["size"] == 8
    options = [*SMALL, *"--set epochs=1 --set size=12".split()]
    value = figures(capsys, "train", "shapenet", *options, "--plan", pruned / "plan.json", "--out", tmp_path / "run")
    assert value["widths"] == plan.widths
    assert recipe_of(tmp_path / "run")["inputs"] == ["1x1x12x12x12"]
    tensors = weights(tmp_path / "run")
    assert {name: len(tensors[f"{name}.weight"]) for name in plan.widths if f"{name}.weight" in tensors}.items() <= (
        plan.widths.items()
    )
    slim = ranp.load(
        pruned / "model.safetensors", lambda: ranp.paper.models.build("unet3d-shapenet", widths=(16, 32, 64))
    )
    assert {n: t.shape for n, t in slim.state_dict().items()} == {n: t.shape for n, t in tensors.items()}


def test_a_plan_of_one_task_trains_another(pruned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("monai")
    plan = ranp.Plan.load(pruned / "plan.json")
    options = (
        "--scale cpu --set tensorboard=false --set epochs=1 --set size=8 --set train_count=2 --set batch=2".split()
    )
    more = ["--set", "valid_count=1", "--plan", pruned / "plan.json", "--out", tmp_path / "run"]
    value = figures(capsys, "train", "brats", *options, *more)
    assert "dice_wt" in value["figures"]
    tensors = weights(tmp_path / "run")
    for name, width in plan.widths.items():
        assert len(tensors[f"{name}.weight"]) == (5 if name == "head" else width)
    assert tensors["encoders.0.conv1.0.weight"].shape[1] == 4
    assert figures(capsys, "evaluate", tmp_path / "run")["dice_wt"] == value["figures"]["dice_wt"]


@pytest.mark.parametrize("ending", ["onnx", "torch-export"])
def test_a_trained_network_is_exported(
    ending: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if ending == "onnx":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    out = tmp_path / "network"
    value = figures(capsys, "export", trained, "--format", ending, "--out", out)
    assert out.is_file()
    assert max(check["error"] for check in value["checks"]) < 1e-4


def test_prune_and_train_in_one_is_prune_then_train(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*TINY, "--set", "epochs=2", "--plan", trained / "plan.json"]
    told(capsys, "train", "shapenet", *options, "--out", tmp_path / "run")
    assert same(trained, tmp_path / "run")


@pytest.mark.skipif(sys.platform == "win32", reason="no Ctrl-C for one process alone")
def test_ctrl_c_keeps_a_checkpoint_and_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a process of its own: the signal, the exit status and stderr are what a shell sees."""
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "ranp", "train", "shapenet", *TINY, "--set", "epochs=100000", "--out", str(folder)]
    environment = processes.environment()
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        deadline = time.monotonic() + 120
        while not (folder / "metrics.jsonl").is_file() or (folder / "metrics.jsonl").stat().st_size < 1000:
            assert running.poll() is None, running.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    *epochs, last = err.splitlines()
    assert all(line.startswith("epoch ") for line in epochs)
    newest = max(path.name for path in folder.glob("checkpoint-*"))
    assert last.startswith("error: stopped by Ctrl-C after step ")
    assert f"The last checkpoint is {newest}; go on with --resume." in last
    done = int(newest[11:20])
    assert [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()][-1] == done
    assert not (folder / "model.safetensors").exists()
    more = done // 2 + 2
    value = figures(capsys, "train", "shapenet", "--out", folder, "--resume", "--set", f"epochs={more}")
    assert [record["epoch"] for record in value["epochs"]] == list(range(1, more + 1))


def test_a_checkpoint_that_is_torn_is_passed_over(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    import shutil

    folder = shutil.copytree(trained, tmp_path / "run")
    torn = folder / "checkpoint-000000004.safetensors"
    torn.write_bytes(torn.read_bytes()[:-9])
    (folder / "model.safetensors").unlink()
    told(capsys, "train", "shapenet", "--out", folder, "--resume")
    assert "checkpoint-000000004.safetensors" in caplog.text
    assert same(folder, trained)


def test_real_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = real_data("shapenetpart")
    options = [*TINY, *"--set train_count=4 --set valid_count=4".split(), "--data", data, "--allow-missing"]
    value = figures(capsys, "train", "shapenet", *options, "--out", tmp_path / "run")
    kept = recipe_of(tmp_path / "run")["data"]
    assert kept["folder"] == str(data)
    assert kept["allow_missing"]
    assert "12 of 16881 shapes" in kept["summary"]
    again = figures(capsys, "evaluate", tmp_path / "run")
    assert {name: again[name] for name in value["figures"]} == value["figures"]
    assert again["data"] == str(data)


@pytest.mark.slow
def test_real_scans(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("monai")
    pytest.importorskip("nibabel")
    data = real_data("brats2015")
    monkeypatch.setenv("RANP_CACHE", str(tmp_path / "cache"))
    options = [*TINY, *"--set train_count=2 --set valid_count=1 --set batch=2 --set size=32".split(), "--data", data]
    value = figures(capsys, "train", "brats", *options, "--out", tmp_path / "run")
    assert 0 <= value["figures"]["dice_wt"] <= 1
    kept = recipe_of(tmp_path / "run")
    assert kept["options"]["in_channels"] == 2
    assert "modalities flair, t1ce" in kept["data"]["summary"]
    assert list((tmp_path / "cache").rglob("*"))

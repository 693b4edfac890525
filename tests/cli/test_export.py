"""``ranp export``: from a run folder to a checked file, or one line and nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import ranp
from ranp.cli import main
from ranp.files import atomic
from ranp.integrations import export_formats
from ranp.reporting.folder import RECIPE, RECIPE_VERSION, RunFolder
from ranp.slimming import storage
from tests.support import networks_to_name

CODE = "tests.support.networks_to_name"


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Runs a command that must be refused and returns its one line."""
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run folder whose recipe names data but no example."""
    data = ("--batches", f"{CODE}:batches", "--loss", f"{CODE}:loss")
    told(capsys, "prune", f"{CODE}:small", *data, "--sparsity", "0.3", "--no-tune", "--out", tmp_path / "run")
    return tmp_path / "run"


def test_onnx_computes_what_the_slim_network_does(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import onnxruntime

    from tests.support import networks_to_name as code

    file = run.parent / "net.onnx"
    text = told(capsys, "export", run, "--trust", "--format", "onnx", "--out", file)
    assert text.startswith(f"wrote {file} (onnx, ")
    assert "input input: batch: 1 up; dimension 2: 1 up" in text
    assert "checked at 2x1x6x6x6: off by" in text
    network = ranp.load(run / "model.safetensors", code.small).eval()
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for shape in ((1, 1, 6, 6, 6), (3, 1, 5, 9, 7)):
        x = torch.randn(shape)
        torch.testing.assert_close(torch.from_numpy(session.run(None, {"input": x.numpy()})[0]), network(x).detach())
    assert sorted(path.name for path in run.parent.iterdir()) == ["net.onnx", "run"]


def test_a_program_as_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.support import networks_to_name as code

    file = run.parent / "net.pt2"
    options = ("--format", "torch-export", "--dynamic", "batch", "--input", "1x1x4x4x4", "--json")
    options += ("--model", f"{CODE}:small")
    value = json.loads(told(capsys, "export", run, *options, "--out", file))
    assert value["path"] == str(file)
    assert value["max_error"] == 0
    assert [(span["dimension"], span["low"], span["high"]) for span in value["dynamic"]] == [(0, 1, None)]
    assert value["checks"][0]["shapes"] == [[1, 1, 4, 4, 4]]
    x = torch.randn(5, 1, 4, 4, 4)
    network = ranp.load(run / "model.safetensors", code.small).eval()
    torch.testing.assert_close(torch.export.load(file).module()(x), network(x).detach())


def test_the_recipe_tells_the_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = ("--input", "1x1x4x4", "--input", "1x1x3x3x3")
    how = ("--method", "random", "--sparsity", "0.3", "--no-tune", "--out", tmp_path / "run")
    told(capsys, "prune", f"{CODE}:two_inputs", *shapes, *how)
    out = ("--model", f"{CODE}:two_inputs", "--format", "torch-export", "--out", tmp_path / "net.pt2", "--json")
    value = json.loads(told(capsys, "export", tmp_path / "run", *out))
    assert value["checks"][0]["shapes"] == [[1, 1, 4, 4], [1, 1, 3, 3, 3]]
    assert value["inputs"] == ["flat", "deep"]


def test_the_network_may_have_moved(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, path = {**RunFolder(run).finished_recipe(), "model": "gone.away:small"}, run / "model.safetensors"
    atomic.write_json(run / "recipe.json", recipe, kind=RECIPE, version=RECIPE_VERSION)
    storage.save(path, storage.load(path, networks_to_name.small), storage.plan_of(path), recipe=recipe)
    out = ("--format", "torch-export", "--out", run.parent / "net.pt2")
    assert "no module 'gone'" in refused(capsys, "export", run, *out, "--trust")
    told(capsys, "export", run, *out, "--model", f"{CODE}:small", "--example", f"{CODE}:example")


def test_code_that_the_folder_names_is_not_run_unless_it_is_trusted(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--format", "torch-export", "--out", run.parent / "net.pt2")
    line = refused(capsys, "export", run, *out)
    assert f"recipe.json' names '{CODE}:small' as its network; nothing was run. Pass --model" in line
    line = refused(capsys, "export", run, *out, "--model", f"{CODE}:small")
    assert f"recipe.json' names '{CODE}:batches' as its batches; nothing was run. Pass --input" in line


def test_a_file_is_replaced_only_if_forced(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run.parent / "net.pt2"
    file.write_text("precious")
    out = ("--trust", "--format", "torch-export", "--dynamic", "none", "--out", file)
    assert "--force" in refused(capsys, "export", run, *out)
    assert file.read_text() == "precious"
    told(capsys, "export", run, *out, "--force")
    torch.export.load(file)


def test_refusals_are_one_line_and_write_nothing(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = run.parent, run.parent / "net"
    out = ("--trust", "--format", "torch-export", "--out", file)
    assert "did you mean 'onnx'" in refused(capsys, "export", run, "--format", "onx", "--out", file)
    assert "Allowed: auto, batch, none" in refused(capsys, "export", run, *out, "--dynamic", "all")
    assert "--out" in refused(capsys, "export", run)
    assert "is not a folder" in refused(capsys, "export", folder / "nowhere", *out)
    assert "it has no recipe.json" in refused(capsys, "export", folder, *out)
    assert "no folder" in refused(capsys, "export", run, "--format", "onnx", "--out", folder / "deep" / "net")
    assert "opset 18" in refused(capsys, "export", run, *out, "--opset", "18")
    assert "--opset 3 cannot be had" in refused(capsys, "export", run, "--trust", "--out", file, "--opset", "3")
    assert "does not run on" in refused(capsys, "export", run, *out, "--input", "1x2x4x4x4")
    assert "does not have" in refused(capsys, "export", run, *out, "--model", f"{CODE}:two_inputs")
    with monkeypatch.context() as patch:
        patch.setattr(export_formats, "find_spec", lambda name: None)
        assert "pip install 'ranp[onnx]'" in refused(capsys, "export", run, "--out", file)
    recipe = (run / "recipe.json").read_text()
    for text, message in (("{", "not readable JSON"), ("{}", "not a ranp-recipe file")):
        (run / "recipe.json").write_text(text)
        assert message in refused(capsys, "export", run, *out)
    nameless = {"model": None}
    atomic.write_json(run / "recipe.json", nameless, kind=RECIPE, version=RECIPE_VERSION)
    assert "does not name the network" in refused(capsys, "export", run, *out)
    (run / "recipe.json").write_text(recipe)
    weights = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(weights[:-1])
    assert "torn" in refused(capsys, "export", run, *out)
    (run / "model.safetensors").unlink()
    assert "it has no model.safetensors" in refused(capsys, "export", run, *out)
    assert [path.name for path in folder.iterdir()] == ["run"]


@pytest.mark.slow
def test_a_network_of_the_paper_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    how = ("--method", "random", "--sparsity", "0.9", "--out", tmp_path / "run")
    told(capsys, "prune", "unet3d-shapenet", *how)
    out = ("--input", "1x1x16x16x16", "--out", tmp_path / "net.onnx", "--json")
    value = json.loads(told(capsys, "export", tmp_path / "run", *out))
    assert value["max_error"] < 1e-4
    assert [span["dimension"] for span in value["dynamic"]] == [0, 2, 3, 4]


@pytest.mark.slow
def test_a_trained_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = [item for name in ("epochs=1", "train_count=12", "valid_count=4") for item in ("--set", name)]
    told(capsys, "train", "shapenet", "--scale", "cpu", "--budget", "flops=10%", *few, "--out", tmp_path / "run")
    value = json.loads(told(capsys, "export", tmp_path / "run", "--out", tmp_path / "net.onnx", "--json"))
    assert value["max_error"] < 1e-4

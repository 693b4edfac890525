"""The command line: figures of the paper, files that load, one line for a refusal, nothing half written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ranp
from ranp.cli import main
from ranp.files import atomic
from ranp.paper.models import UNet3d
from ranp.slimming import storage
from tests.support import processes

CODE = "tests.support.networks_to_name"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 2) -> str:
    """Runs a command that must fail and returns its one line."""
    assert main(arguments) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err
    return captured.err


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs a command that must succeed and returns what it prints."""
    status = main(arguments)
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


# Param MB, GFLOPs and Memory MB in the paper's tables; PSM's 2D and 3D parts below it.
TABLE = {
    "unet3d-shapenet": [("62.26", "237.85", "997.00")],
    "unet3d-brats": [("15.57", "478.13", "3628.00")],
    "unet3d-shapenet-23": [("791.31", "259.59", "1005.97")],
    "mobilenetv2-ucf101": [("9.47", "0.58", "157.47")],
    "i3d-ucf101": [("47.27", "27.88", "201.28")],
    "psm-sceneflow": [("19.93", "771.02", "7217.37"), ("12.74", "174.94", "1902.75"), ("7.19", "596.08", "3595.50")],
}


@pytest.mark.parametrize("name", TABLE)
def test_profile_prints_the_papers_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split() for line in told(capsys, "profile", name, "--convention", "paper").splitlines()]
    rows = [tuple(line[-3:]) for line in lines if line and line[0] in ("all", "2D", "3D")]
    assert rows == TABLE[name]


def test_profile_as_json_and_by_layer(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("profile", f"{CODE}:two_inputs", "--input", "1x1x4x4", "--input", "1x1x3x3x3")
    value = json.loads(told(capsys, *arguments, "--json"))
    assert value["inputs"] == ["1x1x4x4", "1x1x3x3x3"]
    assert value["convention"] == "true"
    assert value["params"] == 8 + 8 + 18
    assert {name: part["params"] for name, part in value["parts"].items()} == {"2D": 8, "3D": 8}
    text = told(capsys, *arguments, "--layers")
    assert "head" in text
    assert "2D layers" in text


def test_profile_takes_the_example_from_code(capsys: pytest.CaptureFixture[str]) -> None:
    value = json.loads(told(capsys, "profile", f"{CODE}:small", "--example", f"{CODE}:example", "--json"))
    assert value["inputs"] == ["1x1x6x6x6"]


def test_the_registered_networks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    names = told(capsys, "profile", "--list").split()
    assert set(TABLE) <= set(names)
    assert json.loads(told(capsys, "profile", "--list", "--json")) == names


def prune_small(out: Path, *more: str) -> tuple[str, ...]:
    data = ("--batches", f"{CODE}:batches", "--loss", f"{CODE}:loss")
    return ("prune", f"{CODE}:small", *data, "--sparsity", "0.3", "--out", str(out), *more)


def test_prune_writes_a_folder_that_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.support import networks_to_name as code

    out = tmp_path / "deep" / "run"
    text = told(capsys, *prune_small(out, "--seed", "3", "--no-tune"))
    assert sorted(path.name for path in out.iterdir()) == [
        "model.safetensors",
        "plan.json",
        "recipe.json",
        "report.json",
        "scores.safetensors",
    ]
    assert [path.name for path in out.parent.iterdir()] == ["run"]
    plan, report = ranp.Plan.load(out / "plan.json"), ranp.Report.load(out / "report.json")
    assert str(report) in text
    mine = ranp.prune(code.small(), code.batches(), code.loss, sparsity=0.3, seed=3)
    assert mine.plan.kept == plan.kept
    assert mine.with_step().report == report
    assert mine.raw == ranp.Scores.load(out / "scores.safetensors")
    network = ranp.load(out / "model.safetensors", code.small)
    assert all(
        torch.equal(a, b) for a, b in zip(network.state_dict().values(), mine.model.state_dict().values(), strict=True)
    )
    recipe = atomic.read_json(out / "recipe.json", kind="ranp-recipe", version=2)
    assert recipe["model"] == f"{CODE}:small"
    assert recipe["seed"] == 3
    assert storage.metadata(out / "model.safetensors")["recipe"] == recipe


def test_prune_options_reach_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.support import networks_to_name as code

    out = tmp_path / "run"
    options = "--method weighted --criterion mnmg-sum --tie union --exact --keep 0 --mode eval --init glorot".split()
    more = "--max-batches 2 --min-channels 2 --round-to 2 --json".split()
    value = json.loads(told(capsys, *prune_small(out, *options, *more)))
    mine = ranp.prune(
        code.small(),
        code.batches(),
        code.loss,
        sparsity=0.3,
        method="weighted",
        criterion="mnmg-sum",
        tie="union",
        exact=True,
        keep=["0"],
        mode="eval",
        init="glorot",
        max_batches=2,
        min_channels=2,
        round_to=2,
    )
    plan = ranp.Plan.load(out / "plan.json")
    assert plan.kept == mine.plan.kept
    assert plan.settings == mine.plan.settings
    assert value["totals"] == mine.report.to_dict()["totals"]
    assert value["settings"]["tuned"]["ratios"]["contiguous"] == 1
    assert sorted(Path(name).name for name in value["files"]) == sorted(path.name for path in out.iterdir())


def test_a_dry_run_tells_the_predicted_costs_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(capsys, *prune_small(tmp_path / "run", "--dry-run"))
    assert "channels removed" in text
    assert "predicted peak of one training step: " in text
    value = json.loads(told(capsys, *prune_small(tmp_path / "run", "--dry-run", "--json", "--optimizer", "sgd")))
    assert 0 < value["train_memory"]["after"] < value["train_memory"]["before"]
    assert not list(tmp_path.iterdir())


def test_less_than_was_asked_for_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.support import networks_to_name as code

    words = f"prune {CODE}:coupled --batches {CODE}:batches --loss {CODE}:loss --dry-run --no-tune --sparsity"
    text = told(capsys, *words.split(), "0.4")
    asked = {"sparsity": 0.4}
    plain = ranp.prune(code.coupled(), code.batches(), code.loss, **asked).plan.sparsity
    exact = ranp.prune(code.coupled(), code.batches(), code.loss, exact=True, **asked).plan.sparsity
    (line,) = [line for line in text.splitlines() if " asked for, " in line]
    assert line.startswith(f"40.00% asked for, {plain.of_channels:.2%} removed: coupled layers keep ")
    assert "2 channels must stay, those of the output layers among them" in line
    assert f"--exact removes {exact.removed} of {exact.channels} channels ({exact.of_channels:.2%}, " in line
    assert exact.removed > plain.removed
    assert " asked for, " not in told(capsys, *words.split(), "0.4", "--exact")
    assert "; --exact removes no more here." in told(capsys, *words.split(), "0.3")
    assert " asked for, " not in told(capsys, *words.split(), "0")


def test_budgets_reach_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.support import networks_to_name as code

    out = tmp_path / "run"
    source = f"prune {CODE}:small --batches {CODE}:batches --loss {CODE}:loss --out {out}".split()
    options = "--budget flops=60% --budget train-memory=90% --batch 3 --optimizer sgd --resource flops+train-memory"
    text = told(capsys, *source, *options.split(), "--checkpointing")
    step = ranp.TrainingStep(batch=3, optimiser="sgd", checkpointing=True)
    mine = ranp.prune(
        code.small(),
        code.batches(),
        code.loss,
        budget="flops=60%, train-memory=90%",
        step=step,
        resource=["flops", "train-memory"],
        checkpointing=True,
    )
    plan = ranp.Plan.load(out / "plan.json")
    assert plan.kept == mine.plan.kept
    assert plan.settings == mine.plan.settings
    assert all(line in text for line in mine.report.budget_lines())
    assert mine.report.budget_lines()[0] in told(capsys, "plan", "show", str(out / "plan.json"))
    recipe = atomic.read_json(out / "recipe.json", kind="ranp-recipe", version=2)
    assert (recipe["sparsity"], recipe["budget"]) == (None, ["flops=60%", "train-memory=90%"])


def test_a_folder_with_files_is_not_overwritten_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    (tmp_path / "plan.json").write_text("old")
    assert "not empty" in refused(capsys, *prune_small(tmp_path))
    assert (tmp_path / "plan.json").read_text() == "old"
    told(capsys, *prune_small(tmp_path, "--force"))
    assert (tmp_path / "mine.txt").read_text() == "precious"
    ranp.Plan.load(tmp_path / "plan.json")
    assert len(list(tmp_path.iterdir())) == 6
    (tmp_path / "file").touch()
    assert "is a file" in refused(capsys, *prune_small(tmp_path / "file"))


def test_what_fails_while_writing_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "save", full_disk)
    assert main(prune_small(tmp_path / "run")) == 28
    assert "No space left" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", [["--method", "random"], ["--method", "layerwise", "--criterion", "magnitude"]])
def test_without_gradients_an_example_is_enough(
    how: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "prune",
        f"{CODE}:small",
        "--input",
        "1x1x6x6x6",
        "--sparsity",
        "0.3",
        "--out",
        str(tmp_path / "run"),
        *how,
    ]
    told(capsys, *arguments)
    assert ranp.Plan.load(tmp_path / "run" / "plan.json").sparsity.removed > 0


@pytest.mark.slow
def test_a_network_of_the_paper_brings_its_example(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "prune unet3d-shapenet --method random --sparsity 0.782 --convention paper --dry-run --json".split()
    totals = json.loads(told(capsys, *arguments))["totals"]
    shown = [f"{totals['params']['after'] * 4 / 1024**2:.2f}", f"{totals['flops']['after'] / 1e9:.2f}"]
    assert shown == ["3.05", "10.36"]
    assert f"{totals['memory']['after'] / 1024**2:.2f}" == "267.95"


def test_a_task_scores_a_network_of_ones_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support import networks_to_name as code

    monkeypatch.setattr(code, "small", lambda: UNet3d(1, 50, widths=(8, 16)))
    arguments = "--task shapenet --size 8 --max-batches 2 --method layerwise --sparsity 0.3 --dry-run --json".split()
    value = json.loads(told(capsys, "prune", f"{CODE}:small", *arguments))
    assert value["settings"]["batches"] == 2
    assert value["layers"][0]["memory"]["before"] == 4 * 4 * 8**3  # bytes


def test_search_gives_the_largest_feasible_sparsity(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.support import networks_to_name as code

    data = ("--batches", f"{CODE}:batches", "--loss", f"{CODE}:loss")
    value = json.loads(told(capsys, "search", f"{CODE}:small", *data, "--json"))
    model = code.small()
    best = value["max_sparsity"]
    ranp.prune(model, code.batches(), code.loss, sparsity=best)
    with pytest.raises(ranp.errors.InfeasibleError) as caught:
        ranp.prune(model, code.batches(), code.loss, sparsity=best + 1 / value["channels"])
    assert value["limit"] in str(caught.value)
    text = told(capsys, "search", f"{CODE}:small", *data)
    assert f"{best:.4%}" in text
    assert "removes all 8 channels of" in text


def test_search_without_data(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("search", f"{CODE}:small", "--input", "1x1x6x6x6", "--method", "random", "--json")
    assert 0 < json.loads(told(capsys, *arguments))["max_sparsity"] < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("profile unet3d-shapnet", "did you mean 'unet3d-shapenet'"),
        ("profile", "Pass MODEL"),
        ("profile unet3d-shapenet --convention papr", "did you mean 'paper'"),
        (f"profile {CODE}:small", "--input 1x1x64x64x64"),
        (f"profile {CODE}:small --input 1x1x6", "does not run on"),
        (f"profile {CODE}:small --input 1xx6", "is not a shape"),
        (f"profile {CODE}:smal --input 1x1x6x6x6", "did you mean 'small'"),
        (f"profile {CODE}:not_code --input 1x1x6x6x6", "is a int"),
        (f"profile {CODE}:no_network --input 1x1x6x6x6", "made a int"),
        (f"profile {CODE}:small --input 1x1x6x6x6 --example {CODE}:example", "Pass one of them"),
        ("profile no.such.module:fn", "no module 'no'"),
        ("profile a:b:c", "is not code"),
        ("prune unet3d-shapenet --dry-run", "Pass --sparsity"),
        ("prune unet3d-shapenet --dry-run --sparsity 1.2", "from 0 up to"),
        ("prune unet3d-shapenet --dry-run --sparsity half", "--sparsity 'half' is not allowed"),
        ("prune unet3d-shapenet --dry-run --sparsity=half", "--sparsity 'half' is not allowed"),
        ("prune unet3d-shapenet --dry-run --budget flop=5%", "did you mean 'flops'"),
        ("prune unet3d-shapenet --dry-run --budget flops=5% --sparsity 0.5", "are both given"),
        ("prune unet3d-shapenet --dry-run --budget flops=5% --budget flops=1G", "two budgets for flops"),
        ("prune unet3d-shapenet --dry-run --budget train-memory=8", "is not allowed"),
        ("prune unet3d-shapenet --dry-run --budget train-memory=8G", "8GiB or 8GB?"),
        ("prune unet3d-shapenet --dry-run --budget flops=5% --optimizer adm", "did you mean 'adam'"),
        ("prune unet3d-shapenet --dry-run --budget flops=5% --optimiser adm", "did you mean 'adam'"),
        ("prune unet3d-shapenet --dry-run --budget flops=5% --precision fp8", "unknown precision"),
        ("prune unet3d-shapenet --dry-run --budget flops=5% --round-to much", "--round-to much is not allowed"),
        ("prune unet3d-shapenet --sparsity 0.5", "--out DIR"),
        ("prune unet3d-shapenet --sparsity 0.5 --dry-run --method rnp-f", "did you mean 'ranp-f'"),
        ("prune unet3d-shapenet --sparsity 0.5 --dry-run --criterion mpmg-su", "did you mean 'mpmg-sum'"),
        ("prune unet3d-shapenet --sparsity 0.5 --dry-run --tie min", "Allowed: max, union"),
        ("prune unet3d-shapenet --sparsity 0.5 --dry-run --init xavier", "unknown initialisation"),
        ("prune unet3d-shapenet --sparsity 0.5 --dry-run --mode test", "unknown mode"),
        ("prune unet3d-shapenet --sparsity 0.5 --dry-run --resource tme", "unknown resource"),
        ("prune unet3d-shapenet --sparsity 0.5 --dry-run --task shapnet", "did you mean 'shapenet'"),
        ("prune unet3d-shapenet --sparsity 0.5 --dry-run --data x", "--data"),
        (f"prune {CODE}:small --sparsity 0.5 --dry-run", "Pass --batches and --loss"),
        (f"prune {CODE}:small --sparsity 0.5 --dry-run --batches {CODE}:batches", "go together"),
        (f"prune {CODE}:small --sparsity 0.5 --dry-run --method random", "nothing says what goes into"),
        (f"prune {CODE}:small --sparsity 0.3 --dry-run --method random --input 1x1x6x6x6 --device nowhere", "--device"),
        ("prune unet3d-shapenet --nonsense", "No such option"),
        ("fit unet3d-shapenet", "--memory"),
        ("fit unet3d-shapenet --memory 8", "--memory '8' is not an amount of memory"),
        ("fit unet3d-shapenet --memory 8G", "8GiB or 8GB?"),
        ("fit unet3d-shapenet --memory 50%", "--memory '50%' is not an amount of memory"),
        ("fit unet3d-shapenet --memory 8GiB --size 9x9", "--size '9x9' is not allowed"),
        ("fit unet3d-shapenet --memory 8GiB --optimizer adm", "did you mean 'adam'"),
        (f"fit {CODE}:small --memory 8GiB", "nothing says what goes into"),
        ("prne", "prune"),
        ("prune --nonsense", "Try 'ranp prune --help'"),
        ("plan", "For example: ranp plan show"),
        ("train shapenet --epochs 3 --out x", "such as --set epochs=VALUE. Try 'ranp train --help'"),
        ("train shapenet --out x --no-such-thing", "No such option: --no-such-thing. Try 'ranp train --help'"),
        ("prune unet3d-shapenet --min-channels 0", "--min-channels '0' is not allowed: input should be"),
        (f"search {CODE}:small --input 1x1x6x6x6 --method random --keep no", "--keep matches no layer"),
        ("demo --budget flops=900% --out x", "'900%' is not allowed"),
        ("plan shwo", "Did you mean 'show'? Try 'ranp plan --help'"),
    ],
)
def test_a_refusal_is_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, *arguments.split())


@pytest.mark.parametrize(
    ("arguments", "whose"),
    [
        (f"profile {CODE}:broken --input 1x1x6x6x6", f"MODEL '{CODE}:broken'"),
        (f"profile {CODE}:runs_not --input 1x1x6x6x6", "Sequential does not run on this example"),
        (f"profile {CODE}:small --example {CODE}:broken", f"--example '{CODE}:broken'"),
        (f"search {CODE}:small --batches {CODE}:broken --loss {CODE}:loss", f"--batches '{CODE}:broken'"),
        (f"search {CODE}:small --batches {CODE}:batches --loss {CODE}:Broken", f"--loss '{CODE}:Broken'"),
        (f"search {CODE}:broken --batches {CODE}:batches --loss {CODE}:loss", f"MODEL '{CODE}:broken'"),
        (f"search {CODE}:small --batches {CODE}:batches --loss {CODE}:broken_loss", "the loss"),
        (f"search {CODE}:small --batches {CODE}:broken_batches --loss {CODE}:loss", "batches"),
        (f"search {CODE}:runs_not --batches {CODE}:batches --loss {CODE}:loss", "the network does not run"),
    ],
)
def test_code_of_the_users_that_fails_is_named_with_its_line(
    arguments: str, whose: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.support import networks_to_name as code

    said = refused(capsys, *arguments.split())
    assert said.startswith(f"error: {whose}")
    assert "ZeroDivisionError: the answer is not defined" in said
    assert f", at {code.__file__} line {code.FAILS}" in said
    assert ("That is your code" in said) or "does not run" in said


def test_code_that_cannot_be_imported_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "lacks_a_package.py").write_text("import no_such_package\n")
    (tmp_path / "ends_badly.py").write_text("x = 1\n1 / 0\n")
    told = refused(capsys, "profile", "lacks_a_package:net")
    assert "MODEL 'lacks_a_package:net': lacks_a_package needs 'no_such_package', which is not installed" in told
    told = refused(capsys, "profile", "ends_badly:net")
    assert f"ZeroDivisionError: division by zero, at {tmp_path / 'ends_badly.py'} line 2. That is your code" in told


def test_what_is_not_the_users_input_has_another_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ours(*_: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("ranp.paper.naming.find_network", ours)
    assert "ZeroDivisionError: a fault of ours" in refused(capsys, "profile", "x", status=1)


def test_debug_shows_the_traceback_wherever_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("--debug", "profile", "x"), ("profile", "x", "--debug")):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert "Traceback" in error
        assert error.rstrip().splitlines()[-1].startswith("error: unknown network 'x'")


def test_an_interrupt_is_no_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ranp.paper.naming.find_network", interrupted)
    assert main(["profile", "x"]) == 130


@pytest.mark.parametrize(
    "arguments", [(), ("--help",), ("-h",), ("prune", "--help"), ("search", "-h"), ("demo", "--help")]
)
def test_help(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert "Usage: ranp" in told(capsys, *arguments)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "--version").strip() == f"ranp {ranp.__version__}"


def test_as_a_process_results_go_to_stdout_and_the_status_is_told(tmp_path: Path) -> None:
    environment = processes.environment()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ranp", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)

    (tmp_path / "here.py").write_text("from tests.support.networks_to_name import small, batches, loss\n")
    data = ("--batches", "here:batches", "--loss", "torch.nn.functional:cross_entropy")
    done = run("prune", "here:small", *data, "--sparsity", "0.3", "--out", "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sparsity"]["requested"] == 0.3
    assert (tmp_path / "run" / "model.safetensors").is_file()
    assert "scoring" in done.stderr
    failed = run("profile", "nothing")
    assert failed.returncode == 2
    assert failed.stdout == ""
    assert failed.stderr.count("\n") == 1

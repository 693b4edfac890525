"""The demonstration, made tiny: fair batches, honest figures, files that load."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import ranp
from ranp.cli import main
from ranp.errors import DataError, InfeasibleError, StorageError, UnsupportedError
from ranp.paper import demo, models, tasks
from ranp.paper.demo import Settings
from ranp.paper.training import evaluate

TASK = tasks.get("shapenet")
TINY = Settings(
    budget="flops=30%",
    widths=(16, 32),
    size=8,
    train_objects=32,
    valid_objects=16,
    scored=4,
    epochs=2,
    batch=4,
    rounds=2,
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> demo.Demonstration:
    return demo.run(tmp_path_factory.mktemp("demo"), TINY)


def test_all_networks_learn_from_the_same_batches(shown: demo.Demonstration) -> None:
    """Their first losses differ by their weights alone; seeds, sizes and counts are those of the settings."""
    recipes = [json.loads((shown.folder / name / "recipe.json").read_text())["recipe"] for name in shown.runs]
    assert all(recipe == recipes[0] for recipe in recipes)
    assert len(recipes) == 5
    assert (recipes[0]["seed"], recipes[0]["size"], recipes[0]["train_count"]) == (0, 8, 32)
    for one in shown.runs.values():
        losses = [record["loss"] for record in one.records if record["kind"] == "step"]
        assert len(losses) == TINY.epochs * TINY.train_objects // TINY.batch
        assert sum(losses[-4:]) < sum(losses[:4])


def test_figures_are_those_of_the_networks(shown: demo.Demonstration) -> None:
    networks = shown.table.records[:-1]
    assert [one["network"] for one in networks] == ["full", "balanced", "flat", "ranp-f", "random"]
    example = torch.empty(1, 1, 8, 8, 8, device="meta")
    for one in networks:
        name = one["network"]
        found = ranp.profile(shown.runs[name].model, example)
        assert (one["params"], one["flops"], one["memory"]) == (found.params, found.flops, found.memory_bytes)
        assert evaluate(shown.folder / name, TASK) == {"miou": one["miou"], "accuracy": one["accuracy"]}
    full, *slim = networks
    assert (full["removed"], full["step_time"]) == (0, 1)
    for one in slim:
        assert one["removed"] == shown.runs[one["network"]].plan.sparsity.of_channels > 0.05
        assert 0.995 * 0.3 <= one["flops"] / full["flops"] <= 0.3
        assert one["step_time"] > 0


def test_timing_teaches_nothing(shown: demo.Demonstration) -> None:
    before = {name: [t.clone() for t in one.model.state_dict().values()] for name, one in shown.runs.items()}
    times = demo._step_times(shown.runs, TASK, replace(TINY, rounds=3))
    assert list(times) == list(shown.runs)
    for name, one in shown.runs.items():
        assert all(torch.equal(a, b) for a, b in zip(one.model.state_dict().values(), before[name], strict=True))


def test_the_slim_network_was_drawn_anew_and_trained(shown: demo.Demonstration) -> None:
    run = shown.runs["ranp-f"]
    assert run.plan.settings["init"] == "glorot"
    assert run.plan.settings["batches"] == TINY.scored
    fresh = ranp.slim(models.build("unet3d-shapenet", widths=TINY.widths), run.plan, init="glorot")
    assert [p.shape for p in fresh.parameters()] == [p.shape for p in run.model.parameters()]
    assert not torch.equal(next(fresh.parameters()), next(run.model.parameters()))


def test_guessing_is_the_most_frequent_part_of_each_category(shown: demo.Demonstration) -> None:
    from ranp.paper.tasks.shapenet.catalogue import PARTS

    training = TASK.train_data(TINY.size, TINY.train_objects, TINY.seed)
    validation = TASK.valid_data(TINY.size, TINY.valid_objects, TINY.seed)
    counts = [0] * TASK.classes
    for index in range(TINY.train_objects):
        for label in training[index][1].flatten().tolist():
            if label != 255:
                counts[label] += 1
    right = total = 0
    starts = [sum(PARTS[:k]) for k in range(len(PARTS))]
    for index in range(TINY.valid_objects):
        labels = [label for label in validation[index][1].flatten().tolist() if label != 255]
        category = max(k for k in range(len(PARTS)) if starts[k] <= labels[0])
        parts = range(starts[category], starts[category] + PARTS[category])
        guess = max(parts, key=lambda part: counts[part])
        right, total = right + labels.count(guess), total + len(labels)
    assert shown.table.records[-1]["accuracy"] == pytest.approx(right / total)


def test_files_are_complete_and_load(shown: demo.Demonstration) -> None:
    assert [path.name for path in shown.files] == ["demo.md", "demo.csv", "demo.tex", "demo.json"]
    folder = shown.folder / "ranp-f"
    assert ranp.Plan.load(folder / "plan.json") == shown.runs["ranp-f"].plan
    again = ranp.load(folder / "model.safetensors", lambda: models.build("unet3d-shapenet", widths=TINY.widths))
    x = torch.randn(1, 1, 8, 8, 8)
    assert torch.equal(again.eval()(x), shown.runs["ranp-f"].model.eval()(x))
    (group,) = shown.table.groups
    table = (shown.folder / "demo.md").read_text()
    for row in group.rows:
        assert f"| {' | '.join(row)} |" in table
    with (shown.folder / "demo.csv").open() as file:
        told = [float(one["accuracy"]) for one in csv.DictReader(file)]
    assert told == [one["accuracy"] for one in shown.table.records]


def test_what_is_finished_is_not_done_again(shown: demo.Demonstration) -> None:
    told: list[tuple[str, int, int, str]] = []
    again = demo.run(shown.folder, TINY, lambda *message: told.append(message))
    counted = [message[1:] for message in told if message[0] == "network"]
    assert counted == [(number, len(shown.runs), name) for number, name in enumerate(shown.runs, 1)]
    assert [one.records for one in again.runs.values()] == [one.records for one in shown.runs.values()]
    for name, run in shown.runs.items():
        tensors = again.runs[name].model.state_dict()
        assert all(torch.equal(tensors[key], tensor) for key, tensor in run.model.state_dict().items())
    with pytest.raises(UnsupportedError, match="seed=1"):
        demo.run(shown.folder, replace(TINY, seed=1))


def test_the_notes_say_what_it_is(shown: demo.Demonstration) -> None:
    text = " ".join(shown.table.notes)
    assert "Procedural" in text
    assert text.startswith("flops=30% by balanced widths leaves 30.0 % of the FLOPs, ")
    assert "2 epochs" in text


def test_what_cannot_be_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="epochs=0"):
        Settings(epochs=0)
    with pytest.raises(DataError, match="size=8 cannot be halved 5 times"):
        Settings(size=8, widths=(2,) * 6)
    with pytest.raises(InfeasibleError, match="smallest possible"):
        demo.run(tmp_path / "demo", replace(TINY, budget="flops=0.01%"))
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        demo.run(tmp_path / "file", TINY)


def test_the_command(
    shown: demo.Demonstration, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly")
    seen: list[Settings] = []

    def tiny(out: Path, settings: Settings, progress: object, *, jobs: int) -> demo.Demonstration:
        seen.append(settings)
        return shown

    monkeypatch.setattr(demo, "run", tiny)
    assert main(["demo", "--out", str(shown.folder), "--seed", "4", "--epochs", "9"]) == 0
    text = capsys.readouterr().out
    for cell in (cell for row in shown.table.groups[0].rows for cell in row if cell):
        assert cell in text
    assert "Procedural shapes" in text
    assert seen == [Settings(seed=4, epochs=9)]
    assert main(["demo", "--out", str(shown.folder), "--seed", "4", "--epochs", "9", "--resume", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert [Path(name).name for name in files] == ["report.html", *(path.name for path in shown.files)]
    assert seen == [Settings(seed=4, epochs=9)] * 2  # it goes on by itself: the flag asks for nothing else
    page = (shown.folder / "report.html").read_text(encoding="utf-8")
    assert "Slim networks of one budget" in page
    for one in shown.table.records[:-1]:
        assert f"{one['params']:,}" in page


@pytest.mark.slow
def test_everybody_beats_guessing(tmp_path: Path) -> None:
    *networks, guess = demo.run(tmp_path, Settings(rounds=1), jobs=2).table.records
    for one in networks:
        assert one["accuracy"] > guess["accuracy"] + 0.05
        assert one["miou"] > guess["miou"] + 0.05
    full, *slim = (one["flops"] for one in networks)
    assert all(0.995 * 0.05 <= flops / full <= 0.05 for flops in slim)

"""The demonstration, made tiny: fair batches, a fair clock, honest figures, files that load."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import ranp
from ranp.cli import main
from ranp.errors import DataError, InfeasibleError, StorageError
from ranp.paper import demo, models, tasks
from ranp.paper.brief_training import Lessons, Objects, evaluate, gather, median_ratio, step_seconds, train
from ranp.paper.comparison import HEADER
from ranp.paper.demo import Settings

TASK = tasks.get("shapenet")
TINY = Settings(
    sparsity=0.3,
    widths=(16, 32),
    size=8,
    train_objects=32,
    valid_objects=16,
    scored_batches=2,
    steps=3,
    batch=4,
    rounds=2,
)


@pytest.fixture(scope="module")
def shown() -> demo.Demonstration:
    return demo.run(TINY)


def test_lessons_are_the_same_for_every_network_and_miss_no_object() -> None:
    data = Objects(torch.arange(10.0).reshape(10, 1), torch.arange(10))
    lessons = Lessons(steps=7, batch=4, seed=3)
    first, second = list(lessons.batches(data)), list(lessons.batches(data))
    assert len(first) == 7
    assert all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(first, second, strict=True))
    assert all(torch.equal(x.flatten(), y.float()) for x, y in first)
    assert len(set(torch.cat([y for _, y in first[:2]]).tolist())) == 8
    other = list(Lessons(steps=7, batch=4, seed=4).batches(data))
    assert any(not torch.equal(y, v) for (_, y), (_, v) in zip(first, other, strict=True))


def test_training_lowers_the_loss_and_is_repeatable() -> None:
    data = gather(TASK.train_data(size=8, count=16, seed=0), 16)

    def losses() -> tuple[float, ...]:
        return train(models.build("unet3d-shapenet", widths=(8, 16)), TASK, data, Lessons(steps=40, batch=4))

    found = losses()
    assert sum(found[-5:]) < 0.8 * sum(found[:5])
    assert found == losses()


def test_a_loss_that_is_lost_is_named() -> None:
    data = gather(TASK.train_data(size=8, count=4, seed=0), 4)
    model = models.build("unet3d-shapenet", widths=(8, 16))
    with torch.no_grad():
        model.head.bias.fill_(float("nan"))
    with pytest.raises(DataError, match="step 1"):
        train(model, TASK, data, Lessons(steps=2, batch=2))


def test_timing_takes_turns_and_teaches_nothing() -> None:
    data = gather(TASK.train_data(size=8, count=4, seed=0), 4)
    networks = {name: models.build("unet3d-shapenet", widths=(4, 8), seed=i).eval() for i, name in enumerate("abc")}
    before = {name: [t.clone() for t in net.state_dict().values()] for name, net in networks.items()}
    seconds = step_seconds(networks, TASK, data, batch=2, rounds=3)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3, "c": 3}
    assert all(value > 0 for values in seconds.values() for value in values)
    for name, net in networks.items():
        assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), before[name], strict=True))
        assert not net.training
    assert median_ratio((2.0, 30.0, 8.0), (1.0, 10.0, 2.0)) == 3.0


def test_figures_are_those_of_the_networks(shown: demo.Demonstration) -> None:
    full, ours, blind = shown.comparison.contenders
    assert (full.name, ours.name, blind.name) == ("full", "ranp-f", "random")
    example = torch.empty(1, 1, 8, 8, 8, device="meta")
    for one, network in ((full, models.build("unet3d-shapenet", widths=TINY.widths)), (ours, shown.model)):
        found = ranp.profile(network, example, convention="paper")
        assert (one.params, one.flops, one.memory) == (found.params, found.flops, found.memory)
    assert full.removed == 0
    assert ours.removed == shown.pruned.plan.sparsity.of_channels > 0.1
    assert ours.flops < full.flops
    assert blind.flops < full.flops
    for one in shown.comparison.contenders:
        assert len(one.losses) == TINY.steps
        assert len(one.seconds) == TINY.rounds
        assert 0 <= one.miou <= 1
        assert 0 <= one.accuracy <= 1
    validation = gather(TASK.valid_data(TINY.size, TINY.valid_objects, TINY.seed), TINY.valid_objects)
    assert evaluate(shown.model, TASK, validation) == {"miou": ours.miou, "accuracy": ours.accuracy}


def test_the_slim_network_was_drawn_anew_and_trained(shown: demo.Demonstration) -> None:
    assert shown.pruned.plan.settings["init"] == "glorot"
    assert shown.pruned.verification.ok
    fresh = ranp.slim(models.build("unet3d-shapenet", widths=TINY.widths), shown.pruned.plan, init="glorot")
    assert [p.shape for p in fresh.parameters()] == [p.shape for p in shown.model.parameters()]
    assert not torch.equal(next(fresh.parameters()), next(shown.model.parameters()))


def test_guessing_is_the_most_frequent_part_of_each_category(shown: demo.Demonstration) -> None:
    from ranp.paper.tasks.catalogue import PARTS

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
    assert shown.comparison.guess["accuracy"] == pytest.approx(right / total)


def test_files_are_complete_and_load(shown: demo.Demonstration, tmp_path: Path) -> None:
    for _ in range(2):  # a second run writes over the first
        written = shown.save(tmp_path / "a" / "run")
    assert sorted(path.name for path in (tmp_path / "a" / "run").iterdir()) == sorted(path.name for path in written)
    folder = tmp_path / "a" / "run"
    assert ranp.Plan.load(folder / "plan.json") == shown.pruned.plan
    assert ranp.Report.load(folder / "report.json") == shown.pruned.report
    again = ranp.load(folder / "model.safetensors", lambda: models.build("unet3d-shapenet", widths=TINY.widths))
    x = torch.randn(1, 1, 8, 8, 8)
    assert torch.equal(again.eval()(x), shown.model.eval()(x))
    table = (folder / "table.md").read_text()
    for row in shown.comparison.rows():
        assert f"| {' | '.join(row)} |" in table
    value = json.loads((folder / "comparison.json").read_text())
    assert [one["accuracy"] for one in value["contenders"]] == [one.accuracy for one in shown.comparison.contenders]


def test_the_page_needs_nothing_else(shown: demo.Demonstration) -> None:
    page = shown.comparison.to_html("A <title>", "text & more")
    assert "A &lt;title&gt;" in page
    assert "text &amp; more" in page
    assert not re.search(r"(src|href)=|https?://|<script", page)
    assert page.count("<polyline") == 3
    for row in shown.comparison.rows():
        assert all(f"<td>{cell}</td>" in page for cell in row)
    for note in shown.comparison.notes:
        assert note.split("'")[0] in page


def test_the_notes_say_what_it_is(shown: demo.Demonstration) -> None:
    text = " ".join(shown.comparison.notes)
    assert "Procedural" in text
    assert "3 steps" in text
    assert len(shown.comparison.rows()[0]) == len(HEADER)


def test_what_cannot_be_run_is_refused(tmp_path: Path, shown: demo.Demonstration) -> None:
    with pytest.raises(DataError, match="steps=0"):
        Settings(steps=0)
    with pytest.raises(DataError, match="size=8 cannot be halved 5 times"):
        Settings(size=8, widths=(2,) * 6)
    with pytest.raises(InfeasibleError, match="largest feasible"):
        demo.run(Settings(**{**{n: getattr(TINY, n) for n in TINY.__slots__}, "sparsity": 0.99}))
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        shown.save(tmp_path / "file")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []

    def tiny(settings: Settings, progress: object) -> demo.Demonstration:
        seen.append(settings)
        return demo.Demonstration(result.comparison, result.pruned, result.model)

    result = demo.run(TINY)
    monkeypatch.setattr(demo, "run", tiny)
    assert main(["demo", "--out", str(tmp_path), "--seed", "4", "--steps", "9"]) == 0
    text = capsys.readouterr().out
    for cell in (cell for row in result.comparison.rows() for cell in row if cell):
        assert cell in text
    assert "Procedural shapes" in text
    assert (seen[0].seed, seen[0].steps) == (4, 9)
    assert seen[0] == Settings(seed=4, steps=9)
    assert (tmp_path / "report.html").is_file()


@pytest.mark.slow
def test_everybody_beats_guessing() -> None:
    comparison = demo.run(Settings(rounds=1)).comparison
    for one in comparison.contenders:
        assert one.accuracy > comparison.guess["accuracy"] + 0.05
        assert one.miou > comparison.guess["miou"] + 0.05
    full, ours, blind = comparison.contenders
    assert ours.flops < blind.flops < full.flops

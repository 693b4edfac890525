"""The page says what the files say: every number, safely, in one file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections import OrderedDict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import ranp
from ranp.errors import StorageError
from ranp.files import atomic
from ranp.page import build, detail
from ranp.page.figures import write_figures
from ranp.page.gather import StoredRun, gather
from ranp.page.material import Absent, collect, network_of, study_of
from ranp.paper.naming import NOTHING, Trust
from ranp.reporting.folder import write_run
from ranp.reporting.format import MIB, UNITS, scaled, share, unit
from ranp.reporting.report import Report
from ranp.reporting.study import Study
from ranp.slimming.storage import NETWORKS, register_network
from tests.support.reading import Read, read
from tests.support.run_folders import recipe, write_full, write_journal, write_pruned, write_table, write_within

LESS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("runs")
    write_pruned(top / "ranp-f")
    write_full(top / "full")
    write_journal(top / "full", [3.0, 2.0], [None, {"miou": 0.5}])
    write_journal(top / "ranp-f", [4.0, 2.5], [None, {"miou": 0.25}])
    return top


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return build.build([folder])


@pytest.fixture(scope="module")
def told(page: str) -> Read:
    return read(page)


def test_totals_are_those_of_the_report(folder: Path, told: Read) -> None:
    report = Report.load(folder / "ranp-f" / "report.json")
    small = unit(report.flops.after)
    for amount, scale, name in (
        (report.channels, 0.0, ""),
        (report.params, 0.0, ""),
        (report.flops, UNITS[small], f" {small}"),
        (report.memory, MIB, " MiB"),
    ):
        assert f"{LESS}{amount.removed * 100:.1f} %" in told.text
        assert re.search(
            rf"{re.escape(scaled(amount.before, scale))} \u2192 to  {re.escape(scaled(amount.after, scale))}{name}",
            told.text,
        )
    assert "Verified." in told.text
    assert report.checks is not None
    assert f"{report.checks.max_error:.1e}" in told.text


def test_every_layer_has_its_row(folder: Path, told: Read) -> None:
    report = Report.load(folder / "ranp-f" / "report.json")
    rows = {row[0].split(" *")[0]: row for row in told.table("Every layer")[1:]}
    for layer in report.layers:
        row = rows[layer.name]
        if layer.channels.before:
            widths = (layer.channels.before, layer.channels.after)
            assert row[1] == (str(widths[0]) if widths[0] == widths[1] else f"{widths[0]} \u2192 {widths[1]}")
        assert row[3].split(" \u2192 ")[0] == f"{layer.params.before:,}"
        assert row[3].split(" \u2192 ")[-1] == f"{layer.params.after:,}"
    assert rows["all"][1] == f"{report.channels.before} \u2192 {report.channels.after}"


def test_what_had_to_stay_is_told_with_its_cause(folder: Path, told: Read) -> None:
    report = Report.load(folder / "ranp-f" / "report.json")
    rows = told.table("What had to stay")[1:]
    assert [row[2] for row in rows] == [f"{pin.channels:,}" for pin in report.pins]
    assert [row[0] for row in rows] == [str(pin) for pin in report.pins]


def test_the_slider_holds_the_study(folder: Path, told: Read) -> None:
    run = next(run for run in gather([folder]).runs if run.label == "ranp-f")
    study = study_of(run)
    assert isinstance(study, Study)
    (held,) = told.data["studies"].values()
    own = study.sweeps[0]
    assert held["channels"] == [layer.channels for layer in study.layers]
    assert [place["at"] for place in held["positions"]] == [round(100 * step.sparsity, 4) for step in own.steps]
    assert [tuple(place["widths"][0]) for place in held["positions"]] == [step.widths for step in own.steps]
    assert [place["feasible"][0] for place in held["positions"]] == [step.feasible for step in own.steps]
    at_run = next(step for step in own.steps if step.sparsity == run.sparsity)
    assert run.report is not None
    assert (at_run.params, at_run.flops, at_run.memory) == (
        run.report.params.after,
        run.report.flops.after,
        run.report.memory.after,
    )


def test_runs_stand_side_by_side_with_costs_and_figures(folder: Path, told: Read) -> None:
    report = Report.load(folder / "ranp-f" / "report.json")
    header, full, slim = told.table("2 runs")
    assert header[0] == "network"
    assert (full[0], full[3], full[-1]) == ("full", f"{report.params.before:,}", "50.0 %")
    assert (slim[0], slim[3], slim[-1]) == ("ranp-f", f"{report.params.after:,}", "25.0 %")
    points = told.data["charts"]["cost-0"]["data"]
    assert [trace["x"] for trace in points] == [[report.flops.before / 1e6], [report.flops.after / 1e6]]
    losses = told.data["charts"]["learn-0-loss"]["data"]
    assert [trace["y"][-1] for trace in losses] == pytest.approx([2.0, 2.5], rel=0.3)


def test_every_chart_has_its_place_a_caption_and_words(told: Read) -> None:
    places = [given for tag, given in told.attributes if tag == "div" and given.get("class") == "plot"]
    assert {f"chart-{key}" for key in told.data["charts"]} == {place["id"] for place in places}
    assert all(place["role"] == "img" and len(place["aria-label"]) > 20 for place in places)
    figures = sum(tag == "figure" for tag, _ in told.attributes)
    assert figures == sum(tag == "figcaption" for tag, _ in told.attributes) == len(places)


def test_headings_are_in_order_and_controls_are_labelled(told: Read) -> None:
    levels = [level for level, _ in told.headings]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = {given["id"] for _, given in told.attributes if "id" in given}
    labels = {given["for"] for tag, given in told.attributes if tag == "label" and "for" in given}
    sliders = [given for tag, given in told.attributes if tag == "input" and given["type"] == "range"]
    assert sliders
    assert all(slider["id"] in labels for slider in sliders)
    assert labels <= ids
    anchors = [given["href"] for tag, given in told.attributes if tag == "a"]
    assert all(anchor[1:] in ids for anchor in anchors)


def test_nothing_in_the_page_is_loaded_from_anywhere(page: str, told: Read) -> None:
    for tag, given in told.attributes:
        for name in ("src", "href", "srcset", "action", "data"):
            address = given.get(name, "#")
            assert address.startswith(("#", "data:")), (tag, name, address)
    ours = page.replace(told.scripts[1], "")
    assert "http://" not in ours
    assert "https://" not in ours
    assert "url(" not in ours
    assert "@import" not in ours


def test_only_the_scripts_of_the_page_may_run_and_nothing_may_be_fetched(told: Read) -> None:
    policy = next(given["content"] for tag, given in told.attributes if given.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    scripts = told.scripts[1:]
    assert len(scripts) == 2
    for script in scripts:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert "script-src 'unsafe" not in policy
    assert not [name for _, given in told.attributes for name in given if name.startswith("on")]


def test_text_of_others_is_escaped_everywhere(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>{{ data }}{{7*7}}"
    write_full(tmp_path / "a", label=evil)
    write_full(tmp_path / "b", label="b")
    for name in "ab":
        write_journal(tmp_path / name, [1.0, 2.0], [{evil: 0.5}, {evil: 0.5}])
    write_table(tmp_path / "main.json", title=evil, caption=evil, notes=[evil], command=evil)
    page = build.build([tmp_path], title=evil)
    told = read(page)
    assert len(told.scripts) == 3
    assert evil in told.text
    assert told.headings[0] == (1, evil)
    assert "onerror" not in {name for _, given in told.attributes for name in given}


HOSTILE = ("<script>alert(1)</script>", "{{7*7}}", "{% include 'page' %}", "\"'onload='alert(1)")


def test_names_of_layers_are_text_in_the_page_its_data_and_its_drawings(tmp_path: Path) -> None:
    def build_hostile() -> nn.Module:
        layers = [(name, nn.Conv3d(4 if number else 1, 4, 1)) for number, name in enumerate(HOSTILE)]
        return nn.Sequential(OrderedDict([*layers, ("out", nn.Conv3d(4, 2, 1))]))

    register_network("hostile", build_hostile)
    try:
        batches = [(torch.randn(1, 1, 4, 4, 4), torch.randint(2, (1, 4, 4, 4)))]
        made = ranp.prune(build_hostile(), batches, nn.functional.cross_entropy, sparsity=0.2)
        write_run(tmp_path / "run", made, {"model": "hostile", "inputs": ["1x1x4x4x4"]})
        material = collect([tmp_path / "run"])
        drawings = [path for path in write_figures(material, tmp_path / "figures") if path.suffix == ".svg"]
    finally:
        del NETWORKS._values["hostile"]
    page = build.page(material)
    told = read(page)
    assert [row[0] for row in told.table("Every layer")[1:5]] == list(HOSTILE)
    assert [row[0] for row in told.table("Importance by layer")[1:5]] == list(HOSTILE)
    (chart,) = [chart for key, chart in told.data["charts"].items() if key.endswith("importance")]
    assert [html.unescape(name) for name in chart["layout"]["meta"]["names"]][:4] == list(HOSTILE)
    assert not any("<" in name for name in chart["layout"]["meta"]["names"])
    assert len(told.scripts) == 3
    assert "<script>alert" not in page
    assert "49" not in {row[0] for table in told.tables for row in table if row}
    assert not [name for _, given in told.attributes for name in given if name.startswith("on")]
    assert drawings
    for path in drawings:
        assert not [element for element in ElementTree.parse(path).iter() if element.tag.endswith("script")]


def test_networks_that_are_not_there_predict_nothing_and_the_page_says_so(told: Read) -> None:
    assert any(note.startswith("Example predictions cannot be shown") for note in told.notes)


def test_without_scores_the_rest_still_comes(tmp_path: Path) -> None:
    write_pruned(tmp_path / "run")
    (tmp_path / "run" / "scores.safetensors").unlink()
    told = read(build.build([tmp_path / "run"]))
    assert any("The slider is missing." in note and "scores.safetensors" in note for note in told.notes)
    assert told.table("Every layer")
    assert told.data["studies"] == {}


@pytest.mark.parametrize(
    ("trust", "why"), [(NOTHING, "nothing was run. Pass --model"), (Trust(everything=True), "there is no module")]
)
def test_without_the_code_of_the_network_the_rest_still_comes(trust: Trust, why: str, tmp_path: Path) -> None:
    write_pruned(tmp_path / "run", model="no_such_package.networks:make", options={}, task="")
    told = read(build.build([tmp_path / "run"], trust=trust))
    assert any(why in note and "no_such_package" in note for note in told.notes)
    assert told.table("Every layer")


def test_blind_pruning_has_no_slider_and_says_why(tmp_path: Path) -> None:
    write_pruned(tmp_path / "run", "random")
    told = read(build.build([tmp_path / "run"]))
    assert any("drawn blindly" in note for note in told.notes)


def test_costs_of_a_network_without_a_report_are_counted(tmp_path: Path) -> None:
    made = write_pruned(tmp_path / "cut")
    write_full(tmp_path / "full")
    (tmp_path / "cut" / "report.json").unlink()
    rows = {row[0]: row for row in read(build.build([tmp_path])).table("2 runs")[1:]}
    assert rows["cut"][3] == f"{made.report.params.after:,}"
    assert rows["full"][3] == f"{made.report.params.before:,}"


def test_tables_and_drawings_of_a_reproduction_are_in_the_page(tmp_path: Path) -> None:
    drawing = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    (tmp_path / "main-scatter.svg").write_bytes(drawing)
    write_table(tmp_path / "main.json", figures={"main-scatter.svg": atomic.checksum(drawing)})
    told = read(build.build([tmp_path]))
    assert told.table("What was measured.") == [
        ["method", "GFLOPs"],
        ["ShapeNet, 3D-UNet"],
        ["RANP-f", "78.24"],
        ["Full", "237.85"],
    ]
    (image,) = [given for tag, given in told.attributes if tag == "img"]
    assert base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")) == drawing
    assert image["alt"]
    assert "One seed." in told.text
    assert "ranp reproduce main --out runs/main" in told.text


def test_many_runs_make_one_comparison_and_one_section(tmp_path: Path) -> None:
    for seed in range(4):
        write_pruned(tmp_path / f"slim-{seed}", recipe={"seed": seed})
        write_full(tmp_path / f"full-{seed}", recipe={"seed": seed})
        for kind in ("slim", "full"):
            write_journal(
                tmp_path / f"{kind}-{seed}", [2.0 + seed, 1.0 + seed], [{"miou": 0.1}, {"miou": 0.1 + seed / 10}]
            )
    for extra in range(2):
        write_pruned(tmp_path / f"vanilla-{extra}", "vanilla", recipe={"seed": extra})
    told = read(build.build([tmp_path]))
    assert len(told.table("10 runs")) == 11
    assert sum("what was pruned, and why" in words for level, words in told.headings if level == 2) == 1
    names = [trace["name"] for trace in told.data["charts"]["learn-0-figure"]["data"] if "name" in trace]
    assert names == ["full network (mean of 4)", "RANP-f (mean of 4)"]
    means = [trace["y"][-1] for trace in told.data["charts"]["learn-0-figure"]["data"] if "name" in trace]
    assert means == pytest.approx([25.0, 25.0])


def test_a_page_is_written_whole_or_not_at_all(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report.html"
    out.write_text("before")
    monkeypatch.setattr(build, "page", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build.write([folder / "full"], out)
    assert out.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_scores_that_were_damaged_are_refused(tmp_path: Path) -> None:
    write_pruned(tmp_path / "run")
    path = tmp_path / "run" / "scores.safetensors"
    path.write_bytes(path.read_bytes()[:-8] + b"12345678")
    with pytest.raises(StorageError, match=r"scores\.safetensors"):
        build.write([tmp_path / "run"], tmp_path / "out.html")
    assert not (tmp_path / "out.html").exists()


def test_places_where_nothing_can_be_written_are_refused_first(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is a folder"):
        build.write([tmp_path], tmp_path)
    with pytest.raises(StorageError, match="there is no folder"):
        build.write([tmp_path], tmp_path / "missing" / "report.html")


def test_networks_are_made_again_as_they_were() -> None:
    told = {"model": "unet3d-shapenet", "options": {"widths": [4, 8]}, "inputs": ["2x1x8x8x8"]}
    make, example = network_of(StoredRun(Path("run"), "run", told))
    assert tuple(example.shape) == (2, 1, 8, 8, 8)
    assert make()(example.new_zeros(example.shape, device="cpu")).shape[0] == 2
    _, pair = network_of(StoredRun(Path("run"), "run", {"model": "psm-sceneflow"}))
    assert len(pair) == 2


def test_a_budget_comes_first_with_what_is_used_of_it(tmp_path: Path) -> None:
    made = write_within(tmp_path / "within", "flops=60%, train-memory=95%")
    told = read(build.build([tmp_path]))
    assert [words for level, words in told.headings if level == 3][:2] == ["Budgets", "What it saves"]
    flops, memory = made.report.spent()
    assert f"Within {flops.budget} ({flops.figures[1]}, {share(flops.used)} of what it allows) and " in told.text
    for one in (flops, memory):
        assert re.search(
            rf"{one.budget}{share(one.used)} used\s+{one.figures[1]} of {one.quantity.format(one.limit)} allowed\s+"
            rf"full network {one.figures[0]}",
            told.text,
        )
    assert re.search(rf"Training memory\S+ %\s+{memory.figures[0]} \u2192 to  {memory.figures[1]}", told.text)
    assert "One training step: 1x1x8x8x8, adam, float32." in told.text
    assert isinstance(study_of(gather([tmp_path]).runs[0]), Study)


def test_what_a_step_needs_and_which_card_holds_it_stand_beside_the_flops(tmp_path: Path) -> None:
    made = write_pruned(tmp_path / "plain")
    assert "Training memory" not in read(build.build([tmp_path / "plain"])).text
    write_run(tmp_path / "told", made.with_step(timed=True), recipe())
    report = Report.load(tmp_path / "told" / "report.json")
    memory, time = report.spent()
    told = read(build.build([tmp_path / "told"], memory=(memory.before + memory.after) / 2))
    for title, one in (("Training memory", memory), ("Step time, measured", time)):
        before, after = map(re.escape, one.figures)
        assert re.search(rf"{title}\S+ ?%?\s+{before} \u2192 to  {after}", told.text), title
    assert "that of the full network does not. A card of 2 GiB holds a training step of either network." in told.text
    assert "the run did not predict its memory" in read(build.build([tmp_path / "plain"], memory=1e9)).text


def test_ways_to_run_it_that_were_timed_are_shown(tmp_path: Path) -> None:
    made = write_pruned(tmp_path / "run")
    tuned = {"memory_format": "channels_last_3d", "ratios": {"contiguous": 1.0, "channels_last_3d": 0.75}}
    report = replace(made.report, settings={**made.report.settings, "tuned": tuned})
    write_run(tmp_path / "run", replace(made, report=report), recipe())
    rows = read(build.build([tmp_path])).table("Time of a step of the slim network")[1:]
    assert rows == [["contiguous", "1.000", ""], ["channels_last_3d", "0.750", "fastest"]]


def test_less_than_was_asked_for_is_explained(tmp_path: Path) -> None:
    made, why = write_pruned(tmp_path / "run"), "50.00% asked for, 36.29% removed: coupled layers keep more."
    assert why not in read(build.build([tmp_path])).text
    report = replace(made.report, settings={**made.report.settings, "shortfall": why})
    write_run(tmp_path / "run", replace(made, report=report), recipe())
    assert why in read(build.build([tmp_path])).text


@pytest.mark.parametrize(("convention", "words"), [("true", "as torch counts them;"), ("paper", "the paper's tables")])
def test_the_page_says_how_its_figures_are_counted(convention: str, words: str, tmp_path: Path) -> None:
    made = write_pruned(tmp_path / "run")
    write_run(tmp_path / "run", replace(made, report=replace(made.report, convention=convention)), recipe())
    assert words in read(build.build([tmp_path])).text


def test_memory_and_time_of_a_step_stand_side_by_side(tmp_path: Path) -> None:
    made = write_pruned(tmp_path / "slim").with_step()
    write_run(tmp_path / "slim", made, recipe())
    write_full(tmp_path / "full")
    write_full(tmp_path / "other", recipe={"seed": 0, "batch": 7})
    write_journal(tmp_path / "full", [3.0, 2.0], [None, {"miou": 0.5}])
    head, *rows = read(build.build([tmp_path])).table("3 runs")
    columns = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    (memory,) = made.report.spent()
    peaks = {name: row["training memory (MiB)"] for name, row in columns.items()}
    expected = {"slim": memory.after, "full": memory.before}
    assert peaks == {**{name: f"{peak * MIB:,.2f}" for name, peak in expected.items()}, "other": "\N{EN DASH}"}
    assert {name: row["step (ms)"] for name, row in columns.items()} == {
        "full": "1,000.0",
        "slim": "\N{EN DASH}",
        "other": "\N{EN DASH}",
    }
    assert "A step took 1 s, the mean of 4 while it trained." in read(build.build([tmp_path / "full"])).text


@pytest.mark.parametrize(
    ("ok", "kind", "words"),
    [(True, "good", "Verified."), (False, "bad", "Verification failed."), (None, "open", "Not checked.")],
)
def test_what_was_not_checked_has_a_colour_of_its_own(folder: Path, ok: bool | None, kind: str, words: str) -> None:
    report = Report.load(folder / "ranp-f" / "report.json")
    checks = replace(report.checks, ok=ok, numeric=ok, max_error=None)
    run = next(run for run in gather([folder]).runs if run.label == "ranp-f")
    section = detail.detail(replace(run, report=replace(report, checks=checks)), "run", Absent("No."), heading="run")
    assert f'<p class="verdict {kind}"><strong>{words}</strong>' in section.body

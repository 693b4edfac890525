"""The table of times, with a clock whose times are known: what is measured, what is remembered, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ranp.costs.step import Call, StepTrace, TrainingStep, trace_step
from ranp.costs.time import Table
from ranp.costs.time.calls import Heavy, placed
from ranp.costs.time.machine import cache_folder
from ranp.costs.time.stored import KIND, VERSION
from ranp.errors import RanpError, UnsupportedError
from ranp.files import atomic


class Net(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.first = nn.Conv3d(2, width, 3, padding=1)
        self.norm = nn.BatchNorm3d(width)
        self.depthwise = nn.Conv3d(width, width, 3, padding=1, groups=width)
        self.second = nn.Conv3d(width, 2 * width, 3, stride=2, padding=1)
        self.head = nn.Linear(2 * width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.depthwise(torch.relu(self.norm(self.first(x))))
        return self.head(torch.relu(self.second(x)).mean((2, 3, 4)))


EXAMPLE = torch.zeros(2, 2, 6, 6, 6)


class Clock:
    """Times that are linear in every extent, and a count of how often it was asked."""

    def __init__(self, factor: float = 1e-6) -> None:
        self.asked: list[Call] = []
        self.factor = factor

    def __call__(self, call: Call) -> float:
        self.asked.append(call)
        return self.told(call)

    def told(self, call: Call) -> float:
        place = placed(call)
        if place is None:
            return 0.0
        if isinstance(place, Heavy):
            return self.factor * (5 + prod(place.widths))
        return self.factor * place.amount / 7


def net(width: int = 24, *, step: TrainingStep | None = TrainingStep()) -> StepTrace:  # noqa: B008
    return trace_step(Net(width), EXAMPLE, step=step)


@pytest.fixture(scope="module")
def full() -> StepTrace:
    return net()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_full_network_takes_the_sum_of_its_operators(full: StepTrace, clock: Clock, tmp_path: Path) -> None:
    table = Table.open(tmp_path, measure=clock)
    table.cover(full)
    for call, seconds in zip(full.calls, table.by_call(full), strict=True):
        place = placed(call)
        ragged = isinstance(place, Heavy) and any(width % 16 for width in place.widths)
        # A width with a rest is read off at the middle of its block; a curve of products meets (0, 0) only.
        assert seconds == pytest.approx(clock.told(call), rel=0.3 if ragged else 1e-9), call
    assert table.seconds(full) == sum(table.by_call(full))


@pytest.mark.parametrize("width", [1, 2, 7, 16, 17, 23])
def test_any_lower_width_is_covered(full: StepTrace, clock: Clock, tmp_path: Path, width: int) -> None:
    table = Table.open(tmp_path, measure=clock)
    table.cover(full)
    asked = len(clock.asked)
    thin = net(width)
    assert 0 < table.seconds(thin) < table.seconds(full)
    assert table.seconds(thin) == table.seconds(net(width))
    assert len(clock.asked) == asked


def test_nothing_is_measured_twice(full: StepTrace, clock: Clock, tmp_path: Path) -> None:
    table = Table.open(tmp_path, measure=clock)
    table.cover(full)
    asked = len(clock.asked)
    assert asked == table.size
    table.cover(full)
    table.cover(net(9))
    assert len([call for call in clock.asked[asked:] if isinstance(placed(call), Heavy)]) == 0
    again = Table.open(tmp_path, measure=clock)
    asked = len(clock.asked)
    again.cover(full)
    assert len(clock.asked) == asked


def test_a_wider_network_adds_to_the_same_table(full: StepTrace, clock: Clock, tmp_path: Path) -> None:
    table = Table.open(tmp_path, measure=clock)
    table.cover(full)
    thin = net(5)
    before = table.seconds(thin)
    wide = net(40)
    with pytest.raises(UnsupportedError, match=r"does not cover aten\.\w+.*cover\(\)"):
        table.seconds(wide)
    table.cover(wide)
    assert table.seconds(wide) > table.seconds(full) > table.seconds(thin)
    assert table.seconds(thin) == pytest.approx(before, rel=0.5)


def test_what_all_step_traces_agree_in_is_measured_at_that_size_only(clock: Clock, tmp_path: Path) -> None:
    full, others = net(24), [net(12), net(5)]
    table = Table.open(tmp_path / "all", measure=Clock())
    table.cover(full)
    fewer = Table.open(tmp_path / "fewer", measure=clock)
    fewer.cover(full, widths=others)
    assert fewer.size < 0.8 * table.size
    assert fewer.seconds(full) == pytest.approx(table.seconds(full))
    assert 0 < fewer.seconds(net(3)) < fewer.seconds(full)
    inputs = {
        call.inputs[0].shape[1]
        for call in clock.asked
        if call.op == "aten.convolution.default" and call.inputs[0].shape[2] == 6 and call.inputs[1].shape[1] > 1
    }
    assert 2 in inputs
    with pytest.raises(UnsupportedError, match="other operators"):
        fewer.cover(full, widths=[trace_step(nn.Conv3d(2, 2, 1), EXAMPLE)])


def test_the_file_brings_everything_back(full: StepTrace, clock: Clock, tmp_path: Path) -> None:
    table = Table.open(tmp_path / "new" / "folder", measure=clock)
    table.cover(full)
    again = Table.open(tmp_path / "new" / "folder", measure=clock)
    assert again.path == table.path
    assert again.size == table.size
    for traced in (full, net(7), net(16)):
        assert again.by_call(traced) == table.by_call(traced)
    assert [path.name for path in table.path.parent.iterdir()] == [table.path.name]


def test_progress_is_told(full: StepTrace, clock: Clock, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    table = Table.open(tmp_path, measure=clock)
    table.cover(full, progress=lambda done, total: told.append((done, total)))
    assert told == [(number, len(clock.asked)) for number in range(1, len(clock.asked) + 1)]
    table.cover(full, progress=lambda done, total: told.append((done, total)))
    assert len(told) == len(clock.asked)


def test_modules_share_the_step_among_them(full: StepTrace, clock: Clock, tmp_path: Path) -> None:
    table = Table.open(tmp_path, measure=clock)
    table.cover(full)
    parts = table.by_module(full)
    assert sum(parts.values()) == pytest.approx(table.seconds(full))
    assert {"first", "norm", "depthwise", "second", "head"} <= set(parts)
    own = sum(
        seconds
        for call, seconds in zip(full.calls, table.by_call(full), strict=True)
        if call.module == "second" and "convolution" in call.op
    )
    assert 0 < own <= parts["second"]


def test_an_empty_table_and_an_unknown_operator_are_refused(full: StepTrace, clock: Clock, tmp_path: Path) -> None:
    table = Table.open(tmp_path, measure=clock)
    with pytest.raises(UnsupportedError, match="empty"):
        table.seconds(full)
    table.cover(full)
    other = replace(full, calls=(*full.calls, replace(full.calls[-1], op="aten.erfinv_.default")))
    with pytest.raises(UnsupportedError, match=r"erfinv_.*cover\(\)"):
        table.seconds(other)
    assert table.seconds(net(step=None)) > 0


def test_another_device_is_refused(full: StepTrace, clock: Clock, tmp_path: Path) -> None:
    table = Table.open(tmp_path, measure=clock)
    for ask in (table.cover, table.seconds):
        with pytest.raises(UnsupportedError, match="device='cuda'"):
            ask(replace(full, device="cuda"))


def test_an_operator_that_refuses_made_up_numbers_is_taken_for_a_copy(full: StepTrace, tmp_path: Path) -> None:
    clock = Clock()

    def picky(call: Call) -> float:
        if "batch_norm" in call.op:
            raise RuntimeError("not these numbers")
        return clock(call)

    table = Table.open(tmp_path, measure=picky)
    table.cover(full)
    assert table.seconds(full) > 0
    assert "aten.clone.default" in {call.op for call in clock.asked}


def test_an_interrupted_cover_goes_on_where_it_stopped(full: StepTrace, tmp_path: Path) -> None:
    clock = Clock()

    def interrupted(call: Call) -> float:
        if len(clock.asked) == 20:
            raise KeyboardInterrupt
        return clock(call)

    table = Table.open(tmp_path, measure=interrupted)
    with pytest.raises(KeyboardInterrupt):
        table.cover(full)
    table.save()
    with pytest.raises(UnsupportedError):
        table.seconds(full)
    rest, whole = Clock(), Clock()
    again = Table.open(tmp_path, measure=rest)
    again.cover(full)
    fresh = Table.open(tmp_path / "fresh", measure=whole)
    fresh.cover(full)
    assert len(rest.asked) == len(whole.asked) - 20
    assert again.seconds(full) == fresh.seconds(full)


def _damage(path: Path, change: str) -> None:
    text = path.read_text(encoding="utf-8")
    if change == "torn":
        path.write_text(text[: len(text) // 2], encoding="utf-8")
        return
    value = json.loads(text)
    if change == "negative":
        next(iter(value["light"].values()))["points"] = {"4": -1.0}
    elif change == "words":
        next(iter(value["heavy"].values()))["points"] = {"a,b": 1.0}
    elif change == "another format":
        value["format"] = "ranp-plan"
    elif change == "no machine":
        del value["machine"]
    elif change == "newer":
        value["version"] = 99
    elif change == "digit":
        value["floor"] += 1e-9
    path.write_text(json.dumps(value), encoding="utf-8")


@pytest.mark.parametrize("change", ["torn", "negative", "words", "another format", "no machine", "newer", "digit"])
def test_a_damaged_file_is_measured_again(
    full: StepTrace, clock: Clock, tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = Table.open(tmp_path, measure=clock)
    table.cover(full)
    _damage(table.path, change)
    fresh = Clock()
    again = Table.open(tmp_path, measure=fresh)
    assert table.path.name in caplog.text
    assert "measured again" in caplog.text
    again.cover(full)
    assert fresh.asked == clock.asked
    assert Table.open(tmp_path, measure=pytest.fail).seconds(full) == table.seconds(full)


def test_times_of_another_machine_are_refused(full: StepTrace, clock: Clock, tmp_path: Path) -> None:
    table = Table.open(tmp_path, measure=clock)
    table.cover(full)
    value = atomic.read_json(table.path, kind=KIND, version=VERSION)
    value["machine"]["processor"] = "abacus"
    atomic.write_json(table.path, value, kind=KIND, version=VERSION)
    with pytest.raises(UnsupportedError, match=r"abacus.*RANP_CACHE"):
        Table.open(tmp_path, measure=clock)


def test_a_folder_that_cannot_be_made_is_one_clear_error(full: StepTrace, clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    table = Table.open(tmp_path / "file" / "inside", measure=clock)
    with pytest.raises(RanpError, match="RANP_CACHE"):
        table.cover(full)


def test_the_number_of_threads_has_its_own_file(tmp_path: Path, clock: Clock) -> None:
    threads = torch.get_num_threads()
    names = set()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            names.add(Table.open(tmp_path, measure=clock).path.name)
    finally:
        torch.set_num_threads(threads)
    assert len(names) == 2


def test_the_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANP_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    assert Table.open().path.parent == tmp_path / "here"
    monkeypatch.delenv("RANP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "ranp"

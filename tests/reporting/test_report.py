"""The report: rows add up, agree with profiling both networks, and survive a round trip through JSON."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import ranp
from benchmarks.judges import saved_bytes
from ranp.errors import StorageError
from ranp.files import atomic
from ranp.paper.models import UNet3d
from ranp.reporting.report import OTHERS, Amount, Report

FIGURES = ("params", "flops", "memory")


class Functional(nn.Module):
    """A weight used by function call, a parameter of no layer, and a module called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(8, 1, 3, 3, 3) / 5)
        self.gain = nn.Parameter(torch.ones(()))
        self.twice = nn.Conv3d(8, 8, 3, padding=1)
        self.head = nn.Conv3d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.conv3d(x, self.kernel, padding=1).relu()
        return self.head(self.gain * self.twice(self.twice(x).relu()).relu())


def depthwise() -> nn.Module:
    """Expand, filter each channel, project, as MobileNetV2 does, with a transposed convolution and an average pool."""
    return nn.Sequential(
        nn.Conv3d(2, 12, 1, bias=False),
        nn.BatchNorm3d(12),
        nn.ReLU6(),
        nn.Conv3d(12, 12, 3, padding=1, groups=12),
        nn.AvgPool3d(2),
        nn.ConvTranspose3d(12, 6, 2, stride=2),
        nn.Conv3d(6, 3, 1),
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "unet": (lambda: UNet3d(1, 3, widths=(8, 16)), torch.randn(2, 1, 8, 8, 8)),
    "depthwise": (depthwise, torch.randn(2, 2, 4, 4, 4)),
    "functional": (Functional, torch.randn(2, 1, 6, 6, 6)),
    "linear": (lambda: nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)), torch.randn(4, 6)),
}


def pruned(name: str, **options: Any) -> tuple[nn.Module, Tensor, ranp.Pruned]:
    build, example = NETWORKS[name]
    torch.manual_seed(0)
    model = build()
    options = {"sparsity": 0.3, "method": "layerwise", "criterion": "magnitude", **options}
    return model, example, ranp.prune(model, [(example, None)], lambda output, _: output.sum(), **options)


@pytest.mark.parametrize("convention", ["true", "paper", "equation"])
@pytest.mark.parametrize("name", NETWORKS)
def test_totals_are_those_of_profiling_both_networks(name: str, convention: str) -> None:
    model, example, result = pruned(name, convention=convention)
    before, after = (ranp.profile(m, example, convention=convention) for m in (model, result.model))
    assert result.report.convention == convention
    for figure in FIGURES:
        amount, source = getattr(result.report, figure), "memory_bytes" if figure == "memory" else figure
        assert amount == Amount(getattr(before, source), getattr(after, source)), figure
        rows = [getattr(row, figure) for row in result.report.layers]
        assert (sum(r.before for r in rows), sum(r.after for r in rows)) == (amount.before, amount.after)
        assert all(r.before >= r.after >= 0 for r in rows)


@pytest.mark.parametrize("name", NETWORKS)
def test_true_figures_are_those_of_torch(name: str) -> None:
    model, example, result = pruned(name)
    for network, side in ((model, "before"), (result.model, "after")):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network.eval()(example)
        assert getattr(result.report.true_flops, side) == counter.get_total_flops()
        assert getattr(result.report.flops, side) == counter.get_total_flops()
        assert getattr(result.report.memory, side) == saved_bytes(copy.deepcopy(network), example)
        assert getattr(result.report.true_params, side) == sum(p.numel() for p in network.parameters())


def test_rows_are_the_layers_with_their_channels_and_parameters() -> None:
    model, _, result = pruned("unet")
    modules, slim = dict(model.named_modules()), dict(result.model.named_modules())
    *rows, rest = result.report.layers
    assert [row.name for row in rows] == [n for n, m in modules.items() if isinstance(m, nn.Conv3d)]
    for row in rows:
        assert row.channels == Amount(modules[row.name].out_channels, slim[row.name].out_channels)
        assert row.params.after == sum(p.numel() for p in slim[row.name].parameters())
    assert rest.name == OTHERS
    norms = sum(p.numel() for m in slim.values() if isinstance(m, nn.BatchNorm3d) for p in m.parameters())
    assert rest.params.after == norms
    assert result.report.channels == Amount(sum(result.plan.channels.values()), sum(result.plan.widths.values()))


def test_says_what_stayed_whole_why_and_what_was_checked() -> None:
    _, _, result = pruned("unet", keep=["encoders.0.conv1.*"])
    notes = {row.name: row.note for row in result.report.layers if row.note}
    assert set(notes) == {"encoders.0.conv1.0", "head"}
    assert "output" in notes["head"]
    text = str(result.report)
    for piece in ("head*", notes["head"], "certificate", "slim equals masked", "total", "30.00% requested"):
        assert piece in text
    assert f"{result.report.flops.removed:.2%}" in text
    assert result.report.checks is not None
    assert result.report.checks.ok
    assert result.report.checks.numeric
    assert result.report.checks.max_error is not None
    assert result.report.checks.max_error < 1e-9


def test_columns_line_up_and_widths_are_read_off_the_text() -> None:
    _, _, result = pruned("unet")
    lines = str(result.report).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("layer "))
    rule = lines[start + 1]
    rows = lines[start + 2 : start + 2 + len(result.report.layers)]
    assert all(len(row) <= len(rule) for row in rows)
    for row, layer in zip(rows, result.report.layers, strict=True):
        if layer.channels.before:
            assert f" {layer.channels.before} -> {layer.channels.after} " in row


def test_numbers_that_could_not_be_compared_are_said() -> None:
    model, example, result = pruned("linear")
    unchecked = ranp.Verification(None, math.nan, True, None, "not finite")
    report = Report.of(model, result.trace, result.plan, result.model, example, unchecked)
    assert report.checks is not None
    assert report.checks.max_error is None
    assert "numeric: NOT CHECKED" in str(report)
    assert "not finite" in str(report)
    failed = Report.of(
        model, result.trace, result.plan, result.model, example, ranp.Verification(False, 0.5, True, False, "x")
    )
    assert "numeric: FAILED" in str(failed)


@pytest.mark.parametrize("name", NETWORKS)
def test_round_trip_through_json(name: str, tmp_path: Path) -> None:
    _, _, result = pruned(name)
    value = result.report.to_dict()
    assert Report.from_dict(json.loads(json.dumps(value, allow_nan=False))) == result.report
    result.report.save(tmp_path / "report.json")
    again = Report.load(tmp_path / "report.json")
    assert again == result.report
    assert str(again) == str(result.report)


def test_totals_in_json_are_the_totals() -> None:
    _, _, result = pruned("unet")
    value = result.report.to_dict()
    assert value["totals"]["flops"] == {
        "before": result.report.flops.before,
        "after": result.report.flops.after,
        "removed": result.report.flops.removed,
    }
    assert value["sparsity"]["requested"] == 0.3
    assert value["sparsity"]["of_channels"] == result.plan.sparsity.of_channels
    assert value["settings"]["method"] == "layerwise"


def test_a_broken_report_names_the_entry(tmp_path: Path) -> None:
    _, _, result = pruned("linear")
    path = tmp_path / "report.json"
    result.report.save(path)
    value = result.report.to_dict()
    del value["layers"][0]["flops"]
    atomic.write_json(path, value, kind="ranp-report", version=2)
    with pytest.raises(StorageError, match=r"report\.json.*'flops' is missing"):
        Report.load(path)
    path.write_text(path.read_text()[:100])
    with pytest.raises(StorageError, match="not readable JSON"):
        Report.load(path)


def test_nothing_removed_changes_nothing() -> None:
    _, _, result = pruned("unet", sparsity=0.0)
    for amount in (result.report.channels, result.report.params, result.report.flops, result.report.memory):
        assert amount.ratio == 1
        assert amount.removed == 0
    assert Amount(0, 0).ratio == 1


def test_narrow_layers_are_pointed_out() -> None:
    net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.Conv2d(16, 3, 3), nn.Conv2d(3, 16, 3), nn.Conv2d(16, 2, 1))
    batches = [(torch.randn(2, 1, 12, 12), torch.randint(2, (2, 6, 6)))]

    def report(**options: Any) -> Report:
        return ranp.prune(net, batches, nn.functional.cross_entropy, criterion="magnitude", **options).report

    line = r"^narrow, fewer than 4 channels: 0 \(1 of 16\), 1 \(1 of 3\), 2 \(1 of 16\)$"
    smallest = report(budget=f"flops={flops_of((1, 1, 1))}")
    assert re.search(line, str(smallest), re.MULTILINE)
    assert re.search("^least width: 1, since 4 channels in every layer do not fit$", str(smallest), re.MULTILINE)
    wide = report(budget=f"flops={flops_of((4, 3, 4))}")
    assert "narrow" not in str(wide)
    assert "least width" not in str(wide)
    assert not wide.narrow()


def flops_of(widths: tuple[int, int, int]) -> int:
    """Of that network, slim, on two samples."""
    a, b, c = widths
    return 4 * (9 * a * 100 + 9 * a * b * 64 + 9 * b * c * 36 + 2 * c * 36)


@pytest.mark.parametrize(
    "settings",
    [
        {"budget": [{"budget": "flops=5%", "resource": "flops", "before": 1.0, "limit": 0.0, "after": 1.0}]},
        {"budget": [{"resource": "flops"}]},
        {"of_step": [{"resource": "speed", "before": 1.0, "after": 1.0}]},
        {"of_step": "nothing"},
        {"of_step": [{"resource": "step-time", "before": 1.0, "after": 1.0}], "step": {"inputs": 3}},
        {"tuned": {"ratios": {"contiguous": "fast"}}},
        {"tuned": {"speed": 3}},
    ],
)
def test_settings_that_say_what_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    value = pruned("linear")[2].report.to_dict()
    with pytest.raises(StorageError, match="not a valid report"):
        Report.from_dict({**value, "settings": {**value["settings"], **settings}})

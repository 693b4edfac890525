"""What cannot be pruned: every channel that stays has a cause, causes are grouped for a reader and whole in JSON."""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import pytest
import torch.nn.functional as F
from torch import Tensor, nn

import ranp
from ranp.cli import main
from ranp.reporting.causes import HeldChannels, by_cause, describe, listed
from ranp.reporting.report import Report
from tests.support.topologies.topology import conv, tensor


class Written(nn.Module):
    """A gate whose code knows the width."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.gate = conv(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.layer(x))
        return x * self.gate(x.mean((2, 3, 4)).view(-1, 6)).view(-1, 6, 1, 1, 1)


class Twenty(nn.Module):
    """Twenty blocks that cannot be pruned for the same reason, a layer that never runs, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(1, 6)
        self.blocks = nn.ModuleList([Written() for _ in range(20)])
        self.idle, self.last, self.head = conv(6, 5), conv(6, 8), conv(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(F.relu(self.last(x)))


def loss(output: Tensor, _: Any) -> Tensor:
    """Some scalar."""
    return output.square().mean()


def pruned(model: nn.Module, **options: Any) -> ranp.Pruned:
    options = {"sparsity": 0.3, "method": "layerwise", "criterion": "magnitude", **options}
    return ranp.prune(model, [(tensor(2, 1, 3, 3, 3), None)], loss, **options)


def small() -> nn.Module:
    """Three layers, the middle one coupled to the first."""

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.inner, self.free, self.head = conv(1, 6), conv(6, 6), conv(6, 4), conv(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.stem(x))
            return self.head(F.relu(self.free(x + F.relu(self.inner(x)))))

    return Small()


def test_many_layers_with_one_reason_take_one_line() -> None:
    report = pruned(Twenty()).report
    text = str(report).split("not prunable")[1].split("verification")[0]
    assert len(text.splitlines()) < 14, text
    assert "blocks.*.layer" in text
    assert "(20 layers)" in text or "(19 layers)" in text
    assert "5 of idle: did not run on this example" in text
    value = report.to_dict()
    layers = {layer for pin in value["pins"] for layer in pin["layers"]}
    assert {f"blocks.{i}.layer" for i in range(20)} <= layers
    assert value["stay"]["channels"] == sum(pin["channels"] for pin in value["pins"])
    assert value["stay"]["by_cause"]["output"] == 2
    assert value["stay"]["by_cause"]["unused"] == 5


def test_layers_kept_by_request_and_what_hangs_on_them() -> None:
    report = pruned(small(), keep=["stem"]).report
    causes = {(pin.cause, layer): count for pin in report.pins for layer, count in pin.layers.items()}
    assert causes == {("request", "stem"): 6, ("coupling", "inner"): 6, ("output", "head"): 2}
    assert "6 of stem: kept by request (stem)" in str(report)
    assert "14 of 18 channels must stay, 4 can go" in str(report)
    assert {row.name for row in report.layers if row.note} == {"stem", "inner", "head"}


def test_layers_without_gradient_say_so() -> None:
    model = small()

    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.side, self.out = model, conv(1, 6), conv(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x) + self.out(F.relu(self.side(x))).detach()

    report = pruned(Detached(), criterion="mpmg-sum").report
    (gradient,) = (pin for pin in report.pins if pin.cause == "gradient")
    assert dict(gradient.layers) == {"side": 6}
    assert "no gradient reaches it" in str(report)
    assert by_cause(report.pins) == {"gradient": 6, "output": 4}


def test_a_network_that_is_all_free_says_nothing() -> None:
    assert describe([], 12) == "all 12 channels can go"


def test_many_causes_are_counted_rather_than_listed() -> None:
    stays = [
        HeldChannels("operation", f"cause {'abcdefghijklmnop'[i]}", "", "sort", {f"x{i}": i + 1}) for i in range(16)
    ]
    text = describe(stays, 1000)
    assert text.startswith("136 of 1,000 channels must stay, 864 can go:")
    assert "10 for 4 more causes" in text
    assert listed(f"layer{i}" for i in "abcdefgh").endswith("2 more")
    assert listed(["a.0", "a.1", "b"]) == "a.* (2 layers), b"


def test_round_trip_and_older_reports() -> None:
    report = pruned(Twenty()).report
    value = json.loads(json.dumps(report.to_dict()))
    assert Report.from_dict(value) == report
    value["pins"] = [{"reason": "makes the network's output", "where": "", "channels": 2}]
    (pin,) = Report.from_dict(value).pins
    assert (pin.cause, str(pin)) == ("output", "makes the network's output")


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with a network to name on the command line."""
    module = types.ModuleType("networks_with_obstacles")
    module.twenty = Twenty  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return f"{module.__name__}:twenty"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def test_profile_tells_before_pruning_what_can_go(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "profile", code, "--input", "1x1x3x3x3", "--pins")
    assert "can go:" in text
    assert "2 of head: makes the network's output" in text
    value = json.loads(run(capsys, "profile", code, "--input", "1x1x3x3x3", "--pins", "--json"))
    assert value["channels"] == 261
    assert {pin["cause"] for pin in value["pins"]} >= {"output", "code", "unused"}
    assert "pins" not in json.loads(run(capsys, "profile", code, "--input", "1x1x3x3x3", "--json"))


def test_search_and_prune_tell_it_too(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (code, "--input", "1x1x3x3x3", "--method", "random")
    text = run(capsys, "search", *arguments)
    value = json.loads(run(capsys, "search", *arguments, "--json"))
    printed = run(capsys, "prune", *arguments, "--sparsity", "0.01", "--dry-run")
    for shown in (text, printed):
        assert "2 of head: makes the network's output" in shown
        assert "blocks.*.layer" in shown
    assert sum(pin["channels"] for pin in value["pins"]) >= value["channels"] - value["prunable"]

"""Everything that CONTRIBUTING says can be added, added from outside in a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ranp
from ranp.choosing import methods
from ranp.cli import app, main
from ranp.slimming import storage
from ranp.tracing.operation import Op, labels_of
from ranp.tracing.rules import table

BATCHES = [(torch.randn(2, 1, 6, 6, 6), torch.randint(2, (2, 6, 6, 6)))]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv3d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 2, 1))


def pruned(**options: object) -> ranp.Pruned:
    return ranp.prune(network(), BATCHES, F.cross_entropy, sparsity=0.5, **options)


def test_a_criterion() -> None:
    def largest(weight: Tensor, gradient: Tensor) -> Tensor:
        return (weight * gradient).abs()

    assert pruned(criterion=ranp.Criterion("largest", largest, reduction="max")).plan.settings["criterion"] == "largest"


def test_a_method() -> None:
    methods.register(ranp.Method("magnitudes", criterion="magnitude", balance=True, scope="layer"))
    try:
        assert pruned(method="magnitudes").plan.settings["scope"] == "layer"
    finally:
        del methods.METHODS._values["magnitudes"]


def test_an_initialisation() -> None:
    def ones(module: nn.Module) -> None:
        if isinstance(module, nn.Conv3d):
            nn.init.ones_(module.weight)

    assert pruned(init=ones).model[0].weight.eq(1).all()


@pytest.fixture
def operator() -> Iterator[torch.library.CustomOpDef]:
    @torch.library.custom_op("outside::halved", mutates_args=())
    def halved(x: Tensor) -> Tensor:
        return x / 2

    halved.register_fake(torch.empty_like)
    halved.register_autograd(lambda _, gradient: gradient / 2)
    yield halved
    halved._lib._destroy()


def test_an_operator_rule(operator: torch.library.CustomOpDef) -> None:
    class Halving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = network()

        def forward(self, x: Tensor) -> Tensor:
            return self.inside[2](operator(self.inside[0](x)))

    assert ranp.trace(Halving(), BATCHES[0][0]).prunable == 0  # what is not understood is kept

    @table.rule("outside::halved")
    def _passes(op: Op) -> None:
        op.emit(dict(labels_of(op["x"])))

    try:
        found = ranp.prune(Halving(), BATCHES, F.cross_entropy, sparsity=0.5)
        assert found.trace.prunable == 16
        assert found.verification.ok
    finally:
        del table._TABLE["outside::halved"]
        table.find.cache_clear()


def test_a_network_and_a_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage.register_network("outside", network)

    @app.command("greet")
    def greet() -> None:
        print("hello")  # noqa: T201

    try:
        assert main(["greet"]) == 0
        assert capsys.readouterr().out == "hello\n"
        made = ["--criterion", "magnitude", "--input", "1x1x6x6x6", "--sparsity", "0.5", "--out", str(tmp_path / "run")]
        assert main(["prune", "outside", *made]) == 0
        assert ranp.load(tmp_path / "run" / "model.safetensors", "outside")[0].out_channels < 16
    finally:
        app.registered_commands.pop()
        del storage.NETWORKS._values["outside"]


def test_a_chart(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    from ranp.reporting.drawing import save

    figure = Figure()
    figure.subplots().plot([1, 2, 3])
    save(figure, tmp_path / "mine.svg")
    assert (tmp_path / "mine.svg").read_text(encoding="utf-8").startswith("<?xml")

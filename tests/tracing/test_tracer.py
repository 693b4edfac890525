"""The tracer as a whole: what it tells, what it refuses, and that it leaves no trace itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ranp
from ranp.errors import PlanMismatchError, UnsupportedError
from ranp.paper import models


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv3d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm3d(6)
        self.inner = nn.Conv3d(6, 6, 3, padding=1)
        self.leave = nn.Conv3d(6, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.enter(x)))
        return self.leave(x + self.inner(x))


X = torch.randn(1, 1, 4, 4, 4)


def test_layers_of_an_addition_share_their_classes_and_outputs_stay() -> None:
    trace = ranp.trace(Residual(), X)
    enter, inner, leave = trace.layers
    assert np.array_equal(enter.classes, inner.classes)
    assert len(np.unique(enter.classes)) == 6
    assert leave.pinned
    assert "output" in leave.reason
    assert (enter.norm, inner.norm) == ("norm", None)
    assert trace.channels == 14
    assert trace.prunable == 12


def test_every_tensor_that_holds_a_channel_is_listed() -> None:
    trace = ranp.trace(Residual(), X)
    assert set(trace.dims) == {
        ("enter.weight", 0), ("enter.bias", 0), ("inner.weight", 0), ("inner.weight", 1), ("inner.bias", 0),
        ("leave.weight", 1), ("norm.weight", 0), ("norm.bias", 0), ("norm.running_mean", 0), ("norm.running_var", 0),
    }  # fmt: skip
    assert all(np.array_equal(classes, trace.layers[0].classes) for classes in trace.dims.values())


def test_the_model_is_left_alone() -> None:
    model = Residual().train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()
    ranp.trace(model, X)
    assert model.training
    assert not model._forward_hooks
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(name.startswith("_ranp") for p in model.parameters() for name in vars(p))


def test_code_that_needs_values_runs_on_the_real_example() -> None:
    class Branch(Residual):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x if x.sum().item() > -1e9 else -x)

    assert ranp.trace(Branch(), X).prunable == 12
    with pytest.raises(UnsupportedError, match=r"does not run without data.*Pass a real example"):
        ranp.trace(Branch(), X.to("meta"))


def test_an_example_that_does_not_fit_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"shapes \[\(1, 3, 4, 4, 4\)\].*example="):
        ranp.trace(Residual(), torch.zeros(1, 3, 4, 4, 4))


def test_branches_of_training_alone_are_seen() -> None:
    class Deep(Residual):
        def __init__(self) -> None:
            super().__init__()
            self.side = nn.Conv3d(6, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
            out = super().forward(x)
            return (out, self.side(self.enter(x))) if self.training else out

    trace = ranp.trace(Deep(), X)
    assert ("side.weight", 1) in trace.dims
    assert trace.layer("side").pinned


def test_a_network_that_does_not_train_is_traced_in_eval_mode(caplog) -> None:
    class Picky(Residual):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                raise ValueError("targets are missing")
            return super().forward(x)

    assert ranp.trace(Picky(), X).prunable == 12
    assert "targets are missing" in caplog.text


def test_unknown_layers_are_answered_with_the_close_ones() -> None:
    with pytest.raises(PlanMismatchError, match="did you mean 'inner'"):
        ranp.trace(Residual(), X).layer("iner")


def test_what_runs_nowhere_must_stay() -> None:
    class Spare(Residual):
        def __init__(self) -> None:
            super().__init__()
            self.spare = nn.Conv3d(3, 5, 1)

    layer = ranp.trace(Spare(), X).layer("spare")
    assert layer.pinned
    assert "no operator" in layer.reason


@pytest.mark.parametrize("name", models.names())
def test_paper_networks_are_traced_without_data(name: str) -> None:
    with torch.device("meta"):
        model = models.build(name)
    trace = ranp.trace(model, models.example(name, device="meta"))
    stays = [layer.name for layer in trace.layers if layer.pinned]
    assert stays == [trace.layers[-1].name] if "psm" not in name else len(stays) == 3
    assert not trace.unknown
    assert trace.prunable == trace.channels - sum(trace.layer(n).channels for n in stays)


PSM_GROUPS = [
    [2, 4, 6, 8], [10, 11, *range(13, 42, 2)], [43, 44, 46, 48, 50, 52, 54], [62, 64, 70, 78, 86],
    [66, 69, 74, 77, 82, 85],
]  # fmt: skip


def test_psm_layers_are_coupled_by_their_additions_and_by_nothing_else() -> None:
    with torch.device("meta"):
        model = models.build("psm-sceneflow")
    layers = ranp.trace(model, models.example("psm-sceneflow", device="meta")).layers
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, layer in enumerate(layers):
        if not layer.pinned:
            groups.setdefault(tuple(layer.classes), []).append(index)
    assert sorted(g for g in groups.values() if len(g) > 1) == sorted(PSM_GROUPS)
    seen = [c for classes in groups for c in set(classes)]
    assert len(seen) == len(set(seen))


def test_weights_used_by_function_call_are_layers_with_costs() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(6, 1, 3, 3, 3))
            self.m = nn.Parameter(torch.randn(6, 5))
            self.leave = nn.Linear(5, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.leave(F.conv3d(x, self.w).mean((2, 3, 4)) @ self.m)

    class Modular(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.m, self.leave = nn.Conv3d(1, 6, 3, bias=False), nn.Linear(6, 5, bias=False), nn.Linear(5, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.leave(self.m(self.w(x).mean((2, 3, 4))))

    ours, theirs = ranp.trace(Functional(), X), ranp.trace(Modular(), X)
    assert [(layer.name, layer.kind, layer.channels, layer.pinned) for layer in ours.layers] == [
        ("w", "parameter", 6, False), ("m", "parameter", 5, False), ("leave", "linear", 2, True)
    ]  # fmt: skip
    for resource, convention in (("memory", "paper"), ("params", "paper"), ("flops", "true"), ("flops", "equation")):
        costs = [list(ranp.measure(t, resource, convention=convention).values()) for t in (ours, theirs)]
        assert costs[0] == costs[1]
    assert ranp.measure(ours, "flops")["w"] == ranp.measure(theirs, "flops")["w"]


class Numbered(nn.Module):
    """Each channel times a number of its own, which code draws from a seed."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv3d(1, channels, 1), nn.Conv3d(channels, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        numbers = torch.rand(x.shape[1], generator=torch.Generator().manual_seed(0))
        return self.leave(x * numbers.view(-1, 1, 1, 1))


@pytest.mark.parametrize("channels", [2, 3, 4, 5, 8])
def test_a_trial_cut_never_keeps_just_the_first_channels(channels: int) -> None:
    """The numbers of the first ones stay what they were; only a cut in front of others shows that they are counted."""
    model = Numbered(channels)
    trace = ranp.trace(model, X)
    assert trace.layer("enter").pinned
    assert trace.prunable == 0

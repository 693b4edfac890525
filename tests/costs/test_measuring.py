"""Costs and profiles against the paper's table, hand-computed rules, torch's FLOP counter and a real training step."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from math import prod

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.nn.utils import parametrizations
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ranp.costs.counting import call_flops, call_macs
from ranp.costs.measuring import Costs, measure, profile, profile_of
from ranp.errors import UnsupportedError
from ranp.paper import models
from ranp.running.flops import OpRecorder
from ranp.running.recording import Kept, LeafRecorder, ModuleStack, kind_of
from ranp.tracing.trace import Layer, Trace


def trace_of(model: nn.Module, *inputs: Tensor) -> Trace:
    """A trace of costs alone: what the recorders see, without classes."""
    layers = []
    for name, module in model.named_modules():
        kind = kind_of(module)
        if kind.startswith("Conv") or kind == "Linear":
            transposed = "Transpose" in kind
            words = "linear" if kind == "Linear" else "transposed" if transposed else "conv"
            channels = module.weight.shape[int(transposed)] * (module.groups if transposed else 1)
            weight = f"{name}.weight".lstrip(".")
            layers.append(Layer(name, words, weight, int(transposed), 1, 1, channels, np.zeros(channels, np.int64)))
    with torch.no_grad(), ModuleStack(model) as stack, LeafRecorder(model.eval()) as leaves, OpRecorder(stack) as ops:
        model(*inputs)
    parameters = {name: tuple(p.shape) for name, p in model.named_parameters()}
    return Trace(tuple(layers), {}, calls=tuple(leaves.calls), ops=tuple(ops.ops), parameters=parameters)


def printed(figures: object) -> tuple[str, str, str]:
    return tuple(f"{value:.2f}" for value in (figures.params_mb, figures.gflops, figures.memory_mb))


# --- the paper's table -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("unet3d-shapenet", ("62.26", "237.85", "997.00")),
        ("unet3d-brats", ("15.57", "478.13", "3628.00")),
        ("unet3d-shapenet-23", ("791.31", "259.59", "1005.97")),
        ("mobilenetv2-ucf101", ("9.47", "0.58", "157.47")),
        ("i3d-ucf101", ("47.27", "27.88", "201.28")),
        ("psm-sceneflow", ("19.93", "771.02", "7217.37")),
    ],
)
def test_paper_convention_prints_the_papers_table(name: str, row: tuple[str, str, str]) -> None:
    with torch.device("meta"):
        model = models.build(name)
    figures = profile(model, models.example(name, "meta"), convention="paper")
    assert printed(figures) == row
    assert figures.uncounted == ()
    assert f"params {row[0]} MiB, {row[1]} GFLOPs, memory {row[2]} MiB" in str(figures)


def test_the_two_and_three_dimensional_parts_of_psm() -> None:
    with torch.device("meta"):
        model = models.build("psm-sceneflow")
    figures = profile(model, models.example("psm-sceneflow", "meta"), convention="paper")
    assert printed(figures.part(dims=2)) == ("12.74", "174.94", "1902.75")
    assert printed(figures.part(dims=3)) == ("7.19", "596.08", "3595.50")


def test_a_trace_gives_the_same_profile_as_a_run() -> None:
    with torch.device("meta"):
        model = models.build("mobilenetv2-ucf101")
    example = models.example("mobilenetv2-ucf101", "meta")
    trace = trace_of(model, example)
    for convention in ("paper", "equation"):
        assert profile_of(trace, convention=convention) == profile(model, example, convention=convention)
    true = profile(model, example, convention="true")
    kept = {row.name: Kept(row.memory, row.memory_bytes) for row in true.rows if row.memory}
    assert profile_of(trace, convention="true", kept=kept).to_dict().items() >= {
        (key, true.to_dict()[key]) for key in ("params", "flops", "macs", "memory", "memory_mb", "params_mb")
    }
    with pytest.raises(UnsupportedError, match=r"use ranp\.profile"):
        profile_of(trace, convention="true")


# --- the rules, by hand ------------------------------------------------------------------------------------------

CUBE = (2, 4, 6, 6, 6)
SIZE = prod(CUBE)

RULES = {
    "conv": (nn.Conv3d(4, 5, 3, bias=False), 2 * 5 * 4**3 * 4 * 27, 2 * 5 * 4**3 * (2 * 4 * 27 - 1)),
    "conv with bias": (nn.Conv3d(4, 5, 3), 2 * 5 * 4**3 * (4 * 27 + 1), 2 * 5 * 4**3 * (2 * 4 * 27)),
    "grouped conv": (nn.Conv3d(4, 6, 1, groups=2, bias=False), 2 * 6 * 216 * 2, 2 * 6 * 216 * 3),
    "depthwise conv": (nn.Conv3d(4, 4, 3, groups=4, bias=False), 2 * 4 * 64 * 27, 2 * 4 * 64 * 53),
    "transposed conv counts on its output": (
        nn.ConvTranspose3d(4, 3, 2, stride=2, bias=False),
        2 * 3 * 12**3 * 4 * 8,
        2 * 3 * 12**3 * (2 * 4 * 8 - 1),
    ),
    "grouped transposed conv": (
        nn.ConvTranspose3d(4, 6, 2, groups=2),
        2 * 6 * 7**3 * (2 * 8 + 1),
        2 * 6 * 7**3 * (2 * 2 * 8),
    ),
    "linear": (nn.Linear(6, 3), 2 * 4 * 36 * 3 * 12, 2 * 4 * 36 * 3 * 12),
    "linear without bias": (nn.Linear(6, 3, bias=False), 2 * 4 * 36 * 3 * 11, 2 * 4 * 36 * 3 * 11),
    "batch norm": (nn.BatchNorm3d(4), 4 * SIZE, 4 * SIZE),
    "instance norm": (nn.InstanceNorm3d(4), 4 * SIZE, 4 * SIZE),
    "group norm": (nn.GroupNorm(2, 4), 4 * SIZE, 4 * SIZE),
    "layer norm": (nn.LayerNorm(6), 4 * SIZE, 4 * SIZE),
    "relu": (nn.ReLU(inplace=True), 0, 0),
    "relu6": (nn.ReLU6(), 0, 0),
    "leaky relu": (nn.LeakyReLU(), SIZE, SIZE),
    "prelu": (nn.PReLU(), SIZE, SIZE),
    "gelu": (nn.GELU(), SIZE, SIZE),
    "max pool": (nn.MaxPool3d(2), 0, 0),
    "average pool": (nn.AvgPool3d((1, 2, 3)), 2 * 4 * 6 * 3 * 2 * 7, 2 * 4 * 6 * 3 * 2 * 7),
    "global average pool": (nn.AdaptiveAvgPool3d(1), 2 * 4 * 217, 2 * 4 * 217),
    "dropout": (nn.Dropout3d(0.3), 0, 0),
    "softmax forgets the space": (nn.Softmax(dim=1), 2 * (3 * 4 - 1), 2 * (3 * 4 - 1)),
    "upsampling": (nn.Upsample(scale_factor=2), 0, 0),
}


@pytest.mark.parametrize("rule", RULES)
def test_rules(rule: str) -> None:
    module, paper, equation = RULES[rule]
    for convention, expected in (("paper", paper), ("equation", equation)):
        figures = profile(module, torch.zeros(CUBE), convention=convention)
        assert figures.flops == expected
        assert figures.memory == module.eval()(torch.zeros(CUBE)).numel()
        assert figures.params == sum(p.numel() for p in module.parameters())
        assert figures.uncounted == ()


def test_multiply_adds_leave_out_the_bias_and_everything_but_layers() -> None:
    net = nn.Sequential(nn.Conv3d(4, 5, 3), nn.BatchNorm3d(5), nn.LeakyReLU(), nn.Flatten(), nn.Linear(5 * 64, 2))
    figures = profile(net, torch.zeros(1, 4, 6, 6, 6), convention="paper")
    assert figures.macs == 5 * 64 * 4 * 27 + 5 * 64 * 2
    assert figures.gflops == figures.flops / 1e9


class Functional(nn.Module):
    """One conv, called twice, between functions that the paper's convention does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, 3, 1, bias=False)
        self.scale = nn.Parameter(torch.ones(3, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv(F.pad(x, (1, 1, 1, 1, 1, 1))))
        y = F.interpolate(y, scale_factor=2) * self.scale
        return self.conv(F.avg_pool3d(y, 2)) + F.pad(x, (1, 1, 1, 1, 1, 1))


def test_functions_are_invisible_and_calls_are_summed() -> None:
    x = torch.zeros(1, 3, 2, 2, 2)
    figures = profile(Functional(), x, convention="paper")
    assert (figures.params, figures.flops, figures.memory) == (9, 2 * 192 * 3, 2 * 192)
    assert [(row.name, row.kind) for row in figures.by_layer()] == [("conv", "Conv3d")]
    true = profile(Functional(), x, convention="true")
    assert true.params == 12  # The parameter outside of any leaf is a parameter all the same.
    assert {row.name: row.params for row in true.by_layer()} == {"conv": 9, "": 3}


def test_shared_parameters_and_running_statistics_count_once_or_never() -> None:
    first, second = nn.Conv1d(4, 4, 1), nn.Conv1d(4, 4, 1)
    second.weight = first.weight
    net = nn.Sequential(first, second, nn.BatchNorm1d(4))
    for convention in ("paper", "true"):
        assert profile(net, torch.zeros(2, 4, 5), convention=convention).params == 16 + 4 + 4 + 8


def test_a_leaf_that_never_ran_keeps_its_parameters_and_costs_nothing_else() -> None:
    class Aux(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main, self.aux = nn.Conv2d(3, 2, 1), nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2))

        def forward(self, x: Tensor) -> Tensor:
            return self.aux(x) if self.training else self.main(x)

    x = torch.zeros(2, 3, 4, 4)
    figures = profile(Aux(), x, convention="paper")
    rows = {row.name: (row.kind, row.params, row.flops, row.memory) for row in figures.by_layer()}
    assert rows["aux.0"] == ("Conv2d", 56, 0, 0)
    assert rows["aux.1"] == ("BatchNorm2d", 4, 0, 0)
    assert figures.part(dims=2).params == figures.params == 8 + 56 + 4
    trace = trace_of(Aux(), x)
    assert profile_of(trace, convention="paper").params == figures.params
    assert dict(measure(trace, convention="paper")) == {"main": 2 * 2 * 16 * 4, "aux.0": 0}


def test_parametrised_layers_keep_their_parameters() -> None:
    net = nn.Sequential(parametrizations.weight_norm(nn.Conv2d(3, 4, 3, bias=False)), nn.ReLU())
    x = torch.zeros(1, 3, 5, 5)
    for convention in ("paper", "true"):
        figures = profile(net, x, convention=convention)
        assert {row.name: row.params for row in figures.by_layer()} == {"0": 4 * 27 + 4, "1": 0}
    assert profile_of(trace_of(net, x), convention="paper").params == 4 * 27 + 4
    assert measure(trace_of(net, x), "params")["0"] == 4 * 27 + 4


def test_a_module_without_a_rule_is_named_not_hidden() -> None:
    class Mine(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.exp()

    figures = profile(nn.Sequential(nn.Conv1d(2, 2, 1), Mine()), torch.zeros(1, 2, 3), convention="paper")
    assert figures.uncounted == ("Mine",)
    assert "no FLOPs rule for: Mine" in str(figures)
    assert figures.memory == 12


# --- the true figures --------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(torch.softmax(q @ k.transpose(1, 2) / 8**0.5, -1) @ v)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Conv3d(4, 4, 3, padding=1), nn.InstanceNorm3d(4), nn.LeakyReLU(inplace=True))
        self.up = nn.ConvTranspose3d(8, 4, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([x, self.block(x) + x], 1)
        y = self.up(F.max_pool3d(y, 2))
        return torch.sigmoid(y) * F.dropout(y, 0.3, self.training)


def monai_unet() -> nn.Module:
    nets = pytest.importorskip("monai.networks.nets")
    return nets.UNet(3, 1, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=2, norm="batch", dropout=0.1)


TRUE = {
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.ELU(), nn.Conv1d(4, 2, 1, bias=False)), (2, 3, 9)),
    "grouped": (lambda: nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8), nn.ReLU()), (2, 4, 7, 7)),
    "residual": (Residual, (2, 4, 4, 4, 4)),
    "attention": (Attention, (2, 6, 8)),
    "linear": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(24, 5), nn.Softplus(), nn.Linear(5, 3)), (2, 4, 6)),
    "monai": (monai_unet, (2, 1, 8, 8, 8)),
}


def kept_bytes(model: nn.Module, x: Tensor) -> int:
    """Bytes that a real training step keeps for its backward pass: the oracle."""
    model.train()
    known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(), x)}
    storages: dict[int, tuple[Tensor, int]] = {}

    def pack(tensor: Tensor) -> Tensor:
        pointer = tensor.untyped_storage().data_ptr()
        if pointer not in known:
            storages[pointer] = (tensor.detach(), tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(x)
    total = sum(size for _, size in storages.values())
    output.sum().backward()
    return total


@pytest.mark.parametrize("name", TRUE)
def test_true_equals_torch_and_a_real_training_step(name: str) -> None:
    build, shape = TRUE[name]
    model, x = build(), torch.rand(shape, generator=torch.Generator().manual_seed(0))
    figures = profile(model, x)
    assert figures.convention == "true"
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        copy.deepcopy(model).eval()(x)
    assert figures.flops == counter.get_total_flops() > 0
    assert figures.macs * 2 == figures.flops
    assert figures.params == sum(p.numel() for p in model.parameters())
    assert figures.memory_mb == kept_bytes(copy.deepcopy(model), x) / 1024**2 > 0
    assert sum(row.flops for row in figures.by_layer()) == figures.flops


def test_true_sizes_follow_the_element_type() -> None:
    net = nn.Sequential(nn.Conv3d(1, 2, 1), nn.Sigmoid(), nn.Conv3d(2, 1, 1))
    x = torch.zeros(1, 1, 4, 4, 4)
    single, double = profile(net, x), profile(copy.deepcopy(net).double(), x.double())
    assert (single.memory, single.params) == (double.memory, double.params) == (128, 7)
    assert double.memory_mb == 2 * single.memory_mb == 128 * 8 / 1024**2
    assert double.params_mb == 2 * single.params_mb


def test_what_autograd_keeps_shrinks_with_what_is_frozen() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.Linear(3, 3))
    assert profile(net.requires_grad_(False), torch.zeros(2, 3)).memory == 0


def test_a_batch_of_one_that_train_mode_refuses() -> None:
    net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU())
    figures = profile(net, torch.zeros(1, 2, 3))
    assert figures.memory == profile(net, torch.zeros(2, 2, 3)).memory // 2 > 0


def test_a_network_without_a_train_mode(caplog: pytest.LogCaptureFixture) -> None:
    class EvalOnly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            assert not self.training, "targets are needed"
            return self.layer(x).sigmoid()

    with caplog.at_level(logging.WARNING):
        assert profile(EvalOnly(), torch.zeros(2, 3)).memory == 6
    assert "EvalOnly does not run in train mode" in caplog.text


def test_a_network_that_asks_for_values_is_run_for_real() -> None:
    class Choosy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.small, self.large = nn.Linear(3, 1), nn.Linear(3, 100)

        def forward(self, x: Tensor) -> Tensor:
            chosen: Tensor = (self.large if x.sum().item() > 0 else self.small)(x)
            x += 1
            return chosen

    x = torch.ones(1, 3)
    assert profile(Choosy(), x).flops == 600
    assert torch.equal(x, torch.ones(1, 3))
    with pytest.raises(UnsupportedError, match="Choosy does not run on this example without data"):
        profile(Choosy(), x.to("meta"))


# --- what profiling leaves alone ---------------------------------------------------------------------------------


def test_the_model_and_the_random_state_are_untouched() -> None:
    model = nn.Sequential(nn.Conv3d(1, 2, 3), nn.BatchNorm3d(2), nn.Dropout(0.5), nn.ReLU(inplace=True))
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[1].eval()
    before = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    state, x = torch.get_rng_state(), torch.ones(2, 1, 4, 4, 4)
    for convention in ("paper", "equation", "true"):
        profile(model, x, convention=convention)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, torch.ones_like(x))


class Allocations(TorchDispatchMode):
    """Writes down the largest tensor with data that any operator returned."""

    largest = 0

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.device.type != "meta" and not isinstance(tensor, FakeTensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize("name", ["unet3d-shapenet-23", "psm-sceneflow"])
def test_nothing_is_allocated_for_a_deep_network(name: str) -> None:
    with torch.device("meta"):
        model = models.build(name)
    with Allocations() as seen:
        assert profile(model, models.example(name, "meta")).memory_mb > 800
        assert seen.largest < 10_000
        torch.zeros(10_000)
    assert seen.largest == 40_000  # The witness does see what is allocated.


def test_the_weights_are_not_copied() -> None:
    model = nn.Linear(500, 500)
    with Allocations() as seen:
        profile(model, torch.zeros(1, 500))
    assert seen.largest < 10_000


def test_wrapped_models_are_unwrapped() -> None:
    net = nn.Linear(3, 2)
    assert profile(nn.DataParallel(net), torch.zeros(1, 3)) == profile(net, torch.zeros(1, 3))


def test_an_example_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Conv3d does not run on the example"):
        profile(nn.Conv3d(3, 2, 1), torch.zeros(1, 4, 2, 2, 2))


# --- the values --------------------------------------------------------------------------------------------------


def test_profiles_have_parts_and_plain_values() -> None:
    net = nn.Sequential(nn.Conv3d(1, 2, 1), nn.ReLU(), nn.AvgPool3d(2), nn.Conv3d(2, 1, 1))
    figures = profile(net, torch.zeros(1, 1, 4, 4, 4), convention="paper")
    assert figures.part("ReLU").memory == 128
    assert figures.part(["ReLU", "AvgPool3d"]).memory == 128 + 16
    assert figures.part(lambda row: row.name == "3").params == 3
    assert [row.name for row in figures.part(dims=3).by_layer()] == ["0", "2", "3"]
    plain = json.loads(json.dumps(figures.to_dict()))
    assert plain["flops"] == sum(layer["flops"] for layer in plain["layers"]) == figures.flops
    assert str(figures).splitlines()[2].split() == ["0", "Conv3d", "4", "2.6e-07", "4.9e-04"]


def test_costs_are_the_layers_own() -> None:
    net = nn.Sequential(nn.Conv3d(2, 3, 3), nn.BatchNorm3d(3), nn.LeakyReLU(), nn.Conv3d(3, 1, 1, bias=False))
    net.append(nn.Flatten())
    net.append(nn.Linear(64, 5))
    trace = trace_of(net, torch.zeros(1, 2, 6, 6, 6))
    assert dict(measure(trace, convention="paper")) == {"0": 192 * 55, "3": 64 * 3, "5": 5 * 128}
    assert dict(measure(trace, convention="equation")) == {"0": 192 * 108, "3": 64 * 5, "5": 5 * 128}
    assert dict(measure(trace)) == {"0": 192 * 108, "3": 64 * 6, "5": 5 * 128}
    assert dict(measure(trace, "params")) == {"0": 165, "3": 3, "5": 325}
    for convention in ("paper", "equation", "true"):
        costs = measure(trace, "memory", convention=convention)
        assert dict(costs) == {"0": 192, "3": 64, "5": 5}
        assert (list(costs), costs.total, costs.resource, costs.convention) == (
            ["0", "3", "5"],
            261,
            "memory",
            convention,
        )


def test_costs_of_shared_and_uncalled_layers() -> None:
    conv = nn.Conv1d(3, 3, 1)
    net = nn.Sequential(conv, conv, nn.ModuleDict({"spare": nn.Linear(2, 2)}))
    trace = trace_of(net[:2], torch.zeros(1, 3, 5))
    spare = Layer("2.spare", "linear", "2.spare.weight", 0, 1, 1, 2, np.zeros(2, np.int64))
    trace = Trace((*trace.layers, spare), {}, calls=trace.calls, ops=trace.ops, parameters=trace.parameters)
    for convention, once in (("paper", 15 * 4), ("equation", 15 * 6), ("true", 15 * 6)):
        assert dict(measure(trace, convention=convention)) == {"0": 2 * once, "2.spare": 0}


def test_costs_of_all_layers_of_the_paper_network() -> None:
    with torch.device("meta"):
        model = models.build("unet3d-shapenet")
    trace = trace_of(model, models.example("unet3d-shapenet", "meta"))
    flops = measure(trace, convention="paper")
    assert len(flops) == 15
    assert list(flops) == [layer.name for layer in trace.layers]
    figures = profile_of(trace, convention="paper")
    last = list(flops)[-1]
    assert flops.total == figures.macs + 50 * 64**3  # The only bias is that of the last layer.
    assert flops[last] == 50 * 64**3 * (64 + 1)
    assert figures.part("Conv3d").memory == measure(trace, "memory").total


def test_a_resource_of_your_own() -> None:
    trace = trace_of(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), torch.zeros(1, 2))

    def latency(trace: Trace) -> dict[str, float]:
        return {layer.name: 0.5 * layer.channels for layer in reversed(trace.layers)}

    costs = measure(trace, latency)
    assert list(costs.items()) == [("0", 1.5), ("1", 0.5)]
    assert costs.resource == "latency"
    with pytest.raises(UnsupportedError, match="missing or unknown: 1"):
        measure(trace, lambda trace: {"0": 1})
    with pytest.raises(UnsupportedError, match="cost nan; a cost is a finite number >= 0"):
        measure(trace, lambda trace: {"0": 1, "1": float("nan")})


def test_unknown_names_are_answered_with_the_list() -> None:
    trace = trace_of(nn.Linear(2, 3), torch.zeros(1, 2))
    with pytest.raises(UnsupportedError, match=r"unknown resource 'flop'; did you mean 'flops'\? Allowed: flops, mem"):
        measure(trace, "flop")
    with pytest.raises(UnsupportedError, match="unknown convention 'papr'; did you mean 'paper'"):
        measure(trace, convention="papr")
    with pytest.raises(UnsupportedError, match="unknown convention"):
        profile(nn.Linear(2, 3), torch.zeros(1, 2), convention="real")
    with pytest.raises(UnsupportedError, match="unknown convention"):
        profile_of(trace, convention="real")


def test_costs_are_a_value() -> None:
    given = {"a": 1, "b": 2}
    costs = Costs(given, "flops", "paper")
    given["a"] = 5
    assert costs == {"a": 1, "b": 2}
    assert pickle.loads(pickle.dumps(costs)) == costs
    with pytest.raises(AttributeError):
        costs.resource = "memory"
    with pytest.raises(UnsupportedError, match="layer 'a'"):
        Costs({"a": -1})


def test_rules_agree_between_conventions() -> None:
    trace = trace_of(nn.Conv3d(4, 5, 3), torch.zeros(CUBE))
    (call,) = trace.calls
    assert call_flops(call, "equation") == 2 * call_macs(call)  # The bias makes up for the addition saved.
    assert call_flops(call, "paper") == call_macs(call) + prod(call.output)

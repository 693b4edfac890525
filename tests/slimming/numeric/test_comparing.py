"""The numeric check: it always tells, on whatever numbers, types and sizes a network takes, or says that it cannot."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ranp
from ranp.slimming.numeric import compare_numbers
from ranp.slimming.numeric.comparing import _difference, _InconclusiveError
from ranp.slimming.verification import certify, check, removed_labels
from ranp.tracing.tracer import Tracer
from tests.support.oracles import random_plan, slim_error

CHANNELS = 16


class Function(nn.Module):
    """A function of the features, as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class HandWrittenNorm(nn.Module):
    """A batch norm with statistics under names of its own; a negative variance makes everything NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(CHANNELS))
        self.register_buffer("var", torch.ones(CHANNELS))

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1, 1, 1, 1)
        return (x - self.mean.view(shape)) / torch.sqrt(self.var.view(shape) + 1e-5)


class ShuffleByAttributes(nn.Module):
    """A channel shuffle that takes its sizes from attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.g, self.c = 4, CHANNELS

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (self.g, self.c // self.g)).transpose(1, 2).flatten(1, 2)


class NotInFloat64(nn.Module):
    """Code that refuses float64."""

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise TypeError("no kernel for float64")
        return x


def network(*middle: nn.Module, first: nn.Module | None = None) -> nn.Sequential:
    """Three convolutions with something strange between the first two."""
    torch.manual_seed(0)
    return nn.Sequential(
        first or nn.Identity(),
        nn.Conv3d(1, CHANNELS, 3, padding=1),
        *middle,
        nn.Conv3d(CHANNELS, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv3d(8, 2, 1),
    )


def pairs(x: Tensor) -> Tensor:
    """A norm over pairs of channels."""
    y = x.view(x.shape[0], -1, 2, *x.shape[2:])
    return (y / (y.norm(dim=2, keepdim=True) + 1e-3)).view(x.shape)


def seeded(x: Tensor) -> Tensor:
    """Every channel times a number that is drawn for it, always the same."""
    numbers = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(0))
    return x * numbers.view(1, -1, 1, 1, 1)


def seeded_globally(x: Tensor) -> Tensor:
    """The same from the global generator, which the code seeds."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        numbers = torch.empty(x.shape[1]).normal_()
    return x * numbers.view(1, -1, 1, 1, 1)


STRANGE: dict[str, Callable[[], list[nn.Module]]] = {
    "hand-written norm, shuffle by attributes": lambda: [HandWrittenNorm(), ShuffleByAttributes()],
    "shuffle by attributes": lambda: [ShuffleByAttributes()],
    "pairs of channels": lambda: [Function(pairs)],
    "size in a tensor": lambda: [Function(lambda x: x / torch.tensor(float(x.shape[1])).sqrt())],
    "size in a tensor on the device": lambda: [
        Function(lambda x: x / torch.tensor(float(x.shape[1]), device=x.device).sqrt())
    ],
    "size in a new tensor": lambda: [Function(lambda x: x / x.new_tensor(float(x.shape[1])).sqrt())],
    "size in a full tensor": lambda: [Function(lambda x: x / torch.full((1,), float(x.shape[1])).sqrt())],
    "counted by ones": lambda: [Function(lambda x: x / torch.ones(x.shape[1]).sum())],
    "counted by ones like it": lambda: [Function(lambda x: x / torch.ones_like(x).sum(1, keepdim=True))],
    "drawn from a seeded generator": lambda: [Function(seeded)],
    "drawn from the seeded global generator": lambda: [Function(seeded_globally)],
    "drawn by numpy": lambda: [
        Function(lambda x: x * torch.from_numpy(np.random.default_rng(0).random(x.shape[1])).to(x).view(1, -1, 1, 1, 1))
    ],
}
"""Code between two layers that depends on how many channels there are, or on their places."""
FIRST: dict[str, Callable[[], nn.Module | None]] = {"ordinary": lambda: None, "not in float64": NotInFloat64}
X = torch.rand(2, 1, 6, 6, 6, generator=torch.Generator().manual_seed(0))


def loss(output: Tensor, _: Any) -> Tensor:
    """Some scalar."""
    return output.square().mean()


def masked_error(model: nn.Module, plan: ranp.Plan) -> float:
    """How far the slim network is from the full one whose removed channels no weight reads, in float32, by hand."""
    slim, twin = ranp.slim(model, plan).eval(), copy.deepcopy(model).eval()
    with torch.no_grad():
        for name, module in twin.named_modules():
            cut = plan.cuts.get(f"{name}.weight", {}).get(1)
            if isinstance(module, nn.Conv3d) and cut is not None:
                module.weight[:, sorted(set(range(cut.size)) - set(cut.keep))] = 0.0
        wanted, got = twin(X), slim(X)
    return float((wanted - got).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("condition", FIRST)
@pytest.mark.parametrize("name", STRANGE)
def test_code_that_counts_channels_is_pruned_right_or_kept(name: str, condition: str) -> None:
    model = network(*STRANGE[name](), first=FIRST[condition]())
    for method in ("layerwise", "random"):
        found = ranp.prune(model, [(X, None)], loss, sparsity=0.5, method=method)
        assert found.verification.ok is True
        assert found.verification.numeric is True
        if name != "pairs of channels":  # the norm of a pair is taken over what is kept of it
            assert masked_error(model, found.plan) < 1e-5
        assert ("float32" in found.verification.where) == (condition == "not in float64")


@pytest.mark.parametrize("name", STRANGE)
def test_the_certificate_alone_lets_none_of_it_pass(name: str) -> None:
    """With and without numbers the verdict is the same, for cuts of all sizes."""
    model = network(*STRANGE[name]())
    tracer = Tracer(model, X)
    trace = tracer.trace()
    for seed, sparsity in enumerate((0.3, 0.5, 0.7, 0.9)):
        plan = random_plan(trace, np.random.default_rng(seed), sparsity, "layer")
        assert certify(tracer, plan, None).agrees is not False
        found = check(tracer, plan)
        assert found.ok, (found, plan.widths)


@pytest.mark.parametrize("function", [torch.log, torch.sqrt], ids=["log", "sqrt"])
def test_a_network_of_positive_inputs_is_compared_though_the_example_holds_no_data(function: Any) -> None:
    model = network(ShuffleByAttributes(), first=Function(function))
    found = ranp.prune(model, [(X, None)], loss, sparsity=0.5, method="layerwise", example=X.to("meta"))
    assert (found.verification.ok, found.verification.numeric) == (True, True)


class Scaled(nn.Module):
    """A variance, a temperature and an exponent, none of which may change its sign."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv3d(1, CHANNELS, 3), nn.Conv3d(CHANNELS, 2, 1)
        self.temperature = nn.Parameter(torch.tensor(0.7))
        self.exponent = nn.Parameter(torch.full((CHANNELS,), 3.0))
        self.register_buffer("spread", torch.rand(CHANNELS) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1, 1, 1, 1)
        y = self.conv(x) / self.spread.sqrt().view(shape)
        return self.head(torch.log(self.temperature) * y.abs().clamp(min=1e-3) ** self.exponent.view(shape))


def test_signs_and_ranges_of_parameters_stay() -> None:
    torch.manual_seed(0)
    model = Scaled()
    found = ranp.prune(model, [(X, None)], loss, sparsity=0.5, method="layerwise")
    assert (found.verification.ok, found.verification.numeric) == (True, True)
    tracer = Tracer(model, X)
    tracer.start()
    slim = ranp.slim(model, found.plan)
    slim.spread.copy_(slim.spread.flip(0))
    assert ranp.verify(model, found.plan, X, slim=slim).ok is False


def test_what_is_not_finite_is_never_equal() -> None:
    nan, one = torch.tensor([math.nan, 1.0]), torch.tensor([0.5, 1.0])
    for wanted in (nan, torch.tensor([math.inf, 1.0])):
        with pytest.raises(_InconclusiveError, match="not finite"):
            _difference(wanted, wanted)
    assert _difference(one, nan) == math.inf
    assert _difference(one, one) == 0.0


def test_equal_outputs_tell_nothing_if_they_are_the_same_everywhere() -> None:
    with pytest.raises(_InconclusiveError, match="same everywhere"):
        _difference(torch.zeros(4), torch.zeros(4))
    with pytest.raises(_InconclusiveError, match="same everywhere"):
        _difference([torch.ones(3), torch.zeros(1)], [torch.ones(3), torch.zeros(1)])
    assert _difference(torch.tensor(2.0), torch.tensor(2.0)) == 0.0


def hopeless() -> nn.Sequential:
    """A network whose outputs are never finite."""
    return nn.Sequential(*network(), Function(lambda x: x * math.nan))


def test_what_cannot_be_compared_is_refused_unless_it_is_asked_for() -> None:
    batches, options = [(X, None)], {"sparsity": 0.5, "method": "random"}
    with pytest.raises(ranp.errors.UnsupportedError, match=r"could not be checked.*not finite.*unchecked=True"):
        ranp.prune(hopeless(), batches, loss, criterion="magnitude", **options)
    found = ranp.prune(hopeless(), batches, loss, criterion="magnitude", unchecked=True, **options)
    assert (found.verification.ok, found.verification.numeric) == (None, None)
    assert math.isnan(found.verification.max_error)
    assert "NOT CHECKED" in str(found.report)
    assert found.report.to_dict()["checks"]["ok"] is None


@dataclass
class Batch:
    """Inputs in an object of the user's."""

    image: Tensor
    scale: float = 1.0


class TakesObject(nn.Module):
    """A network called with a dataclass."""

    def __init__(self, *middle: nn.Module) -> None:
        super().__init__()
        self.body = network(*middle)

    def forward(self, batch: Batch) -> Tensor:
        return self.body(batch.image) * batch.scale


@pytest.mark.parametrize("name", ["shuffle by attributes", "size in a new tensor"])
def test_inputs_in_a_dataclass_are_compared_in_float64(name: str) -> None:
    model = TakesObject(*STRANGE[name]())
    found = ranp.prune(model, [(Batch(X), None)], loss, sparsity=0.5, method="layerwise")
    assert (found.verification.ok, found.verification.numeric, found.verification.where) == (True, True, "")


@pytest.mark.parametrize("name", ["shuffle by attributes", "size in a new tensor", "drawn by numpy"])
def test_a_network_of_one_size_is_compared_whatever_it_costs(name: str) -> None:
    model = nn.Sequential(*network(*STRANGE[name]()), nn.Flatten(), nn.Linear(2 * 6**3, 3))
    tracer = Tracer(model, X)
    trace = tracer.trace()
    plan = random_plan(trace, np.random.default_rng(0), 0.5, "layer")
    found = check(tracer, plan, budget=1.0)
    assert (found.ok, found.numeric) == (True, True)
    assert "compared in float32" in found.where


def test_a_fixed_number_of_samples_is_taken_as_it_is() -> None:
    model = nn.Sequential(*network(), Function(lambda x: x.view(2, 2, -1)))
    found = ranp.prune(model, [(X, None)], loss, sparsity=0.5)
    assert (found.verification.ok, found.verification.numeric) == (True, True)


def test_sparing_shares_the_weights_and_runs_in_float32() -> None:
    model = network()
    tracer = Tracer(model, X)
    plan = random_plan(tracer.trace(), np.random.default_rng(0), 0.5, "layer")
    found = check(tracer, plan, sparing=True)
    assert (found.ok, found.where) == (True, "compared in float32")
    assert found.max_error < 1e-4  # it may be exactly 0: some CPUs add in the same order in both networks
    slim = ranp.slim(model, plan)
    keep = removed_labels(tracer, tracer.space.resolve(), plan)
    with torch.no_grad():
        slim[1].bias.add_(0.5)
    assert compare_numbers(tracer, slim, keep, None, sparing=True).agrees is True  # a bias is drawn for both
    with torch.no_grad():
        slim[2].weight.mul_(1.001)
    assert compare_numbers(tracer, slim, keep, None, sparing=True).agrees is False


def test_the_oracle_of_this_file_agrees_with_the_common_one() -> None:
    model = network(nn.ReLU())
    found = ranp.prune(model, [(X, None)], loss, sparsity=0.5)
    assert slim_error(model, found.plan, X) < 1e-9
    assert masked_error(model, found.plan) < 1e-5


@pytest.mark.filterwarnings("ignore::UserWarning:monai")
@pytest.mark.parametrize("flash", [False, True])
def test_attention_over_channels_in_several_heads_is_not_refused(flash: bool) -> None:
    """At other batch sizes torch runs other operators around a view that is read the other way round."""
    from monai.networks.nets.restormer import Restormer

    torch.manual_seed(0)
    options = {"dim": 8, "num_blocks": (1, 1), "heads": (1, 2), "num_refinement_blocks": 1, "flash_attention": flash}
    model = Restormer(spatial_dims=3, in_channels=1, out_channels=1, **options)
    x = torch.randn(1, 1, 8, 8, 8)
    tracer = Tracer(model, x)
    trace = tracer.trace()
    for seed in range(2):
        plan = random_plan(trace, np.random.default_rng(seed), 0.5, "layer")
        found = check(tracer, plan)
        assert (found.ok, found.numeric) == (True, True), found
        assert found.max_error < 1e-9
    if not flash:
        assert trace.prunable > 0.6 * trace.channels


class Correlation(nn.Module):
    """Two views, their features correlated and divided by the root of their width, as RAFT does."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.features = nn.Conv2d(1, CHANNELS, 3, padding=1), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        left, right = (self.features(self.stem(view).relu()) for view in (left, right))
        volume = torch.einsum("aijk,aijh->akjh", left, right)
        return self.head(volume / torch.sqrt(torch.tensor(left.shape[1]).float()))


@pytest.mark.parametrize("data", [True, False], ids=["example", "example without data"])
def test_the_width_of_a_correlation_stays_what_the_code_divides_by(data: bool) -> None:
    torch.manual_seed(0)
    views = (torch.randn(2, 1, 6, 8), torch.randn(2, 1, 6, 8))
    example = views if data else tuple(view.to("meta") for view in views)
    found = ranp.prune(Correlation(), [(views, None)], loss, sparsity=0.4, method="layerwise", example=example)
    assert found.verification.ok is True
    assert found.plan.widths["features"] == CHANNELS
    assert found.plan.widths["stem"] < CHANNELS
    assert "makes a constant that depends on the channels" in str(found.report)

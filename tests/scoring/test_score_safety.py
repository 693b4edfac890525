"""What scoring must leave alone, and the surroundings it must work in."""

from __future__ import annotations

import copy
import random
import threading
import weakref
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from ranp.errors import DataError, UnsupportedError
from ranp.scoring.criteria import CRITERIA
from ranp.scoring.score import score
from ranp.scoring.scores import Scores
from tests.support.scored import expected, trace_of


class Net(nn.Module):
    """Batch norm, dropout, an activation in place, a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv3d(2, 4, 3, bias=False)
        self.norm = nn.BatchNorm3d(4)
        self.second = nn.Conv3d(4, 5, 1)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first(x)), inplace=True)
        return self.head(self.drop(self.second(x).relu_().mean((2, 3, 4))))


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def batches(count: int = 2) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(2, 2, 5, 5, 5, generator=generator), torch.randint(0, 3, (2,), generator=generator))
        for _ in range(count)
    ]


def same_state(model: nn.Module, before: nn.Module) -> None:
    state, old = model.state_dict(), before.state_dict()
    assert list(state) == list(old)
    assert all(torch.equal(state[name], old[name]) for name in state)


def equal_numbers(left: Scores, right: Scores) -> None:
    assert list(left) == list(right)
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA.names())
def test_the_model_is_bit_identical_afterwards(criterion: str):
    model = net()
    calls: list[str] = []
    model.first.weight.register_hook(lambda gradient: calls.append("gradient hook"))
    model.head.register_full_backward_hook(lambda *_: None)
    model.head.weight.requires_grad_(False)
    model.norm.eval()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    identity = {name: (id(p), p.data_ptr(), p._version) for name, p in model.named_parameters()}
    flags = {name: module.training for name, module in model.named_modules()}
    hooks = {name: len(module._backward_hooks) for name, module in model.named_modules()}
    before = copy.deepcopy(model)
    torch.manual_seed(11), np.random.seed(11), random.seed(11)  # noqa: NPY002
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002

    score(model, batches(), F.cross_entropy, trace=trace_of(model, {"first": "norm"}), criterion=criterion)

    same_state(model, before)
    assert identity == {name: (id(p), p.data_ptr(), p._version) for name, p in model.named_parameters()}
    assert all(torch.equal(p.grad, torch.full_like(p, 0.5)) for p in model.parameters())
    assert flags == {name: module.training for name, module in model.named_modules()}
    assert hooks == {name: len(module._backward_hooks) for name, module in model.named_modules()}
    assert [p.requires_grad for p in model.parameters()] == [p.requires_grad for p in before.parameters()]
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())
    assert not calls
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
    assert random.getstate() == states[2]


def test_the_model_survives_an_error_in_the_middle():
    model, before = net(), copy.deepcopy(net())
    state = torch.get_rng_state()

    def fails(output: Tensor, target: Tensor) -> Tensor:
        raise RuntimeError("from the user's loss")

    with pytest.raises(DataError, match="from the user's loss"):
        score(model, batches(), fails, trace=trace_of(model))
    same_state(model, before)
    assert torch.equal(torch.get_rng_state(), state)


class Rewrites(nn.Module):
    """A codebook that is a parameter, moved while training, and an input that is overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.codebook = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x.mul_(2)
        with torch.no_grad():
            self.codebook.lerp_(torch.zeros(4), 0.5)
        self.layer.bias.data.add_(1)
        torch._foreach_add_([self.layer.bias.data], 1)
        return self.layer(x) + self.codebook.detach()


def test_parameters_and_inputs_that_the_model_rewrites_are_put_back():
    torch.manual_seed(0)
    model = Rewrites()
    before = copy.deepcopy(model)
    x, seen = torch.ones(2, 3), []

    def loss(output: Tensor, target: Any) -> Tensor:
        seen.append(output.detach().clone())
        return output.pow(2).sum()

    score(model, [(x, None), (x, None)], loss, trace=trace_of(model))
    same_state(model, before)
    assert torch.equal(x, torch.ones(2, 3))
    assert torch.equal(seen[0], seen[1])
    torch.testing.assert_close(seen[0], before.layer(torch.full((2, 3), 2.0)).detach() + 2 + 0.5)


def test_gradients_of_the_users_inputs_and_loss_are_left_alone():
    class Weighted(nn.Module):
        def __init__(self, watched: nn.Module) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))
            self.watched = watched

        def forward(self, output: Tensor, target: Tensor) -> Tensor:
            return self.scale * F.cross_entropy(output, target) + self.watched.second.weight.pow(2).sum()

    model = net()
    loss = Weighted(model)
    x = batches()[0][0].requires_grad_(True)
    scores = score(model, [(x, batches()[0][1])], loss, trace=trace_of(model), mode="eval")
    assert x.grad is None
    assert all(parameter.grad is None for parameter in loss.parameters())
    wanted = expected(
        model.eval(),
        trace_of(model),
        [(x, batches()[0][1])],
        lambda y, t: 2 * F.cross_entropy(y, t),
        "mpmg-sum",
    )
    torch.testing.assert_close(scores["first"], wanted["first"].double(), rtol=1e-4, atol=1e-9)
    # The penalty on the weights reaches the copy's weights, since loss and model are copied together.
    assert not torch.allclose(scores["second"], wanted["second"].double(), rtol=1e-2)


def test_dropout_is_reproducible_and_follows_the_seed():
    model, trace = net(), trace_of(net())
    torch.manual_seed(1)
    first = score(model, batches(), F.cross_entropy, trace=trace, seed=5)
    torch.manual_seed(2)
    assert score(model, batches(), F.cross_entropy, trace=trace, seed=5) == first
    assert score(model, batches(), F.cross_entropy, trace=trace, seed=6) != first


def test_mode_sets_batch_norm_and_dropout():
    model, trace = net().double(), trace_of(net())
    data = [(x.double(), y) for x, y in batches()]
    scores = score(model, data, F.cross_entropy, trace=trace, mode="eval")
    wanted = expected(model.eval(), trace, data, F.cross_entropy, "mpmg-sum")
    for name in trace.layers:
        torch.testing.assert_close(scores[name.name], wanted[name.name], rtol=1e-6, atol=1e-14)
    assert scores != score(model, data, F.cross_entropy, trace=trace, mode="train")


def test_frozen_parameters_are_scored_too():
    model, trace = net(), trace_of(net())
    wanted = score(model, batches(), F.cross_entropy, trace=trace)
    assert score(model.requires_grad_(False), batches(), F.cross_entropy, trace=trace) == wanted
    with torch.no_grad():
        assert score(model, batches(), F.cross_entropy, trace=trace) == wanted
    with torch.inference_mode():
        assert score(model, batches(), F.cross_entropy, trace=trace) == wanted


class Scaled(torch.autograd.Function):
    """Multiplies by a scale, and writes down which gradients are asked for."""

    asked: ClassVar[list[tuple[bool, ...]]] = []

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(scale)
        return x * scale

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        Scaled.asked.append(ctx.needs_input_grad)
        (scale,) = ctx.saved_tensors
        return gradient * scale, None


class WithScale(nn.Module):
    """A parameter between two layers that is no layer's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.scale, self.second = nn.Linear(3, 4), nn.Parameter(torch.full((4,), 2.0)), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(Scaled.apply(self.first(x), self.scale))


def test_no_gradient_is_asked_for_that_nothing_is_scored_by():
    torch.manual_seed(0)
    model, data = WithScale().double(), [(torch.randn(2, 3, dtype=torch.float64), torch.tensor([0, 1]))]
    trace = trace_of(model)
    Scaled.asked.clear()
    scores = score(model, data, F.cross_entropy, trace=trace)
    assert Scaled.asked == [(True, False)]
    wanted = expected(model, trace, data, F.cross_entropy, "mpmg-sum")
    for name in ("first", "second"):
        torch.testing.assert_close(scores[name], wanted[name], rtol=1e-5, atol=1e-9)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_wrappers_are_unwrapped():
    model, trace = net(), trace_of(net())
    wanted = score(model, batches(), F.cross_entropy, trace=trace)
    assert score(nn.DataParallel(model), batches(), F.cross_entropy, trace=trace) == wanted
    assert score(torch.compile(model), batches(), F.cross_entropy, trace=trace) == wanted


@pytest.mark.parametrize("criterion", ["mpmg-sum", "mnmg-max", "snip", "neuron-mask"])
def test_autocast(criterion: str):
    model, trace = net(), trace_of(net(), {"first": "norm"})
    exact = score(model, batches(), F.cross_entropy, trace=trace, criterion=criterion, mode="eval")
    seen = []

    def loss(output: Tensor, target: Tensor) -> Tensor:
        seen.append(output.dtype)
        return F.cross_entropy(output.float(), target)

    with torch.autocast("cpu", torch.bfloat16):
        rough = score(model, batches(), loss, trace=trace, criterion=criterion, mode="eval")
        assert torch.is_autocast_enabled("cpu")
    assert seen == [torch.bfloat16, torch.bfloat16]
    assert rough != exact
    for name in exact:
        torch.testing.assert_close(rough[name], exact[name], rtol=0.1, atol=0.02 * float(exact[name].max()))


def test_low_precision_weights_are_scored_in_float32():
    model, trace = net().to(torch.bfloat16), trace_of(net())
    data = [(x.to(torch.bfloat16), y) for x, y in batches()]
    rough = score(model, data, lambda y, t: F.cross_entropy(y.float(), t), trace=trace, mode="eval", criterion="snip")
    exact = score(
        model.float(), [(x.float(), y) for x, y in data], F.cross_entropy, trace=trace, mode="eval", criterion="snip"
    )
    assert {values.dtype for values in rough.weights.values()} == {torch.float32}
    for name in exact:
        torch.testing.assert_close(rough[name], exact[name], rtol=0.1, atol=0.02 * float(exact[name].max()))


class Blocks(nn.Module):
    """One conv used in two checkpointed blocks, and once outside: its gradient comes in parts."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.stem, self.shared, self.own = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.norm, self.drop, self.head = nn.BatchNorm2d(4), nn.Dropout(0.2), nn.Linear(4, 3)
        self.how = how

    def block(self, x: Tensor) -> Tensor:
        return self.drop(self.norm(self.shared(x)).relu())

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for step in (self.block, self.own, self.block):
            x = step(x) if self.how == "plain" else checkpoint(step, x, use_reentrant=self.how == "reentrant")
        return self.head(self.shared(x).tanh().mean((2, 3)))


@pytest.mark.parametrize("how", ["reentrant", "not reentrant"])
@pytest.mark.parametrize(
    "criterion", ["mpmg-sum", "mpmg-mean", "mpmg-max", "mnmg-sum", "mnmg-max", "snip", "neuron-mask"]
)
def test_checkpointed_blocks(how: str, criterion: str):
    def scored(how: str, mode: str) -> Scores:
        torch.manual_seed(0)
        model = Blocks(how)
        data = [(torch.randn(3, 3, 5, 5), torch.tensor([0, 1, 2])) for _ in range(3)]
        return score(model, data, F.cross_entropy, trace=trace_of(model), criterion=criterion, mode=mode)

    for mode in ("train", "eval"):
        equal_numbers(scored(how, mode), scored("plain", mode))


def test_inputs_follow_the_batch_convention():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.layer(a) * self.layer(b)

    torch.manual_seed(0)
    model, a, b = Two(), torch.randn(2, 3), torch.randn(2, 3)
    loss = lambda y, _: y.sum()  # noqa: E731
    by_tuple = score(model, [((a, b), None)], loss, trace=trace_of(model))
    assert score(model, [({"b": b, "a": a}, None)], loss, trace=trace_of(model)) == by_tuple
    assert score(model, [[(a, b), None]], loss, trace=trace_of(model)) == by_tuple


def test_max_batches_reads_no_further_and_progress_counts():
    def endless() -> Any:
        for number in range(100):
            assert number < 2, "read beyond max_batches"
            yield batches()[0]

    told: list[tuple[int, int | None]] = []
    model, trace = net(), trace_of(net())
    scores = score(
        model, endless(), F.cross_entropy, trace=trace, max_batches=2, progress=lambda *args: told.append(args)
    )
    assert scores.batches == 2
    assert told == [(1, None), (2, None)]
    told.clear()
    score(model, batches(3), F.cross_entropy, trace=trace, max_batches=2, progress=lambda *args: told.append(args))
    assert told == [(1, 2), (2, 2)]


def test_progress_true_logs(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO", "ranp"):
        score(net(), batches(2), F.cross_entropy, trace=trace_of(net()), progress=True)
    assert "scored batch 2 of 2" in caplog.text


def test_gradients_are_freed_layer_by_layer():
    """When a layer's gradient arrives, those of the layers above it are gone, whatever the number of batches."""
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)])
    gradients: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def watch(weight: Tensor, gradient: Tensor) -> Tensor:
        alive.append(sum(reference() is not None for reference in gradients))
        gradients.append(weakref.ref(gradient))
        return weight * gradient

    score(model, [(torch.ones(4, 8), None)] * 2, lambda y, _: y.pow(2).sum(), trace=trace_of(model), criterion=watch)
    assert alive == [0] * 12


def test_parameters_are_not_copied():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    addresses = {parameter.data_ptr() for parameter in model.parameters()}
    seen = set()

    def watch(weight: Tensor, gradient: Tensor) -> Tensor:
        seen.add(weight.data_ptr())
        return weight * gradient

    score(model, [(torch.ones(2, 4), None)], lambda y, _: y.pow(2).sum(), trace=trace_of(model), criterion=watch)
    assert len(seen) == 2
    assert seen <= addresses


def test_what_cannot_be_copied_is_named():
    model = net()
    model.lock = threading.Lock()
    with pytest.raises(UnsupportedError, match="cannot be copied"):
        score(model, batches(), F.cross_entropy, trace=trace_of(model))
    lazy = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(UnsupportedError, match=r"'0\.weight' is not initialised"):
        score(lazy, batches(), F.cross_entropy, trace=trace_of(nn.Sequential(nn.Linear(3, 3))))


@pytest.mark.parametrize("criterion", ["random", "magnitude", "mpmg-sum", "mpmg-max"])
def test_a_default_device_does_not_catch_the_scores(criterion: str) -> None:
    model = nn.Sequential(nn.Conv1d(1, 4, 1), nn.Conv1d(4, 2, 1))
    batches = [(torch.randn(2, 1, 3), torch.randint(2, (2, 3)))]
    trace = trace_of(model)
    with torch.device("meta"):
        scores = score(model, batches, F.cross_entropy, trace=trace, criterion=criterion)
    assert all(values.device.type == "cpu" for values in scores.values())


def test_a_parametrised_model_still_works_afterwards() -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Conv3d(1, 4, 1)), nn.ReLU(), nn.Conv3d(4, 2, 1))
    x = torch.randn(2, 1, 3, 3, 3)
    before = model(x)
    for _ in range(2):
        score(model, [(x, None)], lambda output, _: output.square().mean(), trace=trace_of(model))
        assert torch.equal(model(x), before)
    assert parametrize.is_parametrized(model[0], "weight")

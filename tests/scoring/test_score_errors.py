"""Every refusal of scoring: named, with the batch or layer in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ranp.errors import DataError, PlanMismatchError, UnsupportedError
from ranp.scoring.criteria import Criterion
from ranp.scoring.score import score, score_many
from ranp.tracing.trace import Trace
from tests.support.scored import trace_of


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))


GOOD = (torch.randn(2, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1]))


def attempt(batches: Any = (GOOD,), loss: Any = F.cross_entropy, **options: Any) -> Any:
    model = options.pop("model", None) or net()
    return score(model, batches, loss, **{"trace": trace_of(net()), **options})


class NanGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * float("nan")


class Bad(nn.Module):
    """Its first layer gets a NaN gradient in batches that hold a 9."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 3)])

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layers[0](x)
        return self.layers[1](NanGradient.apply(hidden) if (x == 9).any() else hidden)


@pytest.mark.parametrize("empty", [[], iter(()), {}], ids=["list", "iterator", "dict"])
def test_no_batches(empty: Any):
    with pytest.raises(DataError, match="no batches"):
        attempt(empty)
    with pytest.raises(DataError, match="no batches"):
        attempt(empty, trace=None)


@pytest.mark.parametrize(
    ("batch", "got"),
    [
        (GOOD[0], "Tensor"),
        ((GOOD[0],), "tuple of 1"),
        ([1, 2, 3], "list of 3"),
        ({"x": 1, "y": 2}, "dict"),
        ("ab", "str"),
    ],
)
def test_a_batch_is_a_pair(batch: Any, got: str):
    with pytest.raises(DataError, match=rf"batch 2 \(counting from 1\) is a {got}; a pair"):
        attempt([GOOD, batch])


def test_batches_are_iterable():
    with pytest.raises(DataError, match="batches=5 cannot be iterated"):
        attempt(5)


@pytest.mark.parametrize(
    ("loss", "match"),
    [
        (lambda y, t: y, r"the loss is a tensor of shape \(2, 3\) in batch 1"),
        (lambda y, t: F.cross_entropy(y, t).item(), "the loss is float in batch 1"),
        (lambda y, t: None, "the loss is NoneType in batch 1"),
        (lambda y, t: F.cross_entropy(y.detach(), t), "no gradient in batch 1"),
        (lambda y, t: F.cross_entropy(y, t) * float("nan"), "the loss is nan in batch 1"),
        (lambda y, t: F.cross_entropy(y, t) + float("inf"), "the loss is inf in batch 1"),
    ],
)
def test_the_loss_is_a_finite_scalar_with_gradient(loss: Any, match: str):
    with pytest.raises(DataError, match=match):
        attempt(loss=loss)


@pytest.mark.parametrize("criterion", ["mpmg-sum", "mpmg-max", "mnmg-sum", "mnmg-max", "snip", "neuron-mask"])
def test_a_gradient_that_is_nan_names_layer_and_batch(criterion: str):
    model = Bad()
    bad = (torch.full((2, 3), 9.0), GOOD[1])
    with pytest.raises(DataError, match=r"layer 'layers\.0' is NaN or infinite in batch 3"):
        attempt([GOOD, GOOD, bad], model=model, trace=trace_of(model), criterion=criterion)


def test_no_gradient_anywhere():
    with pytest.raises(DataError, match=r"no layer has a score.*no gradient reaches it"):
        attempt(loss=lambda y, t: torch.ones((), requires_grad=True))
    with pytest.raises(DataError, match="all its scores are zero"):
        attempt(loss=lambda y, t: y.sum() * 0)
    zero = net()
    for parameter in zero.parameters():
        nn.init.zeros_(parameter)
    with pytest.raises(DataError, match="all its scores are zero"):
        attempt(model=zero, criterion="magnitude")


def test_options():
    with pytest.raises(UnsupportedError, match="did you mean 'mpmg-sum'"):
        attempt(criterion="mpgm-sum")
    with pytest.raises(UnsupportedError, match="unknown mode 'training'"):
        attempt(mode="training")
    with pytest.raises(DataError, match="max_batches=0"):
        attempt(max_batches=0)
    with pytest.raises(UnsupportedError, match="no convolution or linear layer"):
        attempt(trace=Trace((), {}))
    with pytest.raises(UnsupportedError, match="meta device"):
        attempt(model=net().to("meta"))
    with pytest.raises(UnsupportedError, match="unknown reduction of criterion 'odd' 'median'"):
        Criterion("odd", lambda w, g: w, "median")  # type: ignore[arg-type]


@pytest.mark.parametrize("criteria", [5, None, [5], torch.ones(2)])
def test_criteria_are_names_or_criteria(criteria: Any):
    with pytest.raises(
        UnsupportedError, match=r"criteria=.* is not allowed. Pass names of criteria, or ranp.Criterion"
    ):
        score_many(net(), [GOOD], F.cross_entropy, criteria)


def test_random_scores_need_no_values():
    assert attempt([], model=net().to("meta"), criterion="random", seed=3) == attempt([], criterion="random", seed=3)


def test_a_trace_of_another_model():
    other = trace_of(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 3)))
    with pytest.raises(PlanMismatchError, match="layer '0' has a weight of shape"):
        attempt(trace=other)
    named = trace_of(nn.ModuleDict({"x": nn.Linear(3, 4)}))
    with pytest.raises(PlanMismatchError, match=r"'x\.weight', but the model has no such"):
        attempt(trace=named)


def test_a_criterion_that_returns_another_shape():
    with pytest.raises(DataError, match=r"returned shape \(7,\) for layer '2'.*\(3, 4\).*\(3,\)"):
        attempt(criterion=lambda w, g: torch.ones(7))
    with pytest.raises(DataError, match="returned shape"):
        attempt(criterion=Criterion("vector", lambda w, g: w.sum(1), "max"))

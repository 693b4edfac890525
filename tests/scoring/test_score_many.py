"""Several criteria from one pass: each the same, to the last bit, as scored alone; and the network run only once."""

from __future__ import annotations

import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, distributed, multiprocessing, nn
from torch.utils.checkpoint import checkpoint

from ranp.errors import DataError, UnsupportedError
from ranp.scoring.criteria import Criterion
from ranp.scoring.score import score, score_many
from ranp.scoring.scores import Scores
from ranp.tracing.trace import Layer, Trace
from tests.support.processes import free_port
from tests.support.scored import trace_of

ALL = (
    "mpmg-sum", "mpmg-mean", "mpmg-max", "mnmg-sum", "mnmg-mean", "mnmg-max", "neuron-mask", "snip",
    "magnitude", "random",
)  # fmt: skip
Batches = list[tuple[Tensor, Tensor]]


def squared(weight: Tensor, gradient: Tensor) -> Tensor:
    return gradient.mul_(weight).pow(2)


TAYLOR = Criterion("taylor", squared)
MASKS = Criterion("squared mask", squared, on="channels")


class Small(nn.Module):
    """Batch norm with and without parameters, a norm that knows no channels, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.up, self.plain = nn.ConvTranspose2d(6, 4, 2, stride=2), nn.BatchNorm2d(4, affine=False)
        self.last, self.layer = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.LayerNorm([10, 10])
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x)).relu()
        x = self.plain(self.up(x)).relu()
        return self.head(self.drop(self.layer(self.last(x))).mean((2, 3)))


class Shared(nn.Module):
    """One module called twice, one weight in two layers, one weight used by function call."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Conv2d(3, 3, 3, padding=1)
        self.left, self.right = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
        self.right.weight = self.left.weight
        self.matrix = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.twice(self.twice(x).relu()).relu()
        return (self.left(x) * self.right(x)).mean((2, 3)) @ self.matrix


class Blocks(nn.Module):
    """One conv used in two checkpointed blocks, and once outside: its gradient comes in parts."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.shared, self.own = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.norm, self.drop, self.head = nn.BatchNorm2d(4), nn.Dropout(0.2), nn.Linear(4, 3)

    def block(self, x: Tensor) -> Tensor:
        return self.drop(self.norm(self.shared(x)).relu())

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for step in (self.block, self.own, self.block):
            x = checkpoint(step, x, use_reentrant=True)
        return self.head(self.shared(x).tanh().mean((2, 3)))


def built(kind: str) -> tuple[nn.Module, Trace]:
    torch.manual_seed(0)
    if kind == "small":
        model: nn.Module = Small()
        return model, trace_of(model, {"stem": "norm", "up": "plain", "last": "layer"})
    if kind == "shared":
        model = Shared()
        by_hand = Layer("matrix", "parameter", "matrix", 1, 0, 1, 3, np.arange(1, 4))
        return model, Trace((*trace_of(model).layers, by_hand), {})
    model = Blocks()
    return model, trace_of(model)


def batches(count: int = 3) -> Batches:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(3, 3, 5, 5, generator=generator), torch.tensor([0, 1, 2])) for _ in range(count)]


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("kind", ["small", "shared", "blocks"])
def test_each_is_the_same_as_scored_alone(kind: str, mode: str):
    criteria = (*ALL, TAYLOR, MASKS)
    model, trace = built(kind)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    many = score_many(model, batches(), F.cross_entropy, criteria, trace=trace, mode=mode, seed=3)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert list(many) == [*ALL, "taylor", "squared mask"]
    assert many["snip"].weights
    for criterion in criteria:
        alone = score(*built(kind)[:1], batches(), F.cross_entropy, trace=trace, criterion=criterion, mode=mode, seed=3)
        assert many[alone.criterion] == alone


@pytest.mark.parametrize(
    "criteria",
    [
        ("mpmg-sum", "mnmg-max"),
        ("mnmg-max", "mpmg-mean", "snip"),
        ("mpmg-max", "mnmg-sum"),
        ("snip", "taylor"),
        ("neuron-mask", "squared mask"),
        ("magnitude", "mpmg-sum"),
    ],
)
def test_gradients_in_parts_reach_every_mixture_of_criteria(criteria: tuple[str, ...]):
    """What is not linear asks for the batch again; what is linear must then not count it twice."""
    own = {"taylor": TAYLOR, "squared mask": MASKS}
    rules = [own.get(name, name) for name in criteria]
    many = score_many(*built("blocks")[:1], batches(), F.cross_entropy, rules, trace=built("blocks")[1])
    for rule, scores in zip(rules, many.values(), strict=True):
        model, trace = built("blocks")
        assert scores == score(model, batches(), F.cross_entropy, trace=trace, criterion=rule)


def test_the_network_runs_once_per_batch_and_batches_are_read_once():
    model, trace = built("small")
    runs: list[int] = []
    model.head.register_forward_hook(lambda *_: runs.append(1))
    told: list[tuple[int, int | None]] = []
    score_many(
        model, iter(batches()), F.cross_entropy, ALL, trace=trace, max_batches=2, progress=lambda *a: told.append(a)
    )
    assert len(runs) == 2
    assert told == [(1, None), (2, None)]


def test_no_batch_is_needed_where_no_criterion_needs_gradients():
    model, trace = built("small")
    many = score_many(model, [], F.cross_entropy, ["magnitude", "random"], trace=trace)
    assert [scores.batches for scores in many.values()] == [0, 0]
    with pytest.raises(DataError, match="no batches"):
        score_many(model, [], F.cross_entropy, ["magnitude", "mpmg-sum"], trace=trace)


def test_gradients_are_freed_layer_by_layer():
    """Neither the gradients nor the copies that each kind of values gets outlive the hook of their layer."""
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)])
    gradients: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def watching(weight: Tensor, gradient: Tensor) -> Tensor:
        alive.append(sum(reference() is not None for reference in gradients))
        gradients.append(weakref.ref(gradient))
        return weight * gradient

    score_many(
        model,
        [(torch.ones(4, 8), None)] * 2,
        lambda y, _: y.pow(2).sum(),
        [Criterion("first", lambda w, g: watching(w, g)), "mpmg-sum", Criterion("second", lambda w, g: watching(w, g))],
        trace=trace_of(model),
    )
    assert len(alive) == 24
    assert max(alive) <= 1  # the original, while the last copy of the same layer is looked at


def test_values_that_two_criteria_share_are_computed_and_summed_once():
    model, trace = built("small")
    calls: list[int] = []

    def counted(weight: Tensor, gradient: Tensor) -> Tensor:
        calls.append(1)
        return weight * gradient

    rules = [Criterion(how, counted, how, linear=True) for how in ("sum", "mean", "max")]
    many = score_many(model, batches(2), F.cross_entropy, rules, trace=trace)
    assert len(calls) == 2 * len(trace.layers)
    for how in ("sum", "mean", "max"):
        alone = score(model, batches(2), F.cross_entropy, trace=trace, criterion=f"mnmg-{how}")
        assert all(torch.equal(many[how][name], alone[name]) for name in alone)


def test_a_callable_need_not_be_hashable():
    class Rule:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, weight: Tensor, gradient: Tensor) -> Tensor:
            return (weight * gradient).abs()

    model, trace = built("small")
    rule = Criterion("mine", Rule())
    many = score_many(model, batches(1), F.cross_entropy, [rule, "mpmg-sum"], trace=trace)
    assert all(torch.equal(many["mine"][name], many["mpmg-sum"][name]) for name in many["mine"])


def test_criteria_that_cannot_be_scored_together():
    model, trace = built("small")
    with pytest.raises(UnsupportedError, match="criteria is empty"):
        score_many(model, batches(), F.cross_entropy, [], trace=trace)
    with pytest.raises(UnsupportedError, match="two different criteria are named 'taylor'"):
        score_many(model, batches(), F.cross_entropy, [TAYLOR, Criterion("taylor", abs)], trace=trace)
    with pytest.raises(UnsupportedError, match="unknown criterion 'mpmg'"):
        score_many(model, batches(), F.cross_entropy, ["snip", "mpmg"], trace=trace)
    twice = score_many(model, batches(1), F.cross_entropy, ["snip", "mpmg-sum", "snip"], trace=trace)
    assert list(twice) == ["snip", "mpmg-sum"]
    assert list(score_many(model, batches(1), F.cross_entropy, "snip", trace=trace)) == ["snip"]


def _rank(rank: int, port: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        mine = [batches()[:2], batches()[2:]][rank]
        model, trace = built("small")
        for name, scores in score_many(model, mine, F.cross_entropy, ALL, trace=trace).items():
            scores.save(folder / f"many-{name}-{rank}")
        for name in ALL:
            score(model, mine, F.cross_entropy, trace=trace, criterion=name).save(folder / f"alone-{name}-{rank}")
        try:
            score_many(model, mine, F.cross_entropy, ["snip", ("mpmg-sum", "mpmg-max")[rank]], trace=trace)
        except DataError as error:
            (folder / f"told-{rank}").write_text(str(error))
    finally:
        distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(not distributed.is_available(), reason="torch is built without torch.distributed")
def test_two_ranks_agree_on_every_criterion(tmp_path: Path):
    multiprocessing.spawn(_rank, (free_port(), tmp_path), nprocs=2)
    for name in ALL:
        first, second = (Scores.load(tmp_path / f"many-{name}-{rank}") for rank in (0, 1))
        assert first == second == Scores.load(tmp_path / f"alone-{name}-0")
    assert "rank 1 scores 4 layers with 17 channels by 'snip', 'mpmg-max'" in (tmp_path / "told-0").read_text()
    assert "rank 0 scores 4 layers with 17 channels by 'snip', 'mpmg-sum'" in (tmp_path / "told-1").read_text()

"""Which samples a step sees: all of them once an epoch, the same for any number of ranks, parts and starts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ranp.errors import DataError
from ranp.paper.tasks.task import Sample, Samples
from ranp.paper.training.loading import Feed, Order, training_parts, validation_batches


class Numbers(Samples):
    """Sample i is the number i, and the visit."""

    def __init__(self, count: int, *, varies: bool) -> None:
        self.count, self.varies, self.drawn = count, varies, 0

    def __len__(self) -> int:
        return self.count

    def draw(self, index: int, visit: int = 0) -> Sample:
        self.drawn += 1
        return (torch.tensor([float(index)]), torch.tensor([float(visit)])), torch.tensor(index)


orders = st.integers(1, 4).flatmap(
    lambda size: st.integers(1, 3).flatmap(
        lambda parts: st.integers(1, 4).flatmap(
            lambda share: st.tuples(
                st.just(size), st.just(parts), st.just(share * size * parts), st.integers(share * size * parts, 60)
            )
        )
    )
)


@given(orders, st.integers(0, 5), st.integers(0, 3))
def test_ranks_and_parts_see_what_one_process_sees(case: tuple[int, int, int, int], seed: int, epoch: int) -> None:
    size, parts, batch, samples = case
    order, alone = Order(samples, batch, size, parts, seed), Order(samples, batch, 1, 1, seed)
    whole = [[index for _, index in part] for part in alone.parts_from(epoch, 0, 0)]
    assert whole == [alone.batch_of(epoch, step) for step in range(alone.steps)]
    seen = [index for step in whole for index in step]
    assert len(seen) == len(set(seen)) == samples // batch * batch
    shares = [list(order.parts_from(epoch, 0, rank)) for rank in range(size)]
    for step in range(order.steps):
        together = [i for share in shares for part in share[step * parts : (step + 1) * parts] for _, i in part]
        assert together == whole[step]


@given(orders, st.integers(0, 5))
def test_an_epoch_goes_on_in_the_middle(case: tuple[int, int, int, int], seed: int) -> None:
    size, parts, batch, samples = case
    order = Order(samples, batch, size, parts, seed)
    whole = list(order.parts_from(2, 0, 0))
    for step in range(order.steps + 1):
        assert list(order.parts_from(2, step, 0)) == whole[step * parts :]


def test_epochs_and_seeds_differ() -> None:
    told = {tuple(Order(40, 40, 1, 1, seed).batch_of(epoch, 0)) for seed in range(3) for epoch in range(3)}
    assert len(told) == 9


def test_what_does_not_come_out_even_is_refused() -> None:
    with pytest.raises(DataError, match=r"batch=12 is more than the 4 training samples\. Lower batch"):
        Order(4, 12, 1, 1, 0)
    with pytest.raises(DataError, match=r"batch=6 cannot be shared by 2 ranks in 2 parts each .*multiple of 4"):
        Order(20, 6, 2, 2, 0)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")  # where there is one core
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_hold_the_samples_of_the_order(workers: int) -> None:
    order = Order(10, 4, 1, 2, 0)
    feed = Feed(Numbers(10, varies=True), workers)
    told = list(training_parts(feed, order, 3, 1, 0))
    assert len(told) == 1
    assert [target.tolist() for _, target in told[0]] == [order.batch_of(3, 1)[:2], order.batch_of(3, 1)[2:]]
    assert all(isinstance(inputs, tuple) and (inputs[1] == 3).all() for inputs, _ in told[0])


def test_loading_draws_no_global_number() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for _ in training_parts(Feed(Numbers(8, varies=True), 0), Order(8, 4, 1, 1, 0), 0, 0, 0):
        pass
    assert torch.equal(torch.get_rng_state(), before)


def test_only_samples_that_never_change_are_kept() -> None:
    for varies, drawn in ((False, 8), (True, 16)):
        data = Numbers(8, varies=varies)
        feed = Feed(data, 0)
        for epoch in range(2):
            list(training_parts(feed, Order(8, 4, 1, 1, 0), epoch, 0, 0))
        assert data.drawn == drawn


@given(st.integers(0, 20), st.integers(1, 4), st.integers(1, 5))
def test_every_validation_sample_is_on_one_rank_once(samples: int, ranks: int, batch: int) -> None:
    seen: list[int] = []
    for rank in range(ranks):
        for _, target in validation_batches(Feed(Numbers(samples, varies=False), 0), batch, rank, ranks):
            seen += target.tolist()
    assert sorted(seen) == list(range(samples))

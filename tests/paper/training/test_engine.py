"""The training loop: exact when it goes on, exact in parts, and loud when something is wrong."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ranp.errors import DataError, StorageError, UnsupportedError
from ranp.files import atomic
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.task import Samples, Task
from ranp.paper.training import StoppedError, records
from ranp.paper.training.engine import Engine
from ranp.paper.training.network import make_full
from ranp.paper.training.team import Team
from tests.support.toy import CLIPS, NOISY, VOLUMES, without_batch_statistics


def engine(folder: Path, task: Task = NOISY, recipe: Recipe | None = None, *, plain: bool = False) -> Engine:
    recipe = recipe or task.recipe
    folder.mkdir(parents=True, exist_ok=True)
    model = make_full(task, recipe)
    return Engine(task, recipe, without_batch_statistics(model) if plain else model, folder, "run", Team())


def weights(of: Engine) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in of.model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


class StopError(Exception):
    """Ends a run in the middle."""


def stopping(task: Task, step: int) -> Task:
    """The task, but its loss fails at a step of this process."""
    seen = 0

    def loss(output: Tensor, target: Tensor) -> Tensor:
        nonlocal seen
        seen += 1
        if seen == step:
            raise StopError
        return task.loss(output, target)

    return replace(task, loss=loss)


def test_adam_and_schedule_against_a_plain_loop(tmp_path: Path) -> None:
    """What torch's own optimiser and scheduler make of the same batches."""
    recipe = replace(CLIPS.recipe, schedule="step", milestones=(1, 2), weight_decay=1e-3, amsgrad=True)
    ours = engine(tmp_path, CLIPS, recipe)
    model = make_full(CLIPS, recipe)
    ours.train(resume=False)

    from ranp.paper.training.loading import Order
    from ranp.running import randomness

    randomness.seed_rank(recipe.seed, 0, torch.device("cpu"))
    optimiser = torch.optim.Adam(model.parameters(), 0.01, weight_decay=1e-3, amsgrad=True)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [1, 2], 0.1)
    data, order = CLIPS.train_data(8, None, 0), Order(12, 4, 1, 1, 0)
    for epoch in range(3):
        for step in range(order.steps):
            chosen = [data.draw(index, epoch) for index in order.batch_of(epoch, step)]
            optimiser.zero_grad()
            F.cross_entropy(
                model.train()(torch.stack([clip for clip, _ in chosen])), torch.stack([label for _, label in chosen])
            ).backward()
            optimiser.step()
        schedule.step()
    mine = weights(ours)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(mine[name], tensor, rtol=0, atol=1e-6)


@pytest.mark.parametrize("step", [2, 3, 4, 7, 9])
def test_a_run_that_goes_on_ends_bit_by_bit_where_it_would_have(step: int, tmp_path: Path) -> None:
    unbroken = engine(tmp_path / "unbroken")
    unbroken.train(resume=False)
    with pytest.raises(StopError):
        engine(tmp_path / "broken", stopping(NOISY, step)).train(resume=False)
    again = engine(tmp_path / "broken")
    again.train(resume=True)
    assert same(weights(again), weights(unbroken))
    told = [[{**record, "seconds": 0} for record in records(tmp_path / name)] for name in ("unbroken", "broken")]
    assert told[0] == told[1]
    assert [record["step"] for record in told[0] if record["kind"] == "step"] == list(range(1, 10))


def test_the_state_of_every_kind_matters(tmp_path: Path) -> None:
    """Without the random state, the optimiser's or the order's, the weights would differ: the test above can fail."""
    unbroken = engine(tmp_path / "unbroken")
    unbroken.train(resume=False)
    with pytest.raises(StopError):
        engine(tmp_path / "broken", stopping(NOISY, 6)).train(resume=False)
    for forgotten in ("random", "optimiser"):
        again = engine(tmp_path / "broken", recipe=replace(NOISY.recipe, checkpoint_every=None))
        go_on = again._go_on

        def forgetful(again: Engine = again, go_on: Any = go_on, forgotten: str = forgotten) -> None:
            before = again.optimiser.state_dict()
            go_on()
            if forgotten == "random":
                torch.manual_seed(99)
            else:
                again.optimiser.load_state_dict(before)

        again._go_on = forgetful  # type: ignore[method-assign]
        again.checkpoints.write = lambda state: Path()  # type: ignore[method-assign, assignment]
        again.train(resume=True)
        assert not same(weights(again), weights(unbroken)), forgotten


@pytest.mark.parametrize("changes", [{"accumulate": 2}, {"accumulate": 4}, {"workers": 1}])
def test_parts_and_workers_change_nothing(changes: dict[str, Any], tmp_path: Path) -> None:
    one, other = (
        engine(tmp_path / "one", VOLUMES, plain=True),
        engine(tmp_path / "other", VOLUMES, replace(VOLUMES.recipe, **changes), plain=True),
    )
    first, second = one.train(resume=False), other.train(resume=False)
    assert [r["loss"] for r in first] == pytest.approx([r["loss"] for r in second], rel=1e-5)
    mine = weights(other)
    for name, tensor in weights(one).items():
        torch.testing.assert_close(mine[name], tensor, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "bf16"},
        {"precision": "fp16"},
        {"channels_last": True},
        {"memory_format": "channels_last_3d+halved"},
        {"deterministic": True},
    ],
)
def test_switches_train_the_same_network(changes: dict[str, Any], tmp_path: Path) -> None:
    usual = engine(tmp_path / "usual", VOLUMES).train(resume=False)
    switched = engine(tmp_path / "switched", VOLUMES, replace(VOLUMES.recipe, **changes)).train(resume=False)
    close = {"rel": 0.05} if "precision" in changes else {"rel": 1e-4}
    assert [r["loss"] for r in switched] == pytest.approx([r["loss"] for r in usual], **close)
    assert not torch.are_deterministic_algorithms_enabled()


def test_channels_last_goes_on_exactly(tmp_path: Path) -> None:
    recipe = replace(NOISY.recipe, channels_last=True, precision="fp16")
    unbroken = engine(tmp_path / "unbroken", NOISY, recipe)
    unbroken.train(resume=False)
    with pytest.raises(StopError):
        engine(tmp_path / "broken", stopping(NOISY, 7), recipe).train(resume=False)
    again = engine(tmp_path / "broken", NOISY, recipe)
    again.train(resume=True)
    assert same(weights(again), weights(unbroken))


@pytest.mark.slow
def test_a_compiled_network_trains_the_same(tmp_path: Path) -> None:
    usual = engine(tmp_path / "usual", VOLUMES).train(resume=False)
    compiled = engine(tmp_path / "compiled", VOLUMES, replace(VOLUMES.recipe, compile=True)).train(resume=False)
    assert [r["loss"] for r in compiled] == pytest.approx([r["loss"] for r in usual], rel=1e-3)


def test_a_loss_that_is_nan_stops_before_the_weights_are_spoilt(tmp_path: Path) -> None:
    seen = 0

    def loss(output: Tensor, target: Tensor) -> Tensor:
        nonlocal seen
        seen += 1
        return NOISY.loss(output, target) * (float("nan") if seen == 5 else 1.0)

    ours = engine(tmp_path, replace(NOISY, loss=loss))
    with pytest.raises(DataError, match=r"loss is nan at step 5 \(epoch 2, samples [\d, ]+\)\. Look at") as e:
        ours.train(resume=False)
    assert "checkpoint-000000004.safetensors; go on with --resume" in str(e.value)
    assert all(tensor.isfinite().all() for tensor in weights(ours).values())
    assert [p.name for p in ours.checkpoints.files()] == [f"checkpoint-00000000{n}.safetensors" for n in (4, 3)]


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("not enough memory: you tried")]
)
def test_no_memory_is_explained(error: Exception, tmp_path: Path) -> None:
    seen = 0

    def loss(output: Tensor, target: Tensor) -> Tensor:
        nonlocal seen
        seen += 1
        if seen == 4:
            raise error
        return NOISY.loss(output, target)

    with pytest.raises(StoppedError, match=r"memory ran out .*raise accumulate.*checkpoint-000000003") as caught:
        engine(tmp_path, replace(NOISY, loss=loss)).train(resume=False)
    assert caught.value.status == 1


def test_another_error_is_not_explained_away(tmp_path: Path) -> None:
    with pytest.raises(StopError):
        engine(tmp_path, stopping(NOISY, 1)).train(resume=False)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        raise RuntimeError("size of tensor a must match")

    with pytest.raises(RuntimeError, match="size of tensor a must match"):
        engine(tmp_path / "other", replace(NOISY, loss=loss)).train(resume=False)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_after_the_step_and_nothing_is_lost(number: int, status: int, tmp_path: Path) -> None:
    unbroken = engine(tmp_path / "unbroken")
    unbroken.train(resume=False)
    seen = 0

    def loss(output: Tensor, target: Tensor) -> Tensor:
        nonlocal seen
        seen += 1
        if seen == 5:
            signal.raise_signal(number)
        return NOISY.loss(output, target)

    before = signal.getsignal(number)
    with pytest.raises(StoppedError, match=r"stopped by .* after step 5\..*checkpoint-000000005") as caught:
        engine(tmp_path / "broken", replace(NOISY, loss=loss)).train(resume=False)
    assert caught.value.status == status
    assert signal.getsignal(number) is before
    again = engine(tmp_path / "broken")
    again.train(resume=True)
    assert same(weights(again), weights(unbroken))


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unbroken = engine(tmp_path / "unbroken")
    unbroken.train(resume=False)
    real, calls = atomic.write_atomic, 0

    def full(path: Any, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise StorageError(f"cannot write {str(path)!r}: No space left on device. Check that the folder has space.")
        real(path, data)

    monkeypatch.setattr(atomic, "write_atomic", full)
    with pytest.raises(StorageError, match="No space left on device"):
        engine(tmp_path / "broken").train(resume=False)
    monkeypatch.undo()
    again = engine(tmp_path / "broken")
    again.train(resume=True)
    assert same(weights(again), weights(unbroken))


def test_labels_are_looked_at_before_the_first_step(tmp_path: Path) -> None:
    class Mislabelled(type(VOLUMES.train_data(8))):  # type: ignore[misc]
        def check(self, progress: Any = None) -> None:
            raise DataError("case 7 has label 9; allowed are 0 to 3. Mend it.")

    def data(size: int = 8, count: int | None = None, seed: int = 0) -> Samples:
        return Mislabelled(0, size, count or 12, seed, volumes=True)

    task = replace(VOLUMES, source=replace(VOLUMES.source, valid_data=data))
    with pytest.raises(DataError, match="case 7 has label 9"):
        engine(tmp_path, task).train(resume=False)
    assert list(tmp_path.iterdir()) == []


def test_figures_do_not_depend_on_the_validation_batch(tmp_path: Path) -> None:
    told = [
        engine(tmp_path / str(batch), VOLUMES, replace(VOLUMES.recipe, epochs=1, valid_batch=batch)).train(resume=False)
        for batch in (1, 2, 5)
    ]
    assert told[0][0]["valid"] == told[1][0]["valid"] == told[2][0]["valid"]


def test_validation_every_other_epoch_and_at_the_end(tmp_path: Path) -> None:
    told = engine(tmp_path, VOLUMES, replace(VOLUMES.recipe, epochs=5, valid_every=2)).train(resume=False)
    assert ["valid" in record for record in told] == [False, True, False, True, True]


def test_a_network_that_cannot_be_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"options\.width: .*did you mean 'widths'"):
        make_full(VOLUMES, replace(VOLUMES.recipe, options={"width": 3}))
    demanding = replace(VOLUMES, source=replace(VOLUMES.source, options={"in_channels": 2}))
    with pytest.raises(UnsupportedError, match=r"options\.in_channels=3: the data need 2"):
        make_full(demanding, replace(VOLUMES.recipe, options={"in_channels": 3}))
    assert make_full(demanding, VOLUMES.recipe).encoders[0].conv1[0].in_channels == 2

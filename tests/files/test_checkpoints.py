"""Checkpoints: what is read is what was written, or it is not read at all."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ranp.errors import StorageError
from ranp.files import atomic
from ranp.files.checkpoints import Checkpoints, Position, State

NETS = {
    "adam": lambda p: torch.optim.Adam(p, 0.1, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "plain": lambda p: torch.optim.SGD(p, 0.1),
}


def state(steps: int, kind: str = "adam", run: str = "a") -> State:
    torch.manual_seed(steps)
    net = nn.Sequential(nn.Conv3d(1, 3, 2), nn.BatchNorm3d(3))
    optimiser = NETS[kind](net.parameters())
    for _ in range(2):
        optimiser.zero_grad()
        net(torch.randn(2, 1, 3, 3, 3)).square().sum().backward()
        optimiser.step()
    position = Position(epoch=steps // 3, step=steps % 3, steps=steps, seconds=1.5, loss=0.1 + 0.2)
    return State(position, net.state_dict(), optimiser.state_dict(), {"scale": 2.0}, ("one", "two"), run)


def equal(one: State, other: State) -> bool:
    def flat(value: State) -> list[object]:
        values = value.optimiser["state"]
        return [
            value.position,
            sorted(value.model),
            value.optimiser["param_groups"],
            {index: sorted(entries) for index, entries in values.items()},
            dict(value.scaler),
            value.random,
            value.run,
        ]

    tensors = [
        [
            *(t for _, t in sorted(s.model.items())),
            *(t for v in s.optimiser["state"].values() for _, t in sorted(v.items())),
        ]
        for s in (one, other)
    ]
    alike = all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(*tensors, strict=True))
    return alike and flat(one) == flat(other)


@pytest.mark.parametrize("kind", NETS)
def test_what_is_written_is_read(kind: str, tmp_path: Path) -> None:
    store, written = Checkpoints(tmp_path, 3), state(4, kind)
    path = store.write(written)
    assert path.name == "checkpoint-000000004.safetensors"
    read = store.newest("a")
    assert read is not None
    assert equal(read, written)
    net = nn.Sequential(nn.Conv3d(1, 3, 2), nn.BatchNorm3d(3))
    optimiser = NETS[kind](net.parameters())
    optimiser.load_state_dict(dict(read.optimiser))  # torch takes it as its own
    assert optimiser.state_dict()["param_groups"] == written.optimiser["param_groups"]


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, 2)
    for steps in (1, 2, 10, 9, 11):
        store.write(state(steps))
    assert [path.name for path in store.files()] == [f"checkpoint-0000000{steps}.safetensors" for steps in (11, 10)]
    assert Checkpoints(tmp_path / "nothing", 2).newest("a") is None


@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_changed_bit_or_a_torn_end_is_passed_over(
    where: float, bit: int, cut: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    store = Checkpoints(folder, 3)
    good = state(1)
    store.write(good)
    path = store.write(state(2))
    data = bytearray(path.read_bytes())
    position = int(where * len(data))
    if cut:
        data = data[:position]
    else:
        data[position] ^= 1 << bit
    path.write_bytes(bytes(data))
    read = store.newest("a")
    assert read is not None
    assert equal(read, good)


def test_it_is_said_which_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Checkpoints(tmp_path, 3)
    store.write(state(1))
    store.write(state(2)).write_bytes(b"torn")
    with caplog.at_level(logging.WARNING):
        assert store.newest("a") is not None
    assert "checkpoint-000000002.safetensors" in caplog.text
    store.files()[1].write_bytes(b"torn too")
    with pytest.raises(StorageError, match="none of the 2 checkpoints"):
        store.newest("a")


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, 3)
    store.write(state(1, run="b"))
    with pytest.raises(StorageError, match="another network or recipe"):
        store.newest("a")


def test_a_full_disk_costs_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Checkpoints(tmp_path, 1)
    store.write(state(1))

    def full(path: object, mode: str) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic, "open", full, raising=False)
    with pytest.raises(StorageError, match="No space left on device"):
        store.write(state(2))
    monkeypatch.undo()
    read = store.newest("a")
    assert read is not None
    assert read.position.steps == 1
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000000001.safetensors"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, 3)
    store.write(state(1))
    left = tmp_path / ".checkpoint-000000002.safetensors.0123456789abcdef.tmp"
    left.write_bytes(b"half")
    other = tmp_path / ".mine.tmp"
    other.write_bytes(b"not ours")
    assert store.newest("a") is not None
    assert not left.exists()
    assert other.exists()


def test_a_tampered_header_is_not_believed(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, 3)
    path = store.write(state(2))
    path.write_bytes(path.read_bytes().replace(b'\\"steps\\": 2', b'\\"steps\\": 9'))
    with pytest.raises(StorageError, match="none of the 1 checkpoints"):
        store.newest("a")


def test_a_position_is_a_value() -> None:
    assert dataclasses.asdict(Position()) == {"epoch": 0, "step": 0, "steps": 0, "seconds": 0.0, "loss": 0.0}


def test_checkpoints_that_are_too_many_go_when_the_newest_is_read(tmp_path: Path) -> None:
    """A process that is killed between writing one and removing another leaves one too many."""
    many = Checkpoints(tmp_path, 9)
    for steps in (1, 2, 3, 4):
        many.write(state(steps))
    few = Checkpoints(tmp_path, 2)
    few.files()[0].write_bytes(b"torn")
    assert few.newest("a").position.steps == 3
    assert len(few.files()) == 4  # one that is not whole does not count: nothing goes
    few.write(state(4))
    many.write(state(5))
    assert few.newest("a").position.steps == 5
    assert [path.name[-13:-12] for path in few.files()] == ["5", "4"]

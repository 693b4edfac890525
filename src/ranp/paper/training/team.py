"""The processes that train together: who is who, what they add up, and that all of them agree.

Started by ``torchrun``, which says rank and size in the environment; alone without it, and then nothing is sent.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed, nn
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from ranp.errors import DataError, RanpError, StorageError, UnsupportedError
from ranp.running import ranks

logger = logging.getLogger(__name__)

_PATIENCE = timedelta(minutes=30)
"""How long a rank waits for another that is alive: a first epoch of preprocessing may be long. A dead one is noticed
at once, by its closed connection and by ``torchrun``."""


@dataclass(frozen=True, slots=True)
class Team:
    """This process among those that train together.

    Attributes:
        rank: Its number.
        size: How many there are.
        device: Where this one computes.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009 -- a device is a frozen value

    @property
    def leads(self) -> bool:
        """Whether this one writes files and talks to the user."""
        return self.rank == 0

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums over all ranks, the same bits on each."""
        if self.size == 1:
            return list(values)
        summed: list[float] = ranks.total(torch.tensor(values, dtype=torch.float64, device="cpu")).tolist()
        return summed

    def gather(self, text: str) -> list[str]:
        """The text of every rank."""
        if self.size == 1:
            return [text]
        mine = torch.frombuffer(bytearray(text.encode() or b"\0"), dtype=torch.uint8)
        lengths = [0.0] * self.size
        lengths[self.rank] = float(len(mine))
        lengths = self.total(lengths)
        padded = torch.zeros(int(max(lengths)), dtype=torch.uint8)
        padded[: len(mine)] = mine
        home = self.device if distributed.get_backend() == "nccl" else torch.device("cpu")
        everyone = [torch.empty_like(padded, device=home) for _ in range(self.size)]
        distributed.all_gather(everyone, padded.to(home))
        texts = [bytes(one[: int(n)].tolist()).decode() for one, n in zip(everyone, lengths, strict=True)]
        return ["" if one == "\0" else one for one in texts]

    def agree(self, what: str, text: str) -> None:
        """Makes sure that every rank has the same text.

        Raises:
            DataError: One has another; all of them raise.
        """
        for rank, other in enumerate(self.gather(text)):
            if other != text:
                raise DataError(
                    f"rank {rank} has another {what} than rank {self.rank}. Start every rank with the same version, "
                    "options and data."
                )

    def lead(self, act: Callable[[], object]) -> None:
        """Lets one rank act for all: if it fails, all of them do, and none is left waiting.

        Raises:
            RanpError: What the rank that leads refuses, on every rank.
        """
        problem: RanpError | None = None
        if self.leads:
            try:
                act()
            except RanpError as error:
                problem = error
        (said, *_) = self.gather("" if problem is None else f"{type(problem).__name__}: {problem}")
        if said:
            raise problem or StorageError(f"rank 0 stopped: {said}")

    def share_buffers(self, model: nn.Module) -> None:
        """Gives every rank the buffers (running statistics) of rank 0, which are those that are saved."""
        if self.size > 1:
            with torch.no_grad():
                for buffer in model.buffers():
                    buffer.copy_(ranks.first(buffer))

    def wait(self) -> None:
        """Until every rank is here."""
        if self.size > 1:
            self.total([0.0])


@contextmanager
def joined(device: str = "cpu") -> Iterator[Team]:
    """Joins the processes that ``torchrun`` started, and leaves them at the end; alone where it did not.

    Args:
        device: ``"cpu"`` talks through gloo; ``"cuda"`` through nccl, each rank on the GPU of its local number.

    Raises:
        UnsupportedError: There is no such device, or the environment is not torchrun's.
    """
    size, rank, local = (
        _number(name, default) for name, default in (("WORLD_SIZE", 1), ("RANK", 0), ("LOCAL_RANK", 0))
    )
    place = _device(device, local if size > 1 else None)
    if size == 1:
        yield Team(device=place)
        return
    if place.type == "cuda":
        torch.cuda.set_device(place)
    mine = not distributed.is_initialized()
    if mine:
        _meet("nccl" if place.type == "cuda" else "gloo", rank, size)
    try:
        yield Team(rank, size, place)
    finally:
        # Not after an error: it may wait for a rank that is gone.
        if mine and distributed.is_initialized():
            _leave()


def _meet(backend: str, rank: int, size: int) -> None:
    """Finds the other ranks, under the number of this start: torchrun may keep what a start that failed has left."""
    store, _, _ = next(rendezvous("env://", timeout=_PATIENCE))
    attempt = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    distributed.init_process_group(backend, store=attempt, rank=rank, world_size=size, timeout=_PATIENCE)


def _leave() -> None:
    import gc
    import sys

    if sys.exc_info()[0] is None:
        gc.collect()  # a network that is wrapped for many ranks holds the group, and is part of a circle itself
        distributed.destroy_process_group()


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isdigit():
        raise UnsupportedError(f"the environment says {name}={text!r}, which is no number. Start ranks with torchrun.")
    return int(text)


def _device(name: str, local: int | None) -> torch.device:
    if name == "cuda" and local is not None:
        name = f"cuda:{local}"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UnsupportedError(f"--device {name!r} cannot be used ({reason}). Try --device cpu.") from error
    return device

"""What stops a run from outside: a signal, no memory left, another rank that is gone. The reason is always said."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from ranp.errors import RanpError


class StoppedError(RanpError):
    """A run was stopped and can go on.

    Attributes:
        status: Exit status of the command: 130 after Ctrl-C, 143 after SIGTERM, else 1.
    """

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class Listener:
    """Notes a signal; the run stops where it can go on from: after the present step.

    A second Ctrl-C does not wait.
    """

    def __init__(self) -> None:
        self.signal = 0

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        if self.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def listening() -> Iterator[Listener]:
    """Takes over Ctrl-C and SIGTERM while a run lasts; other threads cannot, and then nothing is taken over."""
    listener = Listener()
    if threading.current_thread() is not threading.main_thread():
        yield listener
        return
    before = {number: signal.signal(number, listener.note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield listener
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory")
_GONE = ("connection closed by peer", "connection reset", "connection was likely closed", "broken pipe", "timed out")


@contextmanager
def explained(where: Callable[[], str]) -> Iterator[None]:
    """Says what an error of the machine means for the run.

    Args:
        where: Tells what is safe, and how to go on.

    Raises:
        StoppedError: Memory ran out, or another rank is gone.
    """
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise _out_of_memory(error, where()) from error
    except RuntimeError as error:
        text = str(error).lower()
        if any(sign in text for sign in _MEMORY):
            raise _out_of_memory(error, where()) from error
        if isinstance(error, torch.distributed.DistError) or any(sign in text for sign in _GONE):
            raise StoppedError(
                f"another rank is gone ({_first_line(error)}); this one stops too. Its own message says why. {where()}"
            ) from error
        raise


def _out_of_memory(error: BaseException, where: str) -> StoppedError:
    return StoppedError(
        f"memory ran out ({_first_line(error)}). Lower size or batch, raise accumulate, or prune more. {where}"
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__

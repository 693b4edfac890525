"""Pieces of work that processes of their own can import."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import torch

from ranp.errors import DataError, StorageError
from ranp.progress import Labelled
from tests.support.processes import KILL


def square(item: int, told: Labelled) -> int:
    told("square", item, 9, str(os.getpid()))
    if item == 3:
        raise DataError("three is refused")
    return item * item


def threads(item: int, told: Labelled) -> tuple[int, int]:
    time.sleep(0.2)  # so that no process does all of it
    return os.getpid(), torch.get_num_threads()


def die_once(folder: str, told: Labelled) -> int:
    """Kills its process the first time, and only then."""
    mark = Path(folder) / "died"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), KILL)
    return os.getpid()


def die(item: int, told: Labelled) -> None:
    os.kill(os.getpid(), KILL)


def sleep(item: int, told: Labelled) -> int:
    Path(os.environ["RANP_TEST_FOLDER"], f"{item}-{os.getpid()}").touch()
    time.sleep(600)
    return item


def full_disk(item: int, told: Labelled) -> int:
    """No space is left to write what came out."""
    try:
        raise OSError(errno.ENOSPC, "No space left on device")
    except OSError as error:
        raise StorageError("cannot write it") from error

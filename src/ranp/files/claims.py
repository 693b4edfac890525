"""Names that one process at a time may claim; the claim ends with the process, however that ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ranp.errors import StorageError


@contextmanager
def claimed(path: Path, *, wait: bool) -> Iterator[bool]:
    """Claims a name for this process; the claim ends with the process, however that ends.

    Args:
        path: A file that is made for it.
        wait: Until nobody else claims it. Else the value says whether the claim was had.
    """
    lock = FileLock(path, timeout=-1 if wait else 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        yield False
        return
    except OSError as error:
        raise StorageError(f"cannot write {str(path)!r}: {error.strerror}. Name another folder.") from error
    try:
        yield True
    finally:
        lock.release()

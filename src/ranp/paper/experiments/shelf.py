"""Scores on a shelf: the cells of one network and seed are scored once between them, whatever process they run in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ranp.errors import StorageError
from ranp.scoring.scores import Scores

__all__ = ["Shelf", "claimed"]


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


class Shelf:
    """A folder of scores by what they were made of.

    Args:
        folder: Where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def scores(
        self,
        what: Mapping[str, Any],
        criteria: Sequence[str],
        make: Callable[[Sequence[str]], Mapping[str, Scores]],
    ) -> dict[str, Scores]:
        """The scores of each criterion: from the shelf, or made, all that are missing at once.

        Args:
            what: Everything that decides on them but the criterion, plain values.
            criteria: Names of criteria.
            make: Makes the scores of criteria.
        """
        key = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
        paths = {name: self.folder / f"{key}-{name}.safetensors" for name in criteria}
        with claimed(self.folder / f".{key}.lock", wait=True):
            missing = [name for name, path in paths.items() if not path.is_file()]
            for name, scores in (make(missing) if missing else {}).items():
                scores.save(paths[name])
        return {name: Scores.load(path) for name, path in paths.items()}

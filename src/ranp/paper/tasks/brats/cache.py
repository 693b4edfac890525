"""Prepared cases on the disk and in memory, so that a case is read and normalised once.

An entry is a sealed safetensors file in ``$RANP_CACHE/brats``, or in ``~/.cache/ranp/brats``. Its name holds what it
was made of: where the files are, their sizes and times, and the version of the preprocessing; so a changed file is
prepared anew. About 30 MB for a case with four modalities. The folder may be deleted at any time. Nothing is ever
written beside the data.
"""

from __future__ import annotations

import json
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path

import torch

from ranp.errors import DataError, StorageError
from ranp.files import sealed
from ranp.files.atomic import checksum
from ranp.paper.tasks.brats.files import Case
from ranp.paper.tasks.brats.preprocessing import VERSION, Volume, prepare

_LOG = logging.getLogger(__name__)
_FORMAT = sealed.Format("ranp-brats-case", 1, (), "ranp")


def cache_folder() -> Path:
    """Where prepared cases lie: ``brats`` in the folder that the environment's ``RANP_CACHE`` names, or at home."""
    named = os.environ.get("RANP_CACHE")
    return (Path(named).expanduser() if named else Path.home() / ".cache" / "ranp") / "brats"


def entry_of(case: Case) -> Path:
    """The file that holds a prepared case.

    Raises:
        DataError: A file of the case is gone.
    """
    made_of: list[object] = [VERSION, sorted(case.images)]
    for path in case.files:
        try:
            status = path.stat()
        except OSError as error:
            raise DataError(f"{str(path)!r} cannot be read: {error.strerror}. It was there; bring it back.") from error
        made_of.append([str(path.resolve()), status.st_size, status.st_mtime_ns])
    return cache_folder() / f"{case.name}-{checksum(json.dumps(made_of).encode())[:24]}.safetensors"


def cached(case: Case) -> Volume:
    """A case, prepared now or before.

    Raises:
        DataError: A file of the case is not right.
        StorageError: The cache cannot be written.
    """
    entry = entry_of(case)
    if entry.exists():
        try:
            return _read(entry)
        except StorageError as error:
            _LOG.warning("cache entry %s cannot be used (%s); it is made anew", entry, error)
    volume = prepare(case)
    _write(entry, volume)
    return volume


def ensure_cached(case: Case) -> None:
    """Prepares a case unless that was done before; what is there is opened, not read.

    Raises:
        DataError: A file of the case is not right.
        StorageError: The cache cannot be written.
    """
    try:
        _FORMAT.header(entry_of(case))
    except StorageError:
        cached(case)


def _read(entry: Path) -> Volume:
    _, tensors = _FORMAT.read(entry)
    return Volume(tensors["image"].numpy(), tensors["labels"].numpy())


def _write(entry: Path, volume: Volume) -> None:
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        tensors = {"image": torch.from_numpy(volume.image), "labels": torch.from_numpy(volume.labels)}
        _FORMAT.write(entry, tensors, {})
    except (OSError, StorageError) as error:
        raise StorageError(
            f"prepared cases cannot be kept in {str(entry.parent)!r}: {error} Name another folder in RANP_CACHE."
        ) from error


class Recent:
    """The volumes that were asked for last, as many as fit.

    Args:
        most: Bytes that may be held. One volume is held even if it is larger.
    """

    def __init__(self, most: int = 1 << 29) -> None:
        self.most = most
        self._held: OrderedDict[Hashable, Volume] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Volume]) -> Volume:
        """The volume of that key, which ``make`` makes if it is not held."""
        volume = self._held.pop(key, None) or make()
        self._held[key] = volume
        total = sum(held.bytes for held in self._held.values())
        while total > self.most and len(self._held) > 1:
            total -= self._held.popitem(last=False)[1].bytes
        return volume

    def __getstate__(self) -> dict[str, object]:
        """A copy for another process starts empty: volumes are made again sooner than sent."""
        return {"most": self.most, "_held": OrderedDict()}

"""``metrics.jsonl``: one line for every step and every epoch, appended as they end; TensorBoard's files beside it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ranp import files
from ranp.errors import StorageError

__all__ = ["Journal", "records"]

logger = logging.getLogger(__name__)

NAME = "metrics.jsonl"


def records(folder: Path) -> list[dict[str, Any]]:
    """What the journal of a run folder says so far; a last line that was cut off by a crash is left out.

    Raises:
        StorageError: There is none, or a line in the middle is not JSON.
    """
    lines = files.read_bytes(folder / NAME).decode("utf-8", "replace").split("\n")
    told: list[dict[str, Any]] = []
    for number, line in enumerate(lines[:-1], 1):  # what follows the last line break was never finished
        try:
            told.append(json.loads(line))
        except ValueError as error:
            raise StorageError(
                f"line {number} of {str(folder / NAME)!r} is not JSON ({error}). Remove it, or restore the file."
            ) from error
    return told


class Journal:
    """Writes what happens in a run.

    Args:
        folder: The run folder.
        steps: Steps that the run goes on from: later records of a killed start are dropped, they will come again.
        tensorboard: Write TensorBoard's event files into ``folder/tensorboard`` too, if it is installed.
    """

    def __init__(self, folder: Path, steps: int, *, tensorboard: bool) -> None:
        self.path = folder / NAME
        if self.path.exists():
            kept = [record for record in records(folder) if record["step"] <= steps]
            files.write_atomic(self.path, "".join(json.dumps(record) + "\n" for record in kept).encode())
        self._board = _board(folder / "tensorboard", steps) if tensorboard else None
        try:
            self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 -- open as long as the run
        except OSError as error:
            raise StorageError(f"cannot write {str(self.path)!r}: {error.strerror}. Name another folder.") from error

    def write(self, record: Mapping[str, Any]) -> None:
        """Appends a record; ``step`` must be in it.

        Raises:
            StorageError: It cannot be written (a full disk).
        """
        try:
            self._file.write(json.dumps(_finite(record)) + "\n")
            self._file.flush()
        except OSError as error:
            raise StorageError(
                f"cannot write {str(self.path)!r}: {error.strerror}. Make room, then go on with --resume."
            ) from error
        if self._board is not None:
            for name, value in _numbers(record):
                self._board.add_scalar(f"{record['kind']}/{name}", value, record["step"])

    def close(self) -> None:
        """Ends the journal."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def _numbers(record: Mapping[str, Any]) -> list[tuple[str, float]]:
    flat = {**record, **record.get("valid", {})}
    skipped = ("kind", "step", "valid")
    return [(name, value) for name, value in flat.items() if name not in skipped and isinstance(value, int | float)]


def _finite(value: Any) -> Any:
    """JSON has no NaN: null stands for it."""
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _board(folder: Path, steps: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        logger.info("TensorBoard is not installed (pip install 'ranp[train]'): metrics.jsonl has everything too")
        return None
    return SummaryWriter(str(folder), purge_step=steps + 1 if steps else None)

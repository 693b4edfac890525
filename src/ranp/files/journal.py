"""``metrics.jsonl``: one line for every step and every epoch, appended as they end; TensorBoard's files beside it.

Every line ends with a seal over itself and the line before, so that no digit changes and no line goes or moves without
being noticed. The end of the file has no line after it: there the newest checkpoint remembers the last seal, and the
trained network does when the checkpoints are gone.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ranp.errors import StorageError
from ranp.files import atomic
from ranp.files.checkpoints import Mark

logger = logging.getLogger(__name__)

NAME = "metrics.jsonl"


def read(folder: Path, mark: Mark) -> list[dict[str, Any]]:
    """What the journal of a run folder says so far; a last line that was cut off by a crash is left out.

    Args:
        folder: The run folder.
        mark: How far the journal was when something else last said so: a checkpoint, or the trained network.

    Raises:
        StorageError: There is none, a line was changed, or lines are lost.
    """
    return [record for record, _ in _checked(folder / NAME, _lines(folder / NAME), mark)]


def kept(folder: Path, mark: Mark) -> list[tuple[dict[str, Any], str]]:
    """The records up to ``mark``, each with its seal, where a run goes on; what came after it is written again.

    Raises:
        StorageError: One of them is lost or was changed.
    """
    path = folder / NAME
    return _checked(path, _lines(path)[: mark.lines] if path.exists() else [], mark)


def _lines(path: Path) -> list[str]:
    """The whole lines: what follows the last line break was never finished."""
    return atomic.read_bytes(path).decode("utf-8", "replace").split("\n")[:-1]


def _checked(path: Path, lines: Sequence[str], mark: Mark) -> list[tuple[dict[str, Any], str]]:
    records: list[tuple[dict[str, Any], str]] = []
    seal = ""
    for number, line in enumerate(lines, 1):
        try:
            record = atomic.parse_json(line)
        except ValueError as error:
            raise StorageError(f"line {number} of {str(path)!r} is not JSON ({error}). {_RESTORE}") from error
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            raise StorageError(f"line {number} of {str(path)!r} is not a record of training. {_RESTORE}")
        found, seal = record.pop(atomic.SEAL, None), atomic.seal(record, after=seal)
        if found != seal:
            raise StorageError(
                f"line {number} of {str(path)!r} was changed since it was written, or lines before it are lost: its "
                f"seal is wrong. {_RESTORE}"
            )
        records.append((record, seal))
    if mark.lines > len(records):
        raise StorageError(
            f"{str(path)!r} has lost lines at its end: it has {len(records)}, and had {mark.lines} at the last "
            f"checkpoint. {_RESTORE}"
        )
    if mark.lines and records[mark.lines - 1][1] != mark.seal:
        raise StorageError(f"{str(path)!r} is the journal of another run than its checkpoints. {_RESTORE}")
    return records


_RESTORE = "Restore a copy, or start again in another folder."


class Journal:
    """Writes what happens in a run.

    Args:
        folder: The run folder.
        mark: How far it had come where the run goes on from: what a killed start wrote after that comes again.
        steps: Steps that the run goes on from.
        tensorboard: Write TensorBoard's event files into ``folder/tensorboard`` too, if it is installed.

    Raises:
        StorageError: A line up to ``mark`` is lost or was changed, or the file cannot be written.
    """

    def __init__(self, folder: Path, mark: Mark, steps: int, *, tensorboard: bool) -> None:
        self.path = folder / NAME
        self._mark = mark
        if (records := kept(folder, mark)) or self.path.exists():
            atomic.write_atomic(self.path, "".join(_line(record, seal) for record, seal in records).encode())
        self._board = _board(folder / "tensorboard", steps) if tensorboard else None
        with self._writing("Name another folder."):
            self._file = open(self.path, "a", encoding="utf-8", newline="\n")  # noqa: SIM115 -- open as long as the run

    def write(self, record: Mapping[str, Any]) -> None:
        """Appends a record; ``step`` must be in it.

        Raises:
            StorageError: It cannot be written (a full disk).
        """
        finite = _finite(record)
        seal = atomic.seal(finite, after=self._mark.seal)
        with self._writing("Make room, then go on with --resume."):
            self._file.write(_line(finite, seal))
            self._file.flush()
        self._mark = Mark(self._mark.lines + 1, seal)
        if self._board is not None:
            for name, value in _numbers(record):
                self._board.add_scalar(f"{record['kind']}/{name}", value, record["step"])

    def mark(self) -> Mark:
        """How far it has come, for a checkpoint; all of that is then on the disk.

        Raises:
            StorageError: The disk does not take it.
        """
        with self._writing("Check the disk."):
            os.fsync(self._file.fileno())
        return self._mark

    @contextmanager
    def _writing(self, remedy: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(f"cannot write {str(self.path)!r}: {error.strerror}. {remedy}") from error

    def close(self) -> None:
        """Ends the journal."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def _numbers(record: Mapping[str, Any]) -> list[tuple[str, float]]:
    flat = {**record, **record.get("valid", {})}
    skipped = ("kind", "step", "valid")
    return [(name, value) for name, value in flat.items() if name not in skipped and isinstance(value, int | float)]


def _line(record: Mapping[str, Any], seal: str) -> str:
    return json.dumps({**record, atomic.SEAL: seal}) + "\n"


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

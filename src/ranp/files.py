"""Files that are whole or not there: atomic writing, checksums and versioned JSON that people may edit.

Everything ``ranp`` writes goes through here, so that a crash, a full disk or a second process never leaves half a file
under the name the user asked for.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ranp.errors import StorageError


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes ``data`` so that ``path`` holds either what it held before or all of ``data``, never a part.

    The bytes go to a temporary file in the same folder (a rename is atomic only within one file system), are flushed
    to the disk, and the temporary file takes the name. It is removed if any of that fails.

    Raises:
        StorageError: The folder is missing or not writable, the disk is full, or the path is a folder.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise StorageError(
            f"cannot write {str(target)!r}: {error.strerror or error}. "
            "Check that the folder exists, is writable and has space left."
        ) from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)
    _sync_folder(target.parent)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuses a place where no file or folder can be made, before any work is done for it.

    A folder is made in the nearest one that is there, and removed: permissions alone do not say what will happen.

    Raises:
        StorageError: The folder that is there is not writable, the name is too long, or a part of the path is a file.
    """
    place = Path(path).absolute()
    try:
        with suppress(FileNotFoundError):
            os.lstat(place)
        while not place.is_dir():
            place = place.parent
        probe = place / f".{secrets.token_hex(8)}.tmp"
        os.mkdir(probe)
        os.rmdir(probe)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"cannot write to {str(path)!r}: {reason}. Name another place.") from error


def checksum(data: bytes) -> str:
    """The SHA-256 of ``data`` in hexadecimal.

    >>> checksum(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file.

    Raises:
        StorageError: The file is missing, a folder, or not readable.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StorageError(
            f"cannot read {str(path)!r}: {error.strerror or error}. Check the path and its permissions."
        ) from error


def write_json(path: str | os.PathLike[str], value: Mapping[str, Any], *, kind: str, version: int) -> None:
    """Writes ``value`` as an indented JSON object that names its own format and version first.

    No checksum is stored: such a file is meant to be read, edited and compared by people, and what it says is
    validated by the value that it becomes.

    Raises:
        StorageError: ``value`` holds something JSON cannot say (NaN included), or the file cannot be written.
    """
    try:
        text = json.dumps({"format": kind, "version": version, **value}, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StorageError(
            f"cannot write {str(path)!r}: its content is not plain JSON ({error}). "
            "Use strings, finite numbers, lists and dictionaries only."
        ) from error
    write_atomic(path, (text + "\n").encode("utf-8"))


def read_json(path: str | os.PathLike[str], *, kind: str, version: int) -> dict[str, Any]:
    """The object that ``write_json`` wrote, without its ``format`` and ``version``.

    Args:
        path: The file.
        kind: What the file must say it is.
        version: The newest version this release understands; older ones are returned as they are.

    Raises:
        StorageError: The file is missing, torn, not JSON, of another kind, or of a newer version.
    """
    data = read_bytes(path)
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise StorageError(
            f"{str(path)!r} is not readable JSON ({error}): torn, edited wrongly, or another kind of file. "
            "Restore it, or make it again."
        ) from error
    if not isinstance(value, dict) or value.get("format") != kind:
        got = value.get("format") if isinstance(value, dict) else type(value).__name__
        raise StorageError(f'{str(path)!r} is not a {kind} file: its "format" is {got!r}. Pass a file of that kind.')
    found = value.get("version")
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= version:
        raise StorageError(
            f"{str(path)!r} has {kind} version {found!r}; this release reads 1 to {version}. "
            "Update ranp, or make the file again."
        )
    return {key: item for key, item in value.items() if key not in ("format", "version")}


def _sync_folder(folder: Path) -> None:
    """Makes the rename itself durable where the system can; a folder cannot be opened on Windows."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses an object that says the same key twice: a bad merge would otherwise silently lose one of them."""
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")

"""Files that are whole or not there, and what was written: atomic writing, checksums and versioned JSON with a seal.

Everything ``ranp`` writes goes through here, so that a crash, a full disk or a second process never leaves half a file
under the name the user asked for.
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ranp.errors import StorageError, asked

SEAL = "seal"
"""The field that holds the checksum of all others."""

JSON_LIMIT = 64 * 2**20
"""The most bytes of a JSON file that are read; a table of times holds some 100 KiB."""

_TRIES = 100
_DEPTH = 64
_DIGITS = 300


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes ``data`` so that ``path`` holds either what it held before or all of ``data``, never a part.

    The bytes go to a temporary file in the same folder (a rename is atomic only within one file system), are flushed
    to the disk, and the temporary file takes the name. It is removed if any of that fails; one that a killed process
    left behind is removed when the file is next written.

    Raises:
        StorageError: The folder is missing or not writable, the disk is full, or the path is a folder.
    """
    target = Path(path)
    for _ in range(_TRIES):
        if _placed(target, data):
            break
    else:
        raise StorageError(f"cannot write {str(target)!r}: others remove what is written {_TRIES} times. Stop them.")
    for left in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 16}.tmp"):
        with suppress(OSError):
            left.unlink()
    _sync_folder(target.parent)


def _placed(target: Path, data: bytes) -> bool:
    """Whether the bytes took the name; not if another process, which wrote the same file, took ours for a left-over."""
    with beside(target) as temporary:
        with open(temporary, "xb") as file:
            file.write(data)
        try:
            publish(temporary, target)
        except FileNotFoundError:
            if not target.parent.is_dir():
                raise
            return False
    return True


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A name in the same folder to write to before ``publish``; what is there at the end is removed.

    Raises:
        StorageError: The system refused something inside.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
    except OSError as error:
        raise StorageError(
            f"cannot write {str(target)!r}: {error.strerror or error}. "
            "Check that the folder exists, is writable and has space left."
        ) from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def publish(temporary: Path, target: Path) -> None:
    """Flushes a file to the disk and gives it its name, in one step."""
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    if target.exists():
        shutil.copymode(target, temporary)
    os.replace(temporary, target)


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
        while not place.is_dir() and place != place.parent:  # a drive that is not there has no parent
            place = place.parent
        probe = place / f".{secrets.token_hex(8)}.tmp"
        os.mkdir(probe)
        os.rmdir(probe)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"cannot write to {str(path)!r}: {reason}. Name another place.") from error


def check_target(path: Path, *, force: bool = True) -> None:
    """Refuses a place that a file cannot go to, before any work is done for it.

    Args:
        path: The file.
        force: Replace one that is there.

    Raises:
        StorageError: There is a file already and ``force`` is not given, a folder of that name, no folder for it, or
            nothing can be written there.
    """
    check_writable(path)
    if path.is_dir():
        raise StorageError(f"{str(path)!r} is a folder. Name a file.")
    if path.exists() and not force:
        raise StorageError(f"{str(path)!r} exists. Name another file, or replace it with {asked('force', True)}.")
    if not path.parent.is_dir():
        raise StorageError(f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}. Make it first.")


def checksum(data: bytes) -> str:
    """The SHA-256 of ``data`` in hexadecimal.

    >>> checksum(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def read_bytes(path: str | os.PathLike[str], *, limit: int = -1) -> bytes:
    """All bytes of a file.

    Args:
        path: The file.
        limit: The most bytes it may hold; -1 for any number.

    Raises:
        StorageError: The file is missing, a folder, not readable, or larger than ``limit``.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1 if limit >= 0 else -1)
    except OSError as error:
        raise StorageError(
            f"cannot read {str(path)!r}: {error.strerror or error}. Check the path and its permissions."
        ) from error
    if 0 <= limit < len(data):
        raise StorageError(f"{str(path)!r} holds more than the {limit} bytes that are read of such a file. Check it.")
    return data


def write_json(path: str | os.PathLike[str], value: Mapping[str, Any], *, kind: str, version: int) -> None:
    """Writes ``value`` as an indented JSON object that names its format and version first and ends with its seal.

    The seal is the SHA-256 of the content, not of the bytes: a file that an editor indented anew, or gave other line
    ends, is still the file that was written, and one with another digit is not.

    Raises:
        StorageError: ``value`` holds something JSON cannot say (NaN included), or the file cannot be written.
    """
    write_atomic(path, json_text(value, kind=kind, version=version, target=repr(str(path))).encode("utf-8"))


def json_text(value: Mapping[str, Any], *, kind: str, version: int, target: str) -> str:
    """The text that ``write_json`` writes; ``target`` is what an error calls it.

    Raises:
        StorageError: ``value`` holds something JSON cannot say.
    """
    try:
        plain = parse_json(json.dumps({"format": kind, "version": version, **value}, allow_nan=False))
        return json.dumps({**plain, SEAL: seal(plain)}, indent=2, ensure_ascii=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise StorageError(
            f"cannot write {target}: its content is not plain JSON ({error}). "
            "Use strings, finite numbers, lists and dictionaries only."
        ) from error


def read_json(path: str | os.PathLike[str], *, kind: str, version: int) -> dict[str, Any]:
    """The object that ``write_json`` wrote, without its ``format``, ``version`` and ``seal``.

    Args:
        path: The file.
        kind: What the file must say it is.
        version: Of that kind; no other is read.

    Raises:
        StorageError: The file is missing, torn, changed since it was written, not JSON, or of another kind or version.
    """
    value, edited = read_editable_json(path, kind=kind, version=version)
    if edited:
        raise StorageError(
            f"{str(path)!r} was changed since it was written: its seal is wrong or missing. "
            "Restore a copy, or make the file again."
        )
    return value


def read_editable_json(path: str | os.PathLike[str], *, kind: str, version: int) -> tuple[dict[str, Any], bool]:
    """The object of a file that people may edit, and whether they did: whether its seal is wrong or missing.

    See ``read_json`` for the arguments; the caller answers for the consistency of what was edited.

    Raises:
        StorageError: The file is missing, torn, not JSON, or of another kind or version.
    """
    return parse_editable_json(read_bytes(path, limit=JSON_LIMIT), kind=kind, version=version, source=repr(str(path)))


def parse_editable_json(text: str | bytes, *, kind: str, version: int, source: str) -> tuple[dict[str, Any], bool]:
    """``read_editable_json`` for a text that is not a file of its own; ``source`` is what an error calls it."""
    try:
        value = parse_json(text.decode("utf-8-sig") if isinstance(text, bytes) else text)
    except ValueError as error:
        raise StorageError(
            f"{source} is not readable JSON ({error}): torn, edited wrongly, or another kind of file. "
            "Restore it, or make it again."
        ) from error
    if not isinstance(value, dict) or value.get("format") != kind:
        got = value.get("format") if isinstance(value, dict) else type(value).__name__
        raise StorageError(f'{source} is not a {kind} file: its "format" is {got!r}. Pass a file of that kind.')
    check_version(value.get("version"), kind=kind, version=version, source=source)
    edited = value.pop(SEAL, None) != seal(value)
    return {key: item for key, item in value.items() if key not in ("format", "version")}, edited


def check_version(found: object, *, kind: str, version: int, source: str) -> None:
    """Refuses a file of another version; ``source`` is what an error calls it.

    Raises:
        StorageError: It is of an older release, or of a newer one.
    """
    if type(found) is int and 1 <= found < version:
        raise StorageError(
            f"{source} was made by an older release: {kind} version {found}, this one reads {version}. Make it again."
        )
    if type(found) is not int or found != version:
        raise StorageError(
            f"{source} has {kind} version {found!r}; this release reads {version}. Update ranp, or make the file again."
        )


def seal(value: Any, *, after: str = "") -> str:
    """The checksum of a JSON value, whatever its indentation and the order of its keys.

    Args:
        value: Strings, finite numbers, lists and dictionaries.
        after: The seal of what must come before it, if it is a link of a chain.

    >>> seal({"a": 1, "b": 0.5}) == seal({"b": 0.5, "a": 1}) != seal({"a": 1, "b": 0.6})
    True

    Raises:
        ValueError: A number is not finite.
    """
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{checksum((after + canonical).encode('ascii'))}"


def parse_json(text: str) -> Any:
    """The value of strict JSON: no key twice, no NaN, nothing that a float or the stack cannot hold.

    Raises:
        ValueError: The text is anything else.
    """
    try:
        hooks: dict[str, Any] = {"parse_constant": _refuse_constant, "parse_float": _float, "parse_int": _int}
        value = json.loads(text, object_pairs_hook=_unique, **hooks)
    except RecursionError:
        raise ValueError(f"nested more than {_DEPTH} deep") from None
    level = [value]
    for _ in range(_DEPTH):
        level = [item for part in level for item in _inside(part)]
        if not level:
            return value
    raise ValueError(f"nested more than {_DEPTH} deep")


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


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is beyond the largest float")
    return number


def _int(text: str) -> int:
    """Refuses what ``float()`` or ``str()`` would stumble over long after the file was read."""
    if len(text) > _DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _inside(value: Any) -> Iterable[Any]:
    """What an array or an object holds; a text that is not Unicode, which no file can hold again, is refused."""
    if isinstance(value, str):
        value.encode("utf-8")
    if isinstance(value, dict):
        "".join(value).encode("utf-8")
        return value.values()
    return value if isinstance(value, list) else ()

"""Tensors and JSON in one file with a seal: safetensors, atomic, under a checksum. No pickle is read or written.

What networks and checkpoints are stored in. A file that is torn, or was changed by a single bit, is never loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ranp.errors import StorageError
from ranp.files import atomic

__all__ = ["entry", "header", "read", "to_json", "write"]

_CHANGED = "{!r} was changed since it was written: {} is wrong. Restore a copy, or make it again."


def write(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    entries: Mapping[str, str],
    *,
    kind: str,
    version: int,
) -> None:
    """Writes tensors and texts so that ``path`` holds all of them or what it held before.

    Args:
        path: The file.
        tensors: By name; on any device, strided as they may be.
        entries: Texts by name, JSON mostly.
        kind: What the file says it is.
        version: Of that kind.

    Raises:
        StorageError: A tensor holds no data, or the file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save as serialise

    plain = {name: _plain(name, tensor) for name, tensor in tensors.items()}
    told = {"format": kind, "version": str(version), **entries}
    told[atomic.SEAL] = atomic.seal(told)
    told["checksum"] = _checksum(told, plain)
    try:
        data = _ordered(serialise(plain, told))
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise StorageError(
            f"cannot write {str(path)!r}: safetensors does not take these tensors ({error}). "
            "Convert them to a common floating-point type first."
        ) from error
    atomic.write_atomic(path, data)


def read(
    path: str | os.PathLike[str], *, kind: str, version: int, needs: Iterable[str], writer: str
) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Entries and tensors of a whole, unchanged file; see ``header`` for the arguments.

    Raises:
        StorageError: The file is missing, torn, changed since it was written, or of another kind.
    """
    from safetensors import SafetensorError, safe_open

    told = header(path, kind=kind, version=version, needs=needs, writer=writer)
    try:
        with safe_open(path, framework="pt") as file:
            # The file is mapped into memory; a clone outlives whatever happens to it.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise StorageError(_torn(path, error)) from error
    if _checksum(told, tensors) != told["checksum"]:
        raise StorageError(_CHANGED.format(str(path), "its checksum"))
    return told, tensors


def header(
    path: str | os.PathLike[str], *, kind: str, version: int, needs: Iterable[str], writer: str
) -> dict[str, str]:
    """The entries of a file under a seal of their own, since the tensors are not read.

    Args:
        path: The file.
        kind: What it must say it is.
        version: Of that kind; no other is read.
        needs: Entries that must be there.
        writer: What writes such files, for the message.

    Raises:
        StorageError: The file is missing, torn, of another kind or version, or an entry was changed.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise StorageError(f"cannot read {str(path)!r}: there is no such file. Check the path.")
    try:
        with safe_open(path, framework="pt") as file:
            told = dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise StorageError(_torn(path, error)) from error
    if told.get("format") != kind or not {"version", "checksum", *needs} <= told.keys():
        raise StorageError(f"{str(path)!r} holds tensors, but {writer} did not write it. Pass a file that it wrote.")
    said = told["version"]
    found = int(said) if said in map(str, range(1, version + 1)) else said  # texts are all that a header holds
    atomic.check_version(found, kind=kind, version=version, source=repr(str(path)))
    sealed = {name: text for name, text in told.items() if name not in (atomic.SEAL, "checksum")}
    if told.get(atomic.SEAL) != atomic.seal(sealed):
        raise StorageError(_CHANGED.format(str(path), "the seal of its header"))
    return told


def entry(path: str | os.PathLike[str], told: Mapping[str, str], name: str) -> dict[str, Any]:
    """The JSON object that an entry holds.

    Raises:
        StorageError: It is no JSON, or no object.
    """
    try:
        value = atomic.parse_json(told[name])
    except ValueError as error:
        raise StorageError(f"entry {name!r} in the header of {str(path)!r} is not JSON ({error}).") from error
    if not isinstance(value, dict):
        raise StorageError(f"entry {name!r} in the header of {str(path)!r} is a {type(value).__name__}, not an object.")
    return value


def to_json(what: str, value: Mapping[str, Any]) -> str:
    """The text of an entry.

    Raises:
        StorageError: ``value`` holds something JSON cannot say, NaN included.
    """
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise StorageError(
            f"{what} is not plain JSON ({error}). Use strings, finite numbers, lists and dictionaries only."
        ) from error


def _ordered(data: bytes) -> bytes:
    """The same file with its header in alphabetical order, not in any: equal content gives equal bytes."""
    size = int.from_bytes(data[:8], "little")
    text = json.dumps(
        json.loads(data[8 : 8 + size]), ensure_ascii=False, separators=(",", ":"), sort_keys=True
    ).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, memoryview(data)[8 + size :]))


def _plain(name: str, tensor: Tensor) -> Tensor:
    """A tensor as the file holds it: on the CPU, contiguous, sharing memory with no other."""
    if tensor.is_meta:
        raise StorageError(f"tensor {name!r} is on the meta device and holds no data. Give the network weights first.")
    return tensor.detach().to("cpu", copy=True).contiguous()


def _checksum(told: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over every entry but the checksum itself, and over name, type, shape and bytes of every tensor."""
    digest = hashlib.sha256()
    digest.update(json.dumps(sorted(item for item in told.items() if item[0] != "checksum")).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _torn(path: str | os.PathLike[str], error: Exception) -> str:
    return f"{str(path)!r} is torn, or no safetensors file ({error}). Restore a copy, or make it again."

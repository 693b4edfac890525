"""Tensors and JSON in one file with a seal: safetensors, atomic, under a checksum. No pickle is read or written.

What networks, scores and checkpoints are stored in. A file that is torn, or was changed by a single bit, is never
loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ranp.errors import StorageError
from ranp.files import atomic

_CHANGED = "{!r} was changed since it was written: {} is wrong. Restore a copy, or make it again."


@dataclass(frozen=True, slots=True)
class Header:
    """The entries of a file, texts by name.

    Attributes:
        path: The file, for messages.
        entries: Its own, and format, version, seal and checksum.
    """

    path: str
    entries: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.entries[name]

    def object(self, name: str) -> dict[str, Any]:
        """The JSON object that an entry holds.

        Raises:
            StorageError: It is something else.
        """
        try:
            value = atomic.parse_json(self[name])
        except ValueError as error:
            raise StorageError(f"entry {name!r} in the header of {self.path!r} is not JSON ({error}).") from error
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise StorageError(f"entry {name!r} in the header of {self.path!r} is a {kind}, not an object.")
        return value


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file.

    Attributes:
        kind: What such a file says it is.
        version: Of that kind; no other is read.
        needs: Entries that must be there.
        writer: What writes such files, for messages.
    """

    kind: str
    version: int
    needs: tuple[str, ...]
    writer: str

    def write(
        self,
        path: str | os.PathLike[str],
        tensors: Mapping[str, Tensor],
        entries: Mapping[str, str | Mapping[str, Any]],
    ) -> None:
        """Writes tensors and entries so that ``path`` holds all of them or what it held before.

        Args:
            path: The file.
            tensors: By name; on any device, strided as they may be.
            entries: By name; what is not a text already is written as JSON.

        Raises:
            StorageError: An entry is not plain JSON, a tensor holds no data, or the file cannot be written.
        """
        from safetensors import SafetensorError
        from safetensors.torch import save as serialise

        plain = {name: _plain(name, tensor) for name, tensor in tensors.items()}
        texts = {name: entry if isinstance(entry, str) else _text(name, entry) for name, entry in entries.items()}
        header = {"format": self.kind, "version": str(self.version), **texts}
        header[atomic.SEAL] = atomic.seal(header)
        header["checksum"] = _checksum(header, plain)
        try:
            data = _ordered(serialise(plain, header))
        except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
            raise StorageError(
                f"cannot write {str(path)!r}: safetensors does not take these tensors ({error}). "
                "Convert them to a common floating-point type first."
            ) from error
        atomic.write_atomic(path, data)

    def read(self, path: str | os.PathLike[str]) -> tuple[Header, dict[str, Tensor]]:
        """Header and tensors of a whole, unchanged file.

        Raises:
            StorageError: The file is missing, torn, changed since it was written, or of another kind or version.
        """
        return self._opened(path, tensors=True)

    def header(self, path: str | os.PathLike[str]) -> Header:
        """The header of a file, under a seal of its own, since the tensors are not read.

        Raises:
            StorageError: The file is missing, torn, of another kind or version, or an entry was changed.
        """
        return self._opened(path, tensors=False)[0]

    def _opened(self, path: str | os.PathLike[str], *, tensors: bool) -> tuple[Header, dict[str, Tensor]]:
        from safetensors import SafetensorError, safe_open

        where = str(path)
        if not Path(path).is_file():
            raise StorageError(f"cannot read {where!r}: there is no such file. Check the path.")
        try:
            with safe_open(path, framework="pt") as file:
                entries = dict(file.metadata() or {})
                self._check(where, entries)
                # The file is mapped into memory; a clone outlives whatever happens to it.
                values = {name: file.get_tensor(name).clone() for name in file.keys()} if tensors else {}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            raise StorageError(
                f"{where!r} is torn, or not a safetensors file ({error}). Restore a copy, or make it again."
            ) from error
        if tensors and _checksum(entries, values) != entries["checksum"]:
            raise StorageError(_CHANGED.format(where, "its checksum"))
        return Header(where, entries), values

    def _check(self, where: str, entries: Mapping[str, str]) -> None:
        """Refuses entries of another kind or version, and those that were changed."""
        if entries.get("format") != self.kind or not {"version", "checksum", *self.needs} <= entries.keys():
            raise StorageError(
                f"{where!r} holds tensors, but {self.writer} did not write it. Pass a file that it wrote."
            )
        text = entries["version"]
        found = int(text) if text in map(str, range(1, self.version + 1)) else text  # a header holds texts alone
        atomic.check_version(found, kind=self.kind, version=self.version, source=repr(where))
        sealed = {name: text for name, text in entries.items() if name not in (atomic.SEAL, "checksum")}
        if entries.get(atomic.SEAL) != atomic.seal(sealed):
            raise StorageError(_CHANGED.format(where, "the seal of its header"))


def _text(name: str, value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise StorageError(
            f"{name} is not plain JSON ({error}). Use strings, finite numbers, lists and dictionaries only."
        ) from error


def _ordered(data: bytes) -> bytes:
    """The same file with its header in alphabetical order, not in any: equal content gives equal bytes."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, memoryview(data)[8 + size :]))


def _plain(name: str, tensor: Tensor) -> Tensor:
    """A tensor as the file holds it: on the CPU, contiguous, sharing memory with no other."""
    if tensor.is_meta:
        raise StorageError(f"tensor {name!r} is on the meta device and holds no data. Give the network weights first.")
    return tensor.detach().to("cpu", copy=True).contiguous()


def _checksum(entries: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over every entry but the checksum itself, and over name, type, shape and bytes of every tensor."""
    digest = hashlib.sha256()
    digest.update(json.dumps(sorted(item for item in entries.items() if item[0] != "checksum")).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

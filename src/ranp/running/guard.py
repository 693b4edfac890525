"""What a run writes to is put back: parameters and inputs are bit-identical afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ranp.running.operators import written_tensors


class Guard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Copies on write: while active, the first write to a guarded tensor saves what it held; ``restore`` puts it back.

    Almost no network writes to its parameters or inputs in its forward pass, so almost always nothing is copied.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._always = _storages(tensors)
        self._guarded = self._always
        self._saved: dict[tuple[torch.device, int], torch.UntypedStorage] = {}

    @contextmanager
    def batch(self, tensors: Iterable[torch.Tensor]) -> Iterator[None]:
        """Guards these tensors too, and restores all that was written to at the end."""
        self._guarded = self._always | _storages(tensors)
        try:
            yield
        finally:
            self.restore()
            self._guarded = self._always

    def restore(self) -> None:
        """Puts back what guarded tensors held when they were first written to."""
        for key, saved in self._saved.items():
            self._guarded[key].copy_(saved)
        self._saved.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in written_tensors(func, args, kwargs):
            storage = tensor.untyped_storage()
            key = (storage.device, storage.data_ptr())
            if key in self._guarded and key not in self._saved:
                self._saved[key] = self._guarded[key].clone()  # type: ignore[no-untyped-call]
        return func(*args, **kwargs)


def _storages(tensors: Iterable[torch.Tensor]) -> dict[tuple[torch.device, int], torch.UntypedStorage]:
    """The storages behind the tensors by device and address, those that hold anything."""
    found = (tensor.untyped_storage() for tensor in tensors if tensor.layout == torch.strided)
    return {(storage.device, storage.data_ptr()): storage for storage in found if storage.nbytes()}

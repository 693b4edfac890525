"""Every global random state there is: kept, seeded, watched, and written down."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ranp.errors import StorageError
from ranp.running.operators import schema_of


@dataclass(frozen=True, slots=True, eq=False)
class PythonState:
    """Where the global generators of Python and numpy stand."""

    python: Any
    numpy: Any

    @classmethod
    def now(cls) -> PythonState:
        """The state as it is."""
        return cls(random.getstate(), np.random.get_state(legacy=False))  # noqa: NPY002 -- it is the global one that counts

    def put_back(self) -> None:
        """Lets both generators go on from here."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002

    def moved(self, other: PythonState) -> bool:
        """True if one of them stands elsewhere there."""
        return self.python != other.python or _plain(self.numpy) != _plain(other.numpy)


@dataclass(frozen=True, slots=True, eq=False)
class RandomState:
    """Where every global generator stands: Python's and numpy's, torch's on the CPU and on accelerators."""

    outside: PythonState
    cpu: torch.Tensor
    accelerators: Mapping[torch.device, torch.Tensor]

    @classmethod
    def now(cls, devices: Iterable[torch.device] = ()) -> RandomState:
        """The state as it is, that of these devices included."""
        found = sorted({device for device in devices if device.type not in ("cpu", "meta")}, key=str)
        accelerators = {device: _accelerator(device).get_rng_state(*_index(device)) for device in found}
        return cls(PythonState.now(), torch.get_rng_state(), accelerators)

    def moved(self, other: RandomState) -> bool:
        """True if one of them stands elsewhere there."""
        pairs = ((state, other.accelerators[device]) for device, state in self.accelerators.items())
        same = all(torch.equal(one, another) for one, another in ((self.cpu, other.cpu), *pairs))
        return not same or self.outside.moved(other.outside)

    def put_back(self) -> None:
        """Lets every generator go on from here."""
        self.outside.put_back()
        torch.set_rng_state(self.cpu)
        for device, state in self.accelerators.items():
            _accelerator(device).set_rng_state(state, *_index(device))


@contextmanager
def untouched_rng(devices: Iterable[torch.device] | None = None) -> Iterator[None]:
    """Leaves every global random state as it was found: Python's, numpy's, torch's on the CPU and on these devices.

    Without ``devices``, on all of CUDA. So two runs inside draw the same numbers too, and a network that drops blocks
    at random drops the same ones.
    """
    if devices is None:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        devices = [torch.device("cuda", index) for index in range(count)]
    state = RandomState.now(devices)
    try:
        yield
    finally:
        state.put_back()


def reseed(seed: int, devices: Iterable[torch.device] = ()) -> None:
    """Seeds every global generator that a forward pass on these devices may draw from, inside ``untouched_rng``."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    # Not torch.manual_seed: it reseeds all accelerators, also those whose state was not kept.
    torch.default_generator.manual_seed(seed)
    for device in devices:
        if device.type == "cuda":
            index = torch.cuda.current_device() if device.index is None else device.index
            torch.cuda.default_generators[index].manual_seed(seed)
        elif device.type not in ("cpu", "meta"):
            _accelerator(device).manual_seed(seed)


def _accelerator(device: torch.device) -> Any:
    return torch.get_device_module(device)


def _index(device: torch.device) -> tuple[torch.device, ...]:
    """The device as argument, where the device's module takes one: MPS is always a single device."""
    return () if device.type == "mps" else (device,)


AMBIENT = range(0x3A7B1D5E9C2F4000, 0x3A7B1D5E9C2F5000)
"""Where torch's generator starts in a run; another start means that the code has seeded it."""


def ambient_seed(number: int = 0) -> None:
    """Starts torch's generator, inside ``untouched_rng``, so that code which seeds it itself shows."""
    torch.default_generator.manual_seed(AMBIENT[number])


def drawn_anew(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """True for operators whose numbers are other ones at every call: random, and not from a seed in the code.

    What code draws from a seed of its own are constants, one for each channel mostly.
    """
    if not schema_of(func).random:
        return False
    return kwargs.get("generator") is None and torch.default_generator.initial_seed() in AMBIENT


def seed_rank(seed: int, rank: int, device: torch.device) -> None:
    """Seeds every generator of this process; ranks draw different numbers (dropout), runs of one seed the same."""
    (mixed,) = np.random.SeedSequence((seed, rank)).generate_state(1)
    reseed(int(mixed), {torch.device("cpu"), device})


def capture(device: torch.device) -> str:
    """The state of every generator as JSON."""
    now = RandomState.now([device] if device.type == "cuda" else [])
    version, words, gauss = now.outside.python
    state = {"python": [version, list(words), gauss], "numpy": _plain(now.outside.numpy), "torch": _hex(now.cpu)}
    if device.type == "cuda":
        state["cuda"] = _hex(now.accelerators[device])
    return json.dumps(state)


def restore(text: str, device: torch.device) -> None:
    """Puts every generator into the state that ``capture`` wrote down.

    Raises:
        StorageError: The text is not one of ``capture``'s.
    """
    try:
        state = json.loads(text)
        version, words, gauss = state["python"]
        legacy = state["numpy"]
        legacy["state"]["key"] = np.array(legacy["state"]["key"], dtype=np.uint32)
        accelerators = {device: _bytes(state["cuda"])} if device.type == "cuda" and "cuda" in state else {}
        outside = PythonState((version, tuple(words), gauss), legacy)
        RandomState(outside, _bytes(state["torch"]), accelerators).put_back()
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise StorageError(f"the random state cannot be restored ({error}). Go on from another checkpoint.") from error


def _plain(legacy: Any) -> dict[str, Any]:
    """The state of numpy's generator without arrays."""
    inner = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in legacy["state"].items()}
    return {**legacy, "state": inner}


def _hex(state: torch.Tensor) -> str:
    return bytes(state.cpu().tolist()).hex()


def _bytes(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)

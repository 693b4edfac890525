"""Every global random state there is: kept, seeded, watched, and written down."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ranp.errors import StorageError


@contextmanager
def untouched_rng() -> Iterator[None]:
    """Leaves the global random state as it was found: torch's on CPU and CUDA, Python's and numpy's.

    So two runs inside draw the same numbers too, and a network that drops blocks at random drops the same ones.
    """
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 -- it is the global one that counts
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_available() else []):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002


@contextmanager
def random_state_kept(devices: Iterable[torch.device]) -> Iterator[None]:
    """Leaves every global random state (torch on the CPU and these devices, numpy, Python) as it was found."""
    accelerators = sorted({device for device in devices if device.type not in ("cpu", "meta")}, key=str)
    python, legacy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    states = [_accelerator(device).get_rng_state(*_index(device)) for device in accelerators]
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
        torch.set_rng_state(cpu)
        for device, state in zip(accelerators, states, strict=True):
            _accelerator(device).set_rng_state(state, *_index(device))


def reseed(seed: int, devices: Iterable[torch.device]) -> None:
    """Seeds every global generator that a forward pass on these devices may draw from; use it inside the above."""
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
    """Starts torch's generator, inside ``untouched_rng``, so that code which seeds it itself can be told."""
    torch.default_generator.manual_seed(AMBIENT[number])


def seed_everything(seed: int) -> None:
    """Sets the global generators, inside ``untouched_rng``."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    ambient_seed(seed)


def drawn_anew(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """True for operators whose numbers are other ones at every call: random, and not from a seed in the code.

    What code draws from a seed of its own are constants, one for each channel mostly.
    """
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    return kwargs.get("generator") is None and torch.default_generator.initial_seed() in AMBIENT


def drawn_so_far() -> tuple[Any, bytes, torch.Tensor]:
    """Where the global generators stand: Python's, numpy's, torch's."""
    state: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), state[1].tobytes() + str(state[2:]).encode(), torch.get_rng_state()


def seed_rank(seed: int, rank: int, device: torch.device) -> None:
    """Seeds every generator of this process; ranks draw different numbers (dropout), runs of one seed the same."""
    (mixed,) = np.random.SeedSequence((seed, rank)).generate_state(1)
    reseed(int(mixed), {torch.device("cpu"), device})


def capture(device: torch.device) -> str:
    """The state of every generator as JSON."""
    version, words, gauss = random.getstate()
    legacy: Any = np.random.get_state(legacy=False)  # noqa: NPY002 -- it is the global one that counts
    inner = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in legacy["state"].items()}
    state = {
        "python": [version, list(words), gauss],
        "numpy": {**legacy, "state": inner},
        "torch": _hex(torch.get_rng_state()),
    }
    if device.type == "cuda":
        state["cuda"] = _hex(torch.cuda.get_rng_state(device))
    return json.dumps(state)


def restore(text: str, device: torch.device) -> None:
    """Puts every generator into the state that ``capture`` wrote down.

    Raises:
        StorageError: The text is not one of ``capture``'s.
    """
    try:
        state = json.loads(text)
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words), gauss))
        legacy = state["numpy"]
        legacy["state"]["key"] = np.array(legacy["state"]["key"], dtype=np.uint32)
        np.random.set_state(legacy)  # noqa: NPY002
        torch.set_rng_state(_bytes(state["torch"]))
        if device.type == "cuda" and "cuda" in state:
            torch.cuda.set_rng_state(_bytes(state["cuda"]), device)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise StorageError(f"the random state cannot be restored ({error}). Go on from another checkpoint.") from error


def _hex(state: torch.Tensor) -> str:
    return bytes(state.cpu().tolist()).hex()


def _bytes(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)

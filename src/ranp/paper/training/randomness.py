"""Every global generator there is, as a text: Python's, numpy's, torch's on the CPU and on the rank's own GPU."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import torch

from ranp.errors import StorageError
from ranp.replica import reseed

__all__ = ["capture", "restore", "seed_rank"]


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

"""Which machine, library and settings a table of times belongs to, and where it is kept."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ranp.costs.step.cpu import this_cpu

FOLDER = "RANP_CACHE"
"""Environment variable that names the folder of the tables."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What times depend on beside the operator.

    Attributes:
        processor: Model of the processor, or of the graphics card.
        torch: Version of the library.
        threads: Threads of one operator.
        device: Type of the device.
        block: Channels that a vectorised convolution computes at once.
    """

    processor: str
    torch: str
    threads: int
    device: str
    block: int

    @property
    def file(self) -> str:
        """Name of the table's file."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"times-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def __str__(self) -> str:
        return f"{self.processor}, torch {self.torch}, {self.threads} threads, {self.device}"


def this_machine(device: str = "cpu") -> Machine:
    """The machine, library and number of threads of this process at this moment."""
    if device != "cpu":
        name = str(torch.get_device_module(device).get_device_name())
        return Machine(name, torch.__version__, 1, device, 8)
    cpu = this_cpu()
    return Machine(_processor(), torch.__version__, cpu.threads, device, cpu.block)


def _processor() -> str:
    """The processor's name as Linux tells it; elsewhere as Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def cache_folder() -> Path:
    """``$RANP_CACHE``, by default ``~/.cache/ranp`` (``$XDG_CACHE_HOME/ranp`` where that is set)."""
    given = os.environ.get(FOLDER)
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ranp"

"""A network that does not fit: its step dies under a limit of memory; pruned under less, it then trains under that.

The limit is the kernel's (``RLIMIT_DATA``), set in a process of its own on top of what that process held before the
network was made: Python, torch and ranp. One thread, and an allocator that gives memory back (``ENVIRONMENT``), so that
what is counted is what is in use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.networks import Case
from benchmarks.pairs import table

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0",
}
"""One heap; blocks from 128 KiB on are mappings of their own, and go back to the kernel when they are freed. oneDNN
keeps no compiled kernels: for a network of many layers that cache is as large as all the rest."""

TRAINING, PRUNING = 0.7, 0.6
"""Of the memory of a full step: the limit of training, and the one that pruning must do with."""
ONE_SIZE = {"psm"}
"""Networks whose pooling windows fix the size of the input."""
BUDGET = "train-memory=60%"
STEPS = 2
MIB = 2**20


def cases() -> dict[str, Case]:
    """The networks, by the name that a process is told."""
    from ranp.paper import models

    stereo: dict[str, Any] = {"disparities": 32, "windows": (32, 16, 8, 4)}
    clip = ((2, 3, 16, 112, 112),)
    return {
        "chain": Case("twelve convolutions", _chain, ((1, 1, 48, 48, 48),)),
        "mobilenet": Case("MobileNetV2-3D", lambda: models.build("mobilenetv2-ucf101"), clip, "clip", 101),
        "psm": Case("PSM", lambda: models.build("psm-sceneflow", **stereo), ((2, 3, 128, 128),) * 2, "stereo"),
        "unet": Case("3D-UNet 15", lambda: models.build("unet3d-shapenet"), ((2, 1, 32, 32, 32),), "voxels", 50),
    }  # fmt: skip


_REFUSALS = ("allocate memory", "MemoryError", "bad_alloc", "could not create a primitive")
"""How torch, Python, C++ and oneDNN say that they were given no memory."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one process does: prune a network, or train it.

    Attributes:
        case: Name of the network.
        limit: Bytes that may be held beyond the process's own; None: no limit.
        slim: File of the slim network. Pruning writes it, training reads it; None: the full network is trained.
        budget: What the network is pruned to; None: it is trained.
        checkpointing: Score with activation checkpointing.
        halved: Score on inputs of half the size; costs are still taken at the full one.
    """

    case: str
    limit: int | None = None
    slim: str | None = None
    budget: str | None = None
    checkpointing: bool = False
    halved: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        error: Why it ended early; empty if it did not.
        held: Bytes held at most beyond the process's own, sampled.
        kept: Fraction of the channels that the slim network has.
    """

    error: str = ""
    held: int = 0
    kept: float = 1.0

    @property
    def out_of_memory(self) -> bool:
        """True if it ended because memory was refused."""
        return any(word in self.error for word in _REFUSALS)


def outcome(job: Job) -> Outcome:
    """Runs a job in a process of its own."""
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.limit", json.dumps(asdict(job))],
        capture_output=True, text=True, cwd=Path(__file__).parents[1], env={**os.environ, **ENVIRONMENT}, check=False,
    )  # fmt: skip
    lines = [line for line in found.stdout.splitlines() if line.startswith("{")]
    if lines:
        return Outcome(**json.loads(lines[-1]))
    return Outcome(f"ended with status {found.returncode}: {found.stderr[-400:]}")


def work(job: Job) -> Outcome:
    """The job itself; limits stay in force, so it belongs into a process of its own."""
    import torch

    torch.set_num_threads(1)
    case = cases()[job.case]
    _warm_up()
    held, kept = _Held(job.limit), 1.0
    try:
        if job.budget is not None:
            kept = _prune(job, case)
        else:
            _train(job, case)
        return Outcome("", held.most, kept)
    except (RuntimeError, MemoryError) as problem:
        held.limit(None)
        return Outcome(f"{type(problem).__name__}: {problem}", held.most, kept)


def _prune(job: Job, case: Case) -> float:
    import torch

    import ranp

    scored = replace(case, shapes=tuple(_half(shape) for shape in case.shapes)) if job.halved else case
    found = ranp.prune(
        case.build(),
        [scored.batch()],
        case.loss,
        budget=job.budget,
        method="ranp-f",
        example=tuple(torch.empty(shape, device="meta") for shape in case.shapes),
        checkpointing=job.checkpointing,
    )
    assert job.slim is not None
    ranp.save(job.slim, found.model, found.plan)
    return sum(found.plan.widths.values()) / sum(layer.channels for layer in found.trace.layers)


def _train(job: Job, case: Case) -> None:
    import torch

    import ranp

    model = case.build() if job.slim is None else ranp.load(job.slim, case.build)
    inputs, target = case.batch()
    optimiser = torch.optim.Adam(model.train().parameters(), lr=1e-4)
    for _ in range(STEPS):
        optimiser.zero_grad()
        case.loss(model(*inputs), target).backward()
        optimiser.step()


def _half(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:2], *(extent // 2 for extent in shape[2:]))


def _chain() -> Any:
    """Twelve convolutions in four blocks: almost all it needs is activations."""
    import torch
    from torch import nn

    def unit(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv3d(inputs, outputs, 3, padding=1), nn.BatchNorm3d(outputs), nn.ReLU(inplace=True)]

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        blocks = [nn.Sequential(*unit(1 if n == 0 else 16, 16), *unit(16, 16), *unit(16, 16)) for n in range(4)]
        return nn.Sequential(*blocks, nn.Conv3d(16, 2, 1))


def _warm_up() -> None:
    """Loads what torch and ranp load when they are first used, so that it belongs to the process and not to the job."""
    import torch
    from torch import nn

    import ranp
    from ranp.running.checkpointing import checkpointed

    model, x = nn.Sequential(nn.Conv3d(1, 4, 3), nn.ReLU(), nn.Conv3d(4, 2, 1)), torch.randn(2, 1, 6, 6, 6)
    ranp.prune(model, [(x, None)], lambda y, _: y.square().mean(), budget="train-memory=90%", checkpointing=True)
    optimiser = torch.optim.Adam(model.parameters())
    with checkpointed(model, x):
        model(x).mean().backward()
    optimiser.step()


class _Held:
    """What this process holds beyond what it held at first: sampled every millisecond, and limited.

    Attributes:
        most: The most so far, in bytes.
    """

    def __init__(self, limit: int | None) -> None:
        self.most = 0
        self._first = _data()
        threading.Thread(target=self._watch, daemon=True).start()
        time.sleep(0.05)
        self._first = _data()  # with the stack of that thread
        self.limit(limit)

    def limit(self, beyond: int | None) -> None:
        """From now on the kernel gives no more than this."""
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = resource.RLIM_INFINITY if beyond is None else self._first + beyond
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def _watch(self) -> None:
        while True:
            try:
                self.most = max(self.most, _data() - self._first)
            except MemoryError:
                continue
            time.sleep(0.001)


def _data() -> int:
    """Bytes of this process that the kernel counts against the limit."""
    with Path("/proc/self/status").open(encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))


@dataclass(frozen=True, slots=True)
class Way:
    """Pruning under one limit and training under another."""

    pruning: Outcome
    training: Outcome


def full_step(name: str) -> int:
    """Bytes that the steps of the full network hold at most."""
    found = outcome(Job(name))
    if found.error:
        raise RuntimeError(f"the full network does not train: {found.error}")
    return found.held


def pruned(name: str, full: int, *, checkpointing: bool = False, halved: bool = False) -> Way:
    """Prunes under ``PRUNING`` of the full step's memory, then trains the slim network under ``TRAINING`` of it."""
    with tempfile.TemporaryDirectory() as folder:
        slim = str(Path(folder) / "slim.safetensors")
        pruning = outcome(Job(name, int(PRUNING * full), slim, BUDGET, checkpointing, halved))
        training = pruning if pruning.error else outcome(Job(name, int(TRAINING * full), slim))
    return Way(pruning, training)


def run(*, quick: bool) -> None:
    rows = []
    for name in ("chain",) if quick else ("chain", "mobilenet", "psm", "unet"):
        case, full = cases()[name], full_step(name)
        refused = outcome(Job(name, int(TRAINING * full)))
        told = "out of memory" if refused.out_of_memory else refused.error or "fits"
        whole = _told(pruned(name, full, checkpointing=True), full)
        half = "" if name in ONE_SIZE else _told(pruned(name, full, halved=True), full)
        rows.append((case.name, case.size, f"{full / MIB:.0f} MiB", told, whole, half))
    header = ("network", "batch", "full step", f"full under {TRAINING:.0%}", "checkpointed", "half-size inputs")
    notes = (
        f"Peak of {STEPS} steps of Adam beyond the process's own memory, then what happens under a limit of that "
        f"fraction of it. Last columns: `ranp.prune(..., budget='{BUDGET}')` under a limit of {PRUNING:.0%}, scored "
        f"with checkpointing or on inputs of half the size, then steps of the slim network under {TRAINING:.0%}: the "
        "fraction of the full step that each held at most, and of the channels that are left.",
        f"RLIMIT_DATA; one thread; {', '.join(f'{key}={value}' for key, value in ENVIRONMENT.items())}. The numeric "
        "check of `ranp.prune` runs in all of them: in float32, on weights that are not copied, with checkpointing and "
        "where copies in float64 were refused their memory.",
    )
    print(table("Pruned under less memory than the full step needs", header, rows, notes))


def _told(way: Way, full: int) -> str:
    for what, found in (("pruning", way.pruning), ("training", way.training)):
        if found.error:
            return f"{what}: {found.error[:80]}"
    held = f"pruned with {way.pruning.held / full:.0%}, trains with {way.training.held / full:.0%}"
    return f"{held}; {way.pruning.kept:.0%} left"


if __name__ == "__main__":
    print(json.dumps(asdict(work(Job(**json.loads(sys.argv[1]))))))

"""Agreement between the ranks of ``torch.distributed``: all go on or all stop, and all end with the same numbers."""

from __future__ import annotations

import torch
from torch import distributed

from ranp.errors import DataError

_MESSAGE_BYTES = 1024


def world() -> int:
    """Number of ranks; 1 if ``torch.distributed`` is not in use."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def agree(problem: Exception | None, layout: str) -> None:
    """Raises on every rank if one has a problem, so that none waits for another that has given up.

    Args:
        problem: What went wrong on this rank, if anything; it is raised here as it is.
        layout: Describes what the ranks are about to add up; it must be the same everywhere.

    Raises:
        DataError: Another rank has a problem (the message names the rank), or the ranks differ in layout.
    """
    if world() == 1:
        if problem is not None:
            raise problem
        return
    text = f"!{type(problem).__name__}: {problem}" if problem is not None else layout
    mine = torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8)
    encoded = text.encode("utf-8")[:_MESSAGE_BYTES]
    mine[: len(encoded)] = torch.tensor(list(encoded), dtype=torch.uint8)
    everyone = [torch.empty_like(mine, device=_device()) for _ in range(world())]
    distributed.all_gather(everyone, mine.to(_device()))
    if problem is not None:
        raise problem
    texts = [bytes(text.tolist()).rstrip(b"\0").decode("utf-8", "replace") for text in everyone]
    for rank, text in enumerate(texts):
        if text.startswith("!"):
            raise DataError(f"scoring failed on rank {rank}: {text[1:]} This rank stops too; mend that one and rerun.")
    for rank, text in enumerate(texts):
        if text != layout:
            raise DataError(
                f"rank {rank} scores {text}, this rank {layout}. Pass the same model and criterion on every rank."
            )


def total(values: torch.Tensor) -> torch.Tensor:
    """The sum over all ranks, bit-identical on each: added up, then sent from rank 0."""
    if world() == 1:
        return values
    shared = values.to(_device(), copy=True)
    distributed.all_reduce(shared)
    return _from_first(shared).to(values.device)


def first(values: torch.Tensor) -> torch.Tensor:
    """The values of rank 0, on every rank."""
    return values if world() == 1 else _from_first(values.to(_device(), copy=True)).to(values.device)


def agreed(figure: float) -> float:
    """A figure of rank 0, on every rank."""
    return figure if world() == 1 else float(first(torch.tensor(figure, dtype=torch.float64)))


def _from_first(values: torch.Tensor) -> torch.Tensor:
    distributed.broadcast(values, src=0)
    return values


def _device() -> torch.device:
    """Where collectives take their tensors: NCCL alone knows nothing of the CPU."""
    only_cuda = distributed.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if only_cuda else torch.device("cpu")

"""What networks cost by other people's count: torch's FLOP counter, the parameters, and torch's saved tensors."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


def called(network: nn.Module, inputs: Any) -> Any:
    """One call by the convention of batches."""
    if isinstance(inputs, dict):
        return network(**inputs)
    return network(*inputs) if isinstance(inputs, tuple) else network(inputs)


def torch_flops(network: nn.Module, inputs: Any) -> int:
    """FLOPs of one call in eval mode, as ``torch.utils.flop_counter`` counts them."""
    network.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        called(network, inputs)
    return int(counter.get_total_flops())


def parameters_of(network: nn.Module) -> int:
    """All of them, shared ones once."""
    return sum(parameter.numel() for parameter in network.parameters())


def saved_bytes(network: nn.Module, inputs: Any) -> int:
    """Bytes that the autograd graph of one call in train mode holds, beside parameters, buffers and inputs."""
    network.train()
    given = inputs.values() if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else (inputs,)
    known = {tensor.untyped_storage().data_ptr() for tensor in (*network.parameters(), *network.buffers(), *given)}
    notes: list[weakref.ref[_Note]] = []

    def keep(tensor: Tensor) -> _Note:
        note = _Note(tensor.detach())
        notes.append(weakref.ref(note))
        return note

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda note: note.tensor):
        output = called(network, inputs)
    living = [note.tensor.untyped_storage() for note in (reference() for reference in notes) if note is not None]
    found = {storage.data_ptr(): storage.nbytes() for storage in living if storage.data_ptr() not in known}
    del output  # with it goes the graph, and what only the graph holds
    return sum(found.values())


class _Note:
    """A saved tensor, held by the graph alone."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

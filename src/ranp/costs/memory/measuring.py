"""The peak of a step that really runs, as the allocator sees it: what predictions are compared with."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ranp.costs.step import TrainingStep, optimisers
from ranp.costs.step.losses import stand_in_loss
from ranp.costs.step.records import WHOLE
from ranp.costs.step.running import Loss, casting, checkpointing
from ranp.costs.step.stand_ins import batch_of
from ranp.errors import UnsupportedError
from ranp.running import calling, copies, randomness

_PLAIN = TrainingStep()


def measured_peak(
    model: nn.Module,
    example: Any,
    *,
    step: TrainingStep = _PLAIN,
    loss: Loss | None = None,
    target: Any = None,
) -> int:
    """Runs two training steps of a copy and returns the bytes at the peak of the second, when all state exists.

    On the CPU every allocation and release that PyTorch's allocator reports to the profiler is added up in order of
    time, oneDNN's among them; on CUDA it is ``torch.cuda.max_memory_allocated``. Parameters, buffers, the optimiser's
    state, inputs and targets exist before and are counted exactly.

    Args:
        model: The network; it must hold data, and is left as it is.
        example: The inputs of one call.
        step: Batch, optimiser, precision and checkpointing.
        loss: Of output and target; without it the stand-in of ``trace_step``, on labels 0.
        target: What the loss compares with.

    Raises:
        UnsupportedError: Model or example hold no data.
    """
    model = calling.unwrap(model)
    if any(tensor.device.type == "meta" for tensor in (*model.parameters(), *calling.tensors_in((example, target)))):
        raise UnsupportedError("a step of tensors on the meta device cannot be measured; pass a model that holds data")
    with randomness.untouched_rng():
        copy = copies.copy_model(model, meta=False)
        dtype = WHOLE.get(step.precision)
        if dtype is not None and dtype is not torch.float32:
            copy.to(dtype)
        copy.train()
        batch = batch_of(example)
        inputs, target = (_resized(tree, batch, step.batch, dtype) for tree in (example, target))
        device = next((tensor.device.type for tensor in copy.parameters()), "cpu")
        optimiser = optimisers.make(step.optimiser, copy)
        labels = _Labels()

        def run() -> None:
            with torch.enable_grad():
                with casting(step, device):
                    output = calling.call(copy, inputs)
                    value = loss(output, target) if loss is not None else stand_in_loss(output, labels)
                value.backward()  # type: ignore[no-untyped-call]
                if optimiser is not None:
                    optimiser.step()

        with checkpointing(step, copy, inputs):
            run()
            copy.zero_grad(set_to_none=True)
            labels.rewind()
            gc.collect()
            peak = _cuda_peak(run) if device == "cuda" else allocated_peak(run)
        state = optimiser.state.values() if optimiser is not None else ()
        before = [copy.parameters(), copy.buffers(), calling.tensors_in((inputs, target)), labels.made]
        before += [[item for item in entry.values() if isinstance(item, Tensor)] for entry in state]
        base = _bytes(tensor for tensors in before for tensor in tensors)
        return base + peak


class _Labels:
    """Targets of the stand-in loss: made in the first step, the same in every further one."""

    def __init__(self) -> None:
        self.made: list[Tensor] = []
        self._next = 0

    def rewind(self) -> None:
        self._next = 0

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        if self._next == len(self.made):
            self.made.append(torch.zeros(shape, dtype=dtype, device=device))
        self._next += 1
        return self.made[self._next - 1]


def _resized(tree: Any, before: int | None, after: int | None, dtype: torch.dtype | None) -> Any:
    """The inputs at another batch and precision, as ``trace_step`` makes them."""

    def convert(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        x = x.detach().to(dtype) if dtype is not None and x.is_floating_point() else x.detach()
        if after is None or before is None or before == after or x.dim() == 0 or x.shape[0] != before:
            return x.clone()
        return x[torch.arange(after, device=x.device) % before]

    return tree_map(convert, tree)


def _bytes(tensors: Iterable[Tensor]) -> int:
    storages = {storage._cdata: storage.nbytes() for storage in (tensor.untyped_storage() for tensor in tensors)}
    return sum(storages.values())


def _cuda_peak(run: Callable[[], Any]) -> int:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def allocated_peak(run: Callable[[], Any]) -> int:
    """The largest sum of what a function allocates on the CPU and has not yet released, in bytes."""
    total = most = 0
    for size in allocations(run):
        total += size
        most = max(most, total)
    return most


def allocations(run: Callable[[], Any]) -> Iterator[int]:
    """Bytes of every allocation (positive) and release (negative) of PyTorch's CPU allocator, in order of time."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
        kept = run()
    del kept
    results = profiler.profiler.kineto_results
    seen = [(event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]"]
    yield from (size for _, size in sorted(seen, key=lambda event: event[0]))

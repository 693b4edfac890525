"""Seconds of a single operator, measured as it runs inside a step: its inputs not fresh in the nearest caches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ranp.costs.step import Call, rerun

_ENOUGH = 0.02
"""Seconds of work after which a point is believed."""
_LONG = 0.05
"""Seconds of one run from which on it is run twice only, and needs no warm-up."""
_VERY_LONG = 0.5
"""Seconds of one run from which on that run is all."""
_LEAST, _MOST = 5, 40
"""Runs of a short operator. No more, since operators in place would drive their values to infinity or to nothing."""
_SMALL = 1 << 14
"""Elements up to which an operator's data are in the nearest cache anyway."""
_EVICTED = 4 << 20
"""Bytes that are touched between two runs: more than a second-level cache holds, less than a third-level one, which is
how operators of a step find their inputs."""
_REPEATED = 1 << 20


class _Benign(TorchFunctionMode):
    """Gives numbers from 0.5 to 1.5 to whoever draws normal ones: roots and logarithms of negative ones are slow."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn = torch.rand(_REPEATED, generator=torch.Generator().manual_seed(0)) + 0.5

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.randn:
            return func(*args, **(kwargs or {}))
        shape = tuple(args[0]) if len(args) == 1 and not isinstance(args[0], int) else tuple(args)
        count = prod(shape)
        flat = torch.empty(-(-count // _REPEATED) * _REPEATED if count > _REPEATED else count)
        if count > _REPEATED:
            flat.view(-1, _REPEATED).copy_(self._drawn)
        else:
            flat.copy_(self._drawn[:count])
        return flat[:count].view(shape).to((kwargs or {}).get("device", "cpu"))


class Stopwatch:
    """Measures calls on one device.

    Args:
        device: Its type, such as ``"cpu"``.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        # What else the machine does is not in the time of a process, which only with one thread is that of a clock.
        is_alone = device == "cpu" and torch.get_num_threads() == 1
        self._clock: Callable[[], float] = time.process_time if is_alone else time.perf_counter
        self._benign = _Benign()
        self._touched = torch.zeros(_EVICTED // 4, device=device)

    def __call__(self, call: Call) -> float:
        """Seconds of one run of the call.

        Raises:
            Exception: Whatever the operator raises; not every call can be run again on numbers of one's own choice.
        """
        with self._benign:
            thunk = rerun(call, device=self._device)
        first = self.once(thunk)
        if first >= _VERY_LONG:
            return first
        if first >= _LONG:
            return (first + self.once(thunk)) / 2
        large = sum(prod(tensor.shape) for tensor in (*call.inputs, *call.outputs)) > _SMALL
        taken: list[float] = []
        while len(taken) < _MOST and (len(taken) < _LEAST or sum(taken) < _ENOUGH):
            if large:
                self._touched.fill_(1)
            taken.append(self.once(thunk))
        return statistics.median(taken)

    def once(self, function: Callable[[], Any]) -> float:
        """Seconds of one run, to the end of what it started."""
        self._wait()
        begun = self._clock()
        result = function()
        self._wait()
        seconds = self._clock() - begun
        del result
        return seconds

    def reference(self) -> float:
        """Seconds of a small convolution and a copy: how fast the machine is at this moment."""
        data, weight = torch.full((2, 32, 16, 16, 16), 0.5), torch.full((32, 32, 3, 3, 3), 0.5)
        data, weight = data.to(self._device), weight.to(self._device)
        with torch.no_grad():
            return statistics.median(
                self.once(lambda: torch.conv3d(data, weight, padding=1).add_(data[:, :, :14, :14, :14].mean()))
                for _ in range(9)
            )

    def _wait(self) -> None:
        if self._device != "cpu":
            torch.get_device_module(self._device).synchronize()

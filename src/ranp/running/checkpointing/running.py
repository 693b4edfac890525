"""Blocks at work: keep a block's inputs, run it again in the backward pass, as if it had run once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import _checkpoint_without_reentrant_generator

from ranp import arguments
from ranp.errors import UnsupportedError
from ranp.running.calling import unwrap
from ranp.running.checkpointing.choosing import choose
from ranp.running.randomness import PythonState

_EARLY_STOP = (True,) if "early_stop" in signature(_checkpoint_without_reentrant_generator).parameters else ()
"""An argument that torch has had since 2.9; the tensors follow by position."""


@contextmanager
def checkpointed(model: nn.Module, example: Any = None) -> Iterator[None]:
    """Inside, forward passes keep only the inputs of blocks and recompute the rest; outside, the model is as before.

    Example::

        with ranp.running.checkpointing.checkpointed(model):
            loss = criterion(model(inputs), target)
            loss.backward()

    Where no gradient is wanted the network runs as always. The backward pass may also come after the context has
    ended. A module that writes into its own input, or whose input is written to later, is not made a block.

    Args:
        model: Any network; DataParallel, DistributedDataParallel and compiled ones are unwrapped.
        example: Inputs of one call, also on the meta device: the blocks are then chosen at once, otherwise in the
            first forward pass.

    Raises:
        UnsupportedError: The network does not run on the example.
    """
    session = _Session(unwrap(model))
    try:
        if example is not None:
            with arguments.blamed("the network on the example", error=UnsupportedError):
                session.choose(example)
        session.begin()
        yield
    finally:
        session.end()


class _Session:
    """The life of one ``checkpointed``: which modules run as blocks now, by hooks that go when it ends."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._modes: list[bool] = []
        self._hooks = ExitStack()
        self._thread = threading.local()

    def begin(self) -> None:
        """Makes the network look, before it runs, whether its blocks are chosen."""
        if isinstance(self._model, torch.jit.ScriptModule):  # takes no hooks, nor does anything in it
            return

        def look(_: nn.Module, args: Any, kwargs: Any) -> None:
            if torch.is_grad_enabled() and self._modes != self._modes_now():  # either mode may need other blocks
                self.end()
                self.choose((args, kwargs), splatted=True)
                self.begin()

        self._hooks.callback(self._model.register_forward_pre_hook(look, with_kwargs=True).remove)

    def choose(self, inputs: Any, *, splatted: bool = False) -> None:
        """Finds the blocks and makes them run as such."""
        choice = choose(self._model, inputs, splatted=splatted)
        modules = dict(self._model.named_modules())
        buffers = dict(self._model.named_buffers())
        # Small ones always: the next forward pass may take another branch than the one that was looked at.
        written = {id(buffer) for name, buffer in buffers.items() if name in choice.written or buffer.dim() < 2}
        for name in choice.blocks:
            module = modules[name]
            before = self._before([buffer for buffer in module.buffers() if id(buffer) in written])
            self._hooks.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
            self._hooks.callback(module.register_forward_hook(self._after, prepend=True, always_call=True).remove)
        self._modes = self._modes_now()

    def end(self) -> None:
        """Makes everything as it was."""
        self._hooks.close()
        self._modes = []

    def _modes_now(self) -> list[bool]:
        return [module.training for module in self._model.modules()]

    @property
    def _running(self) -> list[tuple[nn.Module, Any]]:
        """Modules with hooks that this thread is in, with the checkpoint of each that has one of its own."""
        if not hasattr(self._thread, "running"):
            self._thread.running = []
        found: list[tuple[nn.Module, Any]] = self._thread.running
        return found

    def _before(self, buffers: list[Tensor]) -> Callable[[nn.Module, Any, Any], None]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            # A block inside a block (one module in two places) is part of it, also when it is computed again.
            alone = not self._running and torch.is_grad_enabled()
            self._running.append((module, self._checkpoint(module, args, kwargs, buffers) if alone else None))

        return enter

    def _after(self, module: nn.Module, _args: Any, _result: Any) -> None:
        if self._running and self._running[-1][0] is module:
            _, checkpoint = self._running.pop()
            if checkpoint is not None:
                next(checkpoint, None)

    def _checkpoint(self, module: nn.Module, args: Any, kwargs: Any, buffers: list[Tensor]) -> Any:
        """Begins a checkpoint around what the module does next; to go on in it once more ends it."""
        leaves, spec = tree_flatten((args, kwargs))
        # What is not a tensor stays in the closure, a tensor must not: autograd keeps it, and checks it.
        others = [_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        forward = module.forward

        def again(*given: Tensor) -> Any:
            tensors = iter(given)
            args, kwargs = tree_unflatten([next(tensors) if leaf is _TENSOR else leaf for leaf in others], spec)
            self._running.append((module, None))
            try:
                return forward(*args, **kwargs)
            finally:
                self._running.pop()

        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        found = _checkpoint_without_reentrant_generator(
            again, True, lambda: (nullcontext(), _Rewound(buffers)), "default", False, *_EARLY_STOP, *tensors
        )
        next(found)
        return found


_TENSOR = object()


class _Rewound:
    """Lets a block be computed again as it was first, and leaves no sign of it.

    Buffers that the block writes to (running statistics) and the generators of Python and numpy start as they did in
    the forward pass; afterwards all hold what they held before. Torch looks after its own generators. Written through
    ``data``, so that the graph, which holds some of these buffers without reading them, takes no offence.
    """

    def __init__(self, buffers: list[Tensor]) -> None:
        self._buffers = buffers
        self._first = self._held()
        self._later = self._first

    def __enter__(self) -> None:
        self._later = self._held()
        self._put(self._first)

    def __exit__(self, *error: object) -> None:
        self._put(self._later)

    def _held(self) -> tuple[list[Tensor], PythonState]:
        return [x.detach().clone() for x in self._buffers], PythonState.now()

    def _put(self, held: tuple[list[Tensor], PythonState]) -> None:
        values, state = held
        for buffer, value in zip(self._buffers, values, strict=True):
            buffer.data.copy_(value)
        state.put_back()

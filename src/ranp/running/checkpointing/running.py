"""Blocks at work: keep a block's inputs, run it again in the backward pass, as if it had run once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint

from ranp import arguments
from ranp.errors import UnsupportedError
from ranp.running.calling import unwrap
from ranp.running.checkpointing.choosing import choose
from ranp.running.randomness import RandomState

_Forward = Callable[..., Any]


@contextmanager
def checkpointed(model: nn.Module, example: Any = None) -> Iterator[None]:
    """Inside, forward passes keep only the inputs of blocks and recompute the rest; outside, the model is as before.

    Example::

        with ranp.running.checkpointing.checkpointed(model):
            loss = criterion(model(inputs), target)
            loss.backward()

    Where no gradient is wanted the network runs as always. The backward pass may also come after the context has
    ended. A module that writes into its own input, or whose input is written to later, is no block.

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
    """The life of one ``checkpointed``: which modules run otherwise now, and how to take that back."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._modes: list[bool] = []
        self._originals: list[tuple[nn.Module, Any]] = []
        self._thread = threading.local()

    def begin(self) -> None:
        """Makes the network look, before it runs, whether its blocks are chosen."""
        forward = self._model.forward

        def run(*args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled() and self._modes != self._modes_now():  # either mode may need other blocks
                self.end()
                self.choose((args, kwargs), splatted=True)
                self.begin()
            return forward(*args, **kwargs)

        self._replace(self._model, run)

    def choose(self, inputs: Any, *, splatted: bool = False) -> None:
        """Finds the blocks and makes them run as such."""
        choice = choose(self._model, inputs, splatted=splatted)
        modules = dict(self._model.named_modules())
        buffers = dict(self._model.named_buffers())
        # Small ones always: the next forward pass may take another branch than the one that was looked at.
        written = {id(buffer) for name, buffer in buffers.items() if name in choice.written or buffer.dim() < 2}
        for name in choice.blocks:
            module = modules[name]
            kept = [buffer for buffer in module.buffers() if id(buffer) in written]
            self._replace(module, self._block(module.forward, kept))
        self._modes = self._modes_now()

    def end(self) -> None:
        """Makes everything as it was."""
        while self._originals:
            module, forward = self._originals.pop()
            if forward is None:
                vars(module).pop("forward", None)
            else:
                vars(module)["forward"] = forward
        self._modes = []

    def _replace(self, module: nn.Module, forward: _Forward) -> None:
        self._originals.append((module, vars(module).get("forward")))
        vars(module)["forward"] = forward

    def _modes_now(self) -> list[bool]:
        return [module.training for module in self._model.modules()]

    def _block(self, forward: _Forward, buffers: list[Tensor]) -> _Forward:
        def once(args: Any, kwargs: Any) -> Any:
            # A block inside a block (one module in two places) is part of it, also when it is computed again.
            self._thread.inside = True
            try:
                return forward(*args, **kwargs)
            finally:
                self._thread.inside = False

        def run(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._thread, "inside", False) or not torch.is_grad_enabled():
                return forward(*args, **kwargs)
            leaves, spec = tree_flatten((args, kwargs))
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            # What is not a tensor stays in the closure, a tensor must not: autograd keeps it, and checks it.
            others = [_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves]

            def of_tensors(*given: Tensor) -> Any:
                tensors = iter(given)
                return once(*tree_unflatten([next(tensors) if leaf is _TENSOR else leaf for leaf in others], spec))

            return checkpoint(
                of_tensors, *tensors, use_reentrant=False, context_fn=lambda: (nullcontext(), _Rewound(buffers))
            )

        return run


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

    def _held(self) -> tuple[list[Tensor], RandomState]:
        return [x.detach().clone() for x in self._buffers], RandomState.now()

    def _put(self, held: tuple[list[Tensor], RandomState]) -> None:
        values, state = held
        for buffer, value in zip(self._buffers, values, strict=True):
            buffer.data.copy_(value)
        state.put_back_python()

"""What a step trace writes down: the operators of one training step and every storage that lives during it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from ranp import arguments
from ranp.costs.step.settings import Settings
from ranp.errors import UnsupportedError

OPTIMISERS = ("sgd", "momentum", "nesterov", "adam", "amsgrad", "adamw", "rmsprop", "none")
"""``momentum`` and ``nesterov`` are SGD with momentum, ``amsgrad`` is Adam with it; ``none`` stops after the backward
pass."""

WHOLE = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
"""Precisions of a whole network."""

AUTOCAST = {"amp-bfloat16": torch.bfloat16, "amp-float16": torch.float16}
"""Precisions of ``torch.autocast``: parameters stay as they are."""


@dataclass(frozen=True, slots=True, init=False)
class TrainingStep:
    """What one training step is, beside the network and its inputs.

    >>> TrainingStep(batch=4, optimiser="momentum", precision="amp-bfloat16").batch
    4
    >>> TrainingStep(optimizer="sgd")  # as torch spells it
    TrainingStep(batch=None, optimiser='sgd', precision='float32', checkpointing=False)

    Attributes:
        batch: Inputs are repeated or cut to this many; None leaves them as they are.
        optimiser: ``"sgd"``, ``"momentum"``, ``"nesterov"``, ``"adam"``, ``"amsgrad"``, ``"adamw"``, ``"rmsprop"`` or
            ``"none"``.
        precision: ``"float32"``, ``"float64"``, ``"bfloat16"``, ``"float16"``: that of the whole network, or
            ``"amp-bfloat16"``, ``"amp-float16"``: forward pass and loss inside ``torch.autocast``.
        checkpointing: Blocks keep their inputs only and are computed again in the backward pass.

    Raises:
        UnsupportedError: Unknown optimiser or precision, both spellings at once, or a batch below one.
    """

    batch: int | None = None
    optimiser: str = "adam"
    precision: str = "float32"
    checkpointing: bool = False

    def __init__(
        self,
        batch: int | None = None,
        optimiser: str | None = None,
        precision: str = "float32",
        checkpointing: bool = False,
        *,
        optimizer: str | None = None,
    ) -> None:
        if optimiser is not None and optimizer is not None:
            raise UnsupportedError("optimiser= and optimizer= are the same. Pass one of them.")
        named = next((name for name in (optimiser, optimizer) if name is not None), "adam")
        if batch is not None:
            batch = arguments.whole("batch", batch, allowed="a whole number from 1 on, or None for that of the inputs")
        checked = {
            "batch": batch,
            "checkpointing": arguments.flag("checkpointing", checkpointing),
            "optimiser": arguments.choice("optimiser", named, OPTIMISERS),
            "precision": arguments.choice("precision", precision, (*WHOLE, *AUTOCAST)),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def optimizer(self) -> str:
        """``optimiser``, as torch spells it."""
        return self.optimiser


@dataclass(frozen=True, slots=True)
class Sized:
    """A tensor as an operator saw it.

    Attributes:
        shape: Its extents.
        dtype: Its type.
        channels_last: It lies in memory with its channels last.
        storage: Number of its storage in ``StepTrace.storages``.
        scattered: It is neither contiguous nor channels last (a slice, a transposed or repeated view), so that kernels
            may copy it first.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    channels_last: bool = False
    storage: int = -1
    scattered: bool = False

    @property
    def bytes(self) -> int:
        """What a dense tensor of this shape takes."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Call:
    """One operator of ATen, as it was dispatched.

    Attributes:
        op: Its name, such as ``"aten.convolution.default"``.
        inputs: Its tensor arguments in order, lists flattened.
        outputs: Its tensor results in order.
        settings: All other arguments, or their text; sizes that repeat the shape of an input or output are held as
            such, so that they do not depend on widths.
        phase: ``"forward"``, ``"loss"``, ``"backward"`` or ``"optimiser"``.
        module: Name of the innermost module that ran it, in the backward pass of the one that ran it forward.
    """

    op: str
    inputs: tuple[Sized, ...]
    outputs: tuple[Sized, ...]
    settings: Settings
    phase: str
    module: str

    def __post_init__(self) -> None:
        given: object = self.settings
        if isinstance(given, str):
            object.__setattr__(self, "settings", Settings.parse(given))


@dataclass(frozen=True, slots=True)
class Storage:
    """One piece of memory, from the call that made it to the last call during which it lives.

    Attributes:
        shape: Of the tensor that made it.
        dtype: Of the tensor that made it.
        kind: ``"parameter"``, ``"gradient"``, ``"buffer"``, ``"input"`` (with the target), ``"state"`` (of the
            optimiser), ``"activation"`` (made in forward pass or loss) or ``"temporary"`` (made later).
        born: Index of the call that made it; -1 if it was there before the step.
        dies: Index of the last call during which it lives; the number of calls if it outlives the step.
        module: The module in which it was made; the owner of a parameter, gradient, buffer or state.
        extra: Bytes beyond those of the shape.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: str
    born: int
    dies: int
    module: str
    extra: int = 0

    @property
    def bytes(self) -> int:
        """What it takes, before an allocator rounds it."""
        return prod(self.shape) * self.dtype.itemsize + self.extra


@dataclass(frozen=True, slots=True, eq=False)
class StepTrace:
    """One training step, one inference, or the forward pass of a step, operator by operator.

    Attributes:
        calls: The operators in the order in which eager execution runs them.
        storages: What lives during them, in the order of birth.
        step: What was traced; None for an inference or a forward pass.
        device: Type of the device that the tensors stand for, such as ``"cpu"``.
        kept: Of a forward pass: numbers of the storages that it keeps for the backward pass.
    """

    calls: tuple[Call, ...]
    storages: tuple[Storage, ...]
    step: TrainingStep | None
    device: str = "cpu"
    kept: frozenset[int] = frozenset()

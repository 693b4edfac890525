"""What makes a channel matter: the criteria of step 2, each a small value, and the place to pass your own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from ranp import arguments
from ranp.errors import PlanMismatchError, UnsupportedError
from ranp.registry import Registry
from ranp.tracing.trace import Layer

Reduction = Literal["sum", "mean", "max"]
Values = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""``(weight, gradient) -> values`` of one layer and one batch.

``weight`` is detached, ``gradient`` is dL/dweight of that batch and may be overwritten; both are laid out as torch lays
out the weight. The result is shaped like the weight (it is then reduced to channels), or is a vector with one value per
output channel.
"""


@dataclass(frozen=True, slots=True)
class Criterion:
    """How the scores of a layer come from its weights and gradients.

    The score of a channel is ``abs(reduction(mean over batches of values(weight, gradient)))``.

    >>> Criterion("taylor", lambda weight, gradient: (weight * gradient) ** 2).reduction
    'sum'

    Attributes:
        name: What reports and files call it.
        values: ``(weight, gradient) -> values`` of one batch, see ``Values``.
        reduction: From the weights of a channel to one value: ``"sum"``, ``"mean"`` or ``"max"``. Sum and mean are
            taken as soon as a gradient exists; max needs the mean over batches of every weight.
        linear: True if ``values`` is linear in the gradient, so that parts of a gradient may be added up afterwards.
        needs: ``"gradients"`` (batches and a loss), ``"weights"`` alone, or ``"seed"``: uniform random numbers.
        on: ``"weights"`` of the channel's own layer; ``"channels"`` for a mask on the channel itself, behind the norm
            that alone consumes it; or ``"groups"``: everything that goes with the channel, so also norms, biases, the
            weights that read it, and channels of other layers that stand or fall with it, added up.
        keeps_weights: Also keep the value of every single weight, in ``Scores.weights``. The absolute value is then
            taken per weight, before the reduction.
    """

    name: str
    values: Values
    reduction: Reduction = "sum"
    linear: bool = False
    needs: Literal["gradients", "weights", "seed"] = "gradients"
    on: Literal["weights", "channels", "groups"] = "weights"
    keeps_weights: bool = False

    def __post_init__(self) -> None:
        arguments.kind("name", self.name, str, "what reports shall call the criterion")
        arguments.function("values", self.values, "a function (weight, gradient) -> values")
        for name in ("linear", "keeps_weights"):
            arguments.flag(name, getattr(self, name))
        for what, got, allowed in (
            ("reduction", self.reduction, ("sum", "mean", "max")),
            ("needs", self.needs, ("gradients", "weights", "seed")),
            ("on", self.on, ("weights", "channels", "groups")),
        ):
            arguments.choice(f"{what} of criterion {self.name!r}", got, allowed)
        if self.on == "groups" and (self.reduction != "sum" or self.keeps_weights):
            raise UnsupportedError(
                f"criterion {self.name!r} on groups has reduction={self.reduction!r} and "
                f"keeps_weights={self.keeps_weights}; what goes with a channel can only be added up. Leave both out."
            )

    @property
    def at_once(self) -> bool:
        """True if a gradient can be reduced to channels and freed as soon as it exists."""
        return self.reduction != "max" and not self.keeps_weights


def by_channel(values: torch.Tensor, layer: Layer, reduction: Reduction) -> torch.Tensor:
    """Reduces values shaped like the layer's weight to one value per output channel."""
    grouped = by_group(values, layer)
    if grouped.ndim == 2:
        return grouped.flatten()
    rest = tuple(range(2, grouped.ndim))
    if reduction == "max":
        return grouped.amax(rest).flatten()
    return (grouped.sum(rest) if reduction == "sum" else grouped.mean(rest)).flatten()


def by_group(values: torch.Tensor, layer: Layer) -> torch.Tensor:
    """Values shaped like the layer's weight with groups and their output channels first.

    A transposed convolution keeps its outputs in dimension 1; with groups that dimension holds the outputs of one group
    only, and channel ``g * (outputs / groups) + j`` is output ``j`` of the ``g``-th block of inputs.
    """
    outputs, inputs = layer.out_dim % values.ndim, layer.in_dim % values.ndim
    if values.shape[outputs] == layer.channels:
        grouped = values.movedim(outputs, 0).unsqueeze(0)
    elif values.shape[outputs] * layer.groups == layer.channels and values.shape[inputs] % layer.groups == 0:
        blocks = values.unflatten(inputs, (layer.groups, -1))  # type: ignore[no-untyped-call]
        grouped = blocks.movedim((inputs, outputs + (inputs < outputs)), (0, 1))
    else:
        raise PlanMismatchError(
            f"layer {layer.name!r} has a weight of shape {tuple(values.shape)}, which does not hold {layer.channels} "
            f"output channels in dimension {layer.out_dim} ({layer.groups} groups). Trace the model that is scored."
        )
    return grouped


def _product(weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient of a mask on every weight, w * dL/dw, written over the gradient where its precision allows."""
    if gradient.dtype in (torch.float16, torch.bfloat16):
        gradient = gradient.float()
    return gradient.mul_(weight)


def _magnitude_of_product(weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    product = _product(weight, gradient)
    return product.abs() if product.is_complex() else product.abs_()


def _magnitude(weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    return weight.abs()


CRITERIA: Registry[Criterion] = Registry("criterion")
"""The criteria by name. Register one of your own only to name it on the command line."""

for _criterion in (
    Criterion("mpmg-sum", _magnitude_of_product),
    Criterion("mpmg-mean", _magnitude_of_product, "mean"),
    Criterion("mpmg-max", _magnitude_of_product, "max"),
    Criterion("mnmg-sum", _product, linear=True),
    Criterion("mnmg-mean", _product, "mean", linear=True),
    Criterion("mnmg-max", _product, "max", linear=True),
    Criterion("neuron-mask", _product, linear=True, on="channels"),
    Criterion("mpmg-group", _magnitude_of_product, on="groups"),
    Criterion("snip", _product, linear=True, keeps_weights=True),
    Criterion("magnitude", _magnitude, needs="weights"),
    Criterion("random", _magnitude, needs="seed"),
):
    CRITERIA.register(_criterion.name, _criterion)


def find_criterion(criterion: str | Criterion | Values) -> Criterion:
    """The criterion meant by a name, a ``Criterion``, or a plain callable ``(weight, gradient) -> values``.

    Raises:
        UnsupportedError: The name is unknown; the message lists the close and the allowed ones.
    """
    if isinstance(criterion, Criterion):
        return criterion
    if callable(criterion):
        return Criterion(getattr(criterion, "__name__", type(criterion).__name__), criterion)
    return CRITERIA.get(criterion)

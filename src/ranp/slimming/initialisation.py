"""After step 6 (and before step 1): draw fresh weights, as the paper does for the full and again for the slim network.

The paper keeps only the widths of a pruned network: its weights are drawn anew. Everything here draws on the CPU from
one generator made from ``seed``, so that the same seed gives the same weights on every device, whatever else the
process drew before, and the process's own random state is left as it was.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ranp import arguments
from ranp.errors import UnsupportedError, unknown_name
from ranp.running.randomness import reseed, untouched_rng

log = logging.getLogger(__name__)

Initialiser = str | Callable[[nn.Module], Any]
"""The name of an initialisation, or a function that receives every module once, children first."""

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
"""Layers whose weight has its inputs first."""
WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, *TRANSPOSED)
"""The layers whose output channels are a network's neurons."""
_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)
_NORM_SPREAD = 0.02
_SHOWN = 8
"""So many names of parameters are logged."""

COPY = "copy"
"""Where a network is made slim: no initialisation, it keeps the weights that stay."""


def check_initialiser(how: Initialiser, *others: str) -> None:
    """Refuses what is neither a function nor the name of an initialisation, or one of the other names.

    Raises:
        UnsupportedError: It is neither.
    """
    if not callable(how) and not (isinstance(how, str) and how in (*others, *INITIALISATIONS)):
        allowed = unknown_name("initialisation", how, (*others, *INITIALISATIONS))
        raise UnsupportedError(f"{allowed} Or pass a function f(module).")


def initialise(model: nn.Module, how: Initialiser = "glorot", seed: int = 0) -> None:
    """Draw every weight of ``model`` that trains anew, in place.

    Weights of convolutions, transposed convolutions and linear layers follow ``how``; their biases become 0. Norms get
    weights from N(1, 0.02), biases 0 and fresh running statistics. Any other module that knows how to
    ``reset_parameters`` does so; a parameter that sits in none of these keeps its value. Parameters on the meta device
    have no values and are passed over.

    Frozen parameters (``requires_grad`` is False) keep their values, and so do the running statistics of a norm whose
    parameters are all frozen, or which has none and stands in a module where all are: what does not train is there to
    be used as it is. What is drawn for the others does not depend on it.

    Fans are per output: ``fan_in`` = input channels of one group * kernel elements, ``fan_out`` = all output channels
    * kernel elements, as in ``torch.nn.init`` for convolutions. A transposed convolution stores its weight as (input,
    output / groups, kernel), where ``torch.nn.init`` would take inputs for outputs; here its input and output
    channels are distinguished: "kaiming" scales with the inputs and "orthogonal" makes output channels orthogonal.

    Args:
        model: Any network, on any device.
        how: ``"glorot"`` (normal, gain 1: the paper's), ``"orthogonal"`` (gain 1), ``"kaiming"`` (normal, fan in, for
            ReLU), or a function ``f(module)`` that is called with every module, children before parents and the model
            last, like ``nn.Module.apply``. The function does the whole work: nothing is drawn before it. It may draw
            from torch's global generator, which is seeded for it and put back afterwards. What it does to frozen
            parameters is its own decision.
        seed: Same seed, same weights.

    Raises:
        UnsupportedError: ``how`` is neither a known name nor a function, or ``seed`` is not a seed.
        DataError: The function failed.

    Example:
        >>> first, second = nn.Linear(3, 2), nn.Linear(3, 2)
        >>> initialise(first, "glorot", seed=1); initialise(second, "glorot", seed=1)
        >>> torch.equal(first.weight, second.weight)
        True
    """
    seed = arguments.seed(seed)
    check_initialiser(how)
    if callable(how):
        with untouched_rng(), arguments.blamed("init"):
            reseed(seed, _devices(model))
            model.apply(how)
        return
    draw = INITIALISATIONS[how]
    generator = torch.Generator().manual_seed(seed)
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    with torch.no_grad():
        for name, module in model.named_modules():
            with _frozen_kept(module):
                _initialise_module(name, module, draw, generator)
            if isinstance(module, nn.modules.batchnorm._NormBase) and not _is_frozen(model, name):
                module.reset_running_stats()
    if frozen:
        more = f" and {len(frozen) - _SHOWN} more" if len(frozen) > _SHOWN else ""
        log.info("init=%r leaves frozen parameters as they are: %s%s", how, ", ".join(frozen[:_SHOWN]), more)


@contextmanager
def _frozen_kept(module: nn.Module) -> Iterator[None]:
    """Puts frozen parameters back as they were: so no rule needs to know of them, and all draw the same numbers."""
    frozen = [parameter for parameter in module.parameters(recurse=False) if not parameter.requires_grad]
    if hasattr(module, "reset_parameters"):  # which may reach into children
        frozen = [parameter for parameter in module.parameters() if not parameter.requires_grad]
    before = [parameter.clone() for parameter in frozen]
    yield
    for parameter, values in zip(frozen, before, strict=True):
        parameter.copy_(values)


def _devices(module: nn.Module) -> set[torch.device]:
    return {parameter.device for parameter in module.parameters()}


def _is_frozen(model: nn.Module, name: str) -> bool:
    """True if no parameter trains of the innermost module around ``name`` that has any."""
    while True:
        own = list(model.get_submodule(name).parameters())
        if own or not name:
            return bool(own) and not any(parameter.requires_grad for parameter in own)
        name = name.rpartition(".")[0]


def _initialise_module(name: str, module: nn.Module, draw: Draw, generator: torch.Generator) -> None:
    """Draw the parameters that ``module`` itself owns."""
    own = dict(module.named_parameters(recurse=False))
    weighted = isinstance(module, WEIGHTED) and "weight" in own
    if weighted or isinstance(module, _NORMS):
        weight = own.get("weight")
        if weight is not None and not weight.is_meta:
            empty = _output_first(module, weight) if weighted else torch.empty(weight.shape)
            drawn = draw(empty, generator) if weighted else empty.normal_(1.0, _NORM_SPREAD, generator=generator)
            transposed = isinstance(module, TRANSPOSED)
            weight.copy_((drawn.transpose(1, 2) if transposed else drawn).reshape(weight.shape))
        if "bias" in own:
            own["bias"].zero_()
    elif own and callable(reset := getattr(module, "reset_parameters", None)):
        with untouched_rng():
            reseed(int(torch.randint(2**31, (), generator=generator)), _devices(module))
            reset()
    elif own:
        log.debug("%s keeps its parameters %s: no rule draws them", name or "the model", sorted(own))


Draw = Callable[[Tensor, torch.Generator], Tensor]
"""From an empty CPU tensor (groups, output / groups, input / groups, kernel) to new values of that shape."""


def _output_first(module: nn.Module, weight: Tensor) -> Tensor:
    """An empty CPU tensor of the weight's size laid out as (groups, output / groups, input / groups, kernel)."""
    groups = int(getattr(module, "groups", 1))
    first, second = weight.shape[:2]
    kernel = math.prod(weight.shape[2:])
    outputs, inputs = (second, first // groups) if isinstance(module, TRANSPOSED) else (first // groups, second)
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    return torch.empty((groups, outputs, inputs, kernel), dtype=dtype, device="cpu")


def _glorot(weight: Tensor, generator: torch.Generator) -> Tensor:
    groups, outputs, inputs, kernel = weight.shape
    spread = math.sqrt(2.0 / max((inputs + groups * outputs) * kernel, 1))
    return weight.normal_(0.0, spread, generator=generator)


def _kaiming(weight: Tensor, generator: torch.Generator) -> Tensor:
    _, _, inputs, kernel = weight.shape
    return weight.normal_(0.0, math.sqrt(2.0 / max(inputs * kernel, 1)), generator=generator)


def _orthogonal(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Output channels orthonormal if there are no more of them than inputs * kernel, else the other way round."""
    rows, columns = weight.shape[0] * weight.shape[1], weight.shape[2] * weight.shape[3]
    basis = nn.init.orthogonal_(weight.new_empty(max(rows, columns), min(rows, columns)), generator=generator)
    return (basis if rows >= columns else basis.T).reshape(weight.shape)


INITIALISATIONS: dict[str, Draw] = {"glorot": _glorot, "kaiming": _kaiming, "orthogonal": _orthogonal}

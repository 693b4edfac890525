"""Is a pruned network the full one without the removed channels? Asked of the weights alone, whoever pruned.

Every weight of the full network carries its own place in the bits that float64 has to spare over float32. So a pruned
network, cut in place by code that tells nothing, still says which weights it kept. The full network with all other
weights at zero, and with norms over the kept channels and attention scaled by them, must then give the same outputs.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_map

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # its oracle knows nothing of the package's rules either

from benchmarks.judges import called
from ranp.slimming.masking import Derandomised
from tests.support.oracles import NormOfKept, ScaleOfKept, randomise
from zoo.entry import floating

SPARE = (1 << 29) - 1
"""The bits of a float64 that a float32 leaves at zero."""
NORMS = (nn.GroupNorm, nn.LayerNorm)

Places = Mapping[str, Tensor]


class NotASliceError(Exception):
    """A weight of the pruned network is none of the full network's."""


def tagged(model: nn.Module) -> nn.Module:
    """A float64 copy in which no norm is idle, no dropout draws and every weight carries its place in its tensor."""
    full = randomise(copy.deepcopy(model).double())
    for module in full.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
        if type(getattr(module, "drop_prob", None)) is float:  # stochastic depth, by its usual name
            module.drop_prob = 0.0
    with torch.no_grad():
        for parameter in full.parameters():
            bits = parameter.float().double().view(torch.int64)
            places = torch.arange(parameter.numel()).view(parameter.shape)
            parameter.copy_((bits | places).view(torch.float64))
    return full


def places_of(full: nn.Module, slim: nn.Module) -> Places:
    """For every parameter of the pruned network, where its weights stood in the full one, flattened."""
    parameters, found = dict(full.named_parameters()), {}
    for name, parameter in slim.named_parameters():
        whole = parameters.get(name)
        if whole is None or whole.numel() > SPARE:
            raise NotASliceError(f"{name} is not in the full network")
        places = parameter.detach().contiguous().view(torch.int64) & SPARE
        if bool((places >= whole.numel()).any()) or not torch.equal(whole.detach().flatten()[places], parameter):
            raise NotASliceError(f"{name} holds weights of its own")
        found[name] = places
    return found


def masked(full: nn.Module, places: Places) -> nn.Module:
    """The full network with the weights that the pruned one lost at zero, and norms over the channels it kept."""
    twin = copy.deepcopy(full)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            if name in places and places[name].numel() < parameter.numel():
                stays = torch.zeros(parameter.numel(), dtype=torch.bool)
                stays[places[name].flatten()] = True
                parameter.mul_(stays.view(parameter.shape))
    for name, module in list(twin.named_modules()):
        kept = places.get(f"{name}.weight")
        if isinstance(module, NORMS) and kept is not None and kept.numel() < module.weight.numel():
            parent, _, leaf = name.rpartition(".")
            dim = 1 if isinstance(module, nn.GroupNorm) else -1
            setattr(twin.get_submodule(parent), leaf, NormOfKept(module, tuple(kept.tolist()), dim))
    return twin


def error(full: nn.Module, slim: nn.Module, example: Any) -> float:
    """The largest difference between pruned and masked outputs over the largest output, in both modes.

    A single number beside larger outputs is a loss, a mean over channels, of which the two have not equally many: it
    must be finite.

    Args:
        full: What ``tagged`` made.
        slim: What pruning made of it, or of a copy.
        example: Inputs of one call.

    Raises:
        NotASliceError: The pruned network holds weights that the full one has not.
    """
    twin = masked(full, places_of(full, slim))
    slim, worst = copy.deepcopy(slim), 0.0
    inputs = doubled(example)
    for train in (False, True):
        with torch.no_grad():
            got = list(floating(_seeded(slim.train(train), inputs)))
            with _step_by_step(), ScaleOfKept():
                wanted = list(floating(_seeded(twin.train(train), inputs)))
        if [tensor.shape for tensor in wanted] != [tensor.shape for tensor in got]:
            return math.inf
        largest = max(tensor.dim() for tensor in wanted)
        for a, b in zip(wanted, got, strict=True):
            beside = a.dim() == 0 < largest
            difference = float(0 * b if beside else (a - b).abs().max() / a.abs().max())
            worst = max(worst, math.inf if math.isnan(difference) else difference)
    return worst


@contextmanager
def _step_by_step() -> Iterator[None]:
    """Keeps torch from running a transformer's layer as one kernel, which takes weights past the twin's own norms."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def doubled(example: Any) -> Any:
    """The inputs in float64."""
    return tree_map(lambda x: x.double() if x.is_floating_point() else x, example)


def _seeded(model: nn.Module, inputs: Any) -> Any:
    """Random numbers are constants, and code that asks for float32 gets float64."""
    with Derandomised():
        return called(model, copy.deepcopy(inputs))

"""A network inside a larger module: finding it by name, and putting a slim one in its place."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from torch import nn

from ranp.choosing.plan import Plan
from ranp.errors import PlanMismatchError, UnsupportedError, unknown_name
from ranp.slimming.slim import apply_plan
from ranp.tracing.cutting import grouped_weights, sizes_along


def apply(module: nn.Module, plan: Plan, attribute: str | None = "model") -> None:
    """Makes a network of a module slim by a plan, in place; one that is slim already is left alone.

    Raises:
        PlanMismatchError: The plan was made for another network, or the network is slim by another plan.
    """
    network = network_of(module, attribute)
    if not is_slim(network, plan):
        replace(module, attribute, apply_plan(network, plan))


def network_of(module: nn.Module, attribute: str | None) -> nn.Module:
    """The network to prune.

    Raises:
        UnsupportedError: There is none of that name, it is compiled, or other names lead into it.
    """
    if attribute is None:
        return module
    try:
        network = module.get_submodule(attribute)
    except AttributeError:
        names = [name for name, child in module.named_children() if next(child.parameters(), None) is not None]
        unknown = unknown_name("attribute", attribute, names)
        raise UnsupportedError(
            f"{unknown} It is the network's name in {type(module).__name__}; None: the module."
        ) from None
    if hasattr(network, "_orig_mod"):
        raise UnsupportedError(
            f"self.{attribute} is compiled, for the full network. Leave it plain, and call self.{attribute}.compile() "
            "in on_fit_start: it is slim by then."
        )
    inside = set(map(id, network.modules()))
    for name, child in module.named_modules(remove_duplicate=False):
        if id(child) in inside and name != attribute and not name.startswith(f"{attribute}."):
            raise UnsupportedError(
                f"self.{name} is part of self.{attribute}, which is replaced by a slim copy. Make it a property, or "
                f"assign it in on_fit_start."
            )
    return network


def replace(module: nn.Module, attribute: str | None, network: nn.Module) -> None:
    """Puts a network in the place of another; where that is the module itself, its contents."""
    if attribute is not None:
        module.set_submodule(attribute, network)
        return
    for name in ("_modules", "_parameters", "_buffers"):
        getattr(module, name).update(getattr(network, name))


def is_slim(network: nn.Module, plan: Plan) -> bool:
    """Whether the tensors have the sizes the plan leaves; False if they are full.

    Raises:
        PlanMismatchError: They are neither.
    """
    shapes = {name: tensor.shape for name, tensor in chain(network.named_parameters(), network.named_buffers())}
    groups = grouped_weights(network)
    cuts = [
        (sizes_along(shapes[name], dim, groups.get(name, 1)), cut)
        for name, by_dim in plan.cuts.items()
        for dim, cut in by_dim.items()
        if name in shapes
    ]
    if all(cut.size in sizes for sizes, cut in cuts):
        return not cuts
    if all(len(cut.keep) in sizes for sizes, cut in cuts):
        return True
    raise PlanMismatchError(
        "the network is neither the full one of the plan nor the slim one: it is another, or pruned by another plan. "
        "Build the module anew."
    )


def differs(module: nn.Module, state: Mapping[str, Any]) -> bool:
    """Whether a tensor of the state has another shape than the module's own."""
    own = module.state_dict()
    return any(
        name in state and state[name].shape != value.shape for name, value in own.items() if hasattr(value, "shape")
    )

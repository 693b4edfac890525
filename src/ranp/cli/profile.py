"""``ranp profile``: what a network costs, without its weights or activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ranp.cli.console import say, show_json, show_table
from ranp.cli.options import Example, Inputs, Json

if TYPE_CHECKING:
    from ranp.costs.profiles import Profile
    from ranp.paper.naming import Network
    from ranp.tracing.trace import Trace

_HEADER = ("Param MiB", "GFLOPs", "Memory MiB")


def profile(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="A registered network, or package.module:function that returns one."),
    ] = None,
    convention: Annotated[
        str, typer.Option(help="paper (as its tables), equation (as its formulas), or true (as torch counts).")
    ] = "true",
    inputs: Inputs = None,
    example: Example = None,
    layers: Annotated[bool, typer.Option("--layers", help="One line per module.")] = False,
    pins: Annotated[bool, typer.Option("--pins", help="What cannot be pruned, and why.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="Print the registered networks.")] = False,
    as_json: Json = False,
) -> None:
    """Print parameters, FLOPs and memory of a network.

    Nothing is allocated: the network is run without data. A network with 2D and 3D layers is also split into them.
    """
    from ranp.costs import measuring as resources
    from ranp.errors import UnsupportedError
    from ranp.paper.naming import find_network, needed_example
    from ranp.reporting.causes import describe, what_stays
    from ranp.running.calling import tensors_in
    from ranp.slimming.storage import NETWORKS, hollow

    if listing:
        from ranp.paper import models

        every = sorted({*models.names(), *NETWORKS})
        if as_json:
            show_json(every)
        else:
            say("\n".join(every))
        return
    if model is None:
        raise UnsupportedError("which network? Pass MODEL, or --list for the registered ones.")
    network = find_network(model)
    given = needed_example(network, inputs or (), example)
    found = resources.profile(hollow(network.build), given, convention=convention)
    parts = {f"{dims}D": found.part(dims=dims) for dims in (1, 2, 3)}
    parts = {name: part for name, part in parts.items() if part.params}
    parts = parts if len(parts) > 1 else {}
    shapes = ["x".join(map(str, tensor.shape)) for tensor in tensors_in(given)]
    trace = _traced(network, given) if pins else None
    stay = () if trace is None else what_stays(trace)
    if as_json:
        split = {name: _figures(part) for name, part in parts.items()}
        more = {} if trace is None else {"channels": trace.channels, "pins": [pin.to_dict() for pin in stay]}
        show_json({"model": model, "inputs": shapes, **found.to_dict(), "parts": split, **more})
        return
    if layers:
        say(f"{found}\n")
    rows = [("all", *_cells(found)), *((f"{name} layers", *_cells(part)) for name, part in parts.items())]
    title = f"{model} on {', '.join(shapes)}, {convention} convention"
    show_table(("", *_HEADER), rows, title=title)
    if found.uncounted and not layers:
        say(f"no FLOPs rule for: {', '.join(found.uncounted)}")
    if trace is not None:
        say(f"to prune: {describe(stay, trace.channels)}")


def _traced(network: Network, example: Any) -> Trace:
    """Traced without weights, or with them where the code of the network needs values."""
    from ranp import trace
    from ranp.errors import UnsupportedError
    from ranp.running.calling import tensors_in
    from ranp.slimming.storage import hollow

    try:
        return trace(hollow(network.build), example)
    except UnsupportedError:
        if any(tensor.is_meta for tensor in tensors_in(example)):
            raise
        return trace(network.build(), example)


def _cells(found: Profile) -> tuple[str, str, str]:
    return f"{found.params_mb:.2f}", f"{found.gflops:.2f}", f"{found.memory_mb:.2f}"


def _figures(found: Profile) -> dict[str, Any]:
    return {name: value for name, value in found.to_dict().items() if name not in ("layers", "convention", "uncounted")}

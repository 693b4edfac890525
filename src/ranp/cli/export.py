"""``ranp export``: the slim network of a run folder as a file that runs without its Python code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ranp.cli.console import show_json
from ranp.cli.options import Example, Inputs, Json


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder that ranp prune wrote.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write.")],
    format: Annotated[str, typer.Option(help="onnx or torch-export.")] = "onnx",
    dynamic: Annotated[
        str, typer.Option(help="What may vary: auto (batch and space, as far as possible), batch, or none.")
    ] = "auto",
    opset: Annotated[int | None, typer.Option(min=1, help="Version of the ONNX operators.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="How the full network is made, instead of what the folder says.")
    ] = None,
    inputs: Inputs = None,
    example: Example = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")] = False,
    as_json: Json = False,
) -> None:
    """Write the slim network of a run folder as ONNX or as a torch.export program, and check it against PyTorch.

    The inputs are those the network was pruned with, unless --input or --example says otherwise.
    """
    from ranp import load
    from ranp.cli.sources import find_network, with_options
    from ranp.errors import UnsupportedError, unknown_name
    from ranp.folder import read_run
    from ranp.integrations import exporting
    from ranp.integrations.export_formats import FORMATS

    # Everything that can be refused is refused before anything slow begins.
    if format not in FORMATS:
        raise UnsupportedError(unknown_name("format", format, FORMATS))
    if dynamic not in exporting.DYNAMIC:
        raise UnsupportedError(unknown_name("dynamic", dynamic, exporting.DYNAMIC))
    exporting.check_target(out, force=force)
    FORMATS[format].require()
    recipe = read_run(folder)
    network = with_options(find_network(model or recipe["model"]), recipe.get("options") or {})
    given = _example(network, recipe, inputs or (), example)
    slim = load(folder / "model.safetensors", network.build, example=given)
    made = exporting.export(slim, given, out, format=format, dynamic=dynamic, opset=opset, force=force)
    if as_json:
        show_json(made.to_dict())
        return
    typer.echo(f"wrote {made.path} ({made.format}, {made.path.stat().st_size / 2**20:.2f} MiB)")
    for name in made.inputs:
        spans = [span for span in made.dynamic if span.input == name]
        sizes = "; ".join(f"{'batch' if s.dimension == 0 else f'dimension {s.dimension}'} {s}" for s in spans)
        typer.echo(f"input {name}: {sizes or 'fixed sizes'}")
    for reason in made.reasons:
        typer.echo(f"note: {reason}")
    for check in made.checks:
        shapes = " and ".join("x".join(map(str, shape)) for shape in check.shapes)
        typer.echo(f"checked at {shapes}: off by {check.error:.1e} of the largest output")


def _example(network: Any, recipe: dict[str, Any], inputs: Any, example: str | None) -> Any:
    """What goes into the network: said here, said to ``ranp prune``, known of the network, or the first batch."""
    from ranp.cli.sources import Choice, find_data, find_example, needed_example

    if inputs or example:
        return find_example(network, inputs, example)
    if recipe.get("inputs") or recipe.get("example") or network.example is not None:
        return find_example(network, recipe.get("inputs") or (), recipe.get("example"))
    used = recipe.get("data") or {}
    known = {name: used[name] for name in ("task", "scale", "batches", "loss", "size") if name in used}
    data = find_data(network, Choice(**known, max_batches=1))
    if data is None:
        return needed_example(network, (), None)
    return next(iter(data.batches))[0]

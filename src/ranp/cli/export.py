"""``ranp export``: the slim network of a run folder as a file that runs without its Python code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ranp.cli.console import progress_bars, say, show_json
from ranp.cli.options import Example, FolderModel, Inputs, Json, Trusted, flag

if TYPE_CHECKING:
    from ranp.paper.naming import Network, Trust

_REMEMBERED: dict[str, type] = {"task": str, "scale": str, "batches": str, "loss": str, "size": int}
"""What a recipe says of its data, as far as the inputs of one call follow from it."""


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder that ranp prune or ranp train wrote.")],
    out: Annotated[Path, flag("The file to write.", metavar="FILE")],
    format: Annotated[str, flag("onnx or torch-export.")] = "onnx",
    dynamic: Annotated[
        str, flag("What may vary: auto (batch and space, as far as possible), batch, or none.")
    ] = "auto",
    opset: Annotated[int | None, flag("Version of the ONNX operators.", min=1)] = None,
    model: FolderModel = None,
    inputs: Inputs = None,
    example: Example = None,
    trust: Trusted = False,
    force: Annotated[bool, flag("Replace FILE if it exists.", None, "--force")] = False,
    as_json: Json = False,
) -> None:
    """Write the slim network of a run folder as ONNX or as a torch.export program, and check it against PyTorch.

    The inputs are those the network was pruned with, unless --input or --example says otherwise. Code that
    the folder names is run with --trust only; or name the network here with --model.
    """
    from ranp.errors import UnsupportedError, unknown_name
    from ranp.files.atomic import check_target
    from ranp.integrations import exporting
    from ranp.integrations.export_formats import FORMATS
    from ranp.paper.naming import Trust, stored_network
    from ranp.reporting.folder import RunFolder

    # Everything that can be refused is refused before anything slow begins.
    if format not in FORMATS:
        raise UnsupportedError(unknown_name("format", format, FORMATS))
    if dynamic not in exporting.DYNAMIC:
        raise UnsupportedError(unknown_name("dynamic", dynamic, exporting.DYNAMIC))
    check_target(out, force=force)
    FORMATS[format].require()
    run = RunFolder(folder)
    recipe = run.finished_recipe()
    said = Trust(model, inputs or (), example, trust)
    network = stored_network(recipe, run.recipe_file, said)
    with progress_bars(f"exporting {folder}") as progress:
        given = _example(network, recipe, run.recipe_file, said)
        progress("exporting", 1, 3, "network")
        slim = run.model(network.build, example=given)
        progress("exporting", 2, 3, f"{format}, and its check")
        made = exporting.export(slim, given, out, format=format, dynamic=dynamic, opset=opset, force=force)
        progress("exporting", 3, 3, "")
    if as_json:
        show_json(made.to_dict())
        return
    say(f"wrote {made.path} ({made.format}, {made.path.stat().st_size / 2**20:.2f} MiB)")
    for name in made.inputs:
        spans = [span for span in made.dynamic if span.input == name]
        sizes = "; ".join(f"{'batch' if s.dimension == 0 else f'dimension {s.dimension}'}: {s}" for s in spans)
        say(f"input {name}: {sizes or 'fixed sizes'}")
    for reason in made.reasons:
        say(f"note: {reason}")
    for check in made.checks:
        shapes = " and ".join("x".join(map(str, shape)) for shape in check.shapes)
        say(f"checked at {shapes}: off by {check.error:.1e} of the largest output")


def _example(network: Network, recipe: dict[str, Any], where: Path, said: Trust) -> Any:
    """What goes into the network: said here, said to ``ranp prune``, known of the network, or the first batch."""
    from ranp.cli.preparation import find_data
    from ranp.errors import StorageError
    from ranp.paper.naming import needed_example, refuse_code, stored_example

    given = stored_example(network, recipe, where, said)
    if given is not None:
        return given
    used = recipe.get("data") or {}
    known = {name: used[name] for name in _REMEMBERED if used.get(name)} if isinstance(used, dict) else {"data": used}
    for name, value in known.items():
        if not isinstance(value, _REMEMBERED.get(name, ())):
            raise StorageError(f"{str(where)!r}: {name} of its data is {value!r}. Restore it, or pass --input.")
        if name in ("batches", "loss") and not said.everything:
            refuse_code(where, repr(value), name, "--input")
    data = find_data(network, known, max_batches=1)
    if data is None:
        return needed_example(network, (), None)
    return next(iter(data.batches))[0]

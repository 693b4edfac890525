"""``ranp report``: runs as one page of HTML that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ranp.cli.console import progress_bars, say, show_json
from ranp.cli.options import Example, FolderModel, Inputs, Json, Trusted, flag


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Run folders, or folders that hold some.", show_default=False)
    ],
    out: Annotated[Path, flag("The page.", metavar="FILE")] = Path("report.html"),
    title: Annotated[str | None, flag("Heading of the page; default: by its content.")] = None,
    figures: Annotated[Path | None, flag("Also write every figure as SVG and PDF, for a paper.", metavar="DIR")] = None,
    memory: Annotated[
        str | None, flag("Say whether a training step fits your card: 8GiB, 500MB, ...", metavar="8GiB")
    ] = None,
    model: FolderModel = None,
    inputs: Inputs = None,
    example: Example = None,
    trust: Trusted = False,
    as_json: Json = False,
) -> None:
    """Show what was pruned, why, and what that saves: one interactive HTML file that can be read offline.

    One run, several side by side, or the folder of a comparison, reproduction or demonstration. Where a folder names
    code, the page leaves out what needs it and says so, unless --trust runs it, or --model (with --input or --example)
    names it here.
    """
    from ranp.cli import extras

    extras.require(extras.REPORT)
    from ranp.cli.fit import bytes_of
    from ranp.files import atomic
    from ranp.page.build import check_target, page
    from ranp.page.figures import write_figures
    from ranp.page.material import collect
    from ranp.paper.naming import Trust

    allowed = None if memory is None else bytes_of(memory)
    check_target(out)
    if figures is not None:
        atomic.check_writable(figures / "a figure")
    with progress_bars(f"report {out}") as progress:
        material = collect(folders, progress, trust=Trust(model, inputs or (), example, trust))
        atomic.write_atomic(out, page(material, title=title, memory=allowed).encode("utf-8"))
        drawn = [] if figures is None else write_figures(material, figures)
    if as_json:
        show_json({"file": str(out), "drawings": [str(path) for path in drawn]})
        return
    say(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)")
    if drawn:
        say(f"wrote {len(drawn)} drawings to {figures}")

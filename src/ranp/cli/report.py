"""``ranp report``: runs as one page of HTML that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ranp.cli.console import progress_bars


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Run folders, or folders that hold some.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Heading of the page; default what it is about.")] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write every figure as SVG and PDF for a paper, too.")
    ] = None,
) -> None:
    """Show what was pruned, why, and what it buys: one interactive HTML file, no network needed to read it.

    One run, several side by side, or the folder of a reproduction or demonstration.
    """
    from ranp import files
    from ranp.page.build import check_target, page
    from ranp.page.figures import write_figures
    from ranp.page.material import collect

    check_target(out)
    with progress_bars() as progress:
        material = collect(folders, progress)
        files.write_atomic(out, page(material, title=title).encode("utf-8"))
        drawn = [] if figures is None else write_figures(material, figures)
    typer.echo(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)")
    if drawn:
        typer.echo(f"wrote {len(drawn)} drawings to {figures}")

"""``ranp demo``: pruning in a few minutes, without a data set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from ranp.cli.console import progress_bars, say, show_json, show_tables
from ranp.cli.options import RUN, Jobs, Json, flag


def demo(
    out: Annotated[Path, flag("Folder for the results.", metavar="DIR")] = Path("runs/demo"),
    budget: Annotated[str, flag("The most that every slim network may need, relative to the full one.")] = "flops=5%",
    epochs: Annotated[int, flag("Epochs of each network; they take most of the time.", min=1)] = 16,
    size: Annotated[int, flag("Edge of the volumes.", min=8)] = 16,
    seed: Annotated[int, flag("Seed of weights, objects and batches.", min=0)] = 0,
    resume: Annotated[bool, flag("Continue where it was stopped; also the default.", RUN, "--resume")] = False,
    jobs: Jobs = min(2, os.cpu_count() or 1),
    as_json: Json = False,
) -> None:
    """Prune and train a small 3D-UNet on procedural shapes: full against slim networks of one budget.

    Takes a few minutes on two cores and needs no data. Writes a report (report.html), the table, and a run folder for
    each network (plan, trained network, metrics) into DIR. A demonstration that was stopped continues where it was.
    """
    from ranp.cli import extras

    extras.require(extras.REPORT)
    from ranp.choosing.budgets import parse_all
    from ranp.files.atomic import check_writable
    from ranp.page.build import write
    from ranp.paper.demo import Settings, run

    check_writable(out)
    parse_all(budget)  # what cannot be read is refused before the full network is trained
    settings = Settings(budget=budget, epochs=epochs, size=size, seed=seed)
    with progress_bars("demonstration", lines=("network",)) as progress:
        shown = run(out, settings, progress, jobs=jobs)
        page = write(
            [out],
            out / "report.html",
            title="Slim networks of one budget: a demonstration",
            progress=progress,
        )
    files = (page, *shown.files)
    if as_json:
        networks = list(shown.table.records)
        show_json({**shown.table.to_dict(), "networks": networks, "files": [str(path) for path in files]})
        return
    show_tables(shown.table)
    say(f"\nwrote {', '.join(path.name for path in files)} and a run folder for each network to {out}")

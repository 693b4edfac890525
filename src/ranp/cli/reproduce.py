"""``ranp reproduce``: tables and figures of the paper, made again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ranp.cli.console import progress_bars, say, show_json
from ranp.cli.options import Cluster, Device, Jobs, Json, flag

if TYPE_CHECKING:
    from ranp.paper.experiments import Wanted

ALL = "all"


def reproduce(
    name: Annotated[str, typer.Argument(metavar="TABLE_OR_FIGURE", help="Its name, or all; --list shows them.")] = "",
    out: Annotated[Path | None, flag("Folder for cells, tables and figures.", metavar="DIR")] = None,
    scale: Annotated[str, flag("cpu: small, for two cores. paper: its networks, sizes and recipes.")] = "cpu",
    seeds: Annotated[int, flag("Seeds of every network that is trained.", min=1)] = 3,
    quick: Annotated[bool, flag("The least that shows that it runs; one seed.", None, "--quick")] = False,
    resources_only: Annotated[
        bool, flag("Only what the networks cost, without training them.", None, "--resources-only")
    ] = False,
    jobs: Jobs = 1,
    cluster: Cluster = None,
    cell: Annotated[str, flag("Run the K-th of N shares of the cells only, for a job array.", metavar="K/N")] = "",
    data: Annotated[
        list[str] | None, flag("Published data set of a task instead of procedural data.", metavar="TASK=DIR")
    ] = None,
    device: Device = "cpu",
    listed: Annotated[bool, flag("Show the names and the number of cells.", None, "--list")] = False,
    as_json: Json = False,
) -> None:
    """Make a table or figure of the paper from runs (cells) that each have their own folder.

    A finished cell is never run again and a stopped one continues, so the same command may be repeated, on one machine
    or on many that share DIR. Writes NAME.md, NAME.csv, NAME.tex and figures (SVG, PDF) into DIR when all cells are
    there.
    """
    from ranp.cli import extras
    from ranp.errors import UnsupportedError
    from ranp.paper import experiments, tasks
    from ranp.paper.experiments.reproducing import reproduce_one, share_of

    wanted = _wanted(scale, seeds, quick, resources_only, data or [])
    if listed:
        _show_list(wanted, as_json)
        return
    if not name:
        raise UnsupportedError(f"name a table or figure: {', '.join(experiments.names())}, or {ALL}.")
    if out is None:
        raise UnsupportedError("--out is missing. Name a folder for cells, tables and figures, such as runs/main.")
    chosen = [experiments.get(one) for one in (experiments.names() if name == ALL else (name,))]
    share = share_of(cell) if cell else None
    named = sorted({one.task for experiment in chosen for one in experiment.cells(wanted)})
    extras.require(
        *(extras.of_task(tasks.get(task), wanted.data.get(task)) for task in named),
        extras.REPORT if any(experiment.draws for experiment in chosen) else {},
        extras.CLUSTER if cluster else {},
    )
    written: list[Path] = []
    with progress_bars(f"reproducing {name}", lines=("cell", "failed", "table")) as progress:
        for experiment in chosen:
            written += reproduce_one(
                experiment,
                wanted,
                out,
                jobs=jobs,
                cluster=cluster,
                share=share,
                device=device,
                progress=progress,
                command=_command(name),
            )
    if as_json:
        show_json({"files": [str(path) for path in written]})
        return
    for path in written:
        if path.suffix == ".md":
            say(path.read_text(encoding="utf-8"))
    say(f"wrote {', '.join(path.name for path in written) or 'no table yet'} to {out}")


def _wanted(scale: str, seeds: int, quick: bool, resources_only: bool, data: list[str]) -> Wanted:
    from ranp.errors import DataError, UnsupportedError, unknown_name
    from ranp.paper import tasks
    from ranp.paper.experiments import Wanted
    from ranp.paper.experiments.scales import SCALES

    if scale not in SCALES:
        raise UnsupportedError(unknown_name("scale", scale, SCALES))
    if quick and scale != "cpu":
        raise UnsupportedError("--quick works only with --scale cpu. Leave one of them out.")
    folders: dict[str, str] = {}
    for pair in data:
        task, equals, folder = pair.partition("=")
        if not equals or not folder:
            raise UnsupportedError(f"--data {pair!r} is not TASK=DIR. For example --data brats=data/brats18.")
        if task not in tasks.names():
            raise UnsupportedError(f"--data {pair!r}: {unknown_name('task', task, tasks.names())}")
        if not Path(folder).is_dir():
            raise DataError(f"--data {folder!r} is not a folder. Pass the folder of the {task} data set.")
        folders[task] = folder
    return Wanted(scale, seeds, quick, resources_only, folders)


def _show_list(wanted: Wanted, as_json: bool) -> None:
    from ranp.cli.console import show_table
    from ranp.paper import experiments

    found = [experiments.get(name) for name in experiments.names()]
    rows = [(one.name, one.title, one.label, str(len(set(one.cells(wanted))))) for one in found]
    if as_json:
        show_json([dict(zip(("name", "title", "paper", "cells"), row, strict=True)) for row in rows])
        return
    show_table(
        ("name", "what it is", "in the paper", "cells"),
        [(*row[:2], _in_words(row[2]), *row[3:]) for row in rows],
        left=3,
    )


def _in_words(label: str) -> str:
    """What a label of the paper's source says to somebody who has not seen it.

    >>> _in_words("tb:full_table"), _in_words("fig:a, fig:b"), _in_words("none: our own")
    ('a table', '2 figures', 'none: our own')
    """
    parts = label.split(", ")
    for prefix, what in (("tb:", "table"), ("fig:", "figure")):
        if all(part.startswith(prefix) for part in parts):
            return f"a {what}" if len(parts) == 1 else f"{len(parts)} {what}s"
    return label


def _command(name: str) -> str:
    import shlex
    import sys

    return shlex.join(["ranp", *sys.argv[1:]]) if sys.argv[1:2] == ["reproduce"] else f"ranp reproduce {name}"

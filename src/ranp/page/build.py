"""The page, put together from its sections and written in one piece."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from ranp.errors import UnsupportedError
from ranp.files import atomic
from ranp.page import comparing
from ranp.page.curves import ALONE
from ranp.page.detail import detail, lede
from ranp.page.material import Absent, Material, collect
from ranp.page.templates import Image, Section, render, verbatim
from ranp.paper.naming import NOTHING, Trust
from ranp.progress import Labelled
from ranp.reporting.drawing import examples, rendered
from ranp.reporting.format import share
from ranp.reporting.looks import method_name


def write(
    folders: Sequence[Path],
    out: Path,
    *,
    title: str | None = None,
    memory: float | None = None,
    trust: Trust = NOTHING,
    progress: Labelled | None = None,
) -> Path:
    """Writes one HTML file about runs, which needs nothing else: no network, no file beside it.

    Args:
        folders: Run folders, or folders that hold some.
        out: The file; what it held before is replaced in one step, or not at all.
        title: Heading of the page; default: what it is about.
        memory: Bytes of a card, for the page to say whether a training step fits it.
        trust: What may run beside registered networks: no code at all unless it says so.
        progress: Called with ``(what is going on, done, total, remark)``.

    Raises:
        StorageError: A folder is none, holds nothing to report, a file is torn, or the page cannot be written.
        UnsupportedError: Plotly is not installed.
    """
    check_target(out)
    made = build(folders, title=title, memory=memory, trust=trust, progress=progress)
    atomic.write_atomic(out, made.encode("utf-8"))
    return out


def check_target(out: Path) -> None:
    """Refuses a place where no page can be written, and a machine without plotly, before anything slow begins.

    Raises:
        StorageError: It is a folder, lies in none, or nothing can be written there.
        UnsupportedError: Plotly is not installed.
    """
    atomic.check_target(out)
    _plotly()


def build(
    folders: Sequence[Path],
    *,
    title: str | None = None,
    memory: float | None = None,
    trust: Trust = NOTHING,
    progress: Labelled | None = None,
) -> str:
    """The page about runs, as text; see ``write``."""
    return page(collect(folders, progress, trust=trust), title=title, memory=memory)


def page(material: Material, *, title: str | None = None, memory: float | None = None) -> str:
    """The page about what was collected, as text; ``memory`` are the bytes of a card."""
    heading = title or _title(material)
    alone = material.details if len(material.studies) == 1 else material.runs
    summary = lede(alone[0]) if len(alone) == 1 else ""
    return document(heading, summary, _sections(material, heading, memory))


def document(heading: str, summary: str, sections: Sequence[Section]) -> str:
    """A page of sections, as text: with its own style, script and charts, and leave to run nothing else.

    Raises:
        UnsupportedError: Plotly is not installed.
    """
    from ranp import __version__

    script, plotly = verbatim("page.js"), Markup(_plotly())
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        f"script-src {_hash(plotly)} {_hash(script)}"
    )
    data = {
        "charts": {chart.key: chart.figure for section in sections for chart in section.charts},
        "studies": {key: value for section in sections for key, value in section.data.items()},
    }
    values = {"policy": policy, "title": heading, "summary": summary, "sections": sections, "data": data}
    scripts = {"style": verbatim("page.css"), "plotly": plotly, "script": script}
    return str(render("page.html", version=__version__, **values, **scripts))


def _sections(material: Material, heading: str, memory: float | None) -> list[Section]:
    runs, tables = material.runs, material.tables
    titles = ["What came out" if found.title == heading else found.title for found in tables]
    made = [comparing.table_section(found, number, titles[number]) for number, found in enumerate(tables)]
    if len(runs) > 1:
        labels = {run.label for run in runs}
        listed = not any(labels <= {row[0] for group in found.groups for row in group.rows} for found in tables)
        made.append(comparing.comparison(runs, material.bills, listed=listed))
    alone = len(material.studies) == 1
    for number, run in enumerate(material.details):
        by_kind = f"{run.model}, {method_name(run.method)} at {share(run.sparsity)}"  # where it stands for many
        called = run.label if len(runs) <= ALONE else by_kind
        study = material.studies[run.label]
        made.append(detail(run, f"run-{number}", study, heading=called, introduced=alone, memory=memory))
    if len(runs) == 1 and (learnt := comparing.training(runs[0])) is not None:
        made.append(learnt)
    if material.pictures:
        made.append(_examples(material))
    return made


def _examples(material: Material) -> Section:
    """Predictions of trained networks, one part for each task."""
    tasks = []
    for task, found in material.pictures.items():
        images, reason = [], found.reason if isinstance(found, Absent) else ""
        for one in () if isinstance(found, Absent) else found:
            words = f"{one.title}: what each network predicts on a sample it was not trained on, beside the truth."
            images.append(Image(rendered(examples([one]), ".png"), "png", words, words))
        tasks.append((task, images, reason))
    return Section("examples", "Example predictions", render("examples.html", tasks=tasks))


def _title(material: Material) -> str:
    if len(material.runs) == 1:
        run = material.runs[0]
        return f"{run.label}: {run.model}, pruned before training" if run.report else f"{run.label}: {run.model}"
    if len(material.tables) == 1 or not material.runs:
        return material.tables[0].title
    tables = f"{len(material.tables)} tables of " if material.tables else ""
    return f"{tables}{len(material.runs)} runs, side by side"


def _hash(script: str) -> str:
    """A script that the page may run, as its policy names it: by its hash."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode('utf-8')).digest()).decode('ascii')}'"


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UnsupportedError("the report needs plotly. Install it with: pip install 'ranp[report]'.") from error
    return str(get_plotlyjs()).replace("\r\n", "\n")

"""Packages that need not be installed: what a verb lacks is found before any work, all of it in one message."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ranp.errors import UnsupportedError

if TYPE_CHECKING:
    from ranp.paper.tasks import Task

Packages = Mapping[str, str]
"""Packages by the name they are imported by, each with the extra that installs it."""

REPORT: Packages = {"jinja2": "report", "matplotlib": "report", "plotly": "report"}
COMPARE: Packages = {"scipy": "compare", "jinja2": "compare", "plotly": "compare"}
CLUSTER: Packages = {"distributed": "cluster"}
LIGHTNING: Packages = {"lightning": "lightning"}


def of_task(task: Task, data: object = None) -> Packages:
    """What a task needs, and what reads its published data set, where one is given."""
    return {**task.needs, **(task.readers if data is not None else {})}


def require(*needed: Packages) -> None:
    """Refuses to begin what could not be ended.

    Raises:
        UnsupportedError: Packages are not installed; the message names all of them, and the one command that helps.
    """
    missing = {name: extra for packages in needed for name, extra in packages.items() if find_spec(name) is None}
    if missing:
        are = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'}"
        extras = ",".join(sorted(set(missing.values())))
        raise UnsupportedError(f"{are} needed for this and not installed. Run: pip install 'ranp[{extras}]'.")

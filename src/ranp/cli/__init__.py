"""The ``ranp`` command: one file per verb; what is slow to import is imported inside the verb.

Exit status: 0 done, 2 the input was refused (one line says why), 28 the disk is full, 1 anything else, 130 interrupted,
143 ended by SIGTERM.
"""

from __future__ import annotations

import itertools
import logging
import sys
import traceback
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated

import typer

from ranp.cli.compare import compare
from ranp.cli.console import printable, say
from ranp.cli.demo import demo
from ranp.cli.evaluate import evaluate
from ranp.cli.export import export
from ranp.cli.fit import fit
from ranp.cli.options import Command, Group
from ranp.cli.plan import plan
from ranp.cli.profile import profile
from ranp.cli.prune import prune
from ranp.cli.report import report
from ranp.cli.reproduce import reproduce
from ranp.cli.search import search
from ranp.cli.train import train
from ranp.errors import RanpError, exit_status, speaking_flags

__all__ = ["app", "main"]

app = typer.Typer(
    name="ranp",
    cls=Group,
    help="Slim 3D networks before training: resource-aware neuron pruning at initialisation.",
    epilog="MODEL is a registered name (ranp profile --list) or package.module:function that returns the network.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _verb in (profile, prune, search, fit, train, evaluate, compare, reproduce, export, report, demo):
    app.command(_verb.__name__, cls=Command)(_verb)
app.add_typer(plan, name="plan")
del _verb


def _version(wanted: bool) -> None:
    if wanted:
        from ranp import __version__

        typer.echo(f"ranp {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may be given anywhere.")
    ] = False,
) -> None:
    """Declares the options that ``main`` has acted upon already, so that ``--help`` shows them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status; a refusal is one line on stderr, never a traceback.

    Args:
        arguments: What follows ``ranp``; default: that of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [word for word in given if word != "--debug"] or ["--help"]
    handler = logging.StreamHandler()
    handler.setFormatter(_Plain("%(levelname)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if debug else logging.WARNING)
    try:
        with speaking_flags():
            status = app(given, prog_name="ranp", standalone_mode=False)
    except KeyboardInterrupt:
        return _fail("interrupted", 130, debug)
    except RanpError as error:
        return _fail(str(error), exit_status(error), debug)
    except Exception as error:
        show = getattr(error, "format_message", None)  # what the parser of the command line refuses
        if callable(show):
            path = getattr(getattr(error, "ctx", None), "command_path", "ranp")
            reason = _refusal(error, given) or show()
            return _fail(f"{reason}{'' if reason.endswith(('.', '?')) else '.'} Try '{path} --help'.", 2, debug)
        return _fail(f"{type(error).__name__}: {error}", exit_status(error), debug)
    return status if isinstance(status, int) else 0


def _refusal(error: Exception, given: Sequence[str]) -> str:
    """What the parser does not say itself: the value that it refuses, where a setting goes; empty for other errors."""
    option = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
    if option and given[0] == "train":
        from ranp.paper.recipe import Recipe

        if option in {field.name for field in fields(Recipe)}:
            return f"No such option: --{option}. The recipe is changed with --set, such as --set {option}=VALUE."
    names: Sequence[str] = getattr(getattr(error, "param", None), "opts", ())
    split = [part for word in given for part in (word.split("=", 1) if word.startswith("--") else [word])]
    value = next((after for word, after in itertools.pairwise(split) if word in names), None)
    reason = str(getattr(error, "message", "")).rstrip(".")
    return f"{names[0]} {value!r} is not allowed: {reason[0].lower()}{reason[1:]}." if value and reason else ""


def _fail(reason: str, status: int, debug: bool) -> int:
    if debug:
        say(traceback.format_exc(), err=True)
    say(f"error: {' '.join(reason.split())}", err=True)
    return status


class _Plain(logging.Formatter):
    """Messages name layers and files, which may hold anything."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))

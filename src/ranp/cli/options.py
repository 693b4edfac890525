"""Flags that several verbs share, each declared once; verbs take whole groups of them.

The options of ``ranp.prune`` have their names, defaults and checks in ``ranp.options``; here is what the command line
says of each. ``@takes(PRUNING, SCORING)`` gives a verb the flags of these groups, as one dictionary for each.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from ranp.costs.quantities import budget_examples, resources
from ranp.options import Options

if TYPE_CHECKING:
    from ranp.costs.step import TrainingStep

_NETWORK, _DATA, _HOW = "Network", "What to score on", "How to prune"
_STEP, RUN = "One training step", "Run"
"""Headings under which ``--help`` lists the flags."""


def _shown(params: list[Any]) -> list[Any]:
    """The options of a command; ``--help`` shows flags as such, not as options that take a truth value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A verb."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, ``--help`` among them."""
        return _shown(super().get_params(ctx))


class Group(TyperGroup):
    """A command that holds others."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its own options, ``--help`` among them."""
        return _shown(super().get_params(ctx))


def flag(text: str, panel: str | None = None, *declarations: str, **more: Any) -> Any:
    """A flag: its help, the heading that it stands under, and its names where they are not the argument's."""
    return typer.Option(*declarations, help=text, rich_help_panel=panel, **more)


Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A registered network, or package.module:function that returns one.")
]
Inputs = Annotated[
    list[str] | None, flag("Shape of an input; may be repeated.", _NETWORK, "--input", metavar="1x1x64x64x64")
]
Example = Annotated[str | None, flag("Function that returns the inputs of one call.", _NETWORK, metavar="PKG.MOD:FN")]
Json = Annotated[bool, flag("Print JSON instead of a table.", None, "--json")]
DataFolder = Annotated[
    Path | None,
    flag("Folder of the task's data set as published; default: procedural samples.", _DATA, "--data", metavar="DIR"),
]
AllowMissing = Annotated[bool, flag("Use an incomplete data set as it is.", _DATA, "--allow-missing")]
Scale = Annotated[str | None, flag("paper, or cpu: the task's small network and sizes; default paper.", _DATA)]
FolderModel = Annotated[
    str | None,
    flag("How to build the full network, instead of what the folder says.", None, "--model", metavar="MODEL"),
]
Trusted = Annotated[
    bool, flag("Run the code that the folder names; without it, no code named in a file is run.", None, "--trust")
]
Jobs = Annotated[int, flag("Number of parallel processes.", RUN, min=1)]
Cluster = Annotated[
    str | None,
    flag("Dask scheduler (tcp://host:8786, or its file), or slurm, pbs, lsf, instead of processes here.", RUN),
]
Device = Annotated[str, flag("cpu, cuda, cuda:1, ...", RUN)]

PRUNING: Mapping[str, Any] = {
    "sparsity": Annotated[float | None, flag("Fraction of channels to remove (of weights, for snip).", _HOW)],
    "budget": Annotated[
        list[str] | None,
        flag(f"The most it may need: {budget_examples()}; may be repeated.", _HOW, metavar="RESOURCE=VALUE"),
    ],
    "method": Annotated[
        str | None,
        flag(
            "ranp-f (default), ranp-m, weighted, vanilla, layerwise, random, snip, flat, power, pretrained, or "
            "balanced (default with --budget).",
            _HOW,
        ),
    ],
    "strength": Annotated[
        float | None, flag("How strongly costs count, lambda in the paper; default the task's, else 11.", _HOW)
    ],
    "criterion": Annotated[
        str | None,
        flag("mpmg-sum, mnmg-sum, neuron-mask, magnitude, random, ..., or code; default the method's own.", _HOW),
    ],
    "resource": Annotated[
        str | None, flag(f"{', '.join(resources())}, code, or several: flops+time; default the method's own.", _HOW)
    ],
    "tie": Annotated[str, flag("How coupled layers agree: max (the paper) or union.", _HOW)],
    "attention": Annotated[str, flag("What attention loses: heads, dims (inside heads), or both.", _HOW)],
    "exact": Annotated[
        bool,
        flag("Remove this share of the prunable channels, after coupling; every layer keeps one.", _HOW, "--exact"),
    ],
    "keep": Annotated[
        list[str] | None,
        flag("Layers to leave alone, such as 'encoders.0.*'; may be repeated.", _HOW, metavar="PATTERN"),
    ],
    "min_channels": Annotated[
        int | None, flag("Smallest width of a layer; default 1, or with a budget 4 where that fits.", _HOW, min=1)
    ],
    "round_to": Annotated[str, flag("Round widths up to a multiple; auto: the same as --fill time.", _HOW)],
    "fill": Annotated[
        str | None, flag("time: widen layers within the budget where the step gets no slower; none: never.", _HOW)
    ],
    "mode": Annotated[str, flag("train (the paper) or eval: how scoring runs the network.", _HOW)],
    "convention": Annotated[str, flag("true (as torch counts), paper or equation: what FLOPs and memory are.", _HOW)],
    "init": Annotated[
        str, flag("copy keeps weights; glorot (the paper), orthogonal, kaiming or code draw new ones.", _HOW)
    ],
    "max_batches": Annotated[
        int | None, flag("Score on at most this many; default: all, or 10 samples of a task.", _DATA, min=1)
    ],
    "unchecked": Annotated[
        bool, flag("Accept a slim network that could not be verified numerically.", RUN, "--unchecked")
    ],
    "seed": Annotated[int, flag("Seed of everything random.", RUN, min=0)],
}
"""The options of ``ranp.prune`` by name."""

SOURCE: Mapping[str, Any] = {
    "task": Annotated[str | None, flag("A task of the paper; the paper's networks default to their own.", _DATA)],
    "data": DataFolder,
    "allow_missing": AllowMissing,
    "scale": Scale,
    "batches": Annotated[
        str | None, flag("Function that returns (inputs, target) pairs.", _DATA, metavar="PKG.MOD:FN")
    ],
    "loss": Annotated[str | None, flag("The loss itself: loss(output, target).", _DATA, metavar="PKG.MOD:FN")],
    "size": Annotated[
        int | None,
        flag("Edge of a task's samples, default the recipe's; costs stay at the network's own size.", _DATA, min=8),
    ],
    "inputs": Inputs,
    "example": Example,
}
"""What to score on, and the network's inputs."""

STEP: Mapping[str, Any] = {
    "batch": Annotated[int | None, flag("Samples in a step; default: those of the input.", _STEP, min=1)],
    "optimizer": Annotated[
        str | None,
        flag(
            "adam, amsgrad, adamw, sgd, momentum, nesterov, rmsprop or none; default --task's, else adam.",
            _STEP,
            "--optimizer",
            "--optimiser",
        ),
    ],
    "precision": Annotated[
        str | None,
        flag(
            "float32, float64, bfloat16, float16, amp-bfloat16, amp-float16; default --task's, else float32.",
            _STEP,
        ),
    ],
    "checkpointing": Annotated[
        bool, flag("Activation checkpointing: less memory, more time.", _STEP, "--checkpointing")
    ],
}
"""One training step."""

DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Options)}
DEFAULTS |= {"budget": None, "keep": None, "round_to": "1"}
"""What a flag is where it is not given."""


def takes(**groups: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a verb the flags of some groups: what was given is passed as one dictionary for each, by its name.

    A verb that declares a flag of a group itself keeps its own.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(verb, eval_str=True)
        own = {name: p for name, p in signature.parameters.items() if name not in groups}
        flags = {
            name: inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=_default(name, annotation), annotation=annotation
            )
            for group in groups.values()
            for name, annotation in group.items()
            if name not in own
        }

        def run(**given: Any) -> None:
            parts = {title: {n: given[n] for n in group if n in flags} for title, group in groups.items()}
            verb(**{name: given[name] for name in own}, **parts)

        every = [*own.values(), *flags.values()]
        run.__name__, run.__doc__ = verb.__name__, verb.__doc__
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in every]
        )
        run.__annotations__ = {p.name: p.annotation for p in every}
        return run

    return decorate


def _default(name: str, annotation: Any) -> Any:
    return DEFAULTS[name] if name in DEFAULTS else False if get_args(annotation)[0] is bool else None


def as_words(given: Mapping[str, Any]) -> list[str]:
    """These flags as they would be typed, but for those that say no more than their defaults.

    >>> as_words({"tie": "max", "inputs": ["1x1x8x8x8"], "max_batches": 4, "exact": True, "task": None})
    ['--input', '1x1x8x8x8', '--max-batches', '4', '--exact']
    """
    words = []
    for name, value in given.items():
        option = "--" + {"inputs": "input"}.get(name, name.replace("_", "-"))
        if value is None or value is False or value == DEFAULTS.get(name):
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            words += [option] if one is True else [option, str(one)]
    return words


def options_of(given: Mapping[str, Any], **more: Any) -> Options:
    """The options that these flags ask for.

    Args:
        given: What the verb got for ``PRUNING``, or some of it.
        **more: Options that are not flags, such as ``step``.

    Raises:
        RanpError: A value is not allowed, or code that is named cannot be found.
    """
    read = {"criterion": _named, "init": _named, "resource": _resource, "round_to": _multiple}
    values = {name: read[name](name, value) if name in read else value for name, value in given.items()}
    return Options(**{name: value for name, value in {**values, **more}.items() if value is not None})


def step_of(given: Mapping[str, Any], source: Mapping[str, Any]) -> TrainingStep:
    """The training step that these flags ask for; what they leave open is as ``--task`` trains, where it is given."""
    from ranp.costs.step import TrainingStep
    from ranp.paper import tasks
    from ranp.paper.tasks.task import step_of as step_of_task

    words = {"batch": given["batch"], "optimiser": given["optimizer"], "precision": given["precision"]}
    if source["task"] is not None:
        task = tasks.get(source["task"])
        return step_of_task(task, source["scale"], checkpointing=given["checkpointing"], **words)
    return TrainingStep(
        checkpointing=given["checkpointing"], **{name: value for name, value in words.items() if value is not None}
    )


def _named(option: str, text: str | None) -> Any:
    """The value that ``package.module:name`` names, or the name as it is."""
    from ranp.paper.naming import code

    return code(text, f"--{option}") if text is not None and ":" in text else text


def _resource(option: str, text: str | None) -> Any:
    """One resource, or a list of several."""
    found = [_named(option, part) for part in text.split("+")] if text is not None else [None]
    return found[0] if len(found) == 1 else found


def _multiple(option: str, text: str) -> int | str:
    return int(text) if text.isdecimal() else text

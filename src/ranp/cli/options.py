"""Options that several verbs share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_NETWORK, _DATA, _HOW, _STEP, _RUN = "Network", "What to score on", "How to prune", "One training step", "Run"

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A registered network, or package.module:function that returns one.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="1x1x64x64x64", help="Shape of an input; repeat it.", rich_help_panel=_NETWORK),
]
Example = Annotated[
    str | None,
    typer.Option(metavar="PKG.MOD:FN", help="Function that returns the inputs of one call.", rich_help_panel=_NETWORK),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

Task = Annotated[
    str | None,
    typer.Option(help="A task of the paper; a network of the paper has its own by default.", rich_help_panel=_DATA),
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder of the task's data set as published; default: procedural samples.",
        rich_help_panel=_DATA,
    ),
]
AllowMissing = Annotated[
    bool,
    typer.Option("--allow-missing", help="Take what is there of a partial data set.", rich_help_panel=_DATA),
]
Scale = Annotated[
    str | None,
    typer.Option(help="paper, or cpu: the task's small network and sizes; default paper.", rich_help_panel=_DATA),
]
Batches = Annotated[
    str | None,
    typer.Option(metavar="PKG.MOD:FN", help="Function that returns (inputs, target) pairs.", rich_help_panel=_DATA),
]
LossName = Annotated[
    str | None,
    typer.Option("--loss", metavar="PKG.MOD:FN", help="The loss itself: loss(output, target).", rich_help_panel=_DATA),
]
Size = Annotated[
    int | None,
    typer.Option(
        min=8,
        help="Edge of a task's samples, default the recipe's; costs stay at the network's own size.",
        rich_help_panel=_DATA,
    ),
]
MaxBatches = Annotated[
    int | None,
    typer.Option(min=1, help="Score on no more; default: all, or 10 samples of a task.", rich_help_panel=_DATA),
]

MethodName = Annotated[
    str,
    typer.Option(
        "--method", help="ranp-f, ranp-m, weighted, vanilla, layerwise, random or snip.", rich_help_panel=_HOW
    ),
]
Strength = Annotated[
    float | None,
    typer.Option(help="How much cost counts, lambda in the paper; default the task's, else 11.", rich_help_panel=_HOW),
]
CriterionName = Annotated[
    str | None,
    typer.Option(
        "--criterion",
        help="mpmg-sum, mnmg-sum, neuron-mask, magnitude, random, ..., or code; default the method's own.",
        rich_help_panel=_HOW,
    ),
]
Tie = Annotated[str, typer.Option(help="How coupled layers agree: max (the paper) or union.", rich_help_panel=_HOW)]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN", help="Layers to leave alone, such as 'encoders.0.*'; repeat it.", rich_help_panel=_HOW
    ),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Meet the sparsity after coupling, of prunable channels; every layer keeps one.",
        rich_help_panel=_HOW,
    ),
]
Mode = Annotated[
    str, typer.Option(help="train (the paper) or eval: how scoring runs the network.", rich_help_panel=_HOW)
]
Batch = Annotated[
    int | None,
    typer.Option("--batch", min=1, help="Samples in a step; default: those of the input.", rich_help_panel=_STEP),
]
Optimiser = Annotated[
    str,
    typer.Option(
        "--optimizer", help="adam, amsgrad, adamw, sgd, momentum, nesterov, rmsprop or none.", rich_help_panel=_STEP
    ),
]
Precision = Annotated[
    str,
    typer.Option(help="float32, float64, bfloat16, float16, amp-bfloat16, amp-float16.", rich_help_panel=_STEP),
]
Checkpointing = Annotated[
    bool,
    typer.Option("--checkpointing", help="Activation checkpointing: less memory, more time.", rich_help_panel=_STEP),
]
FolderModel = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="How the full network is made, instead of what the folder says."),
]
Trusted = Annotated[
    bool, typer.Option("--trust", help="Run the code that the folder names; without it nothing in a file is run.")
]
Seed = Annotated[int, typer.Option(min=0, help="Of everything random.", rich_help_panel=_RUN)]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...", rich_help_panel=_RUN)]

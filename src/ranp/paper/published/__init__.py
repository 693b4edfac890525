"""Every table of the paper as data, to lay beside ours: the printed figures, by our names of networks and methods.

Nothing here is computed: each figure is the paper's own, with its digits and in its unit, also where it cannot be right
(``ERRATA``). The figures stand in the CSV files of this folder, a row of a table a line: ``tables.csv``, ``quotes.csv``
with what the text alone says, ``errata.csv``. Sparsities, reductions and accuracies are percentages as printed; the
end-point error is in pixels, parameters and memory in MB, FLOPs in G.

Example:
    >>> last = main("unet3d-shapenet")[-1]
    >>> last.method, last.gflops, str(last.figures["miou"])
    ('ranp-f', 7.54, '83.07 ± 0.22')
    >>> largest_sparsity("psm-sceneflow", "vanilla"), vanilla_criterion("psm-sceneflow")
    (46.2, 'mnmg-sum')
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from ranp.errors import UnsupportedError, unknown_name

__all__ = [
    "ERRATA", "FIGURES", "QUOTES", "Erratum", "Measured", "Quote", "Reductions", "Row", "criteria", "equal_resources",
    "in_the_papers_unit", "initialisation", "largest_sparsity", "main", "psm_parts", "quotes", "single_gpu", "transfer",
    "vanilla_criterion",
]  # fmt: skip

T = TypeVar("T")

_DICE, _TOP = ("dice_et", "dice_tc", "dice_wt"), ("top1_video", "top5_video")
FIGURES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "unet3d-shapenet": ("miou",),
        "unet3d-shapenet-23": ("miou",),
        "unet3d-brats": _DICE,
        "unet3d-brats-23": _DICE,
        "mobilenetv2-ucf101": _TOP,
        "i3d-ucf101": _TOP,
        "psm-sceneflow": ("acc1", "acc3", "epe"),
    }
)
"""What the tables measure of each network, in the order of their columns, by the names of our tasks' figures.

The paper calls the BraTS figures IoU; the authors' code computes Dice, so they are to be laid beside our Dice.
"""

_VANILLA: Mapping[str, str] = {
    "unet3d-shapenet": "mpmg-sum",
    "unet3d-brats": "mpmg-sum",
    "mobilenetv2-ucf101": "mpmg-sum",
    "i3d-ucf101": "mpmg-sum",
    "psm-sceneflow": "mnmg-sum",
}
"""The criterion that the paper goes on with, and that its vanilla, weighted and RANP rows rest on."""

_LARGEST_BY_RANP_F: Mapping[str, float] = {
    "unet3d-shapenet": 98.57,
    "unet3d-shapenet-23": 97.99,
    "unet3d-brats": 96.24,
    "mobilenetv2-ucf101": 80.83,
    "i3d-ucf101": 85.3,
    "psm-sceneflow": 92.32,
}
"""The largest share of neurons that RANP-f removes and leaves every layer one, in percent."""

_IN_PIXELS = ("epe",)


class Reductions(NamedTuple):
    """What was removed of each resource of the full network, in percent with one decimal."""

    params: float
    gflops: float
    memory: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure of a trained network.

    Attributes:
        mean: Over the last five epochs of one run.
        spread: What stands behind the plus-minus: over the same epochs, not over seeds.
    """

    mean: float
    spread: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.spread:.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a table of the paper.

    Attributes:
        method: ``"full"``, a method's name, or a criterion's.
        network: By our name.
        sparsity: Share of neurons removed in percent, of single weights for ``"snip"``; None if the table has none.
        params_mb: Size of the parameters.
        gflops: FLOPs of one forward pass (multiply-adds, see ``ranp.costs.counting``).
        memory_mb: Size of the activations of one forward pass.
        reductions: As printed; None where none is, as for the full network.
        figures: What the trained network reaches, by the names of ``FIGURES``.
        init: Table on initialisation: how the weights were drawn; None for the full network.
        matched: Table at equal resources: the figure that was made about equal to that of RANP-f; None for RANP-f.
        part: Table of PSM's parts: ``"2d"`` or ``"3d"``.
        pruned_on: Table on transfer: the network whose data decided what was removed; None if nothing was.
        layers: Table on a single GPU: convolutions of the network.
        batch: There: samples of a training step, over all GPUs.
        gpus: There: on how many it was trained.
    """

    method: str
    network: str = ""
    sparsity: float | None = None
    params_mb: float | None = None
    gflops: float | None = None
    memory_mb: float | None = None
    reductions: Reductions | None = None
    figures: Mapping[str, Measured] = field(default_factory=lambda: MappingProxyType({}))
    init: str | None = None
    matched: str | None = None
    part: str | None = None
    pruned_on: str | None = None
    layers: int | None = None
    batch: int | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """A statement of the text.

    Attributes:
        network: By our name.
        method: By our name.
        sparsity: Share of neurons removed in percent; None if the words tell none.
        figures: By the names of a row's fields and figures, in the units of a row; ``*_loss`` and ``*_rise`` are
            differences to the full network, ``*_reduction`` percent of it, ``*_below`` an upper bound.
        words: What the paper says, as plain text.
    """

    network: str
    method: str
    sparsity: float | None
    figures: Mapping[str, float]
    words: str


@dataclass(frozen=True, slots=True)
class Erratum:
    """Something printed that cannot be meant: the paper contradicts itself, or its authors' code.

    Attributes:
        where: The table by its label, or ``"text"``.
        network: By our name; None for all of them.
        methods: Whose rows; empty for all of them.
        figure: A row's field or figure; that of a reduction is ``"params"``, ``"gflops"`` or ``"memory"``.
        printed: What the paper says.
        instead: What follows from the rest of it, or from the authors' code.
        reason: Why.
    """

    where: str
    network: str | None
    methods: tuple[str, ...]
    figure: str
    printed: str
    instead: str
    reason: str


def _lines(name: str) -> Iterator[dict[str, str]]:
    return csv.DictReader(files(__name__).joinpath(f"{name}.csv").read_text(encoding="utf-8").splitlines())


def _number(text: str) -> float:
    """A number that was printed without decimals stays a whole one."""
    return float(text) if "." in text else int(text)


def _row(line: Mapping[str, str]) -> Row:
    numbers = ("sparsity", "params_mb", "gflops", "memory_mb")
    fields: dict[str, Any] = {name: _number(line[name]) for name in numbers if line[name]}
    for name, _, value in (word.partition("=") for word in line["variant"].split()):
        fields[name] = int(value) if name in ("layers", "batch", "gpus") else value
    less = [float(line[name]) for name in ("params_less", "gflops_less", "memory_less") if line[name]]
    figures = [Measured(*map(float, figure.split("±"))) for figure in line["figures"].split()]
    return Row(
        method=line["method"],
        network=line["network"],
        reductions=Reductions(*less) if less else None,
        figures=MappingProxyType(dict(zip(FIGURES[line["network"]] if figures else (), figures, strict=True))),
        **fields,
    )


def _quote(line: Mapping[str, str]) -> Quote:
    figures = {name: _number(value) for name, _, value in (figure.partition("=") for figure in line["figures"].split())}
    sparsity = _number(line["sparsity"]) if line["sparsity"] else None
    return Quote(line["network"], line["method"], sparsity, MappingProxyType(figures), line["words"])


_ROWS = tuple((line["table"], _row(line)) for line in _lines("tables"))
QUOTES: tuple[Quote, ...] = tuple(map(_quote, _lines("quotes")))
"""What the text alone says, each with its words."""
ERRATA: tuple[Erratum, ...] = tuple(
    Erratum(**{**line, "network": line["network"] or None, "methods": tuple(line["methods"].split())})  # type: ignore[arg-type]
    for line in _lines("errata")
)
"""Where the paper contradicts itself, or its authors' code; the figures stay as printed, the reader is told."""


def _table(name: str, by: str = "network") -> Mapping[str, tuple[Row, ...]]:
    found: dict[str, tuple[Row, ...]] = {}
    for table, row in _ROWS:
        if table == name:
            found[getattr(row, by)] = (*found.get(getattr(row, by), ()), row)
    return MappingProxyType(found)


def main(network: str) -> tuple[Row, ...]:
    """The main table: the full network, then SNIP, random, layer-wise, vanilla, weighted, RANP-m and RANP-f.

    All methods but SNIP are at the largest neuron sparsity that vanilla pruning reaches; SNIP is at its own largest
    share of single weights.

    Raises:
        UnsupportedError: The table does not have that network.
    """
    return _of(_table("main"), network, "in the paper's main table")


def criteria(network: str) -> tuple[Row, ...]:
    """Vanilla pruning by each criterion at its largest sparsity; a row's method is ``"full"`` or a criterion.

    Raises:
        UnsupportedError: The table does not have that network.
    """
    return _of(_table("criteria"), network, "in the paper's table of criteria")


def vanilla_criterion(network: str) -> str:
    """The criterion that the network's vanilla, weighted and RANP rows of the main table rest on.

    Raises:
        UnsupportedError: The paper chooses none for that network.
    """
    return _of(_VANILLA, network, "in the paper's table of criteria")


def initialisation(network: str) -> tuple[Row, ...]:
    """Resources after orthogonal and after Glorot initialisation, all at the smallest of their largest sparsities.

    Raises:
        UnsupportedError: The table does not have that network.
    """
    return _of(_table("initialisation"), network, "in the paper's table of initialisations")


def equal_resources(network: str) -> tuple[Row, ...]:
    """Random and layer-wise pruning at the FLOPs and at the memory of RANP-f; then RANP-f itself.

    Raises:
        UnsupportedError: The table does not have that network.
    """
    return _of(_table("equal-resources"), network, "in the paper's table at equal resources")


def psm_parts() -> Mapping[str, tuple[Row, ...]]:
    """Convolutions, norms and pooling of PSM's ``"2d"`` and ``"3d"`` layers; activations are in neither part."""
    return _table("psm-parts", by="part")


def transfer() -> Mapping[str, tuple[Row, ...]]:
    """The 23-layer networks, by the one that was trained: full, pruned on its own data, pruned on the other's.

    The table prints no sparsity; the text says 80 %.
    """
    return _table("transfer")


def single_gpu() -> tuple[Row, ...]:
    """What a 15-layer and a 23-layer network reach on two GPUs, and the latter on one after RANP-f."""
    return tuple(row for table, row in _ROWS if table == "single-gpu")


def quotes(network: str) -> tuple[Quote, ...]:
    """What the text alone says of a network: at extreme sparsities, at 70 %, on a single GPU.

    Raises:
        UnsupportedError: The text says nothing of that network that no table does.
    """
    if not any(quote.network == network for quote in QUOTES):
        raise UnsupportedError(unknown_name("network in the paper's text", network, {q.network for q in QUOTES}))
    return tuple(quote for quote in QUOTES if quote.network == network)


def largest_sparsity(network: str, method: str) -> float:
    """The largest feasible sparsity that the paper tells, in percent: of neurons, for ``"snip"`` of single weights.

    Args:
        network: By our name.
        method: ``"vanilla"``, ``"ranp-f"``, ``"snip"``, or a criterion, which means vanilla pruning by it.

    Raises:
        UnsupportedError: The paper tells none of that network and method.
    """
    largest = {name: {"ranp-f": sparsity} for name, sparsity in _LARGEST_BY_RANP_F.items()}
    for name, criterion in _VANILLA.items():
        at_their_largest = (*criteria(name), *(row for row in main(name) if row.method == "snip"))
        largest[name] |= {row.method: row.sparsity for row in at_their_largest if row.sparsity}
        largest[name]["vanilla"] = largest[name][criterion]
    found = _of(largest, network, "with a largest sparsity in the paper")
    return _of(found, method, f"with a largest sparsity of {network!r} in the paper", "method")


def in_the_papers_unit(figure: str, value: float) -> float:
    """A figure of one of our tasks, a share from 0 to 1 or pixels, as the paper would print it.

    >>> in_the_papers_unit("miou", 0.75), in_the_papers_unit("epe", 1.5)
    (75.0, 1.5)
    """
    return value if figure in _IN_PIXELS else 100 * value


def _of(table: Mapping[str, T], name: str, where: str, what: str = "network") -> T:
    if name not in table:
        raise UnsupportedError(unknown_name(f"{what} {where}:", name, table))
    return table[name]

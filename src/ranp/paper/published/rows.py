"""The shape of a printed row: the method by our name, every figure with the digits and in the unit of the paper.

Sparsities, reductions and accuracies are percentages as printed; the end-point error is in pixels, parameters and
memory in MB, FLOPs in G. ``in_the_papers_unit`` turns a figure of ours, a share from 0 to 1, into one that can stand
beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

__all__ = [
    "FIGURES",
    "Initialised",
    "Matched",
    "Measured",
    "OnGpus",
    "Reductions",
    "Row",
    "Transferred",
    "in_the_papers_unit",
    "measured",
    "row",
]

FIGURES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "unet3d-shapenet": ("miou",),
        "unet3d-shapenet-23": ("miou",),
        "unet3d-brats": ("dice_et", "dice_tc", "dice_wt"),
        "unet3d-brats-23": ("dice_et", "dice_tc", "dice_wt"),
        "mobilenetv2-ucf101": ("top1_video", "top5_video"),
        "i3d-ucf101": ("top1_video", "top5_video"),
        "psm-sceneflow": ("acc1", "acc3", "epe"),
    }
)
"""What the tables measure of each network, in the order of their columns, by the names of our tasks' figures.

The paper calls the BraTS figures IoU; the authors' code computes Dice, so they are to be laid beside our Dice.
"""

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
        sparsity: Share of neurons removed in percent, of single weights for ``"snip"``; None if the table has none.
        params_mb: Size of the parameters.
        gflops: FLOPs of one forward pass (multiply-adds, see ``ranp.costs.counting``).
        memory_mb: Size of the activations of one forward pass.
        reductions: As printed; None where none is, as for the full network.
        figures: What the trained network reaches, by the names of ``FIGURES``.
    """

    method: str
    sparsity: float | None = None
    params_mb: float | None = None
    gflops: float | None = None
    memory_mb: float | None = None
    reductions: Reductions | None = None
    figures: Mapping[str, Measured] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialised(Row):
    """A row of the table on initialisation.

    Attributes:
        init: How the weights were drawn, by our name; None for the full network, whose resources depend on no weight.
    """

    init: Literal["glorot", "orthogonal"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched(Row):
    """A row of the table on equal resources.

    Attributes:
        matched: The figure that was made about equal to that of RANP-f, which the paper prints with a tilde; None for
            RANP-f itself.
    """

    matched: Literal["gflops", "memory_mb"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred(Row):
    """A row of the table on transfer.

    Attributes:
        pruned_on: The network whose data decided what was removed; None if nothing was.
    """

    pruned_on: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGpus(Row):
    """A row of the table on a single GPU.

    Attributes:
        network: By our name; the table tells its layers.
        layers: Convolutions of the network.
        batch: Samples of a training step, over all GPUs.
        gpus: On how many it was trained.
    """

    network: str
    layers: int
    batch: int
    gpus: int


def row(
    network: str,
    method: str,
    sparsity: float,
    resources: tuple[float, float, float],
    reductions: tuple[float, float, float] | None = None,
    *figures: tuple[float, float],
) -> Row:
    """A row of resources and figures, written in the order of the paper's columns."""
    params, gflops, memory = resources
    return Row(
        method=method,
        sparsity=sparsity,
        params_mb=params,
        gflops=gflops,
        memory_mb=memory,
        reductions=None if reductions is None else Reductions(*reductions),
        figures=measured(network, figures),
    )


def measured(network: str, figures: Sequence[tuple[float, float]]) -> Mapping[str, Measured]:
    """Means and spreads by the names of the network's figures."""
    return MappingProxyType(
        {name: Measured(*pair) for name, pair in zip(FIGURES[network] if figures else (), figures, strict=True)}
    )


def in_the_papers_unit(figure: str, value: float) -> float:
    """A figure of one of our tasks as the paper would print it: shares in percent, the end-point error in pixels.

    >>> in_the_papers_unit("miou", 0.75), in_the_papers_unit("epe", 1.5)
    (75.0, 1.5)
    """
    return value if figure in _IN_PIXELS else 100 * value

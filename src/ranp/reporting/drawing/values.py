"""What the figures are drawn from: plain values without a network, a run or a drawing library in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ranp.errors import DataError

Array = npt.NDArray[Any]

KINDS = ("image", "overlay", "voxels", "bars")
"""What a panel can be."""

_DIMENSIONS = {"image": (2, 3), "overlay": (2,), "voxels": (3,), "bars": (1,)}


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """What one method makes of one network.

    Attributes:
        network: Whose panel it is in, such as ``"ShapeNet, 3D-UNet"``.
        method: Its colour and marker; ``"full"`` is the network as it was.
        flops: Of a forward pass; any unit, the same for all points of a network.
        memory: Of the activations, likewise.
    """

    network: str
    method: str
    flops: float
    memory: float

    def __post_init__(self) -> None:
        for name in ("flops", "memory"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise DataError(
                    f"{self.method} of {self.network} has {name}={value}; a point needs a finite number above 0. "
                    "Leave out what was not feasible."
                )


@dataclass(frozen=True, slots=True)
class Curve:
    """How a training went: one entry for each epoch.

    Attributes:
        epochs: Epochs done, rising.
        seconds: Seconds of training until then, rising.
        figures: Loss and whatever was measured, by name; None where an epoch was not validated.
    """

    epochs: tuple[float, ...]
    seconds: tuple[float, ...]
    figures: Mapping[str, tuple[float | None, ...]]

    def __post_init__(self) -> None:
        for name, values in (("seconds", self.seconds), *self.figures.items()):
            if len(values) != len(self.epochs):
                raise DataError(
                    f"a curve of {len(self.epochs)} epochs has {len(values)} values of {name!r}; one for each epoch is "
                    "needed, None where there is none."
                )

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]]) -> Curve:
        """The curve of a run's journal (``metrics.jsonl``): its records of epochs, with all that they measured.

        Raises:
            DataError: No epoch has ended.
        """
        epochs = [record for record in records if record.get("kind") == "epoch"]
        if not epochs:
            raise DataError(
                "the journal has no record of an epoch, so there is no curve. Train for at least one epoch."
            )
        measured = dict.fromkeys(name for record in epochs for name in record.get("valid", {}))
        return cls(
            epochs=tuple(float(record["epoch"]) for record in epochs),
            seconds=tuple(float(record["seconds"]) for record in epochs),
            figures={
                "loss": tuple(record["loss"] for record in epochs),
                **{name: tuple(record.get("valid", {}).get(name) for record in epochs) for name in measured},
            },
        )

    def points(self, x: str, y: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Where ``y`` is known: ``"epoch"`` or ``"seconds"`` of each point, and its value.

        Raises:
            DataError: There is no such axis or figure.
        """
        if x not in ("epoch", "seconds"):
            raise DataError(f"x={x!r}: a curve runs over 'epoch' or over 'seconds'.")
        if y not in self.figures:
            raise DataError(f"y={y!r} is not in this curve; it has {', '.join(self.figures) or 'nothing'}.")
        along = self.epochs if x == "epoch" else self.seconds
        known = [(a, b) for a, b in zip(along, self.figures[y], strict=True) if b is not None and math.isfinite(b)]
        return tuple(a for a, _ in known), tuple(b for _, b in known)


@dataclass(frozen=True, slots=True)
class Scale:
    """What the colours of an image of numbers mean. Panels of one scale share a colour bar.

    Attributes:
        label: Quantity and unit, such as ``"disparity (px)"``.
        low: Value of the first colour.
        high: Value of the last one; larger values have it too.
        error: Whether it shows errors, which are white where there is none, instead of values.
    """

    label: str
    low: float
    high: float
    error: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise DataError(
                f"{self.label!r} goes from {self.low} to {self.high}; two finite numbers, the lower one first, are "
                "needed."
            )


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One picture of a row.

    Attributes:
        title: What it shows: ``"Truth"``, or a network's name.
        kind: ``"image"``, ``"overlay"``, ``"voxels"`` or ``"bars"``.
        values: Of an image (H, W, 3) colours or (H, W) brightness from 0 to 1, or numbers if it has a scale, NaN where
            nothing is known; of an overlay (H, W) brightness; of voxels (X, Y, Z) labels from 0, -1 where there is
            nothing; of bars (n,) shares.
        labels: Of an overlay, (H, W): 0 for nothing, ``k`` for the ``k``-th entry of the legend.
        legend: What the labels of an overlay or of voxels mean, or what each bar is.
        scale: Of an image of numbers.
        marked: The bar that is the truth, -1 if none is.
        views: Elevation and azimuth in degrees, from which voxels are seen, side by side.
        note: A figure of merit, shown below.
    """

    title: str
    kind: str
    values: Array
    labels: Array | None = None
    legend: tuple[str, ...] = ()
    scale: Scale | None = None
    marked: int = -1
    views: tuple[tuple[float, float], ...] = ((30.0, -45.0), (30.0, 45.0))
    note: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DataError(f"panel {self.title!r} is of kind {self.kind!r}; allowed are {', '.join(KINDS)}.")
        shape = np.shape(self.values)
        if len(shape) not in _DIMENSIONS[self.kind] or 0 in shape:
            dimensions = " or ".join(map(str, _DIMENSIONS[self.kind]))
            raise DataError(f"panel {self.title!r}: {self.kind} of shape {shape}; {dimensions} dimensions are needed.")
        labels = () if self.labels is None else np.shape(self.labels)
        if self.kind == "overlay" and labels != shape:
            raise DataError(
                f"panel {self.title!r}: labels of shape {labels} over an image of {shape}; "
                "one for each pixel is needed."
            )
        if self.kind == "bars" and len(self.legend) != shape[0]:
            raise DataError(f"panel {self.title!r}: {shape[0]} bars with {len(self.legend)} names; name each of them.")
        if self.kind == "voxels" and not self.views:
            raise DataError(f"panel {self.title!r}: voxels need a view. Pass an elevation and an azimuth.")


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A sample: truth and predictions side by side.

    Attributes:
        title: What the sample is.
        panels: From left to right; in several lines, down each column first.
        lines: In which the panels stand.
    """

    title: str
    panels: tuple[Panel, ...]
    lines: int = 1

    def __post_init__(self) -> None:
        if not self.panels:
            raise DataError(f"picture {self.title!r} has no panel. Pass at least one.")
        if not 1 <= self.lines <= len(self.panels):
            raise DataError(f"picture {self.title!r}: {len(self.panels)} panels do not fill {self.lines} lines.")

"""One table that says what pruning bought and what it cost, as text, Markdown and plain values."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ranp.paper.timing import median_ratio
from ranp.reporting.format import MIB

__all__ = ["Comparison", "Contender"]

HEADER = (
    "network",
    "channels removed",
    "parameters",
    "MFLOPs",
    "memory MiB",
    "s / step",
    "of full",
    "accuracy",
    "part mIoU",
)


@dataclass(frozen=True, slots=True)
class Contender:
    """One network of a comparison.

    Attributes:
        name: ``"full"``, or the method that pruned it.
        removed: Fraction of channels removed.
        params: Parameters.
        flops: FLOPs of one object, as torch counts them.
        memory: Bytes that a training step keeps of one object for its backward pass.
        seconds: Of each timed training step, in the same rounds as those of the others.
        losses: Training loss at every step.
        accuracy: Voxel accuracy on objects it was not trained on.
        miou: Part mIoU on them.
    """

    name: str
    removed: float
    params: int
    flops: int
    memory: int
    seconds: tuple[float, ...]
    losses: tuple[float, ...]
    accuracy: float
    miou: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Networks trained alike and measured side by side; the first is the one the others are compared with.

    Attributes:
        contenders: The networks.
        guess: Accuracy and mIoU of always answering the most frequent part of an object's category.
        notes: What the reader must know to judge the figures.
        settings: How it was made, plain JSON.
    """

    contenders: tuple[Contender, ...]
    guess: Mapping[str, float]
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, ...]]:
        """The cells of the table, one tuple per network and one for guessing; ``HEADER`` names them."""
        reference = self.contenders[0]
        rows: list[tuple[str, ...]] = [
            (
                one.name,
                f"{one.removed:.1%}",
                f"{one.params:,}",
                f"{one.flops / 1e6:.1f}",
                f"{one.memory * MIB:.2f}",
                f"{statistics.median(one.seconds):.3f}",
                f"{median_ratio(one.seconds, reference.seconds):.2f}",
                f"{one.accuracy:.1%}",
                f"{one.miou:.1%}",
            )
            for one in self.contenders
        ]
        blank = ("",) * 6
        rows.append(("(guessing)", *blank, f"{self.guess['accuracy']:.1%}", f"{self.guess['miou']:.1%}"))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values, ready for JSON."""
        return {
            "settings": dict(self.settings),
            "notes": list(self.notes),
            "guess": dict(self.guess),
            "contenders": [
                {**asdict(one), "seconds_per_step": statistics.median(one.seconds)} for one in self.contenders
            ],
        }

    def to_markdown(self) -> str:
        """The table in Markdown, with its notes below."""
        lines = [HEADER, ("---", *("---:" for _ in HEADER[1:])), *self.rows()]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{table}\n\n" + "\n".join(f"- {note}" for note in self.notes) + "\n"

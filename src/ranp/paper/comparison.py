"""One table that says what pruning bought and what it cost, as text, Markdown and a page of HTML."""

from __future__ import annotations

import html
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ranp.paper.timing import median_ratio

__all__ = ["Comparison", "Contender"]

HEADER = (
    "network",
    "channels removed",
    "parameters",
    "MFLOPs",
    "memory MB",
    "s / step",
    "of full",
    "accuracy",
    "part mIoU",
)
_MB = 4 / 1024**2
_COLOURS = ("#444444", "#0b6e4f", "#c05621", "#3b5bdb")


@dataclass(frozen=True, slots=True)
class Contender:
    """One network of a comparison.

    Attributes:
        name: ``"full"``, or the method that pruned it.
        removed: Fraction of channels removed.
        params: Parameters.
        flops: FLOPs of one object in the paper's convention (multiply-adds).
        memory: Elements of activations of one object in the paper's convention.
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
                f"{one.memory * _MB:.2f}",
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

    def to_html(self, title: str, details: str = "") -> str:
        """A page that needs nothing else: the table, the training losses as a drawing, and ``details`` as they are.

        Args:
            title: Heading of the page.
            details: Plain text below the table, such as a report.
        """
        head = "".join(f"<th>{html.escape(name)}</th>" for name in HEADER)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows()
        )
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        extra = f"<h2>The plan, layer by layer</h2><pre>{html.escape(details)}</pre>" if details else ""
        return _PAGE.format(
            title=html.escape(title), head=head, body=body, notes=notes, drawing=self._drawing(), details=extra
        )

    def _drawing(self, width: int = 640, height: int = 240) -> str:
        """Training losses, averaged over ten steps, as an SVG."""
        curves = {one.name: _smooth(one.losses) for one in self.contenders}
        top = max((max(curve) for curve in curves.values() if curve), default=1.0)
        lines = []
        for index, (name, curve) in enumerate(curves.items()):
            colour, step = _COLOURS[index % len(_COLOURS)], width / max(len(curve) - 1, 1)
            points = " ".join(f"{i * step:.1f},{height * (1 - value / top):.1f}" for i, value in enumerate(curve))
            lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>')
            place = f'x="{width - 8}" y="{16 + 18 * index}" text-anchor="end"'
            lines.append(f'<text {place} fill="{colour}">{html.escape(name)}</text>')
        return (
            f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="training loss">'
            f'<rect width="{width}" height="{height}" fill="#f7f7f7"/>{"".join(lines)}</svg>'
        )


def _smooth(losses: Sequence[float], window: int = 10) -> list[float]:
    return [statistics.fmean(losses[max(0, i - window + 1) : i + 1]) for i in range(len(losses))]


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
table {{ border-collapse: collapse; width: 100%; }} th, td {{ padding: .3rem .6rem; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }} thead {{ border-bottom: 2px solid #222; }}
svg {{ width: 100%; max-width: 40rem; font-size: 14px; }} pre {{ overflow-x: auto; font-size: 12px; }}
</style></head><body>
<h1>{title}</h1>
<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
<ul>{notes}</ul>
<h2>Training loss</h2>
{drawing}
{details}
</body></html>
"""

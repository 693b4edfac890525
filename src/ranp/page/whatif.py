"""The slider over sparsity: every position worked out beforehand, numbers and sentences included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ranp.page import charts
from ranp.page.markup import Chart, drawing, name, table, text
from ranp.page.wording import NOTHING, colour, flops, less, megabytes, method_name, sentence, share

if TYPE_CHECKING:
    from ranp.reporting.study import Step, Study, Sweep

__all__ = ["positions", "whatif"]

_RESOURCES = {"flops": "FLOPs", "memory": "memory", "params": "parameters"}
_ROWS = ("channels removed", "FLOPs", "memory", "parameters")


def step_at(sweep: Sweep, sparsity: float) -> Step:
    """The step of a sweep nearest to a sparsity, among those that are feasible if it is, else among the others."""
    feasible = sparsity <= sweep.largest
    alike = [step for step in sweep.steps if step.feasible == feasible] or sweep.steps
    return min(alike, key=lambda step: abs(step.sparsity - sparsity))


def positions(study: Study) -> list[dict[str, Any]]:
    """What the page shows at each position of the slider: the steps of the run's own method."""
    found = []
    for own in study.sweeps[0].steps:
        steps = [(sweep, step_at(sweep, own.sparsity)) for sweep in study.sweeps]
        found.append(
            {
                "label": share(own.sparsity),
                "at": round(100 * own.sparsity, 4),
                "text": " ".join(sentence(_told(sweep, step, own.sparsity, study)) for sweep, step in steps),
                "feasible": [step.feasible for _, step in steps],
                "cells": [_cells(sweep, step) for sweep, step in steps],
                "widths": [list(step.widths) for _, step in steps],
            }
        )
    return found


def _told(sweep: Sweep, step: Step, asked: float, study: Study) -> str:
    method = method_name(sweep.method)
    if not step.feasible:
        return (
            f"{method} is infeasible at {share(asked)}: some layer would lose all its channels. Its largest feasible "
            f"sparsity is {share(sweep.largest, 2)}."
        )
    full = sweep.steps[0]
    channels = sum(layer.channels for layer in study.layers)
    return (
        f"{method} at {share(step.sparsity)} keeps {sum(step.widths):,} of {channels:,} channels: "
        f"{flops(step.flops)} ({less(full.flops, step.flops)}), {megabytes(step.memory)} "
        f"({less(full.memory, step.memory)}), {step.params:,} parameters ({less(full.params, step.params)})."
    )


def _cells(sweep: Sweep, step: Step) -> list[str]:
    if not step.feasible:
        return ["infeasible", NOTHING, NOTHING, NOTHING]
    full = sweep.steps[0]
    return [
        share(step.removed),
        f"{flops(step.flops)}\n{less(full.flops, step.flops)}",
        f"{megabytes(step.memory)}\n{less(full.memory, step.memory)}",
        f"{step.params:,}\n{less(full.params, step.params)}",
    ]


def whatif(study: Study, key: str, sparsity: float) -> tuple[str, tuple[Chart, ...], dict[str, Any]]:
    """The slider with all it moves: HTML, charts, and what the script needs.

    Args:
        study: Of the run.
        key: Names it on the page.
        sparsity: Where the slider stands at first.
    """
    places, long = positions(study), len(study.layers) > charts.MANY
    start = min(range(len(places)), key=lambda index: abs(places[index]["at"] - 100 * sparsity))
    made = tuple(
        Chart(
            f"{key}-{resource}",
            charts.sweep(study.sweeps, resource),
            sentence(f"{words} left."),
            f"Line chart: {words} left over sparsity. The table below says the figures at the slider.",
        )
        for resource, words in _RESOURCES.items()
    )
    here = places[start]
    heads = ["", *(method_name(sweep.method) for sweep in study.sweeps)]
    rows = [
        [text(row), *(f'<span data-cell="{s},{r}">{text(here["cells"][s][r])}</span>' for s in range(len(heads) - 1))]
        for r, row in enumerate(_ROWS)
    ]
    limits = "; ".join(f"{method_name(sweep.method)} {share(sweep.largest, 2)}" for sweep in study.sweeps)
    body = f"""
<div class="whatif" data-study="{text(key)}">
<div class="controls" role="group" aria-label="Sparsity">
<label for="slider-{text(key)}">Sparsity asked for</label>
<output for="slider-{text(key)}">{text(here["label"])}</output>
<input type="range" id="slider-{text(key)}" min="0" max="{len(places) - 1}" step="1" value="{start}"
 aria-valuetext="{text(here["label"])}">
</div>
<p class="readout" role="status" aria-live="polite">{text(here["text"])}</p>
{table(heads, rows, caption="At the slider: what is left", left=1, shown=False)}
<p class="quiet">Largest feasible sparsity: {text(limits)}. Beyond it, shaded, some layer would lose all channels.</p>
<div class="three">{"".join(drawing(chart) for chart in made)}</div>
<h4>Widths at the slider</h4>
{_legend(study)}
<ul class="bars{" long" if long else ""}" tabindex="{0 if long else -1}" aria-label="Width of every layer">
{_bars(study, here)}</ul>
</div>"""
    return body, made, {"positions": places, "channels": [layer.channels for layer in study.layers]}


def _legend(study: Study) -> str:
    marks = "".join(
        f'<span><i style="background:{colour(sweep.method, index)}"></i>{text(method_name(sweep.method))}</span>'
        for index, sweep in enumerate(study.sweeps)
    )
    return f'<p class="legend">{marks}<span><i class="track"></i>full network</span></p>'


def _bars(study: Study, here: dict[str, Any]) -> str:
    widest = max(layer.channels for layer in study.layers)
    lines = []
    for index, layer in enumerate(study.layers):
        inner, numbers = [], []
        for number, sweep in enumerate(study.sweeps):
            kept = here["widths"][number][index] if here["feasible"][number] else 0
            size = 100 * kept / layer.channels
            style = f"width:{size:.2f}%;background:{colour(sweep.method, number)}"
            inner.append(f'<i data-bar="{number},{index}" style="{style}"></i>')
            numbers.append(f'<b data-width="{number},{index}">{kept if here["feasible"][number] else NOTHING}</b>')
        lines.append(
            f'<li><span class="layer">{name(layer.name)}</span>'
            f'<span class="track"><span class="fill" style="width:{100 * layer.channels / widest:.2f}%">'
            f"{''.join(inner)}</span></span>"
            f'<span class="count">{" / ".join(numbers)} of {layer.channels}</span></li>'
        )
    return "".join(lines)

"""The section of one run: what it bought, layer by layer, why these channels, and what had to stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ranp.page import charts
from ranp.page.gather import RunFolder
from ranp.page.markup import Chart, Section, details, drawing, name, note, table, text
from ranp.page.rebuilding import Absent
from ranp.page.whatif import whatif
from ranp.page.wording import NOTHING, factor, flops, less, method_name, sentence, share
from ranp.reporting.causes import listed
from ranp.reporting.figures import MB, OTHERS, UNITS, Amount, scaled, unit
from ranp.reporting.report import Report

if TYPE_CHECKING:
    from ranp.reporting.study import Study

__all__ = ["detail", "lede"]


def lede(run: RunFolder) -> str:
    """The run in a sentence or two."""
    report = run.report
    if report is None:
        return f"A full {run.model}: nothing was removed."
    return (
        f"{method_name(run.method)} removed {share(report.sparsity.of_channels)} of the "
        f"{report.channels.before:,} channels of {run.model} before training. What is left needs "
        f"{factor(report.flops)} times fewer FLOPs, {factor(report.memory)} times less memory and "
        f"{factor(report.params)} times fewer parameters."
    )


def detail(run: RunFolder, key: str, study: Study | Absent, *, heading: str, introduced: bool = False) -> Section:
    """The section of a run that pruned.

    Args:
        run: With a report.
        key: Names the section on the page.
        study: Of its scores, or why there is none.
        heading: What its title calls it.
        introduced: Whether the page has said already in a sentence what it is.
    """
    report = run.report
    assert report is not None
    drawn: list[Chart] = []
    data: dict[str, Any] = {}
    parts = [
        "" if introduced else f'<p class="lede">{text(lede(run))}</p>',
        "<h3>What it buys</h3>",
        _cards(report),
        _budgets(report),
        _verdict(report),
        "<h3>Widths, layer by layer</h3>",
        _widths(report),
        "<h3>Why these channels</h3>",
    ]
    if isinstance(study, Absent):
        parts += [note(study.reason), "<h3>Other sparsities</h3>", note(f"The slider is missing. {study.reason}")]
    else:
        made = _why(study, key)
        parts += [f"<p>{text(_reasoning(study))}</p>", _stages(study, key), drawing(made)]
        body, moved, data[key] = whatif(study, key, _place(study, report))
        parts += ["<h3>Other sparsities</h3>", body]
        drawn += [made, *moved]
    parts += ["<h3>What stands or falls together</h3>", _groups(study), "<h3>What had to stay</h3>", _stays(report)]
    parts += [details("How this run was made", _made(run))]
    return Section(key, f"{heading}: what was pruned, and why", "".join(parts), tuple(drawn), data, heading)


def _cards(report: Report) -> str:
    cards = []
    small = unit(report.flops.after)
    for words, amount, scale, what in (
        ("Channels", report.channels, 0.0, ""),
        ("Parameters", report.params, 0.0, ""),
        ("FLOPs", report.flops, UNITS[small], f" {small}"),
        ("Memory", report.memory, MB, " MB"),
    ):
        before, after = scaled(amount.before, scale), scaled(amount.after, scale)
        cards.append(
            f'<li class="card"><h4>{words}</h4><p class="big">{less(amount.before, amount.after)}</p>'
            f'<p class="change"><span>{before}</span> <span class="arrow" aria-hidden="true">→</span>'
            f'<span class="unseen"> to </span> <span>{after}{what}</span></p>'
            f'<p class="meter" aria-hidden="true"><i style="width:{100 * amount.ratio:.2f}%"></i></p></li>'
        )
    true = report.true_flops
    return (
        f'<ul class="cards">{"".join(cards)}</ul>'
        '<p class="quiet">FLOPs are multiply-adds and memory is activations of one call as float32, both in the '
        f"paper's convention. As torch counts FLOPs: {flops(true.before)} before, {flops(true.after)} after "
        f"({less(true.before, true.after)}).</p>"
    )


def _budgets(report: Report) -> str:
    """What each budget allowed, and how much of it is used."""
    lines = "".join(f"<li>{text(sentence(line))}</li>" for line in report.budget_lines())
    return f'<ul class="budgets" aria-label="Budgets">{lines}</ul>' if lines else ""


def _place(study: Study, report: Report) -> float:
    """The sparsity at which the slider starts: the one asked for, or the one that comes nearest to the budget's."""
    if "budget" not in report.settings:
        return report.sparsity.requested
    steps = [step for step in study.sweeps[0].steps if step.feasible]
    return min(steps, key=lambda step: abs(step.removed - report.sparsity.of_channels)).sparsity


def _verdict(report: Report) -> str:
    checks = report.checks
    if checks is None:
        return note("The slim network was not verified.")
    verdicts = {True: ("good", "Verified."), False: ("bad", "Verification failed."), None: ("open", "Not checked.")}
    kind, word = verdicts[checks.ok]
    lines = " ".join(f"{sentence(line)}." for line in str(checks).splitlines())
    return f'<p class="verdict {kind}"><strong>{word}</strong> {text(lines)}</p>'


def _widths(report: Report) -> str:
    """Bars and figures of every layer in one table."""
    small = unit(max((row.flops.after for row in report.layers), default=0))
    widest = max((row.channels.before for row in report.layers), default=1) or 1
    rows = []
    for row in report.layers:
        if row.name == OTHERS and not (row.params.before or row.flops.before or row.memory.before):
            continue
        mark = ' <abbr title="part or all of it had to stay">*</abbr>' if row.note else ""
        rows.append(
            [
                f"{name(row.name)}{mark}",
                _change(row.channels, 0.0),
                _bar(row.channels, widest) if row.channels.before else "",
                _change(row.params, 0.0),
                _change(row.flops, UNITS[small]),
                _change(row.memory, MB),
                text(row.kind),
            ]
        )
    whole = [report.channels, report.params, report.flops, report.memory]
    scales = (0.0, 0.0, UNITS[small], MB)
    channels, *others = (_change(amount, scale) for amount, scale in zip(whole, scales, strict=True))
    rows.append(["all", channels, "", *others, ""])
    columns = ("layer", "channels", "width", "parameters", small, "memory (MB)", "kind")
    return table(
        columns,
        rows,
        caption="Every layer before and after. The pale bar is the full width, the solid one stays; * had to stay.",
        left=(True, False, True, False, False, False, True),
        long=len(rows) > charts.MANY,
    )


def _bar(amount: Amount, widest: int) -> str:
    whole = f"width:{100 * amount.before / widest:.2f}%"
    kept = f'<i style="width:{100 * amount.ratio:.2f}%"></i>'
    return f'<span class="wide"><span class="fill" style="{whole}">{kept}</span></span>'


def _change(amount: Amount, scale: float) -> str:
    if not amount.before and not amount.after:
        return NOTHING
    before, after = scaled(amount.before, scale), scaled(amount.after, scale)
    return before if before == after else f"{before} → {after}"


def _reasoning(study: Study) -> str:
    words = [f"Every channel has an importance from gradients at initialisation ({study.criterion})."]
    stages = {stage for layer in study.layers for stage in layer.scores}
    if "balanced" in stages:
        words.append("Balanced, all layers have the same mean, so that no layer is emptied for its scale alone.")
    if "reweighted" in stages:
        words.append(
            f"Reweighted with strength {study.strength:g}, channels of layers that cost more weigh less, so that they "
            "go first."
        )
    words.append("The channels of least weight go; coupled layers share the decision.")
    return " ".join(words)


def _stages(study: Study, key: str) -> str:
    found = [stage for stage in charts.STAGES if any(stage in layer.scores for layer in study.layers)]
    inputs = "".join(
        f'<label><input type="radio" name="stage-{text(key)}" value="{stage}"'
        f"{' checked' if stage == found[-1] else ''}> {text(charts.STAGES[stage])}</label>"
        for stage in found
    )
    place = f'class="controls stages" data-chart="{text(key)}-importance"'
    return f"<fieldset {place}><legend>Importance</legend>{inputs}</fieldset>"


def _why(study: Study, key: str) -> Chart:
    stages = [stage for stage in charts.STAGES if any(stage in layer.scores for layer in study.layers)]
    columns = ("layer", "kept", "share of FLOPs", "share of memory", *(f"mean, {stage}" for stage in stages))
    whole = {of: sum(getattr(layer, of) for layer in study.layers) or 1 for of in ("flops", "memory")}
    rows = [
        [
            name(layer.name),
            f"{layer.channels if layer.kept is None else len(layer.kept):,} of {layer.channels:,}",
            share(layer.flops / whole["flops"]),
            share(layer.memory / whole["memory"]),
            *(_mean(layer.scores.get(stage, ())) for stage in stages),
        ]
        for layer in study.layers
    ]
    return Chart(
        f"{key}-importance",
        charts.importance(study),
        "Importance of single channels by layer; each line is a channel (at most 40 of a layer, spread over its "
        "ranking), each diamond the mean of its layer. Channels without any importance are left out.",
        "Importance of channels by layer, kept and removed. The table below has the means of every layer.",
        table(columns, rows, caption="Importance by layer", shown=False),
    )


def _mean(values: tuple[float, ...]) -> str:
    return f"{sum(values) / len(values):.3g}" if values else NOTHING


def _groups(study: Study | Absent) -> str:
    if isinstance(study, Absent):
        return note(f"Coupled layers are not known. {study.reason}")
    if not study.groups:
        return "<p>No layers are coupled: each one could lose channels by itself.</p>"
    rows = [[f"{len(group)} layers", ", ".join(name(member) for member in group)] for group in study.groups]
    return (
        "<p>Channels of these layers are added together or passed on one to one, so they keep the same ones.</p>"
        + table(("group", "layers"), rows, caption="Coupled layers", left=2, shown=False)
    )


def _stays(report: Report) -> str:
    if not report.pins:
        return f"<p>Nothing: all {report.channels.before:,} channels could go.</p>"
    stay = sum(pin.channels for pin in report.pins)
    rows = [[text(str(pin)), text(listed(pin.layers)), f"{pin.channels:,}"] for pin in report.pins]
    unknown = ""
    if report.unknown:
        unknown = f"<p>Operators without a rule, all they touch is kept: {text(', '.join(report.unknown))}.</p>"
    return (
        f"<p>{stay:,} of {report.channels.before:,} channels had to stay, whatever their importance.</p>"
        + table(("why", "layers", "channels"), rows, caption="What had to stay", left=2, shown=False)
        + unknown
    )


def _made(run: RunFolder) -> str:
    report = run.report
    told: dict[str, Any] = {
        "folder": run.folder.name,
        "network": run.model,
        "inputs": run.recipe.get("inputs"),
        "task": run.task,
        **(dict(report.settings) if report is not None else {}),
        "versions": run.recipe.get("versions"),
    }
    rows = [[text(key), text(_said(value))] for key, value in told.items() if value not in (None, "", [], {})]
    return table(("setting", "value"), rows, caption="How this run was made", left=2, shown=False)


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

"""What the tables are written with: names, columns, figures for programs and sentences that several of them share."""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from ranp.paper.experiments.experiment import Line, Note, Wanted
from ranp.paper.experiments.results import Result, Spread, over_last_epochs, over_seeds
from ranp.paper.experiments.scales import changes, described
from ranp.paper.published import FIGURES, Row, in_the_papers_unit
from ranp.paper.recipe import Setting
from ranp.reporting import looks
from ranp.reporting.table import Column

_WORDS = configparser.ConfigParser(interpolation=None)
_WORDS.read_string(files(__package__).joinpath("words.ini").read_text(encoding="utf-8"))
_NOTE = re.compile(r"(\[(?P<when>\w+)\] )?(?P<text>.*)")
_MADE = re.compile(r"\{(\w+)\}")
TABLES = tuple(name for name in _WORDS.sections() if name != "sentences")
"""The tables that there are words for, in the order of the paper."""
KEPT_ONE = _WORDS["sentences"]["kept_one"]
"""What the mark behind a method means."""

METHODS, NETWORKS = {method: looks.TITLES[method] for method in looks.PAPER}, looks.NETWORKS
"""The methods of the main table by the paper's names, in its order; and its networks."""

NP: Mapping[str, tuple[str, tuple[Setting, ...]]] = {
    "unet3d-shapenet": ("shapenet", ()),
    "unet3d-brats": ("brats", ()),
    "mobilenetv2-ucf101": ("ucf101", ()),
    "i3d-ucf101": ("ucf101", (("network", "i3d-ucf101"), ("size", 224))),
    "psm-sceneflow": ("sceneflow", ()),
}
"""The five networks of the paper's tables: the task of each, and what it changes of the task's recipe."""

FIGURE_NAMES: Mapping[str, str] = {
    "miou": "mIoU",
    "dice_et": "ET",
    "dice_tc": "TC",
    "dice_wt": "WT",
    "top1_video": "Top-1",
    "top5_video": "Top-5",
    "acc1": "Acc-1",
    "acc3": "Acc-3",
    "epe": "EPE",
}
COSTS = ("params_mb", "gflops", "memory_mb")


def cost(value: float, full: float) -> str:
    """A cost and what was removed of it in percent, as the paper prints it."""
    return f"{value:.2f}" if value == full else f"{value:.2f} ({100 * (1 - value / full):.1f})"


def percent(values: Sequence[float]) -> str:
    """The mean of shares, in percent; nothing of none."""
    return f"{100 * sum(values) / len(values):.2f}" if values else ""


def marked(line: Line) -> str:
    """The name of a line, and the mark that ``KEPT_ONE`` explains."""
    return line.name + ("†" if line.kept_one else "")


METHOD = Column("method", left=True, text=marked)


def name(head: str) -> Column:
    """The name of a line, without a mark."""
    return Column(head, left=True, text=lambda line: line.name)


def share(head: str, name: str) -> Column:
    """A share of each result in percent, such as ``"sparsity"``; nothing for the full network."""
    return Column(head, text=lambda line: percent(line.values(name)) if line.pruned else "")


SPARSITY, REMOVED = share("sparsity %", "sparsity"), share("removed %", "removed")


def _papers_sparsity(line: Line) -> str:
    value = line.printed.sparsity if line.pruned and line.printed is not None else None
    return "" if value is None else f"{value:.2f}"


PAPERS_SPARSITY = Column("paper's", text=_papers_sparsity)


def costs(
    wanted: Wanted,
    names: Iterable[str] = COSTS,
    *,
    beside: bool = True,
    of: Callable[[Line], tuple[Any, Any]] = lambda line: (line.slim, line.full),
) -> Iterator[Column]:
    """Parameters, FLOPs and memory, and what is removed of them.

    Args:
        wanted: Its scale decides on the unit of FLOPs, and whether the paper's network is ours.
        names: Which.
        beside: Each with the paper's own.
        of: What a line costs now and in full.
    """
    for name in names:
        yield _cost(wanted, name, of)
        if beside:
            yield _papers_cost(wanted, name)


def _cost(wanted: Wanted, name: str, of: Callable[[Line], tuple[Any, Any]]) -> Column:
    unit = 1000.0 if name == "gflops" and not wanted.is_paper else 1.0

    def text(line: Line) -> str:
        slim, full = of(line)
        return cost(getattr(slim, name) * unit, getattr(full, name) * unit)

    return Column(flops_head(wanted) if name == "gflops" else _HEADS[name], text=text)


_HEADS = {"params_mb": "Param MB", "memory_mb": "Memory MB"}


def flops_head(wanted: Wanted) -> str:
    """The unit of FLOPs at that scale."""
    return "GFLOPs" if wanted.is_paper else "MFLOPs"


def _papers_cost(wanted: Wanted, name: str) -> Column:
    """A printed cost with the reduction that follows from it; that alone where the paper's network is not ours."""

    def text(line: Line) -> str:
        value = getattr(line.printed, name, None)
        whole = cost(value, getattr(line.whole, name)) if value is not None else ""
        return whole if wanted.is_paper else whole.partition(" ")[2]

    return Column("paper's", text=text)


def merit(wanted: Wanted) -> Iterator[Column]:
    """What was reached: nothing where nothing is trained; over seeds only where there are several."""
    if wanted.resources_only:
        return
    if len(wanted.range) > 1:
        yield Column("last epoch, ± over seeds", left=True, text=last_epoch)
    yield OVER_EPOCHS
    yield PAPERS_FIGURES


def last_epoch(line: Line) -> str:
    """Every figure of the paper after the last epoch, with its spread if there is more than one seed."""
    return _figures(line, over_seeds, spread=len(line.found) > 1)


def _figures(line: Line, over: Callable[[Sequence[Result], str], Spread], *, spread: bool = True) -> str:
    entries = []
    for name in FIGURES[line.network] if line.found[0].figures else ():
        found = over(line.found, name)
        mean, deviation = (in_the_papers_unit(name, value) for value in (found.mean, found.deviation))
        entries.append(f"{FIGURE_NAMES[name]} {mean:.2f}" + (f" ± {deviation:.2f}" if spread else ""))
    return " · ".join(entries)


def papers_figures(row: Row | None) -> str:
    """Every figure that the paper prints."""
    return " · ".join(f"{FIGURE_NAMES[name]} {value}" for name, value in (row.figures if row else {}).items())


OVER_EPOCHS = Column("last 5 epochs, ± over them", left=True, text=lambda line: _figures(line, over_last_epochs))
PAPERS_FIGURES = Column("paper's", left=True, text=lambda line: papers_figures(line.printed))


def axis_of(figure: str) -> str:
    """A figure of merit at an axis, with the unit of the paper."""
    return f"{FIGURE_NAMES[figure]} ({'pixels' if in_the_papers_unit(figure, 1.0) == 1.0 else '%'})"


def numbers(line: Line) -> dict[str, Any]:
    """The results of a line for programs: means in the units of ``Result``, costs in the paper's."""
    return {
        "seeds": len(line.found),
        "sparsity": line.mean("sparsity"),
        "removed": line.mean("removed"),
        "largest": line.mean("largest") if line.values("largest") else "",
        "kept_one": line.kept_one,
        **cost_numbers(line.slim),
        **cost_numbers(line.full, "full_"),
        **merit_numbers(line),
    }


def cost_numbers(costs: object, prefix: str = "", names: Iterable[str] = COSTS) -> dict[str, Any]:
    """Costs for programs, ours or the paper's; nothing where there are none."""
    return {f"{prefix}{name}": getattr(costs, name, "") for name in names}


def papers_numbers(line: Line, *more: str) -> dict[str, Any]:
    """The paper's costs for programs."""
    return cost_numbers(line.printed, "paper_", (*more, *COSTS))


def merit_numbers(line: Line) -> dict[str, Any]:
    """What was reached, for programs."""
    found: dict[str, Any] = {}
    for name in FIGURES[line.network] if line.found[0].figures else ():
        seeds, epochs = over_seeds(line.found, name), over_last_epochs(line.found, name)
        found |= {
            f"{name}_mean_over_seeds": seeds.mean,
            f"{name}_std_over_seeds": seeds.deviation,
            f"{name}_mean_of_last_epochs": epochs.mean,
            f"{name}_std_over_last_epochs": epochs.deviation,
        }
    return found


def words(name: str, **made: Note) -> dict[str, Any]:
    """The words around a table out of ``words.ini``, which says how they are written.

    Args:
        name: Of the table, and of the words.
        **made: What a name in a note stands for, beside the sentences that tables share.
    """
    said = _WORDS[name]
    known: dict[str, Note] = {**_WORDS["sentences"], "spreads": _spreads, **made}

    def caption(wanted: Wanted) -> str:
        text = said.get("untrained", said["caption"]) if wanted.resources_only else said["caption"]
        seeds = len(wanted.range)
        return text.format(networks=said[wanted.scale].format(seeds=seeds), seeds=seeds)

    def notes(wanted: Wanted, lines: Sequence[Line]) -> Iterator[str]:
        now = (None, wanted.scale, "untrained" if wanted.resources_only else "trained")
        for note in filter(None, map(_NOTE.fullmatch, said["notes"].strip().splitlines())):
            if note["when"] in now:
                yield from _note(note["text"], known, wanted, lines)

    return {
        "name": name,
        "title": said["title"],
        "heading": said.get("heading", ""),
        "label": said["label"],
        "caption": caption,
        "notes": (notes,),
    }


def _note(text: str, known: Mapping[str, Note], wanted: Wanted, lines: Sequence[Line]) -> Iterable[str]:
    """A note, once for each thing that the name in it stands for."""
    name = _MADE.search(text)
    if name is None:
        return (text,)
    made = known[name[1]]
    return (text.replace(name[0], one) for one in ([made] if isinstance(made, str) else made(wanted, lines)))


def cuts(
    networks: Callable[[Wanted], Iterable[str]], but: Callable[[Wanted, str], Iterable[Setting]] = lambda _, __: ()
) -> Callable[[Wanted, Sequence[Line]], Iterator[str]]:
    """What the small scale changes of the recipes of networks, and ``but``: what a table changes of that."""

    def notes(wanted: Wanted, lines: object) -> Iterator[str]:
        for name in () if wanted.is_paper else networks(wanted):
            own = changes(but(wanted, name))
            yield f"Cut: {described(wanted.scale, NP[name][0], quick=wanted.quick)}{own and f', but {own}'}."

    return notes


def _spreads(wanted: Wanted, lines: object) -> list[str]:
    """What the plus-minus of ``merit`` means."""
    if wanted.resources_only:
        return []
    several = "± over seeds: standard deviation of the last epoch. " if len(wanted.range) > 1 else ""
    return [f"{several}± over epochs: as the paper's, of one run."]

"""What a notebook shows of the values: well-formed HTML without a script, names escaped, the figures of the value."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import ranp
from ranp.tables import LONG, Grid, html


class Shown(HTMLParser):
    """The elements of a fragment, each closed where it must be, and the cells of its tables."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(fragment)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attributes} <= {"style"}
        self.open.append(tag)
        self.seen.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


class Odd(nn.Module):
    """A network whose layers have names that a browser would take for elements."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module("<b>", nn.Conv2d(1, 8, 3))
        self.add_module("a&amp;b", nn.Conv2d(8, 6, 3))
        self.add_module("</table>", nn.Conv2d(6, 2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, last = self.children()
        return last(second(first(x).relu()).relu()).mean((2, 3))


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    torch.manual_seed(0)
    batches = [(torch.randn(2, 1, 8, 8), torch.tensor([0, 1]))]
    pruned = ranp.prune(Odd(), batches, cross_entropy, sparsity=0.3)
    found = {"Trace": pruned.trace, "Plan": pruned.plan, "Report": pruned.report, "Scores": pruned.scores}
    return {**found, "Pruned": pruned, "Profile": ranp.profile(pruned.model, batches[0][0])}


@pytest.mark.parametrize("name", ["Trace", "Plan", "Report", "Profile", "Scores", "Pruned"])
def test_a_value_is_shown_as_tables_with_its_names_as_they_are(values: dict[str, Any], name: str) -> None:
    value = values[name]
    assert type(value).__name__ == name
    shown = Shown(value._repr_html_())
    assert shown.seen <= {"div", "p", "table", "thead", "tbody", "tr", "th", "td"}
    assert shown.seen >= {"div", "table"}
    names = {cell.rstrip("*") for row in shown.rows for cell in row}
    assert {"<b>", "a&amp;b", "</table>"} <= names


@pytest.mark.parametrize("name", ["Trace", "Report", "Profile"])
def test_it_says_what_print_says(values: dict[str, Any], name: str) -> None:
    printed = re.sub(r"^[ -]+$", "", str(values[name]), flags=re.MULTILINE)  # without the rules
    assert "".join(Shown(values[name]._repr_html_()).text.split()) == "".join(printed.split())


def test_a_plan_is_shown_with_its_widths(values: dict[str, Any]) -> None:
    plan = values["Plan"]
    _, *rows = Shown(plan._repr_html_()).rows
    assert {name: (int(full), int(kept)) for name, full, kept, _ in rows} == {
        name: (plan.channels[name], width) for name, width in plan.widths.items()
    }
    assert "edited" in plan.edited(layer="<b>", keep=2)._repr_html_()


def test_scores_are_shown_by_layer(values: dict[str, Any]) -> None:
    scores = values["Scores"]
    _, *rows = Shown(scores._repr_html_()).rows
    for name, channels, *figures in rows:
        assert int(channels) == len(scores[name])
        expected = [float(scores[name].min()), float(scores[name].mean()), float(scores[name].max())]
        assert [float(figure) for figure in figures] == pytest.approx(expected, rel=5e-3)


def test_a_slim_network_is_shown_by_its_report(values: dict[str, Any]) -> None:
    pruned = values["Pruned"]
    assert Shown(pruned._repr_html_()).rows == Shown(pruned.report._repr_html_()).rows
    assert "a slim Odd" in pruned._repr_html_()


def test_a_long_table_is_folded() -> None:
    rows = [("layer",), *((str(at),) for at in range(LONG + 1))]
    assert "details" in Shown(html([Grid(rows, left=[0])])).seen
    assert "details" not in Shown(html([Grid(rows[:-1], left=[0])])).seen


def test_figures_are_not_broken_and_a_wide_table_scrolls_by_itself() -> None:
    shown = html([Grid([("layer", "params"), ("a.b", "3,456 -> 1,512")], left=[0])])
    assert '<td style="text-align: right; white-space: nowrap">3,456 -&gt; 1,512</td>' in shown
    assert '<div style="overflow-x: auto"><table>' in shown

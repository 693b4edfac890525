"""The paper's figures, read a second time: every table of its LaTeX source, cell by cell, against the data.

``latex_tables`` makes a grid of plain cells out of each table; the data are printed as the paper prints them; the two
must be equal, row by row and in order, so nothing is missing and nothing is invented.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import torch

import ranp
from ranp.choosing.methods import METHODS
from ranp.errors import UnsupportedError
from ranp.paper import models, published, tasks
from ranp.paper.published import Measured, Row
from ranp.scoring.criteria import CRITERIA
from tests.support.latex_tables import Cell, filled, grid, lines, plain, tabular, texts, without_comments

NETWORKS = ("unet3d-shapenet", "unet3d-brats", "mobilenetv2-ucf101", "i3d-ucf101", "psm-sceneflow")
TABLES = "neuron_importance_full full_table similar_resource 2d_pruning orthogonal transfer single_GPU".split()

# Data set and model as the tables call them.
PRINTED = {
    "unet3d-shapenet": ("ShapeNet", "3D-UNet"),
    "unet3d-brats": ("BraTS'18", "3D-UNet"),
    "mobilenetv2-ucf101": ("UCF101", "MobileNetV2"),
    "i3d-ucf101": ("UCF101", "I3D"),
    "psm-sceneflow": ("SceneFlow", "PSM"),
}
MANNERS = {
    "full": "Full",
    "snip": "SNIP NP",
    "random": "Random NP",
    "layerwise": "Layer-wise NP",
    "vanilla": "Vanilla NP",
    "weighted": "Weighted NP",
    "ranp-m": "RANP-m",
    "ranp-f": "RANP-f",
}
RESOURCES = ("params_mb", "gflops", "memory_mb")


@pytest.fixture(scope="module")
def source() -> str:
    """The paper's source without comments: the file named by RANP_PAPER, else ../shared/paper/ranp.tex."""
    path = Path(os.environ.get("RANP_PAPER") or Path(__file__).parents[3] / "shared" / "paper" / "ranp.tex")
    if not path.is_file():
        pytest.skip(f"no source of the paper at {path}; set RANP_PAPER")
    return without_comments(path.read_text(encoding="utf-8"))


def sparsity(row: Row) -> str:
    assert row.sparsity is not None
    return f"{row.sparsity:.2f}" if row.sparsity % 1 else f"{row.sparsity:.0f}"


def resources(row: Row) -> tuple[str, ...]:
    return tuple(f"{getattr(row, name):.2f}" for name in RESOURCES)


def metrics(row: Row) -> tuple[str, ...]:
    return tuple(f"{one.mean:.2f}±{one.spread:.2f}" for one in row.figures.values())


@pytest.mark.parametrize("label", TABLES)
def test_the_reader_drops_no_figure(source: str, label: str) -> None:
    body = tabular(source, label)
    spaces_and_spans = r"\\[hv]space\{[^}]*\}|\\(multirow|multicolumn|cline|rotatebox)\{[^}]*\}"
    written = Counter(re.findall(r"\d+(?:\.\d+)?", re.sub(spaces_and_spans, "", body)))
    read = Counter(re.findall(r"\d+(?:\.\d+)?", " ".join(one.text for line in lines(body) for one in line)))
    assert written == read
    assert sum(written.values()) > 15


def test_every_table_of_the_paper_is_read(source: str) -> None:
    assert sorted(re.findall(r"\\label\{tb:(\w+)\}", source)) == sorted(TABLES)


def test_the_reader_on_a_table_of_its_own() -> None:
    body = r"""\hline
      \multirow{2}{*}{\makecell[l]{A\\ B}} & \multicolumn{2}{c}{\hspace{8mm}\textbf{\accerror{1.0}{0.2}}} \\
      & \sunderline{3.0 (\hspace{4pt}6.9$\downarrow$)} & $\sim$7.54 \\ \cline{2-3}"""
    first, second = grid(body)
    assert first == [Cell("A B", rows=2), Cell("1.0±0.2", "best", 2), Cell("")]
    assert second == [Cell("A B", rows=2), Cell("3.0 (6.9)", "second"), Cell("~7.54")]


def by_network(source: str, label: str) -> dict[str, list[tuple[str, ...]]]:
    """The lines with a metric, which begin with data set and model, without these two."""
    networks = {printed: network for network, printed in PRINTED.items()}
    found: dict[str, list[tuple[str, ...]]] = {}
    for line in grid(tabular(source, label)):
        if metric_cells(line):
            data, model, *cells = filled(line)
            found.setdefault(networks[data, model], []).append(tuple(cells))
    return found


def test_criteria(source: str) -> None:
    lines_of = by_network(source, "neuron_importance_full")
    assert tuple(lines_of) == NETWORKS
    for network, read in lines_of.items():
        rows = published.criteria(network)
        names = [row.method.replace("mpmg", "MPMG").replace("mnmg", "MNMG").replace("full", "Full") for row in rows]
        ours = [(name, sparsity(r), *resources(r), *metrics(r)) for name, r in zip(names, rows, strict=True)]
        assert ours == read
        assert all(row.reductions is None for row in rows)


def test_main(source: str) -> None:
    lines_of = by_network(source, "full_table")
    assert tuple(lines_of) == NETWORKS
    for network, read in lines_of.items():
        rows = published.main(network)
        assert [row.method for row in rows] == list(MANNERS)
        assert [(MANNERS[r.method], sparsity(r), *with_reductions(r), *metrics(r)) for r in rows] == [
            (line[0].replace("Layerwise", "Layer-wise"), *map(without_gap, line[1:])) for line in read
        ]


def with_reductions(row: Row) -> tuple[str, ...]:
    if row.reductions is None:
        return resources(row)
    return tuple(f"{text} ({part:.1f})" for text, part in zip(resources(row), row.reductions, strict=True))


def without_gap(text: str) -> str:
    return text.replace("( ", "(")


def test_metrics_are_in_the_order_of_the_headers(source: str) -> None:
    headers = {
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
    expected = [
        tuple(headers[name] for name in published.FIGURES[network]) for network in NETWORKS if network != "i3d-ucf101"
    ]
    for label in ("neuron_importance_full", "full_table"):
        table = [filled(line) for line in grid(tabular(source, label))]
        found = [names for line in table if (names := tuple(t for t in line if t in {*headers.values(), "Acc-2"}))]
        # The header of the main table alone says Acc-2.
        wanted = [tuple(n.replace("Acc-3", "Acc-2") if label == "full_table" else n for n in ns) for ns in expected]
        assert found == wanted
    assert "Acc-2" not in re.sub(r"\\begin\{tabular\}.*?\\end\{tabular\}", "", source, flags=re.S)


def test_equal_resources(source: str) -> None:
    table = [texts(line) for line in grid(tabular(source, "similar_resource"))][2:]
    shapenet, brats = published.equal_resources("unet3d-shapenet"), published.equal_resources("unet3d-brats")
    assert len(table) == len(shapenet) == len(brats) == 5
    for read, *rows in zip(table, shapenet, brats, strict=True):
        manner, *cells = read
        assert {MANNERS[row.method] for row in rows} == {manner.removesuffix("(ours)")}
        ours = []
        for row in rows:
            tildes = ["~" if name == row.matched else "" for name in RESOURCES]
            marked = [tilde + text for tilde, text in zip(tildes, resources(row), strict=True)]
            ours += [sparsity(row), *marked, *metrics(row)]
        assert ours == cells
    for rows in (shapenet, brats):
        (goal,) = (row for row in rows if row.matched is None)
        assert goal.method == "ranp-f"
        for row in rows:
            assert row.matched is None or getattr(row, row.matched) == getattr(goal, row.matched)


def test_psm_parts(source: str) -> None:
    table = [texts(line) for line in grid(tabular(source, "2d_pruning"))][2:]
    flat, deep = published.psm_parts()["2d"], published.psm_parts()["3d"]
    assert [row.sparsity for row in flat] == [row.sparsity for row in deep]
    assert [
        (MANNERS[a.method], sparsity(a), *resources(a), *resources(b)) for a, b in zip(flat, deep, strict=True)
    ] == [(line[0].removesuffix(" (ours)").replace("Layerwise", "Layer-wise"), *line[1:]) for line in table]


def test_initialisation(source: str) -> None:
    endings = {"orthogonal": "-ort", "glorot": "-xn", None: ""}
    table = [texts(line) for line in grid(tabular(source, "orthogonal"))][1:]
    ours = [
        (
            "{} ({})".format(*PRINTED[network]),
            MANNERS[row.method].removesuffix(" NP") + endings[row.init],
            sparsity(row),
            *resources(row),
        )
        for network in NETWORKS
        for row in published.initialisation(network)
    ]
    assert ours == table


def test_transfer(source: str) -> None:
    table = [texts(line) for line in grid(tabular(source, "transfer"))][2:]
    shapenet, brats = published.transfer().values()
    assert tuple(published.transfer()) == ("unet3d-shapenet-23", "unet3d-brats-23")
    assert [row.pruned_on for row in shapenet] == [None, "unet3d-shapenet-23", "unet3d-brats-23"]
    assert [row.pruned_on for row in brats] == [None, "unet3d-brats-23", "unet3d-shapenet-23"]
    names = ["Full", "RANP-f (ours)", "T-RANP-f (ours)"]
    assert [row.method for row in shapenet] == [row.method for row in brats] == ["full", "ranp-f", "ranp-f"]
    assert [(n, *metrics(a), *metrics(b)) for n, a, b in zip(names, shapenet, brats, strict=True)] == table


def test_single_gpu(source: str) -> None:
    table = [texts(line) for line in grid(tabular(source, "single_GPU"))][1:]
    rows = published.single_gpu()
    assert [(MANNERS[r.method], str(r.layers), str(r.batch), str(r.gpus), sparsity(r), *metrics(r)) for r in rows] == [
        (line[0].removesuffix(" (ours)"), *line[1:]) for line in table
    ]
    for row in rows:
        assert row.network == ("unet3d-shapenet" if row.layers == 15 else "unet3d-shapenet-23")


def test_quotes_stand_in_the_text_with_their_figures(source: str) -> None:
    text = plain(re.sub(r"\\begin\{(table|figure|algorithm|equation)\*?\}.*?\\end\{\1\*?\}", "", source, flags=re.S))
    quotes = [quote for network in models.names() for quote in quotes_of(network)]
    assert len(quotes) == 10
    for quote in quotes:
        assert quote.words in text
        numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", quote.words)]
        assert set(quote.figures.values()) <= set(numbers)
        assert quote.sparsity is None or quote.sparsity in numbers


def quotes_of(network: str) -> tuple[published.Quote, ...]:
    try:
        return published.quotes(network)
    except UnsupportedError:
        return ()


def test_largest_sparsities_stand_in_the_text(source: str) -> None:
    text = plain(source)
    both = {
        "unet3d-shapenet": "RANP prunes up to {}% neurons while only up to {}% by vanilla NP",
        "unet3d-brats": "RANP can prune up to {}% neurons while only up to {}% neurons can be pruned by vanilla NP",
        "mobilenetv2-ucf101": "RANP can prune up to {}% neurons compared to {}% on MobileNetV2",
        "i3d-ucf101": "{}% neurons compared to {}% on I3D",
        "psm-sceneflow": "the maximum neuron sparsity {}% while only up to {:.2f}% neuron sparsity can be achieved",
    }
    for network, words in both.items():
        ranp, vanilla = (published.largest_sparsity(network, method) for method in ("ranp-f", "vanilla"))
        assert words.format(ranp, vanilla) in text
        assert published.main(network)[-1].sparsity == vanilla
        assert ranp > vanilla
    snip = [published.largest_sparsity(network, "snip") for network in NETWORKS]
    assert "{}% for ShapeNet, {}% for BraTS'18, {}% for MobileNetV2, and {}% for I3D".format(*snip) in text
    assert snip[-1] == published.main("psm-sceneflow")[1].sparsity == 90.66
    deeper = published.largest_sparsity("unet3d-shapenet-23", "ranp-f")
    assert f"when pruned with the maximum neuron sparsity {deeper}%" in text


def test_largest_sparsities_of_criteria_are_their_rows() -> None:
    for network in NETWORKS:
        for row in published.criteria(network)[1:]:
            assert published.largest_sparsity(network, row.method) == row.sparsity
        chosen = published.vanilla_criterion(network)
        assert published.largest_sparsity(network, chosen) == published.largest_sparsity(network, "vanilla")


def test_tables_agree_where_they_repeat_each_other() -> None:
    for network in NETWORKS:
        of_main = {row.method: row for row in published.main(network)}
        of_criteria = {row.method: row for row in published.criteria(network)}
        full = of_main["full"]
        assert of_criteria["full"] == full
        assert content(of_criteria[published.vanilla_criterion(network)]) == content(of_main["vanilla"])
        assert content(published.initialisation(network)[0])[:4] == content(full)[:4]
        if network.startswith("unet3d"):
            assert content(published.equal_resources(network)[-1]) == content(of_main["ranp-f"])
    fifteen, twenty_three, _ = published.single_gpu()
    assert fifteen.figures == published.main("unet3d-shapenet")[0].figures
    assert twenty_three.figures == published.transfer()["unet3d-shapenet-23"][0].figures


def content(row: Row) -> tuple[object, ...]:
    return (row.sparsity, row.params_mb, row.gflops, row.memory_mb, dict(row.figures))


def test_parts_of_psm_add_up_but_for_activations() -> None:
    whole = {row.method: row for row in published.main("psm-sceneflow")}
    for flat, deep in zip(*published.psm_parts().values(), strict=True):
        row = whole[flat.method]
        assert flat.sparsity == row.sparsity
        assert total(flat, deep, "params_mb") == pytest.approx(row.params_mb, abs=0.0151)
        assert total(flat, deep, "gflops") == pytest.approx(row.gflops, abs=0.0151)
        assert 0.75 < total(flat, deep, "memory_mb") / (row.memory_mb or 0) < 0.8


def total(one: Row, other: Row, name: str) -> float:
    return float(getattr(one, name) + getattr(other, name))


REDUCTIONS = ("params", "gflops", "memory")


def test_printed_reductions_follow_from_printed_figures_but_for_the_errata() -> None:
    found = set()
    for network in NETWORKS:
        full, *rows = published.main(network)
        for row in rows:
            assert row.reductions is not None
            for name, kept, of, printed in zip(REDUCTIONS, amounts(row), amounts(full), row.reductions, strict=True):
                follows = 100 * (1 - kept / of)
                assert printed == pytest.approx(follows, abs=0.1)
                if f"{printed:.1f}" != f"{follows:.1f}":
                    found.add((network, row.method, name, f"{printed:.1f}", f"{follows:.1f}"))
    assert found == {
        ("unet3d-brats", "layerwise", "memory", "77.0", "76.9"),
        ("unet3d-brats", "weighted", "params", "95.0", "94.9"),
        ("unet3d-brats", "ranp-f", "memory", "80.0", "79.9"),
        ("mobilenetv2-ucf101", "snip", "params", "61.3", "61.2"),
        ("psm-sceneflow", "ranp-f", "gflops", "53.0", "52.9"),
    }
    assert found == {
        (e.network, *e.methods, e.figure, e.printed, e.instead)
        for e in published.ERRATA
        if e.where == "full_table" and e.figure in REDUCTIONS
    }


def amounts(row: Row) -> tuple[float, ...]:
    return tuple(float(getattr(row, name)) for name in RESOURCES)


@pytest.mark.parametrize(("label", "lookup"), [("full_table", "main"), ("neuron_importance_full", "criteria")])
def test_the_second_best_is_marked_but_for_the_errata(source: str, label: str, lookup: str) -> None:
    wrong = set()
    table = iter(grid(tabular(source, label)))
    for network in NETWORKS:
        full, *rows = getattr(published, lookup)(network)
        assert metrics(full) == metric_cells(next(line for line in table if metric_cells(line)))
        cells = [[one for one in line if "±" in one.text] for line in itertools.islice(table, len(rows))]
        for column, figure in enumerate(published.FIGURES[network]):
            means = {row.method: row.figures[figure].mean for row in rows}
            ranked = sorted(means, key=means.__getitem__, reverse=figure != "epe")
            marked = {line[column].mark: row.method for line, row in zip(cells, rows, strict=True)}
            assert marked["best"] == ranked[0]
            if means[marked["second"]] != means[ranked[1]]:
                wrong.add((network, marked["second"], figure, f"{ranked[1]} is second best"))
    assert wrong == {
        (e.network, *e.methods, e.figure, e.instead)
        for e in published.ERRATA
        if e.where == label and e.printed == "second best"
    }
    assert len(wrong) == {"full_table": 4, "neuron_importance_full": 1}[label]


def metric_cells(line: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(text for text in texts(line) if "±" in text)


def test_errata_of_the_text(source: str) -> None:
    text = plain(source)
    rows = {row.method: row for row in published.main("unet3d-shapenet")}
    assert "further reduces 18.3% FLOPs and 29.6% memory with 0.14% accuracy loss" in text
    assert added(rows["weighted"], rows["vanilla"], "gflops") == 18.3
    assert added(rows["weighted"], rows["vanilla"], "memory") == 25.7
    assert added(rows["ranp-f"], rows["vanilla"], "memory") == 29.6

    assert "except FLOPs with 3D-UNet on ShapeNet, I3D on UCF101, and PSM on SceneFlow" in text
    for resource, expected in (("gflops", {0, 3, 4}), ("memory_mb", {3, 4})):
        vanilla = [published.initialisation(network)[1:3] for network in NETWORKS]
        more = {i for i, (ort, xn) in enumerate(vanilla) if getattr(xn, resource) > getattr(ort, resource)}
        assert more == expected

    assert "IoU by |\\mathbfP \\cap \\mathbfG | / |\\mathbfP \\cup \\mathbfG| was adopted for BraTS'18" in text


def added(one: Row, other: Row, name: str) -> float:
    assert one.reductions is not None
    assert other.reductions is not None
    return round(getattr(one.reductions, name) - getattr(other.reductions, name), 1)


def test_memory_of_the_deeper_network_is_a_hundredth_more_than_the_text_says() -> None:
    (erratum,) = (e for e in published.ERRATA if e.network == "unet3d-shapenet-23")
    full = next(q for q in published.quotes("unet3d-shapenet-23") if "memory_mb" in q.figures and q.method == "full")
    with torch.device("meta"):
        model = models.build("unet3d-shapenet-23")
    profile = ranp.profile(model, models.example("unet3d-shapenet-23", device="meta"), convention="paper")
    assert f"{full.figures['gflops']:.2f}" == f"{profile.gflops:.2f}"
    assert (f"{full.figures['memory_mb']:.2f}", f"{profile.memory_mb:.2f}") == (erratum.printed, erratum.instead)


def test_names_are_ours() -> None:
    assert set(published.FIGURES) <= set(models.names())
    for network in NETWORKS:
        assert {row.method for row in published.main(network)} <= {"full", *METHODS}
        assert {row.method for row in published.criteria(network)} <= {"full", *CRITERIA}
    for erratum in published.ERRATA:
        assert erratum.network is None or erratum.network in models.names()
        assert set(erratum.methods) <= {"full", *METHODS, *CRITERIA}


def test_figures_are_those_of_our_tasks() -> None:
    volume = torch.zeros(1, 2, 2, 2, dtype=torch.long)
    samples = {
        "shapenet": (torch.zeros(1, 50, 2, 2, 2), volume),
        "brats": (torch.zeros(1, 5, 2, 2, 2), volume),
        "ucf101": (torch.zeros(1, 3, 101), volume[0, 0, 0, :1]),
        "sceneflow": (torch.zeros(1, 2, 2), torch.zeros(1, 2, 2)),
    }
    for network, names in published.FIGURES.items():
        task = network.split("-")[1]
        assert set(names) <= set(tasks.get(task).metrics(*samples[task]))


def test_rows_cannot_be_changed() -> None:
    row = published.main("unet3d-shapenet")[0]
    with pytest.raises(FrozenInstanceError):
        row.gflops = 0.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        row.figures["miou"] = Measured(100, 0)  # type: ignore[index]
    with pytest.raises(TypeError):
        published.psm_parts()["2d"] = ()  # type: ignore[index]


def test_units() -> None:
    assert published.in_the_papers_unit("dice_wt", 0.5) == 50
    assert published.in_the_papers_unit("epe", 1.42) == 1.42


@pytest.mark.parametrize(
    "lookup", ["main", "criteria", "initialisation", "equal_resources", "quotes", "vanilla_criterion"]
)
def test_an_unknown_network_is_told_the_known_ones(lookup: str) -> None:
    with pytest.raises(
        UnsupportedError, match=r"unknown network .*'unet3d-shapnet'; did you mean 'unet3d-shapenet'\? Allowed: "
    ):
        getattr(published, lookup)("unet3d-shapnet")


def test_a_sparsity_that_the_paper_does_not_tell() -> None:
    with pytest.raises(UnsupportedError, match=r"unknown method with a largest sparsity of 'i3d-ucf101' .*'weighted'"):
        published.largest_sparsity("i3d-ucf101", "weighted")
    with pytest.raises(UnsupportedError, match=r"'unet3d-shapenet-23'.*'vanilla'\. Allowed: ranp-f\."):
        published.largest_sparsity("unet3d-shapenet-23", "vanilla")
    with pytest.raises(UnsupportedError, match="'unet3d-brats-23'"):
        published.largest_sparsity("unet3d-brats-23", "ranp-f")

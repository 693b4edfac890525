"""The page in a real browser: nothing fails, nothing is fetched, all of it can be used and read."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ranp.files import atomic
from ranp.page.build import write
from ranp.paper import tasks, training
from tests.support.reading import Read, read
from tests.support.run_folders import write_table

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH: make browser"),
]
SIZES = {"desk": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about a full and a slim network that were trained for real, and a table with a drawing."""
    top = tmp_path_factory.mktemp("runs")
    task = tasks.get("shapenet")
    settings = "epochs=2 train_count=4 valid_count=2 options.widths=16,32 size=8 batch=2 tensorboard=false".split()
    recipe = task.cpu.but(settings)
    training.train(task, top / "full", recipe=recipe)
    training.train(task, top / "slim", recipe=recipe, pruning=training.Pruning("ranp-f", 0.4, batches=2))
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" width="700" height="60"><text y="20">drawn</text></svg>'
    (top / "main.svg").write_text(drawing)
    wide = [f"a rather long column {number}" for number in range(12)]
    write_table(
        top / "main.json",
        columns=[{"name": name, "left": not number} for number, name in enumerate(wide)],
        groups=[{"title": "A group", "rows": [[f"{number}.25" for number in range(12)]]}],
        figures={"main.svg": atomic.checksum(drawing.encode())},
    )
    return write([top], top / "report.html")


@pytest.fixture(scope="module")
def told(report: Path) -> Read:
    return read(report.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and not os.geteuid() else []  # root has no sandbox
        launched = started.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield launched
        launched.close()


@dataclass
class Opened:
    """A page with all its charts drawn, and what it complained of or asked the network for since it was opened."""

    page: Any
    noise: list[str]


def opened(browser: Any, report: Path, size: str) -> Opened:
    width, height = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
    page.set_default_timeout(300_000)
    noise: list[str] = []
    page.on("console", lambda message: noise.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.on("request", lambda asked: noise.append(asked.url) if not asked.url.startswith("data:") else None)
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready]")
    for place in page.query_selector_all(".plot"):
        place.scroll_into_view_if_needed()
        page.wait_for_function("place => place.querySelector('.main-svg') !== null", arg=place)
    return Opened(page, noise)


@pytest.fixture(scope="module")
def pages(browser: Any, report: Path) -> Iterator[dict[str, Opened]]:
    """The page on a desk and on a phone: slow to open, so each is opened once, and tests leave it as they found it."""
    found = {size: opened(browser, report, size) for size in SIZES}
    yield found
    for one in found.values():
        one.page.close()


@pytest.fixture
def page(pages: dict[str, Opened], report: Path) -> Iterator[Any]:
    """The page on a desk; a test fails if anything went wrong in the browser while it ran."""
    desk = pages["desk"]
    yield desk.page
    assert desk.noise == [report.as_uri()]


def test_only_the_file_itself_is_asked_for_and_nothing_fails(pages: dict[str, Opened], report: Path) -> None:
    assert {size: one.noise for size, one in pages.items()} == {size: [report.as_uri()] for size in SIZES}


def test_the_policy_of_the_page_stops_what_would_be_fetched_or_injected(browser: Any, report: Path) -> None:
    page, noise = browser.new_page(), []
    page.set_default_timeout(300_000)
    page.on("console", lambda message: noise.append(message.text))
    page.goto(report.as_uri())
    page.evaluate(
        """() => {
          const image = new Image(); image.src = "http://example.invalid/x.png"; document.body.append(image);
          const script = document.createElement("script"); script.textContent = "window.injected = 1";
          document.body.append(script);
        }"""
    )
    page.wait_for_timeout(500)
    assert page.evaluate("window.injected === undefined")
    assert sum("Content Security Policy" in line for line in noise) == 2
    page.close()


def test_the_slider_moves_every_number_by_mouse_and_by_keyboard(page: Any, told: Read) -> None:
    ((key, study),) = told.data["studies"].items()
    places = study["positions"]
    slider = page.locator(f"#slider-{key}")
    for press, place in (("Home", 0), ("ArrowRight", 1), ("End", len(places) - 1), ("ArrowLeft", len(places) - 2)):
        slider.press(press)
        assert slider.input_value() == str(place)
        here = places[place]
        assert page.locator(".whatif output").inner_text() == here["label"]
        assert slider.get_attribute("aria-valuetext") == here["label"]
        readout = page.locator(".readout")
        assert readout.inner_text() == here["text"]
        assert readout.get_attribute("aria-live") == "polite"
        for sweep, row in ((0, 1), (0, 2), (0, 3), (1, 1)):
            cell = page.locator(f'[data-cell="{sweep},{row}"]')
            assert cell.inner_text().split() == here["cells"][sweep][row].split()
        shown = page.locator('[data-width="0,0"]').inner_text()
        assert shown == (str(here["widths"][0][0]) if here["feasible"][0] else "\N{EN DASH}")
        for resource in ("flops", "memory", "params"):
            marker = page.evaluate(f"document.getElementById('chart-{key}-{resource}').layout.shapes[1].x0")
            assert marker == here["at"]
    before = slider.input_value()
    box = slider.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
    assert slider.input_value() != before


def test_what_is_infeasible_is_told_in_words_and_in_the_bars(page: Any, told: Read) -> None:
    (key,) = told.data["studies"]
    page.locator(f"#slider-{key}").press("End")
    assert "infeasible" in page.locator(".readout").inner_text()
    assert page.locator('[data-cell="0,0"]').inner_text() == "infeasible"
    page.wait_for_timeout(400)
    assert page.locator('[data-bar="0,0"]').bounding_box()["width"] == 0


def test_importance_switches_by_stage(page: Any, told: Read) -> None:
    (key,) = told.data["studies"]
    chart = f"document.getElementById('chart-{key}-importance')"
    seen = f"[...new Set({chart}.data.filter(trace => trace.visible === true).map(trace => trace.meta))].join()"
    assert page.evaluate(seen) == "reweighted"
    page.get_by_label("raw", exact=True).check()
    assert page.evaluate(seen) == "raw"
    axis = told.data["charts"][f"{key}-importance"]["layout"]["meta"]["axes"]["raw"]["range"]
    assert page.evaluate(f"{chart}.layout.xaxis.range") == pytest.approx(axis)


def test_a_table_sorts_by_a_column(page: Any) -> None:
    button = page.locator(".sortable th button", has_text="parameters")
    column = "[...document.querySelectorAll('.sortable tbody tr')].map(row => row.cells[3].textContent)"
    for order in ("ascending", "descending"):
        button.click()
        values = [int(text.replace(",", "")) for text in page.evaluate(column)]
        assert values == sorted(values, reverse=order == "descending")
        assert button.locator("xpath=..").get_attribute("aria-sort") == order


OVERLAPS = """() => {
  const seen = (box) => box.width > 0 && box.height > 0;
  const found = [];
  for (const plot of document.querySelectorAll(".plot")) {
    const frame = plot.getBoundingClientRect();
    const labels = [...plot.querySelectorAll("text")].filter((text) => text.textContent.trim())
      .map((text) => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => seen(box));
    for (const [words, box] of labels) {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
          || box.bottom > frame.bottom + 1) found.push(`${plot.id}: ${words} is cut off`);
    }
    for (let i = 0; i < labels.length; i += 1) for (let j = 0; j < i; j += 1) {
      const [a, b] = [labels[i][1], labels[j][1]];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1.5 && down > 3) found.push(`${plot.id}: ${labels[i][0]} over ${labels[j][0]}`);
    }
  }
  const words = ".card, .card *, .verdict, .readout, .controls, h1, h2, h3, figcaption";
  for (const box of document.querySelectorAll(words)) {
    if (box.matches(".unseen, .meter, .meter *")) continue;
    if (box.clientWidth && box.scrollWidth > box.clientWidth + 1) found.push(`${box.outerHTML.slice(0, 60)} cut off`);
  }
  return found;
}"""


@pytest.mark.parametrize("size", SIZES)
def test_nothing_runs_out_of_the_page_overlaps_or_is_cut_off(size: str, pages: dict[str, Opened]) -> None:
    page = pages[size].page
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    boxes = page.evaluate(
        "[...document.querySelectorAll('section, .plot, .scroll')].map(box => box.getBoundingClientRect().right)"
    )
    assert max(boxes) <= SIZES[size][0]
    assert page.evaluate(OVERLAPS) == []
    for fieldset in page.query_selector_all(".stages input"):
        fieldset.check()
        assert page.evaluate(OVERLAPS) == []
    assert page.evaluate("[...document.querySelectorAll('.scroll')].some(box => box.scrollWidth > box.clientWidth)")


WIDE = """[...document.querySelectorAll(".scroll")].filter(box => !box.closest("details:not([open])")).map(box => [
  box.scrollWidth > box.clientWidth + 1, box.hasAttribute("data-wide"),
  getComputedStyle(box, "::before").content.includes("scrolls sideways"), box.tabIndex === 0])"""


@pytest.mark.parametrize("size", SIZES)
def test_a_table_that_is_wider_than_its_box_says_so_also_when_it_is_unfolded(
    size: str, pages: dict[str, Opened]
) -> None:
    page, seen = pages[size].page, []
    for state in (True, False):
        page.evaluate("open => { for (const box of document.querySelectorAll('details')) box.open = open; }", state)
        settle(page)
        boxes = page.evaluate(WIDE)
        assert any(wide for wide, *_ in boxes)
        assert all(wide == marked == told and reached for wide, marked, told, reached in boxes)
        seen.append(len(boxes))
    assert seen[0] > seen[1]


MOVE = """([text, far]) => {
  const other = text.closest(".xaxislayer-above").querySelectorAll("text")[1];
  const shift = far ? -4000 : other.getBoundingClientRect().left - text.getBoundingClientRect().left;
  const before = text.getAttribute("transform");
  text.setAttribute("transform", `translate(${shift}, 0) ${before || ""}`);
  return before;
}"""


@pytest.mark.parametrize(("far", "told"), [(True, "is cut off"), (False, " over ")])
def test_labels_that_overlap_or_are_cut_off_would_be_noticed(far: bool, told: str, page: Any) -> None:
    label = page.query_selector(".plot .xaxislayer-above text")
    before = page.evaluate(MOVE, [label, far])
    assert any(told in found for found in page.evaluate(OVERLAPS))
    label.evaluate("(text, before) => text.setAttribute('transform', before || '')", before)
    assert page.evaluate(OVERLAPS) == []


def test_charts_follow_when_the_window_becomes_narrow(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("() => [...document.querySelectorAll('.main-svg')].every(s => s.clientWidth <= 390)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function("() => [...document.querySelectorAll('.main-svg')].some(s => s.clientWidth > 600)")


def settle(page: Any) -> None:
    """Waits until the browser has told the page that the medium changed and has drawn it again."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def colours(page: Any) -> set[str]:
    """The colours of the text of all charts."""
    return set(page.evaluate("[...document.querySelectorAll('.plot text')].map(text => getComputedStyle(text).fill)"))


def test_charts_are_dark_in_the_dark_and_change_while_they_are_looked_at(page: Any) -> None:
    light, paper = colours(page), page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    settle(page)
    dark, night = colours(page), page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert luminance(paper) > 0.8
    assert luminance(night) < 0.05
    assert not light & dark
    assert max(map(luminance, light)) < 0.3
    assert min(map(luminance, dark)) > 0.3
    page.emulate_media(color_scheme="light")
    settle(page)
    assert colours(page) == light


def test_print_hides_the_controls_and_shows_charts_on_white(page: Any) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    settle(page)
    for hidden in (".controls", "nav", ".skip"):
        assert not any(box.is_visible() for box in page.query_selector_all(hidden)), hidden
    assert all(box.is_visible() for box in page.query_selector_all(".plot .main-svg"))
    assert luminance(page.evaluate("getComputedStyle(document.body).backgroundColor")) == pytest.approx(1.0)
    assert max(map(luminance, colours(page))) < 0.3
    page.emulate_media(media="screen", color_scheme="light")
    settle(page)


def luminance(colour: str) -> float:
    """Relative luminance of a colour as the browser says it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


CONTRASTS = """() => {
  const found = [];
  const solid = (colour) => !/^rgba\\(.*, 0\\)$|^transparent$/.test(colour);
  for (const box of document.querySelectorAll("body *")) {
    const own = [...box.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || box.closest(".plot, .unseen, script, style, noscript, .skip") || !box.getClientRects().length) continue;
    let behind = box;
    while (behind && !solid(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
    const back = getComputedStyle(behind || document.body).backgroundColor;
    found.push([getComputedStyle(box).color, back, box.textContent.trim().slice(0, 40)]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(scheme: str, page: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    settle(page)
    pairs = page.evaluate(CONTRASTS)
    card = page.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor")
    pairs += [[colour, card, "a chart"] for colour in colours(page)]
    page.emulate_media(color_scheme="light")
    settle(page)
    assert len(pairs) > 50
    for front, back, words in pairs:
        light, dark = sorted((luminance(front), luminance(back)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (words, front, back)


def test_the_page_can_be_used_without_seeing_it(page: Any) -> None:
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.title()
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.evaluate("[...document.querySelectorAll('input')].every(i => i.labels[0]?.innerText)")
    assert page.evaluate("[...document.querySelectorAll('img')].every(i => i.alt.length > 3)")
    assert page.evaluate("[...document.querySelectorAll('.plot')].every(p => p.getAttribute('aria-label'))")
    assert page.evaluate("[...document.querySelectorAll('th')].every(h => h.scope)")
    assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.caption)")
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id).filter(i => !/^[a-f0-9]{6}/.test(i))")
    assert len(ids) == len(set(ids))


def test_the_keyboard_reaches_the_content_first_and_sees_where_it_is(browser: Any, report: Path) -> None:
    page = browser.new_page()
    page.set_default_timeout(300_000)
    page.goto(report.as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("Tab")
    style = "getComputedStyle(document.activeElement)"
    assert page.evaluate(f"{style}.outlineStyle") == "solid"
    assert page.evaluate(f"parseFloat({style}.outlineWidth)") >= 2
    page.close()


def test_predictions_of_trained_networks_are_in_the_page(page: Any, told: Read) -> None:
    assert not [note for note in told.notes if "Example predictions" in note]
    pictures = page.evaluate("[...document.querySelectorAll('#examples img')].map(i => [i.complete, i.naturalWidth])")
    assert len(pictures) == 2
    assert all(complete and width > 600 for complete, width in pictures)

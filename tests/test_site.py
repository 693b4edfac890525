"""The documentation site builds without a warning, holds everything, draws its equations, and fetches nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

import ranp

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REQUESTED = {
    "script": ["src"],
    "link": ["href"],
    "img": ["src", "srcset"],
    "source": ["src", "srcset"],
    "iframe": ["src"],
    "video": ["src", "poster"],
    "audio": ["src"],
    "object": ["data"],
    "embed": ["src"],
    "use": ["href", "xlink:href"],
    "form": ["action"],
}
"""What makes a browser fetch something (or send it) without a click, by element."""


def hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"hook_{name}", DOCS / "hooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Page(HTMLParser):
    """What a built page fetches, where it links, its anchors, and its text outside of annotations."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.requests: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.elements: list[str] = []
        self.text = ""
        self._silent = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.elements.append(tag)
        self.ids |= {found["id"]} if "id" in found else set()
        self.requests += [found[name] for name in REQUESTED.get(tag, []) if name in found]
        self.requests += re.findall(r"url\(([^)]*)\)", found.get("style", ""))
        self.links += [found["href"]] if tag == "a" and "href" in found else []
        self._silent += tag in ("annotation", "script", "style", "code")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("annotation", "script", "style", "code")

    def handle_data(self, data: str) -> None:
        self.text += "" if self._silent else data


def build(target: Path, *options: str, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--config-file",
        str(config),
        "--site-dir",
        str(target),
        *options,
    ]
    # The theme advertises its successor on stderr; that is no warning of the build's.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(target, "--strict")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    assert "ERROR" not in done.stderr
    return target


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    return {path.relative_to(site).as_posix(): Page(path) for path in sorted(site.rglob("*.html"))}


@pytest.mark.slow
def test_every_page_is_built_and_can_be_reached_from_home(site: Path, pages: dict[str, Page]) -> None:
    written = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    assert written | {"changelog.html", "contributing.html", "404.html"} == set(pages)
    reached, todo = {"index.html"}, ["index.html"]
    while todo:
        page = pages[todo.pop()]
        for link in page.links:
            if "://" in link:
                continue
            target = (page.path.parent / link.partition("#")[0]).resolve() if link.partition("#")[0] else page.path
            name = os.path.relpath(target, site.resolve()).replace(os.sep, "/")
            if name not in reached and name in pages:
                reached.add(name)
                todo.append(name)
    assert reached == set(pages) - {"404.html"}


@pytest.mark.slow
def test_links_and_anchors_lead_somewhere(pages: dict[str, Page], site: Path) -> None:
    for name, page in pages.items():
        if name == "404.html":  # its links are absolute, for the server that answers with it
            continue
        for link in page.links:
            if "://" in link or link.startswith("mailto:"):
                continue
            path, _, anchor = link.partition("#")
            target = (page.path.parent / path).resolve() if path else page.path
            assert target.is_file(), f"{name}: {link}"
            if anchor and target.suffix == ".html":
                there = pages[target.relative_to(site.resolve()).as_posix()]
                assert anchor in there.ids, f"{name}: {link}"


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: Path, pages: dict[str, Page]) -> None:
    assert sum(len(page.requests) for page in pages.values()) > len(pages)
    for name, page in pages.items():
        for request in page.requests:
            assert not re.match(r"(https?:)?//", request), f"{name}: {request}"
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        outside = [target for target in re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s]+)", text) if "//" in target]
        assert not [target for target in outside if not target.startswith("data:")], sheet.name


def test_a_fetch_would_be_noticed(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text('<script src="https://a/b.js"></script><p style="background: url(//c/d.png)"><img src="e.png">')
    assert Page(path).requests == ["https://a/b.js", "//c/d.png", "e.png"]


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(pages: dict[str, Page]) -> None:
    anchors = {anchor for name, page in pages.items() if name.startswith("api/") for anchor in page.ids}
    assert {f"ranp.{name}" for name in ranp.__all__} <= anchors
    for module, names in {
        "ranp.paper.models": "build example names arguments UNet3d MobileNetV2 I3D PSMNet",
        "ranp.paper.tasks": "get names Task",
        "ranp.paper.training": "train evaluate Pruning Run",
        "ranp.integrations.exporting": "export Exported",
        "ranp.integrations.lightning": "PruneAtInitialisation slim_like slim_from_checkpoint",
        "ranp.integrations.monai": "pairs deep_supervision",
        "ranp.integrations.nnunet": "PrunedTraining slimmed",
    }.items():
        assert {f"{module}.{name}" for name in names.split()} <= anchors, module


@pytest.mark.slow
def test_what_a_name_means_is_in_the_reference_too(pages: dict[str, Page]) -> None:
    """A name that is both a module and a function must show the function."""
    for page, name in {"tracing": "trace", "pruning": "prune", "costs": "profile", "weighting": "balance"}.items():
        first = " ".join((getattr(ranp, name).__doc__ or "").split("\n")[0].split())
        assert first.split(" (")[0] in " ".join(pages[f"api/{page}.html"].text.split()), name


@pytest.mark.slow
def test_equations_are_drawn_by_the_browser(pages: dict[str, Page]) -> None:
    for path in DOCS.rglob("*.md"):
        text = re.sub(r"^```.*?^```$|`[^`\n]+`", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        blocks = len(re.findall(r"^\$\$$", text, re.MULTILINE)) // 2
        inline = len(re.findall(r"(?<!\$)\$[^$\n]+\$(?!\$)", text))
        page = pages[path.relative_to(DOCS).with_suffix(".html").as_posix()]
        assert page.elements.count("math") == blocks + inline, path.name
        assert page.path.read_text(encoding="utf-8").count('display="block"') == blocks, path.name
        assert "$$" not in page.text
        assert not re.search(r"\\[a-z]+\b", page.text), path.name
    assert pages["algorithm.html"].elements.count("math") > 40


@pytest.mark.parametrize(
    ("latex", "shown"),
    [
        (r"\frac{a}{b}", "ab"),
        (r"\left. x \right|_{\mathbf{c} = \mathbf{1}}", "x|\U0001d41c=\U0001d7cf"),
        (r"a < b", "a<b"),
        (r"\begin{cases} 1 & x \\ 2 & y \end{cases}", "{1x2y"),
    ],
)
def test_an_equation_keeps_its_signs_and_its_source(latex: str, shown: str) -> None:
    math = ElementTree.fromstring(hook("equations").mathml(latex, block=True))
    space = "{http://www.w3.org/1998/Math/MathML}"
    (semantics,) = math
    body, annotation = semantics
    assert (math.tag, math.get("display"), annotation.tag) == (f"{space}math", "block", f"{space}annotation")
    assert "".join(body.itertext()) == shown
    assert annotation.text == latex


@pytest.mark.parametrize("latex", [r"\nosuchcommand{a}", r"\begin{aligned} a &= b \end{aligned}"])
def test_what_cannot_be_drawn_ends_the_build(latex: str) -> None:
    with pytest.raises(ValueError, match="no MathML for"):
        hook("equations").mathml(latex)


def test_sessions_and_literal_blocks_become_code() -> None:
    fenced = hook("docstrings").fenced
    assert fenced("Does.\n\n    >>> f(1)\n    2\n\nArgs:\n    x: A.") == (
        "Does.\n\n```pycon\n>>> f(1)\n2\n```\n\nArgs:\n    x: A."
    )
    assert fenced(">>> f(\n...     1)\n2") == "```pycon\n>>> f(\n...     1)\n2\n```"
    assert (
        fenced("Example::\n\n    a = 1\n\n    b = 2\n\nMore.") == "Example:\n\n```python\na = 1\n\nb = 2\n```\n\nMore."
    )
    assert fenced("Nothing to do: a >>> b") == "Nothing to do: a >>> b"


@pytest.mark.slow
def test_docstrings_show_no_session_as_quotation(pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        if name.startswith("api/"):
            assert "blockquote" not in page.elements, name
            assert ">>>" not in page.text, name


def test_folders_in_the_navigation_are_their_pages_and_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for name in ("b", "index", "a"):
        (tmp_path / "many" / f"{name}.md").touch()
    for name in ("index", "plain"):
        (tmp_path / f"{name}.md").touch()
    nav = [
        {"Home": "index.md"},
        {"Part": [{"Many": "many/"}, {"None": "none/"}, "plain.md", {"Later": "later.md"}]},
        {"Changes": "changelog.md"},
    ]
    assert hook("pages").expanded(nav, tmp_path) == [
        {"Home": "index.md"},
        {"Part": [{"Many": ["many/index.md", "many/a.md", "many/b.md"]}, "plain.md"]},
        {"Changes": "changelog.md"},
    ]


@pytest.mark.parametrize(
    ("link", "followed"),
    [
        ("[x](how-to.md#budgets)", "[x](how-to.md#budgets)"),
        ("[x](../CHANGELOG.md#a)", "[x](changelog.md#a)"),
        ("[`Recipe`](../src/ranp/paper/recipe.py)", "[`Recipe`][ranp.paper.recipe.Recipe]"),
        ("[the file](../src/ranp/pruning.py)", "the file"),
    ],
)
def test_links_out_of_the_docs_are_followed(link: str, followed: str) -> None:
    assert hook("pages").on_page_markdown(f"a {link} b") == f"a {followed} b"


def test_a_page_outside_of_the_navigation_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n")
    (tmp_path / "docs" / "lost.md").write_text("# B\n")
    lines = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    validation = re.search(r"^validation:\n(?: .*\n)+", lines, re.MULTILINE)
    assert validation is not None
    (tmp_path / "mkdocs.yml").write_text(f"site_name: a\nnav: [index.md]\n{validation[0]}")
    done = build(tmp_path / "site", "--strict", config=tmp_path / "mkdocs.yml")
    assert done.returncode != 0
    assert "lost.md" in done.stderr

"""What the site needs beyond the pages in docs/: the changelog, the contribution guide, folders in the navigation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

BROUGHT = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Page of the site -> file at the top of the project."""

_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replaces every folder in the navigation by the pages it holds, and leaves out what is not there."""
    if config.nav is not None:
        config.nav = expanded(config.nav, Path(config.docs_dir))
    return config


def expanded(nav: list[Any], docs: Path) -> list[Any]:
    """The navigation with the pages of a folder, ``index.md`` first, in its place, and without what is not there."""
    made: list[Any] = []
    for item in nav:
        title, target = next(iter(item.items())) if isinstance(item, dict) else (None, item)
        if isinstance(target, list):
            made.append({title: expanded(target, docs)})
        elif not target.endswith("/"):
            made += [item] if target in BROUGHT or (docs / target).is_file() else []
        elif pages := sorted((docs / target).glob("*.md"), key=lambda page: (page.name != "index.md", page.name)):
            made.append({title: [page.relative_to(docs).as_posix() for page in pages]})
    return made


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are written at the top of the project."""
    root = Path(config.config_file_path).parent
    for page, source in BROUGHT.items():
        files.append(File.generated(config, page, content=inside_docs((root / source).read_text(encoding="utf-8"))))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leads links out of docs/ to where the site has the same thing."""
    return _LINK.sub(_followed, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Keeps the source code that the reference can unfold out of the search."""
    return html.replace(
        '<details class="mkdocstrings-source">', '<details class="mkdocstrings-source" data-search-exclude>'
    )


def inside_docs(markdown: str) -> str:
    """A page from the top of the project as it would read if it lay in docs/."""
    return _LINK.sub(lambda link: link[0].replace("](docs/", "]("), markdown)


def _followed(link: re.Match[str]) -> str:
    """A link to a file of the project: its page, the entry of that name in the reference, or the bare text."""
    text, target, anchor = link[1], link[2], link[3] or ""
    if not target.startswith("../"):
        return link[0]
    name = target.removeprefix("../")
    for page, source in BROUGHT.items():
        if name == source:
            return f"[{text}]({page}{anchor})"
    module = name.removeprefix("src/").removesuffix(".py").replace("/", ".")
    if name.startswith("src/") and text.strip("`").isidentifier():
        return f"[{text}][{module}.{text.strip('`')}]"
    return link[0] if name.endswith(".md") else text

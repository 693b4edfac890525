"""A page as a reader finds it: its text, its tables, its data, its headings, its addresses."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any


@dataclass
class Read(HTMLParser):
    """What a browser would make of the page, without running anything."""

    headings: list[tuple[int, str]] = field(default_factory=list)
    tables: list[list[list[str]]] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    attributes: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    text: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._json = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.attributes.append((tag, given))
        if tag in ("input", "meta", "link", "img", "wbr"):
            return
        self._open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))
        elif tag == "table":
            self.tables.append([])
        elif tag == "caption":
            self.captions.append("")
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "p" and given.get("class") == "note":
            self.notes.append("")
            self._open[-1] = "note"
        elif tag == "script":
            self._json = given.get("type") == "application/json"
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() not in (tag, "note"):
            pass

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside == "script":
            self.scripts[-1] += data
            if self._json:
                self.data = json.loads(data, parse_constant=refuse)
            return
        if inside == "style":
            return
        self.text += data
        for tag in reversed(self._open):
            if re.fullmatch("h[1-6]", tag):
                level, words = self.headings[-1]
                self.headings[-1] = (level, words + data)
            elif tag in ("td", "th"):
                self.tables[-1][-1][-1] += data
            elif tag == "caption":
                self.captions[-1] += data
            elif tag == "note":
                self.notes[-1] += data
            else:
                continue
            break

    def table(self, caption: str) -> list[list[str]]:
        """The rows of the table whose caption begins so."""
        return next(rows for rows, said in zip(self.tables, self.captions, strict=True) if said.startswith(caption))


def refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def read(page: str) -> Read:
    """Reads a page."""
    found = Read()
    found.feed(page)
    found.close()
    return found

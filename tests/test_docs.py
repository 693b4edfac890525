"""Every Python block of the README and the guides runs, and every command in them is one that exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ranp.cli import main

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    *(f"docs/{name}.md" for name in "quickstart how-to tasks training export lightning monai nnunet".split()),
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[tuple[int, str]]:
    """The line each block begins at, and its text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = BLOCK.finditer(text)
    return [(text[: match.start(2)].count("\n") + 1, match[2]) for match in found if match[1] == language]


COMMANDS = [
    pytest.param(line, id=f"{page}: {line[:60]}")
    for page in PAGES
    for _, text in blocks(page, "console")
    for line in text.splitlines()
    if line.startswith("ranp ")
]


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run_one_after_the_other(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(page, "python")
    assert found
    names: dict[str, object] = {"__name__": "docs"}
    for line, text in found:
        # Blank lines in front, so that a traceback points into the page.
        exec(compile("\n" * (line - 1) + text, str(ROOT / page), "exec"), names)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist_with_all_their_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*shlex.split(command)[1:], "--help"]) == 0, capsys.readouterr().err


def test_a_wrong_command_would_be_noticed() -> None:
    assert main(["prune", "x", "--no-such-option", "--help"]) == 2
    assert main(["prine", "--help"]) == 2


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target

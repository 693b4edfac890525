"""Every Python block of the README and the site runs, every command in them exists, and what they name is there."""

from __future__ import annotations

import importlib
import re
import shlex
from functools import reduce
from pathlib import Path

import pytest

from ranp.cli import main

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")))
GUIDES = "index quickstart how-to tasks training algorithm export lightning monai nnunet"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"", "python", "console", "json", "toml", "yaml", "text", "py"}
NOT_RUN = {"docs/nnunet.md": "nnunetv2"}
"""Pages that show code for a library that is not installed, as ``py`` instead of ``python``, and that library."""
EQUATIONS = """
gradient_mask feed-forward feed-forward-mask neuron_importance_parameter_mask gradient_neuron pmg loss_1 neuron_mask_1
loss_2 weight_mask_1 weight_mask_sum_1 loss_3 neuron_mask_2 neuron_importance_weighted neuron_importance_reweighted
binary_mask dice_loss smooth_l1 smooth_l1_part
""".split()
"""The labelled equations of the paper."""
LONG = tuple(f"docs/{name}.md" for name in ("export", "compare", "budgets", "step-time", "methods"))
"""Pages whose code takes too long for the ordinary run."""


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[tuple[int, str]]:
    """The line each block begins at, and its text."""
    text = read(page)
    found = BLOCK.finditer(text)
    return [(text[: match.start(2)].count("\n") + 1, match[2]) for match in found if match[1] == language]


RUNNING = tuple(page for page in PAGES if blocks(page, "python"))
COMMANDS = [
    pytest.param(line, id=f"{page}: {line[:60]}")
    for page in PAGES
    for _, text in blocks(page, "console")
    for line in text.splitlines()
    if line.startswith("ranp ")
]


def test_the_guides_have_blocks_that_run() -> None:
    assert {"README.md", *(f"docs/{name}.md" for name in GUIDES.split())} <= set(RUNNING)


@pytest.mark.parametrize("page", PAGES)
def test_no_block_hides_from_these_tests(page: str) -> None:
    fences = re.findall(r"^\s*(?:```|~~~)(.*)$", read(page), re.MULTILINE)
    found = BLOCK.findall(read(page))
    assert len(fences) == 2 * len(found)
    assert {language for language, _ in found} <= LANGUAGES
    for _, text in blocks(page, "py"):
        assert NOT_RUN[page] in text
        compile(text, page, "exec")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page in LONG else ()) for page in RUNNING],
)
def test_python_blocks_run_one_after_the_other(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "docs"}
    for line, text in blocks(page, "python"):
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
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", BLOCK.sub("", read(page))):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize("label", EQUATIONS)
def test_every_equation_of_the_paper_is_on_the_page_of_the_algorithm(label: str) -> None:
    assert f"`eq:{label}`" in read("docs/algorithm.md")


def test_every_equation_has_a_function_and_a_test() -> None:
    for section in re.split(r"^## ", read("docs/algorithm.md"), flags=re.MULTILINE)[1:]:
        if "\n$$\n" in section:
            title = section.splitlines()[0]
            assert section.count("- **Here:**") == section.count("- **Test:**") >= 1, title


def test_tests_that_pages_name_exist() -> None:
    named = {found for page in PAGES for found in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", read(page))}
    assert len(named) > 20
    for path, function in named:
        source = (ROOT / path).read_text(encoding="utf-8")
        assert not function or re.search(rf"^def {function}\(", source, re.MULTILINE), f"{path}::{function}"


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_package_exist(page: str) -> None:
    """Anything in backticks that begins with ``ranp.`` is a module or can be reached from one."""
    for name in re.findall(r"`(ranp(?:\.\w+)+)(?:\([^`]*)?`", read(page)):
        if name.endswith((".json", ".sizes")):  # files and metadata keys have dots too
            continue
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            try:
                module = importlib.import_module(".".join(parts[:end]))
            except ModuleNotFoundError:
                continue
            reduce(getattr, parts[end:], module)
            break

"""The public surface: complete, lazy, and light to import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ranp


def test_every_public_name_is_there_and_is_what_the_type_checker_sees() -> None:
    tree = ast.parse(Path(ranp.__file__).read_text())
    seen = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ranp.")
        for alias in node.names
    }
    assert sorted(seen) == sorted(ranp.__all__)
    for name, module in seen.items():
        assert getattr(ranp, name) is getattr(sys.modules[module], name)
        assert name in dir(ranp)
        assert getattr(ranp, name).__doc__


def test_the_errors_are_public() -> None:
    family = {name for name in ranp.__all__ if name.endswith("Error")}
    assert family == {name for name in vars(ranp.errors) if name.endswith("Error")}
    assert all(issubclass(getattr(ranp, name), ranp.RanpError) for name in family)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'pruned'"):
        _ = ranp.pruned


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_the_package_and_the_command_line_loads_no_torch() -> None:
    assert run("import ranp, ranp.cli, sys; print('torch' in sys.modules)").strip() == "False"


def test_the_library_needs_torch_numpy_and_safetensors_only() -> None:
    code = "import ranp, sys; ranp.prune; ranp.load; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = set(run(code).split())
    assert "torch" in loaded
    assert not loaded & {"typer", "rich", "monai", "matplotlib", "plotly", "onnx", "lightning", "tensorboard", "scipy"}


def test_names_stay_functions_after_their_modules_are_imported() -> None:
    code = "import ranp, ranp.pruning, ranp.tracing.trace; print(callable(ranp.prune), callable(ranp.trace))"
    assert run(code).strip() == "True True"


def test_the_version_is_the_same_everywhere() -> None:
    root = Path(__file__).parents[1]
    for file, place in {
        "pyproject.toml": r'^version = "(.*)"$',
        "CITATION.cff": r"^version: (.*)$",
        "CHANGELOG.md": r"^## \[(\d.*)\] - ",
    }.items():
        found = re.search(place, (root / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert found, file
        assert found[1] == ranp.__version__, file

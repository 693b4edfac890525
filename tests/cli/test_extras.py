"""What is not installed is found before any work, all at once, and is installed by one command."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from ranp.cli import extras, main
from ranp.paper import tasks

SAYS = "not installed. Run: pip install 'ranp["


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if these had never been installed."""
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(
    ("words", "missing", "extra"),
    [
        ("demo --out {out}", "plotly", "report"),
        ("demo --out {out}", "jinja2", "report"),
        ("report {out}", "jinja2", "report"),
        ("train brats --scale cpu --out {out}", "monai", "medical"),
        ("train ucf101 --scale cpu --data {out} --out {out}", "av", "video"),
        ("train sceneflow --scale cpu --data {out} --out {out}", "PIL", "stereo"),
        ("reproduce main --quick --out {out}", "monai", "medical"),
        ("reproduce resources --quick --out {out}", "matplotlib", "report"),
        ("reproduce main --quick --out {out} --cluster slurm", "distributed", "cluster"),
        ("compare --task brats --out {out}", "monai", "medical"),
        ("compare --task shapenet --out {out}", "scipy", "compare"),
        ("compare --lightning a:b --out {out}", "lightning", "lightning"),
    ],
)
def test_a_missing_package_is_refused_before_any_work(
    words: str,
    missing: str,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    without(monkeypatch, missing)
    assert main(words.format(out=tmp_path / "out").split()) == 2
    told = capsys.readouterr().err
    assert told == f"error: {missing} is needed for this and {SAYS}{extra}]'.\n"
    assert not list(tmp_path.iterdir())


def test_all_that_is_missing_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without(monkeypatch, "monai", "matplotlib")
    assert main(["reproduce", "all", "--quick", "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert told == f"error: monai, matplotlib are needed for this and {SAYS}medical,report]'.\n"


def test_every_package_is_of_the_extra_that_is_named() -> None:
    said = [line.replace(" ", "").replace("'", '"') for line in metadata.requires("ranp") or ()]
    of_tasks = [extras.of_task(tasks.get(name), "data") for name in tasks.names()]
    for packages in (extras.REPORT, extras.COMPARE, extras.CLUSTER, extras.LIGHTNING, *of_tasks):
        for name, extra in packages.items():
            wanted = {"PIL": "pillow"}.get(name, name)
            assert any(line.startswith(f"{wanted}>=") and line.endswith(f'extra=="{extra}"') for line in said)

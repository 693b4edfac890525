"""``ranp fit``: what it says fits, fits, and what it says makes it fit does."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
import torch

import ranp
from ranp.cli import main
from tests.support import networks_to_name as code

CODE = "tests.support.networks_to_name"


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["fit", f"{CODE}:small", "--input", "1x1x16x16x16", *arguments, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def pasted(text: str, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    """Runs the command that was printed last."""
    (line,) = [line.strip() for line in text.splitlines() if line.startswith("  ranp ")]
    assert main([*shlex.split(line)[1:], *more, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def peak(batch: int, size: tuple[int, ...] = (16, 16, 16), step: ranp.TrainingStep | None = None) -> int:
    example = torch.empty(batch, 1, *size, device="meta")
    return ranp.training_memory(code.small(), example, step=step or ranp.TrainingStep()).peak


def test_the_full_network(capsys: pytest.CaptureFixture[str]) -> None:
    memory = int(3.5 * peak(1))
    found = asked(capsys, "--memory", f"{memory}B")
    full = found["full"]
    assert isinstance(full, dict)
    assert found["fits"]
    assert found["plan"] is None
    assert full["plain"]["needed"] == peak(1)
    assert peak(full["plain"]["batch"]) <= memory < peak(full["plain"]["batch"] + 1)
    assert peak(1, tuple(full["plain"]["size"])) <= memory
    assert full["checkpointing"]["batch"] >= full["plain"]["batch"]


@pytest.mark.parametrize("data", [(), ("--batches", f"{CODE}:batches", "--loss", f"{CODE}:loss")], ids=["none", "data"])
def test_what_makes_a_wanted_batch_and_size_fit(data: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    step = ranp.TrainingStep(optimiser="sgd")
    memory = int(0.75 * peak(4, (20, 20, 20), step))
    wanted = ("--memory", f"{memory}B", "--batch", "4", "--size", "20", "--optimizer", "sgd")
    found = asked(capsys, *wanted, *data)
    assert not found["fits"]
    plan = found["plan"]
    assert isinstance(plan, dict)
    assert 0.9 * memory < plan["train_memory"] <= memory
    assert 0 < plan["sparsity"] < 1
    assert plan["flops"] < 1
    assert main(["fit", f"{CODE}:small", "--input", "1x1x16x16x16", *wanted, *data]) == 0
    text = capsys.readouterr().out
    assert f"{plan['sparsity']:.2%}" in text
    assert "of the parameters are left" in text
    assert ("instead of --criterion magnitude" in text) == (not data)
    made = pasted(text, capsys, "--dry-run")
    (budget,) = made["settings"]["budget"]
    assert budget["after"] <= memory
    assert made["settings"]["criterion"] == ("magnitude" if not data else "mpmg-sum")


def test_what_fits_ends_with_the_next_question(capsys: pytest.CaptureFixture[str]) -> None:
    memory = int(3.5 * peak(1))
    assert main(["fit", f"{CODE}:small", "--input", "1x1x16x16x16", "--memory", f"{memory}B"]) == 0
    text = capsys.readouterr().out
    assert "fits as it is" in text
    found = pasted(text, capsys)
    assert not found["fits"]
    assert found["memory"] == memory


def test_what_cannot_fit_says_how_small_it_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "--memory", "10kB")
    assert found["plan"] is None
    assert "The smallest possible is train-memory=" in str(found["refusal"])
    assert main(["fit", f"{CODE}:small", "--input", "1x1x16x16x16", "--memory", "10kB"]) == 0
    text = capsys.readouterr().out
    assert "does not fit at any sparsity" in text
    assert pasted(text, capsys)["step"]["checkpointing"]

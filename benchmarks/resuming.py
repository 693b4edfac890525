"""Results that are kept, so that a benchmark that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def setting() -> str:
    """What results hang on beside the machine: torch, its threads, and the vectors that its kernels use."""
    vectors = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__}, {torch.get_num_threads()} threads, {vectors}"


class Kept:
    """Results of one benchmark in ``$RANP_BENCHMARKS``, by default ``.benchmarks``; delete its file to begin anew.

    Args:
        name: Of the benchmark.
        quick: Quick results are kept apart.
    """

    def __init__(self, name: str, quick: bool) -> None:
        folder = Path(os.environ.get("RANP_BENCHMARKS", ".benchmarks"))
        self._path = folder / f"{name}{'-quick' if quick else ''}.jsonl"
        self._with = setting()
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self._known = {tuple(one["key"]): one["value"] for one in map(json.loads, lines) if one["with"] == self._with}

    def once(self, *key: Any, work: Callable[[], Any]) -> Any:
        """What the work returns, plain values, or returned when it was last done for this key."""
        if key not in self._known:
            self._known[key] = value = work()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps({"with": self._with, "key": key, "value": value}) + "\n")
        return self._known[key]

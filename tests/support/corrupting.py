"""Damages every kind of file that ranp writes, reads it, and counts what became of it, as a table.

A damaged file must be refused, or turn out to hold what it held (white space changed, say). A plan may be edited by
hand, so that one may also be read if it is said to be edited. Anything else is a failure: silence, or another error
than ours.

    python -m tests.support.corrupting [--damages 2000] [--digits 1000] [--seed 0]
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors import safe_open
from torch import nn

import ranp
from ranp.errors import RanpError
from ranp.files import atomic
from ranp.files.checkpoints import Checkpoints
from ranp.page.gather import gather
from ranp.paper import models, training
from ranp.paper.experiments import results
from ranp.paper.experiments.cell import Cell
from ranp.paper.tasks.brats import cache
from ranp.paper.tasks.brats.preprocessing import Volume
from ranp.reporting.folder import RunFolder, write_run
from ranp.reporting.report import Report
from ranp.reporting.table import Column, Group, Table
from ranp.scoring.scores import Scores
from ranp.slimming import storage
from tests.support.toy import VOLUMES

FINE = ("refused", "unchanged", "edited")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file.

    Attributes:
        name: What it is called.
        path: One of them, among the files that belong to it.
        read: What a reader makes of it.
        edited: Whether the reader is told that the file was edited; None of a kind that may not be.
    """

    name: str
    path: Path
    read: Callable[[Path], Any]
    edited: Callable[[Path], bool] | None = None


def write_all(home: Path) -> list[Kind]:
    """Writes a file of every kind, as the program itself does."""
    torch.manual_seed(0)
    run = training.train(
        VOLUMES, home / "run", settings=["epochs=2", "checkpoint_every=2"], pruning=training.Pruning("ranp-f", 0.2)
    ).folder
    for spare in sorted(run.glob("checkpoint-*"))[:-1]:
        spare.unlink()
    checkpoint = next(run.glob("checkpoint-*"))
    with safe_open(checkpoint, framework="pt") as file:
        name = file.metadata()["run"]
    options = dict(VOLUMES.recipe.options)

    def build() -> nn.Module:
        return models.build("unet3d-shapenet", **options)

    def model(path: Path) -> Any:
        told = storage.metadata(path), storage.plan_of(path)
        return told, ranp.load(path, build).state_dict()

    network = nn.Sequential(nn.Conv3d(1, 4, 1), nn.ReLU(), nn.Conv3d(4, 2, 1))
    example = torch.zeros(1, 1, 4, 4, 4)
    pruned = ranp.prune(network, [], nn.MSELoss(), example=example, method="random", sparsity=0.25)
    write_run(home / "pruned", pruned, {"model": "somebody.s:net", "seed": 0, "sparsity": 0.25})

    cell = Cell("shapenet", "ranp-f", 0, sparsity=0.3)
    epochs = tuple(record for record in training.records(run) if record["kind"] == "epoch")
    widths = {"first": (3, 4), "second": (5, 8)}
    costs = results.Costs(1200, 34567, 890), results.Costs(1000, 23456, 780)
    results.write(home / "cell", results.Result(cell, *costs, 0.3, 0.25, 0.87, False, widths, epochs, {"torch": "2"}))

    rows = (("RANP-f", "78.24"), ("Full", "237.85"))
    columns = Column("method", left=True), Column("GFLOPs")
    (home / "tables").mkdir()
    drawing = home / "tables" / "main.svg"
    atomic.write_atomic(drawing, b'<svg xmlns="http://www.w3.org/2000/svg"><circle r="12" cx="34"/></svg>')
    Table("main", "Main results", columns, (Group("", rows),), figures=(drawing.name,)).write(home / "tables")

    volume = Volume(np.arange(48, dtype=np.float32).reshape(1, 4, 4, 3), np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    cache._write(home / "cache" / "case.safetensors", volume)

    def prepared(path: Path) -> Any:
        anew = RanpError("it is prepared anew")
        with (
            mock.patch.object(cache, "entry_of", return_value=path),
            mock.patch.object(cache, "prepare", side_effect=anew),
        ):
            return cache.cached(mock.Mock())

    def recipe(path: Path) -> Any:
        return RunFolder(path.parent).finished_recipe()

    return [
        Kind("recipe.json of train", run / "recipe.json", recipe),
        Kind(
            "recipe.json of prune",
            home / "pruned" / "recipe.json",
            lambda path: RunFolder(path.parent).finished_recipe(),
        ),
        Kind("plan.json", run / "plan.json", ranp.Plan.load, lambda path: ranp.Plan.load(path).altered),
        Kind("report.json", run / "report.json", Report.load),
        Kind("scores.safetensors", run / "scores.safetensors", Scores.load),
        Kind("model.safetensors", run / "model.safetensors", model),
        Kind("metrics.jsonl", run / "metrics.jsonl", lambda path: training.records(path.parent)),
        Kind("checkpoint-*.safetensors", checkpoint, lambda path: Checkpoints(path.parent, 1).newest(name)),
        Kind("result.json", home / "cell" / "result.json", lambda path: results.read(path.parent)),
        Kind("table of reproduce", home / "tables" / "main.json", lambda path: gather([path.parent]).tables),
        Kind("drawing of a table", drawing, lambda path: [path.read_bytes(), gather([path.parent]).tables]),
        Kind("prepared BraTS case", home / "cache" / "case.safetensors", prepared),
    ]


def value_of(read: Any) -> Any:
    """What was read, as plain values that can be compared; tensors by their bits."""
    if isinstance(read, torch.Tensor | np.ndarray):
        array = read.detach().numpy() if isinstance(read, torch.Tensor) else read
        return [str(array.dtype), array.shape, hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()]
    if is_dataclass(read) and not isinstance(read, type):
        return [type(read).__name__, *(value_of(getattr(read, field.name)) for field in fields(read))]
    if isinstance(read, Mapping):
        return {repr(name): value_of(item) for name, item in read.items()}
    if isinstance(read, list | tuple):
        return [value_of(item) for item in read]
    return [type(read).__name__, repr(read)]


Damage = Callable[[bytes, random.Random], bytes]


def _flip(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]


def _truncate(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _zero(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data))
    length = min(draw.choice((1, 16, 512, 4096)), len(data) - start)
    return data[:start] + bytes(length) + data[start + length :]


def _delete_bytes(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data))
    return data[:start] + data[start + draw.randrange(1, 20) :]


def _double_bytes(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data))
    piece = data[start : start + draw.randrange(1, 20)]
    return data[:start] + piece + data[start:]


def _swap_bytes(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    one, other = draw.randrange(len(data)), draw.randrange(len(data))
    changed[one], changed[other] = changed[other], changed[one]
    return bytes(changed)


def _lines(change: Callable[[list[bytes], random.Random], None]) -> Damage:
    def damage(data: bytes, draw: random.Random) -> bytes:
        lines = data.splitlines(keepends=True)
        change(lines, draw)
        return b"".join(lines)

    return damage


def _delete_line(lines: list[bytes], draw: random.Random) -> None:
    del lines[draw.randrange(len(lines))]


def _double_line(lines: list[bytes], draw: random.Random) -> None:
    place = draw.randrange(len(lines))
    lines.insert(place, lines[place])


def _swap_lines(lines: list[bytes], draw: random.Random) -> None:
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]


DAMAGES: tuple[Damage, ...] = (
    _flip,
    _flip,
    _flip,
    _truncate,
    _zero,
    _delete_bytes,
    _double_bytes,
    _swap_bytes,
    _lines(_delete_line),
    _lines(_double_line),
    _lines(_swap_lines),
)


def change_digit(data: bytes, draw: random.Random) -> bytes:
    """Another digit in the place of one."""
    places = [place for place, byte in enumerate(data) if byte in b"0123456789"]
    place = draw.choice(places)
    digit = draw.choice([digit for digit in b"0123456789" if digit != data[place]])
    return data[:place] + bytes([digit]) + data[place + 1 :]


def outcome(kind: Kind, expected: Any, damage: Damage, draw: random.Random) -> str:
    """What became of a damaged file; everything is as it was afterwards."""
    whole = kind.path.read_bytes()
    kind.path.write_bytes(damage(whole, draw))
    try:
        read = value_of(kind.read(kind.path))
        if read == expected:
            return "unchanged"
        return "edited" if kind.edited is not None and kind.edited(kind.path) else "SILENT"
    except RanpError:
        return "refused"
    except Exception as error:
        return f"CRASHED with {type(error).__name__}"
    finally:
        kind.path.write_bytes(whole)


def corrupt(kinds: list[Kind], damages: int, digits: int, seed: int) -> dict[tuple[str, str], Counter[str]]:
    """Outcomes by kind of file and kind of change, over so many of each in all."""
    draw = random.Random(seed)
    expected = [value_of(kind.read(kind.path)) for kind in kinds]
    found: dict[tuple[str, str], Counter[str]] = {}
    for what, count in (("damage", damages), ("digit", digits)):
        for number in range(count):
            kind, value = kinds[number % len(kinds)], expected[number % len(kinds)]
            damage = change_digit if what == "digit" else draw.choice(DAMAGES)
            found.setdefault((kind.name, what), Counter())[outcome(kind, value, damage, draw)] += 1
    return found


def as_table(found: Mapping[tuple[str, str], Counter[str]]) -> str:
    """The outcomes as Markdown."""
    wrong = sorted({name for counts in found.values() for name in counts} - set(FINE))
    header = ("file", "change", "times", *FINE, *(wrong or ["silent or crashed"]))
    lines = [f"| {' | '.join(header)} |", "|---|---|" + "---:|" * (len(header) - 2)]
    for (kind, what), counts in sorted(found.items()):
        figures = (counts.total(), *(counts[name] for name in header[3:]))
        lines.append(f"| {kind} | {what} | {' | '.join(map(str, figures))} |")
    total = sum((counts for counts in found.values()), Counter[str]())
    lines.append(f"| all | | {' | '.join(map(str, (total.total(), *(total[name] for name in header[3:]))))} |")
    return "\n".join(lines)


def failures(found: Mapping[tuple[str, str], Counter[str]]) -> dict[tuple[str, str], dict[str, int]]:
    """What was neither refused nor harmless."""
    wrong = {place: {n: c for n, c in counts.items() if n not in FINE} for place, counts in found.items()}
    return {place: counts for place, counts in wrong.items() if counts}


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Damage every kind of file that ranp writes, and read it.")
    parser.add_argument("--damages", type=int, default=2000)
    parser.add_argument("--digits", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable()
    home = Path(tempfile.mkdtemp())
    try:
        found = corrupt(write_all(home), given.damages, given.digits, given.seed)
    finally:
        shutil.rmtree(home)
    sys.stdout.write(as_table(found) + "\n")
    return 1 if failures(found) else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())

"""Folders and files that mean harm, through every verb that reads one.

Whatever they say: nothing that they name runs, nothing is written but what was asked for, and the answer is one line
and status 2, or a page without the parts that would have needed their code. Nothing of theirs steers the terminal.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from ranp.choosing.plan import Plan
from ranp.cli import main
from ranp.files import atomic, sealed
from ranp.files.checkpoints import Mark
from ranp.files.journal import Journal
from ranp.paper import tasks
from ranp.reporting.folder import RECIPE, RECIPE_VERSION
from ranp.slimming import storage
from tests.support.run_folders import MODEL, OPTIONS, SIZE, pruned, write_journal, write_pruned

ESCAPE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e[/bold]"
EVIL = "evil_module"
STEERS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

REPORT = "report {run} --out {out}"
EXPORT = "export {run} --format torch-export --out {out}"
EVALUATE = "evaluate {run}"
RESUME = "train shapenet --out {run} --resume"
SHOW = "plan show {run}/plan.json"
DIFF = "plan diff {run}/plan.json {other}/plan.json"
EDIT = "plan edit {run}/plan.json --layer decoders.0.conv1.0 --keep 0-1 --out {out}"
TRAIN = "train shapenet --scale cpu --plan {run}/plan.json --out {out}"

Damage = Callable[[Path], object]


class Case(NamedTuple):
    """One attack.

    Attributes:
        name: Of the case.
        command: What the victim types. ``{run}`` is the hostile folder, ``{out}`` a place where nothing is.
        damage: Makes the run folder hostile.
        words: What the one line must say; or the page, where it is made.
        page: The command succeeds, harmlessly.
    """

    name: str
    command: str
    damage: Damage
    words: tuple[str, ...] = ()
    page: bool = False


def forged(**changes: Any) -> Damage:
    """A recipe with other entries, sealed as ``ranp`` would, in ``recipe.json`` and in the network's header."""

    def forge(run: Path) -> None:
        told = atomic.read_json(run / "recipe.json", kind=RECIPE, version=RECIPE_VERSION)
        changed = {name: _filled(value, run) for name, value in {**told, **changes}.items()}
        atomic.write_json(run / "recipe.json", changed, kind=RECIPE, version=RECIPE_VERSION)
        made = pruned()
        storage.save(run / "model.safetensors", made.model, made.plan, recipe=changed)

    return forge


def _filled(value: Any, run: Path) -> Any:
    """``@`` in a text stands for the file whose presence betrays that something was run."""
    if isinstance(value, str):
        return value.replace("@", str(_canary(run)))
    if isinstance(value, Mapping):
        return {key: _filled(item, run) for key, item in value.items()}
    return [_filled(item, run) for item in value] if isinstance(value, list) else value


def _canary(run: Path) -> Path:
    return run.parent / "canary"


def setting(**changes: Any) -> Damage:
    """A recipe of training with other settings."""
    return forged(recipe={**tasks.get("shapenet").cpu.to_dict(), "options": OPTIONS, "size": 8, **changes})


def begun(changes: Mapping[str, Any], state: Any = None) -> Damage:
    """A run of training with other settings that was stopped; or one whose checkpoint says such things."""

    def stop(run: Path) -> None:
        setting(**changes)(run)
        (run / "model.safetensors").unlink()
        (run / "metrics.jsonl").unlink()
        if state is not None:
            entries = {"state": json.dumps(state), "random": "{}", "run": "mine"}
            checkpoint = sealed.Format("ranp-checkpoint", 2, (), "ranp train")
            checkpoint.write(run / "checkpoint-000000001.safetensors", {}, entries)

    return stop


def replaced(name: str, old: str, new: str) -> Damage:
    """Another text in a JSON file, sealed anew where that is possible."""

    def replace(run: Path) -> None:
        text = (run / name).read_text()
        assert re.search(old, text), f"{name} has no {old}"
        text = re.sub(old, lambda _: new, text, count=1)
        try:
            value = atomic.parse_json(text)
            value.pop(atomic.SEAL)
            text = json.dumps({**value, atomic.SEAL: atomic.seal(value)})
        except ValueError:
            pass
        (run / name).write_text(text)

    return replace


def written(name: str, data: bytes | str) -> Damage:
    """A file with other content."""
    return lambda run: (run / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def journal(*records: Any) -> Damage:
    """A sealed journal of such records."""

    def write(run: Path) -> None:
        (run / "metrics.jsonl").unlink(missing_ok=True)
        made = Journal(run, Mark(), 0, tensorboard=False)
        for record in records:
            made.write(record)
        made.close()

    return write


def renamed_layer(name: str) -> Damage:
    """A plan of one layer with that name, and a note about it."""

    def write(run: Path) -> None:
        plan = Plan.load(run / "plan.json")
        first = {name: (0, 1)}
        made = Plan(first, {name: 2}, {}, type(plan.sparsity)(0.0, 0, 2, 2), {"method": name}, (f"{name}: kept",))
        made.save(run / "plan.json")

    return write


def in_a_subfolder(damage: Damage) -> Damage:
    """The hostile run lies below the folder that is named."""

    def move(run: Path) -> None:
        damage(run)
        inner = run.parent / "inner"
        run.rename(inner)
        run.mkdir()
        inner.rename(run / "cell")

    return move


def linked(end: str) -> Damage:
    """A link beside the run that looks like what a replacement of it left, and leads to the victim's own folder."""
    return lambda run: (run.parent / f".{run.name}.ranp-{end}").symlink_to(run.parent / "precious")


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


CODE: dict[str, dict[str, Any]] = {
    "a shell": {"model": "os:system", "options": {"command": "touch @"}},
    "a module of the working folder": {"model": f"{EVIL}:make", "options": {}},
    "an attribute of one": {"model": f"{EVIL}:Maker.make", "options": {}},
    "exec": {"model": "builtins:exec", "options": {"source": "open('@', 'w')"}},
    "a process": {"model": "subprocess:run", "options": {"args": ["touch", "@"]}},
    "a script": {"model": "runpy:run_path", "options": {"path_name": f"{EVIL}.py"}},
    "an import": {"model": "importlib:import_module", "options": {"name": EVIL}},
    "a pickle": {"model": "torch:load", "options": {"f": "weights.pt", "weights_only": False}},
    "a removal": {"model": "shutil:rmtree", "options": {"path": "precious"}},
    "code with no arguments": {"model": "os:getcwd", "options": {}},
    "a trained network of code": {"model": "os:system", "options": {"command": "touch @"}, "task": "shapenet"},
}
EXAMPLES: dict[str, dict[str, Any]] = {
    "an example of the working folder": {"example": f"{EVIL}:make", "inputs": []},
    "an example that is a process": {"example": "os:getcwd", "inputs": []},
    "an example and a network": {"model": f"{EVIL}:make", "options": {}, "example": f"{EVIL}:make", "inputs": []},
}
BATCHES: dict[str, dict[str, Any]] = {
    "batches of the working folder": {"inputs": [], "data": {"batches": f"{EVIL}:make", "loss": f"{EVIL}:make"}},
    "a loss of the working folder": {"inputs": [], "data": {"batches": "os:getcwd", "loss": f"{EVIL}:make"}},
}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "widths that fill any memory": ({"options": {**OPTIONS, "widths": [10**6, 10**6]}}, "4096"),
    "widths without end": ({"options": {**OPTIONS, "widths": [8] * 10**5}}, "64"),
    "a width that is code": ({"options": {**OPTIONS, "widths": "os:system"}}, "os:system"),
    "an argument that is none": ({"options": {"command": "touch @"}}, "command"),
    "the name once more": ({"options": {"name": "os:system"}}, "argument"),
    "a fraction of a class": ({"options": {"classes": 8.7}}, "8.7"),
    "options that are a text": ({"options": "os:system"}, "os:system"),
    "a network that is a number": ({"model": 7}, "7"),
    "a network that is no name": ({"model": f"unet{ESCAPE}"}, "\\x1b"),
    "an input that fills any memory": ({"inputs": ["1x1x99999x99999x99999"]}, "elements"),
    "an input beyond all numbers": ({"inputs": ["9" * 99]}, "elements"),
    "an input that is none": ({"inputs": [f"1x{ESCAPE}"]}, "not a shape"),
    "inputs that are a number": ({"inputs": 3}, "inputs"),
}
SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "a million workers": ({"workers": 10**6}, "workers"),
    "a sample of any size": ({"size": 10**9}, "size"),
    "samples without end": ({"valid_count": 10**9}, "valid_count"),
    "a network that is code": ({"network": f"{EVIL}:make"}, "network"),
    "a size that is a text": ({"size": "x"}, "size"),
    "half a worker": ({"workers": 0.5}, "workers"),
    "a setting that is none": ({"command": "touch @"}, "command"),
    "widths of a terabyte": ({"options": {"widths": [10**6]}}, "widths"),
}
PLANS: dict[str, tuple[Damage, str]] = {
    "channels of 1e30": (replaced("plan.json", r'"channels": \d+,\n *"kept"', '"channels": 1e30, "kept"'), "1e+30"),
    "channels of 8.7": (replaced("plan.json", r'"channels": \d+,\n *"kept"', '"channels": 8.7, "kept"'), "8.7"),
    "channels that are a text": (replaced("plan.json", r'"channels": \d+,\n *"kept"', '"channels": "8", "kept"'), "8"),
    "a range that fills any memory": (
        replaced("plan.json", r'"kept": "[^"]*"', '"kept": "0-9999999999"'),
        "0-9999999999",
    ),
    "a range of a thousand digits": (replaced("plan.json", r'"kept": "[^"]*"', f'"kept": "0-{"9" * 1000}"'), "9999"),
    "a share beyond all numbers": (replaced("plan.json", r'"requested": [\d.]+', '"requested": 1e999'), "1e999"),
    "a share that is none": (replaced("plan.json", r'"requested": [\d.]+', '"requested": 1e300'), "1e+300"),
    "900 lists in each other": (replaced("plan.json", r'"settings": {', f'"settings": {{"x": {nested(900)},'), "deep"),
    "9000 lists in each other": (written("plan.json", nested(9000)), "deep"),
    "a number of 5000 digits": (replaced("plan.json", r'"requested": [\d.]+', f'"requested": {"9" * 5000}'), "digits"),
    "a list instead of layers": (replaced("plan.json", r'"settings": {', '"layers": [], "settings": {'), "twice"),
    "no JSON": (written("plan.json", b"\x80\x04\x95cos\nsystem\n"), "JSON"),
    "nothing": (written("plan.json", b""), "JSON"),
    "NaN": (replaced("plan.json", r'"requested": [\d.]+', '"requested": NaN'), "NaN"),
}
STEP = {"kind": "step", "epoch": 1, "step": 1, "loss": 1.0, "seconds": 1.0}
EPOCH = {**STEP, "kind": "epoch", "valid": {"miou": 0.5}}
JOURNALS: dict[str, Damage] = {
    "a figure that is a text": journal(STEP, {**EPOCH, "valid": {"miou": "0.5"}}),
    "a figure of 200 digits and more": journal(STEP, {**EPOCH, "valid": {"miou": 10**301}}),
    "a loss that is a text": journal({**STEP, "loss": "1"}, EPOCH),
    "a step that is a list": journal(STEP, EPOCH, {**STEP, "step": [1]}),
    "an epoch that is none": journal(STEP, {**EPOCH, "epoch": None}),
    "step nought": journal({**STEP, "step": 0}, {**EPOCH, "step": 0}),
    "a thousand lists": written("metrics.jsonl", nested(1000) + "\n"),
    "bytes": written("metrics.jsonl", b"\xff\xfe\x00\n"),
}

CASES = [
    *(
        Case(f"{verb.split()[0]} {name}", verb, forged(**entries), ("nothing was run", "--trust"), verb is REPORT)
        for name, entries in CODE.items()
        for verb in (REPORT, EXPORT, EVALUATE)
    ),
    *(
        Case(f"{verb.split()[0]} {name}", verb, forged(**entries), ("nothing was run", "--trust"), verb is REPORT)
        for name, entries in EXAMPLES.items()
        for verb in (REPORT, EXPORT)
    ),
    *(
        Case(f"export {name}", EXPORT, forged(**entries), ("nothing was run", "--trust"))
        for name, entries in BATCHES.items()
    ),
    *(
        Case(f"export {name} for a named network", f"{EXPORT} --model {MODEL}", forged(**entries), ("nothing was run",))
        for name, entries in (("an example", EXAMPLES["an example of the working folder"]),)
    ),
    Case("report a run below", REPORT, in_a_subfolder(forged(**CODE["a shell"])), ("nothing was run",), page=True),
    Case("report twice", f"{REPORT} {{other}}", forged(**CODE["a shell"]), ("nothing was run",), page=True),
    *(
        Case(
            f"{verb.split()[0]} {name}", verb, forged(**entries), (words,), verb is REPORT and entries.get("model") != 7
        )
        for name, (entries, words) in WRONG.items()
        for verb in (REPORT, EXPORT)
    ),
    *(
        Case(f"{verb.split()[0]} {name}", verb, setting(**entries) if verb is EVALUATE else begun(entries), (words,))
        for name, (entries, words) in SETTINGS.items()
        for verb in (EVALUATE, RESUME)
        if verb is RESUME or name not in ("a network that is code", "widths of a terabyte")
    ),
    *(
        Case(f"{' '.join(verb.split()[:2])} {name}", verb, damage, (words,))
        for number, (name, (damage, words)) in enumerate(PLANS.items())
        for verb in ((SHOW, DIFF, EDIT, TRAIN) if number % 3 == 0 else (SHOW,))
    ),
    *(Case(f"report a plan with {name}", REPORT, damage, (words,)) for name, (damage, words) in PLANS.items()),
    *(Case(f"report {name}", REPORT, damage, ("metrics.jsonl",)) for name, damage in JOURNALS.items()),
    Case("show escapes in a layer", SHOW, renamed_layer(ESCAPE), ("\\x1b[2J", "[/bold]"), page=True),
    Case("show escapes in a layer as JSON", f"{SHOW} --json", renamed_layer(ESCAPE), ("\\u001b[2J",), page=True),
    Case("diff escapes in a layer", DIFF, renamed_layer(ESCAPE), ("\\x1b[2J", "[/bold]"), page=True),
    Case("show markup in a layer", SHOW, renamed_layer("[/bold]"), ("[/bold]",), page=True),
    Case(
        "report escapes in a label", REPORT, forged(label=f"<script>{ESCAPE}</script>"), ("&lt;script&gt;",), page=True
    ),
    Case("a file that is named by escapes", f"plan show {{run}}/{ESCAPE}.json", lambda run: None, ("\\x1b",)),
    Case("evaluate a task that is code", EVALUATE, forged(task=f"{EVIL}:make"), ("task",)),
    Case("evaluate data in no folder", EVALUATE, forged(data={"folder": "\0"}), ("folder",)),
    Case("evaluate data that are a text", EVALUATE, forged(data="os:system"), ("data",)),
    *(
        Case(f"train from {name}", RESUME, begun({}, state), ("checkpoint",))
        for name, state in {
            "nothing": {},
            "a text": "x",
            "nowhere": {"position": {"epoch": "x"}, "numbers": {}, "groups": [], "journal": {}, "scaler": {}},
            "a position that is none": {"position": ESCAPE, "numbers": {}, "groups": [], "journal": None},
            "numbers that are none": {"position": {}, "numbers": {"x": 3}, "groups": 7, "journal": {"lines": 1}},
        }.items()
    ),
    Case("export data that are a text", EXPORT, forged(inputs=[], data="os:system"), ("data",)),
    Case("export samples of any size", EXPORT, forged(inputs=[], data={"task": "shapenet", "size": 10**9}), ("size",)),
    Case(
        "export weights that are a pickle",
        EXPORT,
        written("model.safetensors", b"\x80\x04\x95cos\nsystem\n"),
        ("torn",),
    ),
    Case("export a header without end", EXPORT, written("model.safetensors", b"\xff" * 64), ("torn",)),
    *(
        Case(f"{verb.split()[0]} beside a link called {end}", verb, linked(end), page=verb is REPORT)
        for end in ("new", "old")
        for verb in (REPORT, EVALUATE)
    ),
]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with all that a verb may read."""
    run = tmp_path_factory.mktemp("honest") / "run"
    recipe = {**tasks.get("shapenet").cpu.to_dict(), "options": OPTIONS, "size": 8, "valid_count": 1}
    write_pruned(run, recipe=recipe)
    write_journal(run, [2.0, 1.0], [{"miou": 0.1}, {"miou": 0.2}])
    return run


@pytest.fixture
def place(honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The victim's working folder: two run folders, modules that betray that they were imported, and something dear."""
    for name in ("run", "other"):
        shutil.copytree(honest, tmp_path / name)
    canary = str(tmp_path / "canary")
    trap = f"import pathlib\npathlib.Path({canary!r}).touch()\nclass Maker:\n    make = print\nmake = print\n"
    for folder in (tmp_path, tmp_path / "run"):
        for name in (EVIL, "json", "torch", "plotly", "sitecustomize"):
            (folder / f"{name}.py").write_text(trap)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("dear")
    torch.save({"weight": torch.zeros(1)}, tmp_path / "weights.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ranp.page.build._plotly", lambda: "")  # 5 MB in every page, and none of the attacker's
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but the one that was asked for."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "result"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_runs_and_one_line_says_why(case: Case, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case.damage(place / "run")
    out, before, path = place / "result", content(place), list(sys.path)
    names = {"{run}": place / "run", "{other}": place / "other", "{out}": out}
    command = [re.sub(r"{\w+}", lambda found: str(names[found[0]]), word) for word in case.command.split(" ")]
    status = main(command)
    told = capsys.readouterr()
    assert content(place) == before, "only the file that was asked for is written"
    assert EVIL not in sys.modules
    assert sys.path == path
    assert not STEERS.search(told.out + told.err)
    assert "Traceback" not in told.err
    if case.page:
        assert status == 0, told.err
        seen = told.out + (out.read_text(encoding="utf-8") if out.exists() and command[0] == "report" else "")
    else:
        assert status == 2, told
        assert told.err.count("\n") == 1, told.err
        assert not out.exists()
        seen = told.err
    for words in case.words:
        assert words in seen
    if command[0] == "report" and case.page:
        assert "<script>\x1b" not in seen


def test_there_are_enough_attacks_on_every_verb() -> None:
    assert len({case.name for case in CASES}) == len(CASES) > 140
    assert {case.command.split()[0] for case in CASES} == {"report", "export", "evaluate", "train", "plan"}


@pytest.mark.parametrize("verb", [REPORT, f"{EXPORT} --dynamic none"])
def test_what_the_command_line_names_runs(verb: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other side of it: code that somebody types, or trusts, is found in the working folder and run."""
    forged(model="victims_own:make", options={}, inputs=[], example="victims_own:example")(place / "run")
    (place / "victims_own.py").write_text(
        "import torch\nfrom tests.support.run_folders import network as make\n"
        "def example(): return torch.zeros(1, 1, 8, 8, 8)\n"
    )
    for number, how in enumerate(("--trust", f"--model victims_own:make --input {SIZE}")):
        out = place / f"result-{number}"
        status = main(verb.format(run=place / "run", out=out).split() + how.split())
        told = capsys.readouterr()
        assert status == 0, told.err
        assert "nothing was run" not in (out.read_text(encoding="utf-8") if verb.startswith("report") else "")
    assert sys.path[-1] == str(place)
    sys.path.remove(str(place))
    sys.modules.pop("victims_own")


def test_no_file_of_the_working_folder_takes_the_place_of_an_installed_module(place: Path) -> None:
    command = [sys.executable, "-m", "ranp", "plan", "show", "run/plan.json"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (place / "canary").exists()


@pytest.mark.parametrize("out", [*([] if sys.platform == "win32" else ["/proc/x", "/dev/null/x"]), "{long}"])
@pytest.mark.parametrize(
    "command",
    [
        "prune unet3d-shapenet --scale cpu --size 8 --sparsity 0.5 --out",
        "train shapenet --scale cpu --out",
        "reproduce main --quick --out",
        "demo --out",
        "report run --out",
        "report run --out page.html --figures",
        "export run --out",
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    command: str, out: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def worked(*_: object, **__: object) -> None:
        raise AssertionError("work began")

    monkeypatch.setattr("ranp.paper.models.build", worked)
    monkeypatch.setattr("ranp.page.material.gather", worked)
    before = content(place)
    assert main([*command.split(), out.format(long="x" * 300)]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert "cannot write" in told.err
    assert content(place) == before

"""Bad input of every kind, typed as a user would: one line that names what is at fault, the value and a remedy.

Nothing is left behind by a command that is refused: the folders it was given are as they were.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ranp.cli import main
from ranp.files import atomic
from tests.support.brats_on_disk import scanned, write_nifti
from tests.support.data_on_disk import (
    HEIGHT,
    WIDTH,
    video,
    write_brats,
    write_image,
    write_pfm,
    write_sceneflow,
    write_shapenet,
    write_ucf101,
)

pytest.importorskip("av")
pytest.importorskip("PIL")
pytest.importorskip("monai")
pytest.importorskip("nibabel")

Damage = Callable[[Path], object]


class Kind(NamedTuple):
    """A kind of bad input.

    Attributes:
        command: What is typed. ``{out}`` is a path where nothing is; ``{run}``, ``{plan}`` and the tasks' names are
            whole copies of a run folder, a plan and the data sets, until they are damaged.
        fault: The file or option that must be named.
        value: The value that must be told.
        remedy: What to do.
        damage: Spoils something in the folder of all these paths.
        begun: The run had begun: its folder stays, with a checkpoint.
    """

    command: str
    fault: str
    value: str
    remedy: str
    damage: Damage | None = None
    begun: bool = False


_SMALL = "--scale cpu --set epochs=1 --set tensorboard=false --set batch=2 --set train_count=2 --set valid_count=1"
_VOXELS = f"{_SMALL} --set size=8 --set options.widths=4,8"
SHAPENET = f"train shapenet {_VOXELS} --out {{out}}"
BRATS = f"train brats {_VOXELS} --out {{out}}"
UCF101 = f"train ucf101 {_SMALL} --set size=16 --set options.width=0.1 --out {{out}}"
SCENEFLOW = f"train sceneflow {_SMALL} --set size=64 --out {{out}}"
RESUME = "train shapenet --out {run} --resume"
PRUNE = "prune unet3d-shapenet --scale cpu --size 8 --max-batches 2 --out {out}"


def gone(pattern: str) -> Damage:
    """Removes a file or folder."""

    def remove(place: Path) -> None:
        found = next(place.glob(pattern))
        shutil.rmtree(found) if found.is_dir() else found.unlink()

    return remove


def torn(pattern: str, keep: float = 0.5) -> Damage:
    """Keeps only the beginning of files."""

    def tear(place: Path) -> None:
        for path in place.glob(pattern):
            path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])

    return tear


def content(pattern: str, data: bytes) -> Damage:
    """Writes something else into a file."""
    return lambda place: next(place.glob(pattern)).write_bytes(data)


def line(pattern: str, number: int, text: str) -> Damage:
    """Writes another line."""

    def rewrite(place: Path) -> None:
        path = next(place.glob(pattern))
        lines = path.read_text().splitlines()
        lines[number - 1] = text
        path.write_text("\n".join(lines) + "\n")

    return rewrite


def flipped(pattern: str) -> Damage:
    """Changes one bit near the end of a file."""

    def change(place: Path) -> None:
        path = next(place.glob(pattern))
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(bytes(data))

    return change


def edited(pattern: str, key: str, value: object, *, sealed: bool = False) -> Damage:
    """Changes a value in a JSON file, by hand or as a program of ours would."""

    def change(place: Path) -> None:
        path = next(place.glob(pattern))
        told = {**json.loads(path.read_text()), key: value}
        if sealed:
            told[atomic.SEAL] = atomic.seal({name: item for name, item in told.items() if name != atomic.SEAL})
        path.write_text(json.dumps(told))

    return change


def made(name: str) -> Damage:
    """An empty folder."""
    return lambda place: (place / name).mkdir()


CASE = "brats/HGG/Brats18_HGG_00_1/Brats18_HGG_00_1"
LEFT = "sceneflow/frames_cleanpass/TRAIN/A/0000/left/0006.png"
PFM = "sceneflow/disparity/TRAIN/A/0000/left/0006.pfm"
LISTS = "ucf101/ucfTrainTestlist"


def volume(ending: str, index: int, value: float, shape: tuple[int, int, int] = (14, 12, 10)) -> Damage:
    """Writes a volume of a case anew, with one voxel of its own; index 4 is the labels."""

    def write(place: Path) -> None:
        images, labels = scanned(0, shape)
        voxels = (labels if index == 4 else images[index]).astype(np.float32)
        voxels[5, 5, 5] = value
        write_nifti(place / f"{CASE}_{ending}.nii.gz", voxels)

    return write


KINDS: dict[str, Kind] = {
    # Options
    "unknown task": Kind("train shapnet --out {out}", "task", "'shapnet'", "did you mean 'shapenet'"),
    "unknown scale": Kind("train shapenet --scale gpu --out {out}", "scale", "'gpu'", "Allowed: cpu, paper"),
    "unknown scale to prune at": Kind(f"{PRUNE} --sparsity 0.5 --scale gpu", "scale", "'gpu'", "Allowed: cpu, paper"),
    "unknown setting": Kind(f"{SHAPENET} --set epoch=3", "--set", "'epoch=3'", "did you mean 'epochs'"),
    "setting of another type": Kind(f"{SHAPENET} --set epochs=many", "--set", "epochs=many", "is a whole number"),
    "setting out of range": Kind(f"{SHAPENET} --set batch=0", "batch", "batch=0", "must be at least 1"),
    "setting without a value": Kind(f"{SHAPENET} --set epochs", "--set", "'epochs'", "For example --set epochs=10"),
    "setting that is not a number": Kind(f"{SHAPENET} --set learning_rate=nan", "learning_rate", "nan", "be finite"),
    "unknown optimizer": Kind(f"{SHAPENET} --set optimizer=sdg", "optimiser", "'sdg'", "did you mean 'sgd'"),
    "unknown optimiser": Kind(f"{SHAPENET} --set optimiser=sdg", "optimiser", "'sdg'", "did you mean 'sgd'"),
    "unknown network": Kind(f"{SHAPENET} --set network=unet", "network", "'unet'", "Allowed: "),
    "network without such an argument": Kind(
        f"{SHAPENET} --set options.width=4", "options.width", "'width'", "did you mean 'widths'"
    ),
    "network that cannot be built": Kind(
        f"{SHAPENET} --set options.widths=4,none", "options.widths", "'none'", "such as options.widths=(64, 128"
    ),
    "method without sparsity": Kind(f"{SHAPENET} --method ranp-f", "--sparsity", "--method", "Pass both, or neither"),
    "sparsity out of range": Kind(f"{SHAPENET} --method ranp-f --sparsity 1.5", "--sparsity", "1.5", "from 0 up to"),
    "sparsity to prune out of range": Kind(f"{PRUNE} --sparsity -1", "--sparsity", "-1", "from 0 up to"),
    "sparsity that is not a number": Kind(f"{PRUNE} --sparsity nan", "--sparsity", "nan", "from 0 up to"),
    "infeasible sparsity": Kind(
        f"{SHAPENET} --method ranp-f --sparsity 0.99", "--sparsity 0.99", "removes all", "largest feasible"
    ),
    "unknown method": Kind(f"{SHAPENET} --method rnp-f --sparsity 0.2", "method", "'rnp-f'", "did you mean 'ranp-f'"),
    "unknown method to search with": Kind(
        "search unet3d-shapenet --scale cpu --method best", "method", "'best'", "Allowed: "
    ),
    "plan and method": Kind(
        f"{SHAPENET} --plan {{plan}} --method random --sparsity 0.1", "--plan", "--sparsity", "Pass one of them"
    ),
    "device that is not there": Kind(f"{SHAPENET} --device cuda:7", "--device", "'cuda:7'", "Try --device cpu"),
    "device to search on that is not there": Kind(
        "search unet3d-shapenet --scale cpu --size 8 --max-batches 1 --device nowhere",
        "--device",
        "'nowhere'",
        "Try --device cpu",
    ),
    "batch larger than the data": Kind(f"{SHAPENET} --set batch=3", "batch=3", "2 training samples", "Lower batch"),
    "batch that cannot be divided": Kind(
        f"{SHAPENET} --set accumulate=4", "batch=2", "4 parts", "Pass a multiple of 4"
    ),
    "size too small for the data": Kind(f"{SHAPENET} --set size=4", "size=4", "size=4", "must be at least 8"),
    "size the network cannot take": Kind(f"{SCENEFLOW} --set size=72", "size=72", "72x144", "such as 64 or 256"),
    "size to score at the network cannot take": Kind(
        f"{SCENEFLOW} --method ranp-f --sparsity 0.1 --prune-size 40", "--prune-size 40", "40x80", "such as 64 or 256"
    ),
    "size to prune at the network cannot take": Kind(
        "prune psm-sceneflow --scale cpu --size 40 --max-batches 1 --sparsity 0.1 --out {out}",
        "--size 40",
        "40x80",
        "such as 64 or 256",
    ),
    "size to search at the network cannot take": Kind(
        "search i3d-ucf101 --size 112 --max-batches 1", "--size 112", "112x112", "such as 224"
    ),
    "fold that there is not": Kind(
        f"{SHAPENET} --data {{shapenet}} --set fold=2", "fold=2", "one split", "Leave fold at 0"
    ),
    # Plans
    "plan that is missing": Kind(f"{SHAPENET} --plan {{nothing}}", "{nothing}", "No such file", "Check the path"),
    "plan that is torn": Kind(f"{SHAPENET} --plan {{plan}}", "{plan}", "not readable JSON", "Restore it", torn("plan")),
    "plan that is a folder": Kind(f"{SHAPENET} --plan {{run}}", "{run}", "Is a directory", "Check the path"),
    "plan that is something else": Kind(
        f"{SHAPENET} --plan {{run}}/recipe.json", "recipe.json", "'ranp-recipe'", "Pass a file of that kind"
    ),
    "plan of another network": Kind(
        f"{SHAPENET} --plan {{plan}} --set options.widths=8,16", "{plan}", "8 channels", "Use the network the plan was"
    ),
    # Folders of data
    "data that is not there": Kind(f"{SHAPENET} --data {{nothing}}", "--data", "{nothing}", "Pass the folder of"),
    "data to search on that is not there": Kind(
        "search unet3d-shapenet --scale cpu --data {nothing}", "--data", "{nothing}", "Pass the folder of"
    ),
    "data that is a file": Kind(
        f"{SHAPENET} --data {{plan}}", "--data", "{plan}", "Pass the folder of the shapenet data set"
    ),
    "empty folder for shapenet": Kind(
        f"{SHAPENET} --data {{empty}}", "{empty}", "nothing found", "Pass the folder that holds", made("empty")
    ),
    "empty folder for brats": Kind(
        f"{BRATS} --data {{empty}}", "{empty}", "nothing", "Pass the folder that holds HGG", made("empty")
    ),
    "empty folder for ucf101": Kind(
        f"{UCF101} --data {{empty}}", "{empty}", "found nothing", "Unpack the official", made("empty")
    ),
    "empty folder for sceneflow": Kind(
        f"{SCENEFLOW} --data {{empty}}", "{empty}", "found nothing", "Pass the folder", made("empty")
    ),
    "data set of another task": Kind(f"{BRATS} --data {{shapenet}}", "{shapenet}", "02773838", "Pass the folder"),
    "official lists missing": Kind(
        f"{SHAPENET} --data {{shapenet}}",
        "shuffled_train_file_list.json",
        "8 shapes",
        "--allow-missing",
        gone("shapenet/train_test_split"),
    ),
    "official lists missing of ucf101": Kind(
        f"{UCF101} --data {{ucf101}}", "trainlist01.txt", "testlist01.txt", "Restore it", gone(f"{LISTS}/train*.txt")
    ),
    "shapes missing": Kind(
        f"{SHAPENET} --data {{shapenet}}",
        "{shapenet}",
        "1 shapes are missing",
        "--allow-missing",
        lambda place: (gone("shapenet/*/points/shape01.pts")(place), gone("shapenet/*/*/shape01.seg")(place)),
    ),
    "videos missing": Kind(
        f"{UCF101} --data {{ucf101}}",
        video("Act002", 10),
        "1 of 4 videos",
        "--allow-missing to use the 3",
        gone(f"ucf101/UCF-101/{video('Act002', 10)}"),
    ),
    "pairs missing": Kind(f"{SCENEFLOW} --data {{sceneflow}}", "{sceneflow}", "2 of 22390 pairs", "--allow-missing"),
    # ShapeNet's files
    "labels that are no text": Kind(
        f"{SHAPENET} --data {{shapenet}}",
        "shape00.seg",
        "byte 1",
        "Restore the file",
        content("shapenet/*/*/shape00.seg", b"1\xff\xfe"),
    ),
    "label out of range": Kind(
        f"{SHAPENET} --data {{shapenet}} --set train_count=4",
        "shape00.seg', line 3",
        "label 9",
        "Restore the file",
        line("shapenet/*/*/shape00.seg", 3, "9"),
    ),
    "label out of range in the data to validate on": Kind(
        f"{SHAPENET} --data {{shapenet}} --set valid_count=4",
        "shape05.seg', line 2",
        "label 0",
        "Restore the file",
        line("shapenet/*/*/shape05.seg", 2, "0"),
    ),
    "fewer labels than points": Kind(
        f"{SHAPENET} --data {{shapenet}} --set train_count=4",
        "shape01.seg",
        "has 1 labels",
        "Restore the file",
        content("shapenet/*/*/shape01.seg", b"1\n"),
    ),
    "point that is not a number": Kind(
        "prune unet3d-shapenet --scale cpu --size 8 --data {shapenet} --sparsity 0.1 --out {out}",
        "shape00.pts', line 2",
        "'0.1 nan 0.3'",
        "Restore the file",
        line("shapenet/*/*/shape00.pts", 2, "0.1 nan 0.3"),
    ),
    # BraTS' files
    "volume that is torn": Kind(
        f"{BRATS} --data {{brats}}", f"{CASE}_flair.nii.gz", "torn", "Fetch it again", torn(f"{CASE}_flair.nii.gz")
    ),
    "label that BraTS does not have": Kind(
        f"{BRATS} --data {{brats}}", f"{CASE}_seg.nii.gz", "label 7", "Mend it", volume("seg", 4, 7)
    ),
    "modalities of different shapes": Kind(
        f"{BRATS} --data {{brats}}", f"{CASE}_t2.nii.gz", "(14, 12, 11)", "resample", volume("t2", 3, 1, (14, 12, 11))
    ),
    "modality missing": Kind(
        f"{BRATS} --data {{brats}}", "Brats18_HGG_00_1", "lacks t1ce", "--allow-missing", gone(f"{CASE}_t1ce.nii.gz")
    ),
    "volume with NaN": Kind(
        f"{BRATS} --data {{brats}}", f"{CASE}_t1.nii.gz", "1 voxels", "Mend it", volume("t1", 2, np.nan)
    ),
    "channels that contradict the data": Kind(
        f"{BRATS} --data {{brats}} --set options.in_channels=3", "options.in_channels=3", "need 4", "Leave it out"
    ),
    # UCF101's files
    "video that is no video": Kind(
        f"{UCF101} --data {{ucf101}}",
        video("Act001", 10),
        "cannot be decoded",
        "Download it again",
        content(f"ucf101/UCF-101/{video('Act001', 10)}", b"<html>404</html>"),
    ),
    "video that is torn": Kind(
        f"{UCF101} --data {{ucf101}}",
        video("Act002", 10),
        "of the 20 frames",
        "Download it again",
        torn(f"ucf101/UCF-101/{video('Act002', 10)}"),
    ),
    "list with an unknown class": Kind(
        f"{UCF101} --data {{ucf101}}",
        "trainlist01.txt, line 2",
        "'Jump'",
        "Restore the official",
        line(f"{LISTS}/trainlist01.txt", 2, "Jump/v_Jump_g10_c01.avi 2"),
    ),
    "list with a malformed line": Kind(
        f"{UCF101} --data {{ucf101}}",
        "testlist01.txt, line 1",
        "'Act001 v 1'",
        "Restore the official list",
        line(f"{LISTS}/testlist01.txt", 1, "Act001 v 1"),
    ),
    "class index that is cut short": Kind(
        f"{UCF101} --data {{ucf101}}",
        "classInd.txt",
        "1 classes",
        "Restore the official",
        content(f"{LISTS}/classInd.txt", b"1 Act001\n"),
    ),
    # SceneFlow's files
    "disparity that is torn": Kind(
        f"{SCENEFLOW} --data {{sceneflow}} --allow-missing", PFM, "torn", "Copy it again", torn(PFM)
    ),
    "disparity of another size": Kind(
        f"{SCENEFLOW} --data {{sceneflow}} --allow-missing",
        LEFT,
        f"{HEIGHT} x {WIDTH}, but its disparity is 40 x 80",
        "Restore the pair",
        lambda place: write_pfm(place / PFM, 40, 80),
    ),
    "view of another size": Kind(
        f"{SCENEFLOW} --data {{sceneflow}} --allow-missing",
        LEFT,
        "is 40 x 80",
        "Restore the pair",
        lambda place: write_image(place / LEFT, 40, 80),
    ),
    "view missing": Kind(
        f"{SCENEFLOW} --data {{sceneflow}}",
        "right/0006.png",
        "lack a file: 1",
        "Complete it, or pass --allow-missing",
        gone(LEFT.replace("left", "right")),
    ),
    "views smaller than a crop": Kind(
        f"{SCENEFLOW} --data {{sceneflow}} --allow-missing --set size=96", LEFT, "too small", "size of at most 64"
    ),
    # Run folders
    "folder that is not empty": Kind(f"{SHAPENET} --out {{run}}", "--out", "{run}", "--resume"),
    "folder that is a file": Kind(f"{SHAPENET} --out {{plan}}", "--out", "{plan}", "Name a folder"),
    "folder to prune into not empty": Kind(f"{PRUNE} --sparsity 0.1 --out {{run}}", "--out", "empty", "--force"),
    "folder that is not a run's": Kind("train shapenet --out {shapenet} --resume", "{shapenet}", "not empty", "Name"),
    "resume of another task": Kind("train brats --out {run} --resume", "{run}", "'shapenet'", "Name that one"),
    "resume with another learning rate": Kind(
        f"{RESUME} --set learning_rate=0.5", "{run}", "learning_rate=0.5", "Go on with that"
    ),
    "resume with another plan": Kind(f"{RESUME} --plan {{plan}}", "{run}", "another plan", "Leave --plan out"),
    "resume with another scale": Kind(f"{RESUME} --scale paper", "{run}", "size=64", "Go on with that"),
    "resume from torn checkpoints": Kind(
        f"{RESUME} --set epochs=3", "{run}", "of the 2 checkpoints", "start again", torn("run/checkpoint-*", 0.9)
    ),
    "resume from a changed checkpoint of one": Kind(
        f"{RESUME} --set epochs=3",
        "{run}",
        "of the 1 checkpoints",
        "Restore one",
        lambda place: (gone("run/checkpoint-*1.safetensors")(place), flipped("run/checkpoint-*")(place)),
    ),
    "resume with a torn recipe": Kind(RESUME, "recipe.json", "not readable JSON", "Restore", torn("run/recipe.json")),
    "resume with a torn plan": Kind(RESUME, "plan.json", "not readable JSON", "Restore it", torn("run/plan.json")),
    "resume with a torn journal": Kind(
        f"{RESUME} --set epochs=3", "metrics.jsonl", "line 2", "Restore a copy", line("run/metrics.jsonl", 2, "{")
    ),
    "resume with a recipe of another release": Kind(
        RESUME, "recipe.json", "version 9", "Update ranp", edited("run/recipe.json", "version", 9)
    ),
    "resume with an edited recipe": Kind(
        RESUME,
        "recipe.json",
        "changed since it was written",
        "Restore a copy",
        edited("run/recipe.json", "recipe", {"epoch": 3}),
    ),
    "resume with a recipe that is none": Kind(
        RESUME,
        "recipe.json",
        "'epoch'",
        "did you mean 'epochs'",
        edited("run/recipe.json", "recipe", {"epoch": 3}, sealed=True),
    ),
    "resume without its data": Kind(
        RESUME,
        "--data",
        "/moved",
        "Pass the folder of",
        edited("run/recipe.json", "data", {"folder": "/moved", "allow_missing": False}, sealed=True),
    ),
    "evaluation of nothing": Kind("evaluate {nothing}", "{nothing}", "is not a folder", "Pass one"),
    "evaluation of a run that was stopped": Kind(
        "evaluate {run}", "{run}", "model.safetensors", "--resume", gone("run/model.safetensors")
    ),
    "evaluation of a pruned network": Kind("evaluate {pruned}", "{pruned}", "not trained", "Pass one of ranp train"),
    "evaluation of a tampered network": Kind(
        "evaluate {run}", "model.safetensors", "checksum is wrong", "Restore a copy", flipped("run/model.safetensors")
    ),
    "evaluation of a torn network": Kind(
        "evaluate {run}", "model.safetensors", "torn", "Restore a copy", torn("run/model.safetensors")
    ),
    "evaluation with an edited recipe": Kind(
        "evaluate {run}",
        "recipe.json",
        "changed since it was written",
        "Restore a copy",
        edited("run/recipe.json", "task", "cityscapes"),
    ),
    "evaluation with the recipe of another run": Kind(
        "evaluate {run}",
        "recipe.json",
        "different runs",
        "restore them",
        edited("run/recipe.json", "task", "cityscapes", sealed=True),
    ),
    "resume with lost lines": Kind(
        f"{RESUME} --set epochs=3",
        "metrics.jsonl",
        "lost lines at its end",
        "Restore a copy",
        lambda place: (place / "run" / "metrics.jsonl").write_text(""),
    ),
    "pruning into a run of training": Kind(
        f"{PRUNE} --sparsity 0.1 --out {{run}} --force", "--out", "run of training", "Name another"
    ),
    "evaluation on other data": Kind("evaluate {run} --data {brats}", "{brats}", "HGG", "Pass the folder that holds"),
    "reproduction of nothing": Kind("reproduce --out {out}", "table or figure", "main", "name a table"),
    "reproduction of an unknown table": Kind(
        "reproduce mian --out {out}", "experiment", "'mian'", "did you mean 'main'"
    ),
    "reproduction to nowhere": Kind("reproduce main", "--out", "missing", "Name a folder"),
    "reproduction at an unknown scale": Kind("reproduce main --out {out} --scale gpu", "scale", "'gpu'", "cpu"),
    "reproduction in haste at the scale of the paper": Kind(
        "reproduce main --out {out} --scale paper --quick", "--quick", "--scale cpu", "Leave one of them out"
    ),
    "reproduction of a share that is none": Kind(
        "reproduce main --out {out} --cell 5/4", "--cell", "'5/4'", "For example --cell 3/8"
    ),
    "reproduction into a file": Kind(
        "reproduce main --out {out}", "--out", "is a file", "Name a folder", lambda root: (root / "out").touch()
    ),
    "reproduction on data of no task": Kind(
        "reproduce main --out {out} --data kitti={brats}", "--data", "'kitti'", "sceneflow"
    ),
    "reproduction on data that are not there": Kind(
        "reproduce main --out {out} --data brats={nothing}", "--data", "{nothing}", "Pass the folder of"
    ),
    "reproduction on data without a task": Kind(
        "reproduce main --out {out} --data {brats}", "--data", "{brats}", "is not TASK=DIR"
    ),
    "loss that is NaN": Kind(
        f"{SHAPENET} --set learning_rate=1e30 --set checkpoint_every=1 --set train_count=16",
        "checkpoint-00000000",
        "the loss is nan at step",
        "learning_rate below 1e+30",
        begun=True,
    ),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands name, whole: data sets, a run of two epochs, a pruned network and its plan."""
    home = tmp_path_factory.mktemp("originals")
    writers = {"shapenet": write_shapenet, "brats": write_brats, "ucf101": write_ucf101, "sceneflow": write_sceneflow}
    for name, write in writers.items():
        write(home / name)
    assert main(f"train shapenet {_VOXELS} --set epochs=2 --out {home / 'run'}".split()) == 0
    pruned = f"train shapenet {_VOXELS} --method random --sparsity 0.2 --out {home / 'thin'}"
    assert main(pruned.split()) == 0
    shutil.copy(home / "thin" / "plan.json", home / "plan")
    tiny = "prune unet3d-shapenet --scale cpu --method random --sparsity 0.1 --size 8 --out"
    assert main([*tiny.split(), str(home / "pruned")]) == 0
    return home


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder, as it is."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("name", KINDS)
def test_bad_input_is_refused_in_one_line(
    name: str,
    originals: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    kind = KINDS[name]
    monkeypatch.setenv("RANP_CACHE", str(tmp_path_factory.mktemp("cache")))
    paths = {word: tmp_path / word for word in re.findall(r"\{(\w+)\}", kind.command)}
    for word in paths.keys() & {entry.name for entry in originals.iterdir()}:
        copy = shutil.copytree if (originals / word).is_dir() else shutil.copy
        copy(originals / word, paths[word])
    if kind.damage is not None:
        kind.damage(tmp_path)
    before = contents(tmp_path)
    capfd.readouterr()
    status = main(kind.command.format(**paths).split())
    told, line = capfd.readouterr()
    assert status == 2, line
    assert told == ""
    assert line.startswith("error: ")
    assert line.count("\n") == 1, line
    for words in (kind.fault, kind.value, kind.remedy):
        assert words.format(**paths) in line, line
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    if kind.begun:
        assert list(paths["out"].glob("checkpoint-*"))
    else:
        assert contents(tmp_path) == before


@pytest.mark.parametrize("task", ["shapenet", "brats", "ucf101", "sceneflow"])
def test_the_same_commands_are_taken_where_nothing_is_wrong(
    task: str, originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the table above could be refused for another reason than it says."""
    monkeypatch.setenv("RANP_CACHE", str(tmp_path / "cache"))
    command = {"shapenet": SHAPENET, "brats": BRATS, "ucf101": UCF101, "sceneflow": f"{SCENEFLOW} --allow-missing"}
    words = f"{command[task]} --data {originals / task}".format(out=tmp_path / "out").split()
    assert main(words) == 0, capfd.readouterr().err
    assert (tmp_path / "out" / "model.safetensors").is_file()

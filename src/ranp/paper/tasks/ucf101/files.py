"""UCF101 as published: its class index, its three official splits, and which of the videos they name are there.

A video is an ``.avi`` file, or a folder of its frames that has the video's name without ``.avi``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ranp.errors import DataError
from ranp.paper.tasks.reading import entries, read_text

__all__ = ["CLASSES", "Split", "Video", "read_split"]

CLASSES = 101
_SPLITS = 3
_LISTS = ("ucfTrainTestlist", "UCF101TrainTestSplits-RecognitionTask/ucfTrainTestlist", ".")
_VIDEOS = ("UCF-101", "UCF101", ".")
_NAME = re.compile(r"(?P<folder>[^/\\\s]+)/v_(?P<motion>[^/\\\s_]+)_g\d+_c\d+\.avi")


@dataclass(frozen=True, slots=True)
class Video:
    """A video that is there.

    Attributes:
        name: As the lists write it, ``Class/v_Class_g01_c01.avi``.
        path: The file, or the folder of its frames.
        label: Its class, from 0.
    """

    name: str
    path: Path
    label: int


@dataclass(frozen=True, slots=True)
class Split:
    """What is there of one official split.

    Attributes:
        number: Of the split, from 1.
        train: Videos to train on.
        valid: Videos to validate on.
        train_listed: How many the training list names.
        valid_listed: How many the test list names.
    """

    number: int
    train: tuple[Video, ...]
    valid: tuple[Video, ...]
    train_listed: int
    valid_listed: int

    @property
    def summary(self) -> str:
        """Counts in one line, and what is missing."""
        parts = (
            f"{len(found)} of {listed}" if len(found) < listed else f"{listed}"
            for found, listed in ((self.train, self.train_listed), (self.valid, self.valid_listed))
        )
        trained, tested = parts
        missing = self.train_listed + self.valid_listed - len(self.train) - len(self.valid)
        gap = f"; {missing} videos are missing" if missing else ""
        return f"UCF101 split {self.number}: {trained} training and {tested} validation videos{gap}"


def read_split(folder: Path, *, allow_missing: bool, fold: int) -> Split:
    """The videos of an official split that are in a folder.

    Args:
        folder: With class folders (or ``UCF-101``, which has them) and the lists (or ``ucfTrainTestlist``).
        allow_missing: Take what is there, if it is anything at all.
        fold: 0, 1 or 2 for splits 1, 2 and 3.

    Raises:
        DataError: The folder is not UCF101, a list is wrong in some line, a video is missing or empty.
    """
    if not 0 <= fold < _SPLITS:
        raise DataError(f"fold={fold}: UCF101 has splits 1 to {_SPLITS}; set fold to 0, 1 or 2.")
    lists = _find_lists(folder)
    number = fold + 1
    for name in (f"trainlist{number:02}.txt", f"testlist{number:02}.txt"):
        if not (lists / name).is_file():
            there = ", ".join(sorted(path.name for path in lists.glob("*list*.txt"))) or "none"
            raise DataError(
                f"fold={fold} needs {lists / name}, which is not there; the lists there are: {there}. "
                "Restore it, or set another fold."
            )
    classes = _read_classes(lists / "classInd.txt")
    train = _read_list(lists / f"trainlist{number:02}.txt", classes, labelled=True)
    valid = _read_list(lists / f"testlist{number:02}.txt", classes, labelled=False)
    both = next((name for name in train if name in valid), None)
    if both is not None:
        raise DataError(
            f"{both} is in trainlist{number:02}.txt and in testlist{number:02}.txt of {lists}; "
            "no video may be in both. Restore the official lists."
        )
    found = _find_videos(folder, [*train, *valid], allow_missing=allow_missing)

    def videos(listed: Mapping[str, int]) -> tuple[Video, ...]:
        return tuple(Video(name, found[name], label) for name, label in listed.items() if name in found)

    return Split(number, videos(train), videos(valid), len(train), len(valid))


def _find_lists(folder: Path) -> Path:
    for place in _LISTS:
        if (folder / place / "classInd.txt").is_file():
            return folder / place
    raise DataError(
        f"{folder} does not look like UCF101: expected classInd.txt, trainlist01.txt and testlist01.txt in "
        f"ucfTrainTestlist or in the folder itself; found {entries(folder)}. Unpack the official "
        "UCF101TrainTestSplits-RecognitionTask.zip there, or pass the folder that has it."
    )


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Lines that are not blank, each with its place in the file."""
    for number, line in enumerate(read_text(path, "Restore the official list.").splitlines(), 1):
        if line.strip():
            yield f"{path}, line {number}", line.strip()


def _read_classes(path: Path) -> dict[str, int]:
    """Classes by name, from 0."""
    classes: dict[str, int] = {}
    for place, line in _lines(path):
        number, _, name = line.partition(" ")
        if number != str(len(classes) + 1) or not re.fullmatch(r"\w+", name) or name in classes:
            raise DataError(
                f"{place}: {line!r}; expected '{len(classes) + 1} ClassName', numbers from 1 to {CLASSES} in order and "
                "no name twice. Restore the official classInd.txt."
            )
        classes[name] = len(classes)
    if len(classes) != CLASSES:
        raise DataError(f"{path} has {len(classes)} classes; UCF101 has {CLASSES}. Restore the official classInd.txt.")
    return classes


def _read_list(path: Path, classes: Mapping[str, int], *, labelled: bool) -> dict[str, int]:
    """The classes of a list's videos, by the videos' names, in the list's order."""
    form = "'Class/v_Class_g01_c01.avi" + (f" label' with a label from 1 to {CLASSES}" if labelled else "'")
    listed: dict[str, int] = {}
    for place, line in _lines(path):
        name, *rest = line.split()
        match = _NAME.fullmatch(name)
        if match is None or len(rest) != labelled or not all(word.isdigit() for word in rest):
            raise DataError(f"{place}: {line!r}; expected {form}. Restore the official list.")
        motion = match["folder"]
        if motion not in classes:
            raise DataError(f"{place}: {line!r}; classInd.txt has no class {motion!r}. Restore the official lists.")
        if match["motion"].lower() != motion.lower():
            raise DataError(
                f"{place}: {line!r}; a video of {match['motion']!r} stands in the folder of {motion!r}. "
                "Restore the official list."
            )
        if rest and int(rest[0]) != classes[motion] + 1:
            raise DataError(
                f"{place}: {line!r}; label {rest[0]} contradicts the folder: classInd.txt gives {motion!r} the label "
                f"{classes[motion] + 1}. Restore the official lists."
            )
        if name in listed:
            raise DataError(f"{place}: {line!r}; this video is named twice. Restore the official list.")
        listed[name] = classes[motion]
    if not listed:
        raise DataError(f"{path} names no video; expected lines {form}. Restore the official list.")
    return listed


def _find_videos(folder: Path, names: Iterable[str], *, allow_missing: bool) -> dict[str, Path]:
    """Where the videos are, by name: one look into each class folder, none into the videos."""
    home = next(folder / place for place in _VIDEOS if (folder / place).is_dir())
    inside: dict[str, dict[str, int]] = {}
    found: dict[str, Path] = {}
    missing: list[str] = []
    for name in names:
        motion, file = name.split("/")
        if motion not in inside:
            inside[motion] = _sizes(home / motion)
        frames = file.removesuffix(".avi")
        if file in inside[motion]:
            found[name] = home / motion / file
            if not inside[motion][file]:
                raise DataError(f"{found[name]} is empty. Download it again, or remove it and pass --allow-missing.")
        elif inside[motion].get(frames) == -1:
            found[name] = home / motion / frames
        else:
            missing.append(name)
    if not found:
        raise DataError(
            f"none of the {len(missing)} videos of the lists is in {home}: expected {missing[0]}, or a folder of "
            f"frames {missing[0].removesuffix('.avi')}; found {entries(home)}. Unpack UCF101.rar there."
        )
    if missing and not allow_missing:
        raise DataError(
            f"{len(missing)} of {len(missing) + len(found)} videos of the lists are not in {home}; the first is "
            f"{missing[0]}. Add them, or pass --allow-missing to use the {len(found)} that are there."
        )
    return found


def _sizes(folder: Path) -> dict[str, int]:
    """Size of each file of a folder, -1 for a folder; nothing if it is not there."""
    if not folder.is_dir():
        return {}
    with os.scandir(folder) as entries:
        return {entry.name: -1 if entry.is_dir() else entry.stat().st_size for entry in entries}

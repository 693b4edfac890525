"""Finds the stereo pairs of FlyingThings3D, Monkaa and Driving in a folder, whichever way they were unpacked.

All releases are one rule: an image lies in a folder ``left``, below or above a folder that names the pass; replacing
``left``, or the pass, in its path gives the right view, the disparity and the occlusion mask::

    frames_cleanpass/TRAIN/A/0000/left/0006.png             disparity/TRAIN/A/0000/left/0006.pfm       FlyingThings3D
    frames_cleanpass/funnyworld_x2/left/0001.png            disparity/funnyworld_x2/left/0001.pfm      Monkaa
    frames_cleanpass/15mm_focallength/scene_forwards/fast/left/0001.png                                Driving
    train/image_clean/left/0000000.png                      train/disparity/left/0000000.pfm           the subset
    RGB_cleanpass/left/0006.png                             disparity/left/0006.pfm                    the sample pack

The same names with something before or behind them do as well (``monkaa_frames_cleanpass`` beside
``monkaa_disparity``, ``frames_cleanpass_webp``). The final pass is taken where a collection has no clean one.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from ranp.errors import DataError
from ranp.paper.tasks.reading import entries
from ranp.paper.tasks.sceneflow.metrics import DISPARITIES
from ranp.paper.tasks.sceneflow.pairs import FilePairs, Pair
from ranp.paper.tasks.task import Samples, Source, available

__all__ = ["open_folder"]

_FLYING, _SUBSET, _MONKAA, _DRIVING, _OTHER = "FlyingThings3D", "FlyingThings3D subset", "Monkaa", "Driving", "others"
_OFFICIAL: Mapping[tuple[str, str], int] = {
    (_FLYING, "train"): 22390,
    (_FLYING, "valid"): 4370,
    (_SUBSET, "train"): 21818,
    (_SUBSET, "valid"): 4248,
    (_MONKAA, "train"): 8664,
    (_DRIVING, "train"): 4400,
}
"""Pairs of each release; the paper's 35454 and 4370 are those of the three full ones."""

_PASS = re.compile(r"(?:frames_|RGB_)?(?P<full>clean|final)pass(?:_webp)?|image_(?P<subset>clean|final)", re.IGNORECASE)
_DISPARITY = ("disparity", "frames_disparity")
_OCCLUSION = ("occlusion", "occlusions", "disparity_occlusions")
_IMAGES = (".png", ".webp")
_PARTS = {"train": "train", "test": "valid", "val": "valid"}
_SCENE = re.compile(r"[ABC]/\d{4}")
_LENS = re.compile(r"\d+mm_focallength")
_NEEDED = {
    "train": "TRAIN of FlyingThings3D, Monkaa or Driving",
    "valid": "TEST of FlyingThings3D, val of its subset, or a second pair in a folder without a split",
}
_EXPECTED = (
    "frames_cleanpass/.../left/*.png beside frames_cleanpass/.../right/*.png and disparity/.../left/*.pfm "
    "(or RGB_cleanpass, image_clean, the final pass, .webp)"
)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A left view and what belongs to it.

    Attributes:
        collection: Whose it is.
        part: ``"train"``, ``"valid"``, or None if no folder tells.
        clean: Of the clean pass, not of the final one.
        name: Path of the left view within the folder.
        pair: Its files; None if one is missing.
        missing: That one's path.
    """

    collection: str
    part: str | None
    clean: bool
    name: str
    pair: Pair | None
    missing: str


def open_folder(folder: Path, *, allow_missing: bool, fold: int) -> Source:
    """The pairs of a folder, split as PSMNet splits them: TEST of FlyingThings3D validates, all else is trained on.

    One collection alone will do, without its own validation part in the case of Monkaa and Driving. Pairs that lie in
    no TRAIN or TEST folder (the sample pack) have no official split: with ``allow_missing`` the last fifth of them by
    name validates, at least one if there are two.

    Raises:
        DataError: There are no pairs, or not all, or there is no split, and ``allow_missing`` is not set.
    """
    if fold:
        raise DataError(f"fold={fold}: SceneFlow has one split; leave fold at 0.")
    frames = _chosen(_find_frames(folder))
    whole = [frame for frame in frames if frame.pair is not None]
    if not whole:
        raise DataError(
            f"{folder} has no stereo pair: expected {_EXPECTED}; {_found(folder, frames)} "
            "Pass the folder that holds them."
        )
    if not allow_missing:
        _refuse_gaps(folder, frames)
    parts: dict[str, list[_Frame]] = {"train": [], "valid": []}
    for frame in whole:
        if frame.part is not None:
            parts[frame.part].append(frame)
    unsplit = [frame for frame in whole if frame.part is None]
    first = len(unsplit) - (max(1, len(unsplit) // 5) if len(unsplit) > 1 else 0)
    parts["train"] += unsplit[:first]
    parts["valid"] += unsplit[first:]
    return Source(
        train_data=partial(_data, folder, _pairs(parts["train"]), "train"),
        valid_data=partial(_data, folder, _pairs(parts["valid"]), "valid"),
        options={"disparities": DISPARITIES},
        summary=_summary(parts, len(frames) - len(whole), len(unsplit)),
    )


def _data(
    folder: Path, pairs: Sequence[Pair], part: str, size: int = 256, count: int | None = None, seed: int = 0
) -> Samples:
    """The data set of a part; fewer than all are spread evenly over it."""
    if not pairs:
        raise DataError(f"{folder} has no pair to {_verb(part)}: {_NEEDED[part]} is needed.")
    if (count is not None and count < 1) or seed < 0 or size < 1:
        raise DataError(f"size={size}, count={count}, seed={seed}: size and count begin at 1, a seed at 0.")
    taken = available(count, len(pairs), f"pairs to {_verb(part)}")
    chosen = [pairs[index * len(pairs) // taken] for index in range(taken)]
    return FilePairs(chosen, size if part == "train" else None, seed)


def _find_frames(folder: Path) -> list[_Frame]:
    """Every left view in the folder, by name."""
    files = set(_list_files(folder))
    frames = {}
    for name in sorted(files, reverse=True):  # so that of two suffixes .png, the first, stays
        path = PurePosixPath(name)
        if path.suffix.lower() in _IMAGES and "left" in path.parts[:-1]:
            passes = [part for part in path.parts[:-1] if _PASS.search(part)]
            if passes:
                frames[str(path.with_suffix(""))] = _frame(folder, path, passes[-1], files)
    return [frames[name] for name in sorted(frames)]


def _list_files(folder: Path) -> Iterable[str]:
    """Paths of images and disparities, relative, with slashes; links are followed last, and no folder entered twice."""
    seen: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort(key=lambda name: (os.path.islink(os.path.join(here, name)), name))
        base = Path(here).relative_to(folder).as_posix()
        for file in files:
            if os.path.splitext(file)[1].lower() in (*_IMAGES, ".pfm"):
                yield file if base == "." else f"{base}/{file}"


def _frame(folder: Path, path: PurePosixPath, pass_folder: str, files: set[str]) -> _Frame:
    match = _PASS.search(pass_folder)
    assert match is not None
    parts = list(path.parts)
    side = len(parts) - 2 - parts[-2::-1].index("left")
    mirrored = PurePosixPath(*parts[:side], "right", *parts[side + 1 :])
    right = _first(files, [mirrored], (path.suffix, *_IMAGES))
    disparity = _first(files, [_renamed(path, name) for name in _DISPARITY], (".pfm", ".PFM"))
    occlusion = _first(files, [_renamed(path, name) for name in _OCCLUSION], _IMAGES)
    pair = None
    if right and disparity:
        pair = Pair(folder / path, folder / right, folder / disparity, folder / occlusion if occlusion else None)
    missing = str(mirrored) if not right else str(_renamed(path, _DISPARITY[0]).with_suffix(".pfm"))
    collection, part = _place(folder.name, parts, pass_folder, side, subset=match["subset"] is not None)
    return _Frame(collection, part, (match["full"] or match["subset"]).lower() == "clean", str(path), pair, missing)


def _renamed(path: PurePosixPath, name: str) -> PurePosixPath:
    """The path with every folder of the pass under another name."""
    return PurePosixPath(*(_PASS.sub(name, part) for part in path.parts[:-1]), path.name)


def _first(files: set[str], paths: Iterable[PurePosixPath], suffixes: Iterable[str]) -> str | None:
    options = (str(path.with_suffix(suffix)) for path in paths for suffix in suffixes)
    return next((option for option in options if option in files), None)


def _place(root: str, parts: Sequence[str], pass_folder: str, side: int, *, subset: bool) -> tuple[str, str | None]:
    """Collection and part of a left view, by how its path is built, else by what its folders are called."""
    part = next((_PARTS[word.lower()] for word in parts[:-1] if word.lower() in _PARTS), None)
    begin = max(index for index, word in enumerate(parts[:-1]) if word == pass_folder) + 1
    between = [word for word in parts[begin:side] if word.lower() not in _PARTS]
    words = "/".join((root, *parts[:-1])).lower()
    if any(_LENS.fullmatch(word) for word in between):
        return _DRIVING, "train"
    if subset:
        return _SUBSET, part
    if _SCENE.fullmatch("/".join(between)):
        return _FLYING, part
    if len(between) == 1 or "monkaa" in words:
        return _MONKAA, "train"
    if "driving" in words:
        return _DRIVING, "train"
    return (_FLYING if "flyingthings" in words else _OTHER), part


def _chosen(frames: list[_Frame]) -> list[_Frame]:
    """One pass of each collection; and no subset beside all of FlyingThings3D, which has the same pictures."""
    clean = {frame.collection for frame in frames if frame.clean}
    whole = any(frame.collection == _FLYING for frame in frames)
    return [
        frame
        for frame in frames
        if frame.clean == (frame.collection in clean) and not (whole and frame.collection == _SUBSET)
    ]


def _refuse_gaps(folder: Path, frames: Sequence[_Frame]) -> None:
    """Refuses a collection that is not all there, and pairs without a split."""
    there = Counter((frame.collection, frame.part) for frame in frames if frame.pair is not None)
    present = {frame.collection for frame in frames}
    gaps = [
        f"{collection} has {there[collection, part]} of {count} pairs to {_verb(part)}"
        for (collection, part), count in _OFFICIAL.items()
        if collection in present and there[collection, part] < count and _splits(frames, collection)
    ]
    broken = [frame for frame in frames if frame.pair is None]
    if broken:
        gaps.append(f"left views that lack a file: {len(broken)}, such as {broken[0].name!r} its {broken[0].missing!r}")
    unsplit = [frame for frame in frames if frame.part is None]
    if unsplit:
        gaps.append(f"pairs in no TRAIN or TEST folder: {len(unsplit)}, such as {unsplit[0].name!r}")
    if gaps:
        raise DataError(
            f"{folder} is not complete: {'; '.join(gaps)}. Complete it, or pass --allow-missing to take what is there "
            "(of pairs without a split, the last fifth by name validates)."
        )


def _splits(frames: Sequence[_Frame], collection: str) -> bool:
    """Whether the official counts speak of these frames: not of a sample pack, which has no split."""
    return any(frame.collection == collection and frame.part is not None for frame in frames)


def _summary(parts: Mapping[str, Sequence[_Frame]], broken: int, unsplit: int) -> str:
    """What is there, in one line."""
    sentences = []
    for part, frames in parts.items():
        counts = Counter(frame.collection for frame in frames)
        each = ", ".join(
            f"{name} {count} of {_OFFICIAL[name, part]}" if (name, part) in _OFFICIAL else f"{name} {count}"
            for name, count in sorted(counts.items())
        )
        sentences.append(f"pairs to {_verb(part)}: {len(frames)}" + (f" ({each})" if each else ""))
    every = [frame for frames in parts.values() for frame in frames]
    masks = sum(frame.pair is not None and frame.pair.occlusion is not None for frame in every)
    sentences.append(f"with an occlusion mask: {masks}")
    present = {frame.collection for frame in every}
    absent = [name for name in (_FLYING, _MONKAA, _DRIVING) if not any(name in other for other in present)]
    if absent and present != {_OTHER}:
        sentences.append(f"no {', no '.join(absent)}")
    if unsplit:
        sentences.append(f"without an official split: {unsplit}")
    if broken:
        sentences.append(f"left views that lack a file: {broken}")
    return "; ".join(sentences)


def _verb(part: str) -> str:
    return "train on" if part == "train" else "validate on"


def _pairs(frames: Iterable[_Frame]) -> list[Pair]:
    return [frame.pair for frame in frames if frame.pair is not None]


def _found(folder: Path, frames: Sequence[_Frame]) -> str:
    """What there is instead of pairs."""
    if frames:
        return f"found {frames[0].name!r}, which lacks {frames[0].missing!r}."
    return f"found {entries(folder)}."

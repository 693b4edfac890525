"""A small, whole data set of each task as it is published, for tests that damage it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.brats_on_disk import write_2018
from tests.support.shapenet_releases import clouds, write_lists, write_pts

HEIGHT, WIDTH = 64, 128
"""Of the stereo pairs."""

CLASSES = [f"Act{number:03}" for number in range(1, 102)]
TRAINED, VALIDATED = ("Act001", "Act002"), ("Act001", "Act101")
"""Classes of the videos, one each."""


def video(motion: str, group: int) -> str:
    """A name as the lists write it."""
    return f"{motion}/v_{motion}_g{group:02}_c01.avi"


def write_shapenet(folder: Path) -> None:
    """Eight shapes as points and labels, four to train on."""
    shapes = clouds(8)
    write_pts(folder, shapes)
    write_lists(folder, train=shapes[:4], test=shapes[4:])


def write_brats(folder: Path) -> None:
    """Two cases of high grade and one of low."""
    write_2018(folder, 2, 1)


def write_sceneflow(folder: Path) -> None:
    """Two pairs of FlyingThings3D to train on and one to validate on."""
    for part, number in (("TRAIN", 6), ("TRAIN", 7), ("TEST", 6)):
        place = f"{part}/A/0000"
        for side in ("left", "right"):
            write_image(folder / "frames_cleanpass" / place / side / f"{number:04}.png", HEIGHT, WIDTH)
        write_pfm(folder / "disparity" / place / "left" / f"{number:04}.pfm", HEIGHT, WIDTH)


def write_image(path: Path, height: int, width: int) -> None:
    """A grey picture."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((height, width, 3), 127, dtype=np.uint8)).save(path)


def write_pfm(path: Path, height: int, width: int) -> None:
    """A plane."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(f"Pf\n{width} {height}\n-1\n".encode() + np.full((height, width), 9.0, "<f4").tobytes())


def write_ucf101(folder: Path) -> None:
    """Two videos to train on and two to validate on, with the official lists."""
    lists = folder / "ucfTrainTestlist"
    lists.mkdir(parents=True)
    trained = [f"{video(name, 10)} {CLASSES.index(name) + 1}" for name in TRAINED]
    validated = [video(name, 1) for name in VALIDATED]
    index = [f"{number} {name}" for number, name in enumerate(CLASSES, 1)]
    for name, lines in (("classInd", index), ("trainlist01", trained), ("testlist01", validated)):
        (lists / f"{name}.txt").write_text("\n".join(lines) + "\n")
    for line in (*trained, *validated):
        write_video(folder / "UCF-101" / line.split()[0])


def write_video(path: Path) -> None:
    """Twenty frames of noise."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("rawvideo", rate=25)
        stream.width, stream.height, stream.pix_fmt = 40, 32, "bgr24"
        rng = np.random.default_rng(0)
        for _ in range(20):
            pixels = rng.integers(0, 256, (32, 40, 3), dtype=np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)

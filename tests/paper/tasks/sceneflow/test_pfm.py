"""PFM: a writer of our own, in both byte orders, is the oracle; what is torn or wrong is named."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from ranp.errors import DataError
from ranp.paper.tasks.sceneflow.pfm import read_pfm


def write_pfm(path: Path, values: np.ndarray, *, little: bool = True, end: str = "\n") -> None:
    """Writes (H, W) or (H, W, 3), by its own way: swap the bytes if they are not in the order wanted, flip the rows."""
    height, width = values.shape[:2]
    kind = "PF" if values.ndim == 3 else "Pf"
    numbers = np.flipud(values).astype(np.float32)
    if little != (sys.byteorder == "little"):
        numbers = numbers.byteswap()
    header = f"{kind}{end}{width} {height}{end}{'-' if little else ''}1.0{end}"
    path.write_bytes(header.encode() + numbers.tobytes())


@pytest.mark.parametrize("little", [True, False])
@pytest.mark.parametrize("end", ["\n", " \n", "\r\n"])
def test_what_was_written_is_read(tmp_path, little, end):
    values = np.random.default_rng(0).normal(0, 100, (5, 7)).astype(np.float32)
    values[0, 0], values[4, 6] = np.inf, np.nan
    write_pfm(tmp_path / "a.pfm", values, little=little, end=end)
    read = read_pfm(tmp_path / "a.pfm")
    assert read.dtype == np.float32
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, values)


def test_first_of_three_channels_is_taken(tmp_path):
    values = np.random.default_rng(1).normal(size=(4, 3, 3)).astype(np.float32)
    write_pfm(tmp_path / "a.pfm", values)
    np.testing.assert_array_equal(read_pfm(tmp_path / "a.pfm"), values[..., 0])


def test_values_that_look_like_white_space_are_values(tmp_path):
    """The header ends with its line: bytes of the first value that are white space belong to the value."""
    content = b"Pf\n1 1\n-1.0\n" + b"\n\n \t"
    (tmp_path / "a.pfm").write_bytes(content)
    assert read_pfm(tmp_path / "a.pfm")[0, 0] == np.frombuffer(b"\n\n \t", "<f4")[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"Pf\n3 2\n-1\n" + bytes(20), ["20 bytes", "3 x 2 x 1", "24", "torn"]),
        (b"Pf\n3 2\n-1\n" + bytes(28), ["28 bytes", "24", "not what its header says"]),
        (b"PF\n3 2\n-1\n" + bytes(24), ["24 bytes", "3 x 2 x 3", "72", "torn"]),
        (b"P6\n3 2\n255\n" + bytes(18), ["P6", "'Pf'"]),
        (b"Pf\n3 two\n-1\n" + bytes(24), ["3 two", "width, height and scale"]),
        (b"Pf\n3 2\n0\n" + bytes(24), ["scale 0", "none of them can be 0"]),
        (b"Pf\n0 2\n-1\n", ["0 x 2", "none of them can be 0"]),
        (b"", ["b''", "'Pf'"]),
    ],
)
def test_what_is_not_pfm_is_refused(tmp_path, content, words):
    path = tmp_path / "bad.pfm"
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(str(path))) as caught:
        read_pfm(path)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert re.search(r"(Restore it|Copy it again)\.$", str(caught.value))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.pfm cannot be read: No such file.*Restore it"):
        read_pfm(tmp_path / "gone.pfm")

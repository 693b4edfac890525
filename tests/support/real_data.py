"""Where the real samples are: the folder named by ``RANP_DATA``, else ``../shared/data``; tests are skipped without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_HOME = Path(os.environ.get("RANP_DATA") or Path(__file__).parents[3] / "shared" / "data")


def real_data(name: str) -> Path:
    """The folder of one data set's sample; skips the test if it is not there."""
    folder = _HOME / name
    if not folder.is_dir():
        pytest.skip(f"no real samples in {folder}; set RANP_DATA")
    return folder

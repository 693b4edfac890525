"""What all tests share: no test fails for being slow, and continuous integration draws the same examples every time."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ranp", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("ranp")

"""Scores on a shelf: the cells of one network and seed are scored once between them, whatever process they run in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ranp.files.claims import claimed
from ranp.scoring.scores import Scores

__all__ = ["Shelf"]


class Shelf:
    """A folder of scores by what they were made of.

    Args:
        folder: Where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def scores(
        self,
        what: Mapping[str, Any],
        criteria: Sequence[str],
        make: Callable[[Sequence[str]], Mapping[str, Scores]],
    ) -> dict[str, Scores]:
        """The scores of each criterion: from the shelf, or made, all that are missing at once.

        Args:
            what: Everything that decides on them but the criterion, plain values.
            criteria: Names of criteria.
            make: Makes the scores of criteria.
        """
        key = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
        paths = {name: self.folder / f"{key}-{name}.safetensors" for name in criteria}
        with claimed(self.folder / f".{key}.lock", wait=True):
            missing = [name for name, path in paths.items() if not path.is_file()]
            for name, scores in (make(missing) if missing else {}).items():
                scores.save(paths[name])
        return {name: Scores.load(path) for name, path in paths.items()}

"""BraTS as published, as a source of samples: cases are found, split into folds, prepared once and cached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ranp.paper.tasks.brats.cache import Recent, cached, ensure_cached
from ranp.paper.tasks.brats.files import Case, find_cases
from ranp.paper.tasks.brats.folds import folds_of, split
from ranp.paper.tasks.brats.preprocessing import Volume
from ranp.paper.tasks.brats.samples import Crops, Wholes
from ranp.paper.tasks.reading import look_at_all
from ranp.paper.tasks.task import Source
from ranp.progress import Progress

__all__ = ["RealCases", "open_folder"]


class RealCases:
    """Cases of a folder, read from the cache when they are asked for."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = tuple(cases)
        self._recent = Recent()

    def __len__(self) -> int:
        return len(self.cases)

    def volume(self, number: int) -> Volume:
        """A case, prepared.

        Raises:
            DataError: A file of it is not right.
            StorageError: The cache cannot be written.
        """
        case = self.cases[number]
        return self._recent.get(number, lambda: cached(case))

    def check(self, progress: Progress | None = None) -> None:
        """Reads and prepares every case that the cache does not have: the first time takes seconds for each.

        Raises:
            DataError: A file is not right.
            StorageError: The cache cannot be written.
        """
        look_at_all(self.cases, ensure_cached, progress)


def open_folder(folder: Path, *, allow_missing: bool, fold: int) -> Source:
    """The cases of a folder, one fold of which validates.

    Args:
        folder: As published, see ``files``.
        allow_missing: Leave out cases that are not complete. There is no official list of cases, so as many as there
            are count as all.
        fold: Of five, or of two if there are fewer than ten cases.

    Raises:
        DataError: The folder does not look right, a case is not complete, or there is no such fold.
    """
    cases, left_out = find_cases(folder, allow_missing=allow_missing)
    train, valid = split([case.grade for case in cases], fold)
    modalities = tuple(cases[0].images)
    grades = Counter(case.grade or "no grade" for case in cases)
    incomplete = f", {left_out} of {len(cases) + left_out} left out as incomplete" if left_out else ""
    return Source(
        partial(Crops, RealCases([cases[n] for n in train])),
        partial(Wholes, RealCases([cases[n] for n in valid])),
        {"in_channels": len(modalities)},
        f"{len(cases)} cases ({', '.join(f'{count} {grade}' for grade, count in sorted(grades.items()))}){incomplete}; "
        f"modalities {', '.join(modalities)}; fold {fold} of {folds_of(len(cases))}: "
        f"{len(train)} to train on, {len(valid)} to validate on",
    )

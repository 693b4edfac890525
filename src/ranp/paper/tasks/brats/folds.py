"""Which cases validate: folds that have the same share of every grade, and are the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ranp.errors import DataError

_FOLDS = 5
_FEW = 10
_SEED = 2018


def folds_of(count: int) -> int:
    """How many folds that many cases make: five, or two if there are fewer than ten cases.

    Raises:
        DataError: One case cannot be both trained and validated on.
    """
    if count < 2:
        raise DataError(f"{count} complete case{'s' * (count != 1)} found; at least 2 are needed, one to validate on.")
    return _FOLDS if count >= _FEW else 2


def split(grades: Sequence[str], fold: int) -> tuple[list[int], list[int]]:
    """The numbers of the cases to train on and of those to validate on.

    The cases of each grade are shuffled, always in the same way, and dealt out to the folds one after the other, the
    next grade beginning where the last one ended: no two folds differ by more than one case, in any grade or in all.

    Args:
        grades: The grade of each case, of cases in an order that does not change.
        fold: Which fold validates, from 0.

    Raises:
        DataError: There are too few cases, or there is no such fold.
    """
    folds = folds_of(len(grades))
    if not 0 <= fold < folds:
        why = f" ({len(grades)} cases; five folds need {_FEW})" if folds < _FOLDS else ""
        raise DataError(f"fold={fold}: {len(grades)} cases have folds 0 to {folds - 1}{why}. Set fold to one of them.")
    rng = np.random.default_rng(_SEED)
    dealt: list[int] = []
    for grade in sorted(set(grades)):
        members = [number for number, other in enumerate(grades) if other == grade]
        dealt += [members[place] for place in rng.permutation(len(members))]
    valid = sorted(dealt[fold::folds])
    return sorted(set(dealt) - set(valid)), valid

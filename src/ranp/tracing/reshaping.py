"""How labels move through a view: dimensions are cut into common factors, then glued together again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ranp.tracing.labels import LabelSpace, Vector

Labels = Mapping[int, Vector]
Factor = tuple[int, int, int]
"""Source dimension, target dimension, size."""
INNERMOST, HEADS, OUTERMOST = -1, -2, 0
"""Which of the dimensions that a view splits one into carries its labels, counted as Python counts."""


def common_factors(source: Sequence[int], target: Sequence[int]) -> list[Factor] | None:
    """The finest factors, outermost first, that both shapes are products of; None if the shapes do not nest.

    >>> common_factors((2, 8), (4, 4))
    [(0, 0, 2), (1, 0, 2), (1, 1, 4)]
    """
    a = [(d, n) for d, n in enumerate(source) if n != 1]
    b = [(d, n) for d, n in enumerate(target) if n != 1]
    factors: list[Factor] = []
    while a and b:
        (d, n), (e, m) = a.pop(), b.pop()
        size = min(n, m)
        if n % size or m % size:
            return None
        factors.append((d, e, size))
        if n != size:
            a.append((d, n // size))
        if m != size:
            b.append((e, m // size))
    return factors[::-1] if not a and not b else None


def blocks(source: Sequence[int], target: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of dimensions on both sides with equal products: a view never mixes two of them.

    >>> blocks((2, 8, 3, 4), (2, 8, 12))
    [([0], [0]), ([1], [1]), ([2, 3], [2])]
    """
    found: list[tuple[list[int], list[int]]] = []
    i, j = len(source), len(target)
    while i > 0 and j > 0:
        i, j = i - 1, j - 1
        mine, theirs, n, m = [i], [j], source[i], target[j]
        while n != m and (i > 0 if n < m else j > 0):
            if n < m:
                i -= 1
                mine.insert(0, i)
                n *= source[i]
            else:
                j -= 1
                theirs.insert(0, j)
                m *= target[j]
        found.insert(0, (mine, theirs))
    return found


def reshape_labels(
    space: LabelSpace,
    labels: Labels,
    source: Sequence[int],
    target: Sequence[int],
    pin: Callable[[Vector, str], None],
    *,
    carrier: int = INNERMOST,
) -> dict[int, Vector]:
    """Labels of ``x.view(target)``.

    Where one dimension is split over several (channel shuffle, heads), its labels may vary along one of them only: the
    innermost along which they differ carries them, and positions that share it are united (another ``carrier`` on
    request: a pixel shuffle needs the outermost, whole heads of an attention the second from within). Where several
    labelled dimensions are merged, the largest carries, the others must stay.
    """
    result: dict[int, Vector] = {}
    if not labels or 0 in source:
        return result
    kept_source = [d for d, n in enumerate(source) if n != 1]
    kept_target = [d for d, n in enumerate(target) if n != 1]
    for mine, theirs in blocks([source[d] for d in kept_source], [target[d] for d in kept_target]):
        from_dims, to_dims = [kept_source[i] for i in mine], [kept_target[j] for j in theirs]
        inside = {i: labels[d] for i, d in enumerate(from_dims) if d in labels}
        if not inside:
            continue
        if len(from_dims) == len(to_dims) == 1:
            result[to_dims[0]] = inside[0]
            continue
        shape = [target[d] for d in to_dims]
        factors = common_factors([source[d] for d in from_dims], shape)
        if factors is None:
            for vector in inside.values():
                pin(vector, "a view regroups channels irregularly")
            continue
        moved = _glue(factors, _spread(space, inside, factors, carrier), shape, pin)
        result.update({to_dims[j]: vector for j, vector in moved.items()})
    return result


def _spread(space: LabelSpace, labels: Labels, factors: list[Factor], carrier: int) -> dict[int, Vector]:
    """Labels along each factor: a split dimension hands its labels to one of its factors and unites the others."""
    carried: dict[int, Vector] = {}
    for dim, vector in labels.items():
        mine = [i for i, factor in enumerate(factors) if factor[0] == dim]
        sizes = [factors[i][2] for i in mine]
        if not vector.any():
            carried.update({i: np.zeros(factors[i][2], np.int64) for i in mine})
            continue
        position = 0 if carrier == OUTERMOST else max(len(mine) + carrier, 0)
        if carrier == INNERMOST:  # what is the same along a part, as places of a kernel are, says nothing of it
            position = next((at for at in range(position, -1, -1) if _differs(vector.reshape(sizes), at)), position)
        grid = np.moveaxis(vector.reshape(sizes), position, 0).reshape(sizes[position], -1)
        head = np.ascontiguousarray(grid[:, 0])
        if not (grid == head[:, None]).all():
            space.unite(np.repeat(head, grid.shape[1] - 1), grid[:, 1:].reshape(-1))
            head = grid.max(axis=1)  # any label of the class will do, but a filler will not
        carried[mine[position]] = head
    return carried


def _differs(grid: Vector, axis: int) -> bool:
    """True if the labels of a grid are not the same all along an axis."""
    return bool((grid != grid.take([0], axis)).any())


def _glue(
    factors: list[Factor], carried: dict[int, Vector], shape: Sequence[int], pin: Callable[[Vector, str], None]
) -> dict[int, Vector]:
    """Labels along each target dimension, from those along its factors."""
    result: dict[int, Vector] = {}
    for dim, size in enumerate(shape):
        mine = [i for i, factor in enumerate(factors) if factor[1] == dim]
        vectors = {i: carried[i] for i in mine if i in carried}
        real = sorted((i for i, v in vectors.items() if v.any()), key=lambda i: factors[i][2])
        if not real:
            if mine and len(vectors) == len(mine):
                result[dim] = np.zeros(size, np.int64)
            continue
        for other in real[:-1]:
            pin(vectors[other], "a view merges two dimensions that are both pruned")
        sizes = [factors[i][2] for i in mine]
        axis = [n if i == real[-1] else 1 for i, n in zip(mine, sizes, strict=True)]
        result[dim] = np.broadcast_to(vectors[real[-1]].reshape(axis), sizes).flatten()
    return result

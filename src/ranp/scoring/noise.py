"""Whether the batches that a network is scored on look like noise, such as ``torch.randn`` and random labels.

In images and volumes, and in maps of labels, neighbours are alike; in noise they are not. The correlation of neighbours
is .33 and more in every sample of the paper's four tasks that is not all background, published and procedural, at edges
from 8 to 128, and .13 and less in random numbers. Scores do not separate the two, their spread comes from the initial
weights; nor do gradients: the cosine of the mean gradients of two halves of eight batches, median over layers, is -.02
to .73 on the data of three of the tasks and -.02 to .56 on noise with shuffled labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ranp.running import ranks

ALIKE = 0.15
"""Where neighbours correlate less along every axis, it is noise."""
_AXES = 4
"""Axes of space and time that are looked at, counted from the last."""
_PAIRS = 256
"""Fewer neighbours are not judged."""
_EDGE, _MOSTLY = 32, 0.6
"""Edge of the part in the middle that is looked at; share of one value above which it says nothing."""


class Watched:
    """Batches, handed on as they are; and whether those that were taken look like noise.

    Args:
        batches: Of pairs ``(inputs, target)``.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self._found: dict[str, dict[int, list[Tensor]]] = {"inputs": {}, "labels": {}}

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return map(self._seen, self._batches)

    def note(self) -> str:
        """What looks like noise, in a sentence; empty if nothing does."""
        alike = {what: max(by_axis) for what, by_axis in self._correlations().items() if by_axis}
        white = [f"{what} ({value:.2f})" for what, value in alike.items() if value < ALIKE]
        if not white:
            return ""
        return (
            f"neighbours in the {' and the '.join(white)} correlate no more than in noise (data: 0.3 and more). Scores "
            "then follow the initial weights alone. Score on batches of the data to be trained on."
        )

    def _correlations(self) -> dict[str, list[float]]:
        """Of the neighbours along every axis, over the batches of all ranks: so that all come to the same note."""
        sums = torch.zeros(len(self._found), _AXES, 3, dtype=torch.float64)
        for place, by_axis in enumerate(self._found.values()):
            for axis, own in by_axis.items():
                sums[place, axis] = torch.stack(own).double().sum(0)
        found = ranks.total(sums)
        return {
            what: [float(both / max((left * right) ** 0.5, 1e-30)) for both, left, right in rows.tolist() if left > 0]
            for what, rows in zip(self._found, found, strict=True)
        }

    def _seen(self, batch: Any) -> Any:
        if isinstance(batch, tuple | list) and len(batch) == 2:
            volumes = [one for one in _tensors(batch[0]) if one.ndim >= 4 and one.is_floating_point()]
            maps = [one for one in _tensors(batch[1]) if one.ndim >= 3 and not one.is_complex()]
            spaces = {one.shape[-2:] for one in volumes}
            for one in volumes:
                self._take("inputs", one, 2)
            for one in maps:
                if one.shape[-2:] in spaces and _whole(one):
                    self._take("labels", one, 1)
        return batch

    def _take(self, what: str, values: Tensor, first: int) -> None:
        axes = [axis for axis in range(max(first, values.ndim - _AXES), values.ndim) if values.shape[axis] >= 4]
        for axis in axes:
            edge = min(_EDGE, values.shape[axis])
            values = values.narrow(axis, (values.shape[axis] - edge) // 2, edge)
        values = values.float()
        if not axes or bool((values == values.median()).float().mean() > _MOSTLY) or not bool(values.isfinite().all()):
            return
        values = values - values.mean(axes, keepdim=True)
        for axis in axes:
            left, right = (values.narrow(axis, begin, values.shape[axis] - 1) for begin in (0, 1))
            sums = torch.stack([(left * right).sum(), left.square().sum(), right.square().sum()]).cpu()
            if left.numel() >= _PAIRS:
                self._found[what].setdefault(axis - values.ndim, []).append(sums)


def _tensors(tree: Any) -> list[Tensor]:
    found = (leaf.detach() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))
    return [leaf for leaf in found if leaf.device.type != "meta" and leaf.layout is torch.strided]


def _whole(values: Tensor) -> bool:
    """Whether these are labels; networks that predict noise have that as their target."""
    return not values.is_floating_point() or bool((values == values.round()).all())

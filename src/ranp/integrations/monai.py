"""MONAI: its dict batches as the pairs ``ranp.prune`` wants, and losses for networks with deep supervision.

    pruned = ranp.prune(model, pairs(loader), DiceCELoss(to_onehot_y=True, softmax=True), sparsity=0.5)
    SlidingWindowInferer(roi_size=96)(volume, pruned.model)

A slim network is an ordinary module: MONAI's inferers, engines and metrics take it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ranp.errors import DataError
from ranp.running.calling import map_tensors, plain_tensor

try:
    from monai.losses.ds_loss import DeepSupervisionLoss
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError("ranp.integrations.monai needs MONAI: pip install 'ranp[medical]'") from missing

Keys = str | Sequence[str]


class pairs:  # noqa: N801 - reads like a function, and can be gone through again, which a generator cannot
    """The batches of a loader of dicts as ``(inputs, target)``, in plain tensors.

        >>> from monai.data import MetaTensor
        >>> loader = [{"image": MetaTensor(torch.zeros(1, 1, 4, 4, 4)), "label": torch.ones(1, 1, 4, 4, 4)}]
        >>> [(inputs.shape, type(inputs).__name__) for inputs, _ in pairs(loader)]
        [(torch.Size([1, 1, 4, 4, 4]), 'Tensor')]

    A list of such dicts, as crops of one volume give it, is joined along the batch. MONAI's ``MetaTensor`` wraps every
    result of an operator anew and would hide from the tracer which channels belong together, hence plain tensors.

    Args:
        loader: MONAI's ``DataLoader``, or anything that yields dicts.
        image: Key of the input; several keys become several arguments of the network.
        label: Key of the target; several become a tuple, None becomes no target.
        device: Where the tensors go; default where they are.

    Raises:
        DataError: While iterating: a batch is not a dict, or lacks a key.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        image: Keys = "image",
        label: Keys | None = "label",
        device: torch.device | str | None = None,
    ) -> None:
        self.loader, self.image, self.label, self.device = loader, image, label, device

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for number, batch in enumerate(self.loader, 1):
            parts = batch if isinstance(batch, list | tuple) else [batch]
            for part in parts:
                if not isinstance(part, Mapping):
                    raise DataError(
                        f"batch {number} (counting from 1) is a {type(part).__name__}, not a dict. Pass a loader of "
                        "dicts, or the loader itself if it yields (inputs, target)."
                    )
            yield self._of(parts, self.image, number), self._of(parts, self.label, number)

    def _of(self, parts: Sequence[Mapping[str, Any]], keys: Keys | None, number: int) -> Any:
        if keys is None:
            return None
        if not isinstance(keys, str):
            return tuple(self._of(parts, key, number) for key in keys)
        for part in parts:
            if keys not in part:
                raise DataError(
                    f"batch {number} (counting from 1) has no {keys!r}. Its keys: {', '.join(map(str, part))}."
                )
        values = [map_tensors(plain_tensor, part[keys]) for part in parts]
        joined = values[0] if len(values) == 1 else torch.cat(values)
        return joined if self.device is None else joined.to(self.device)


def deep_supervision(loss: Any, **options: Any) -> Callable[[Any, Any], torch.Tensor]:
    """A loss over all outputs of a network: a list of them, or stacked along dimension 1 as ``DynUNet`` gives them.

        >>> loss = deep_supervision(torch.nn.MSELoss())
        >>> target = torch.zeros(2, 1, 8, 8, 8)
        >>> float(loss(torch.ones(2, 3, 1, 8, 8, 8), target))  # weights 1, 1/2, 1/4
        1.75

    Args:
        loss: Of one output and a target; the target is resampled to each output's size.
        options: Of ``monai.losses.DeepSupervisionLoss``: ``weight_mode``, ``weights``.
    """
    whole = DeepSupervisionLoss(loss, **options)

    def of_all(output: Any, target: Any) -> torch.Tensor:
        if isinstance(output, torch.Tensor):
            output = output.unbind(1) if output.dim() > target.dim() else (output,)
        value: torch.Tensor = whole(list(output), target)
        return value

    return of_all

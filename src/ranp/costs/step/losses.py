"""A loss for networks that come without one: it keeps and allocates what common losses do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ranp.errors import UnsupportedError
from ranp.running import calling

Labels = Callable[[tuple[int, ...], torch.dtype, torch.device], Tensor]
"""Returns a target of a shape, type and device, which exists without the step."""


def stand_in_loss(output: Any, labels: Labels) -> Tensor:
    """Cross entropy for outputs with more than one channel, mean squared error for other floating-point ones, summed.

    Raises:
        UnsupportedError: There is no output to train.
    """
    values = []
    for tensor in calling.tensors_in(output):
        if not tensor.is_floating_point() or not tensor.requires_grad:
            continue
        shape = tuple(tensor.shape)
        if len(shape) > 1 and shape[1] > 1:
            values.append(F.cross_entropy(tensor, labels((shape[0], *shape[2:]), torch.int64, tensor.device)))
        else:
            values.append(F.mse_loss(tensor, labels(shape, tensor.dtype, tensor.device)))
    if not values:
        raise UnsupportedError("no output of the network is a floating-point tensor with a gradient; nothing to train")
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total

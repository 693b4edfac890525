"""What the masked twin does to the arguments of an operator."""

from __future__ import annotations

import numpy as np
import torch

from ranp.tracing.masked import MaskedOp
from ranp.tracing.operation import put_labels

KEEP = np.array([True, True, False, True, False, True, True])
ROWS, COLUMNS = np.array([2, 3, 4]), np.array([3, 4, 5, 6])


def summing(x: torch.Tensor) -> MaskedOp:
    put_labels(x, {0: ROWS, 2: COLUMNS})
    return MaskedOp(torch.ops.aten.sum.default, (x,), {}, KEEP, lambda func, args, kwargs: func(*args, **kwargs))


def test_channels_are_silenced_along_every_dimension() -> None:
    x = torch.rand(3, 2, 4) + 1
    expected = x * torch.from_numpy(KEEP[ROWS])[:, None, None] * torch.from_numpy(KEEP[COLUMNS])
    assert torch.equal(summing(x).silenced(x, [0, 1, 2]), expected)


def test_channels_are_taken_along_every_dimension() -> None:
    x = torch.rand(3, 2, 4)
    op = summing(x)
    small = op.taken(x, [0, 1, 2])
    assert torch.equal(small, x[KEEP[ROWS]][..., KEEP[COLUMNS]])
    assert torch.equal(op.taken(op.put_back(small, x, [0, 2]), [0, 2], like=x), small)

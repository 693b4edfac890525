"""The default scale of fused attention: one over the root of the features that a head has.

Like a mean, it is about whatever features there are: a slim network divides by the root of those it kept. Torch takes
the operator apart on its way down, into a number that the size of a head was worked into, which looks like any other
number that code computes from a count of channels. So it is told apart where the code asks for it.

``nn.MultiheadAttention`` asks out of sight, and is left alone: there, whole heads go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ranp.tracing.constants import MadeFromNumbers

Size = Callable[[torch.Tensor], int]
"""How many features heads are taken to have, of their queries."""


class DefaultScale(MadeFromNumbers):
    """While active, fused attention without a scale takes the one of heads of some size.

    And what its base does: every function of torch passes through each mode there is, so one serves for both.
    """

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and kwargs.get("scale") is None:
            query = args[0] if args else kwargs["query"]
            kwargs = {**kwargs, "scale": self.size(query) ** -0.5}
        return super().__torch_function__(func, types, args, kwargs)


def any_size(query: torch.Tensor) -> int:
    """The same for full and slim heads: where nothing is computed, two runs are compared by their numbers."""
    return 1

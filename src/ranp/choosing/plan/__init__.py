"""The decision, as a value and as a file: which channels each layer keeps, and which indices of which tensors go.

A plan needs no trace and no network to be read: beside the kept channels by layer it lists the cuts, tensor by tensor.
Dimensions that lose nothing (inputs, outputs, pinned layers) are not cut, so it applies to the same architecture with
other input channels, classes or spatial sizes. It also knows which channels stand or fall together, so that an edit of
one cut alone is refused, and ``Plan.edited`` moves everything that has to follow.
"""

from ranp.choosing.plan.classes import ChannelClasses
from ranp.choosing.plan.notation import format_classes, format_indices, parse_classes, parse_indices
from ranp.choosing.plan.storing import FORMAT, VERSION
from ranp.choosing.plan.value import Change, Cut, Plan, Sparsity

__all__ = [
    "FORMAT",
    "VERSION",
    "Change",
    "ChannelClasses",
    "Cut",
    "Plan",
    "Sparsity",
    "format_classes",
    "format_indices",
    "parse_classes",
    "parse_indices",
]

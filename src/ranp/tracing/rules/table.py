"""The tables: rules register under operator names without namespace, overload or trailing underscore.

A rule says what an operator does to labels; a masked form, how the masked twin runs it. The check that compares the
slim network with the masked twin is an oracle for the rules, so a masked form never asks one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

from ranp.tracing.masked import MaskedOp
from ranp.tracing.operation import Op

Rule = Callable[[Op], None]

MaskedForm = Callable[[MaskedOp], Any]

_TABLE: dict[str, Rule] = {}
MASKED: dict[str, MaskedForm] = {}
"""Operators that the masked twin does not run as they are: they sum up, or take statistics, over channels."""

IGNORED = frozenset(
    "_assert_async _assert_scalar _local_scalar_dense is_same_size sym_size sym_stride sym_numel equal allclose "
    "_assert_tensor_metadata is_nonzero item size numel set_data requires_grad_ record_stream _linalg_check_errors "
    "is_pinned is_set_to".split()
)
"""Operators that carry no channels onward; what they read keeps its labels."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers one rule under the names of operators; one of your own with its namespace, ``"mine::scaled"``."""

    def register(function: Rule) -> Rule:
        _TABLE.update(dict.fromkeys(names, function))
        find.cache_clear()
        return function

    return register


def masked(*names: str) -> Callable[[MaskedForm], MaskedForm]:
    """Registers how the masked twin runs these operators."""

    def register(function: MaskedForm) -> MaskedForm:
        MASKED.update(dict.fromkeys(names, function))
        return function

    return register


@cache
def find(func: Any) -> Rule | None:
    """The rule of an operator: by name, by the name of its out-of-place form, or the pointwise one by tag."""
    if func.namespace not in ("aten", "prims"):
        return _TABLE.get(func._schema.name)
    name = func._schema.name.split("::")[-1]
    found = _TABLE.get(name) or _TABLE.get(name.rstrip("_"))
    if found is None and any(torch.Tag.pointwise in form.tags for form in _forms(func, name)):
        found = _TABLE["pointwise"]
    return found


@cache
def by_element(func: Any) -> bool:
    """True for operators that work element by element on tensors that line up."""
    return find(func) in (_TABLE["pointwise"], _TABLE["copy"])


def _forms(func: Any, name: str) -> Iterator[Any]:
    """The operator, and where it writes in place its other forms: those alone are tagged, of some."""
    yield func
    packet = getattr(getattr(torch.ops, func.namespace), name.rstrip("_"), None) if name.endswith("_") else None
    if packet is not None:
        yield from (getattr(packet, overload) for overload in packet.overloads())

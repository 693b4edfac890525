"""Does code ask a network for its mode? Then what is known of one mode says nothing of what the other one counts."""

from __future__ import annotations

import inspect
import sys
from functools import cache
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ranp.running.calling import call, named_modules
from ranp.running.copies import copy_model
from ranp.running.dataless import MetaMode, to_meta
from ranp.running.randomness import untouched_rng

if TYPE_CHECKING:
    from ranp.tracing.tracer import Tracer


def asks_for_mode(tracer: Tracer) -> bool:
    """True if code of the network, or a function beside it, asks for the mode, or if that cannot be known."""
    if tracer.lessons.asks is None:
        modules = dict(named_modules(tracer.model)).values()
        tracer.lessons.asks = not tracer.meta or any(map(mentions_mode, modules)) or _asks_in_a_run(tracer)
    return tracer.lessons.asks


def _asks_in_a_run(tracer: Tracer) -> bool:
    copy, watch = copy_model(tracer.model, meta=True).eval(), ModeWatch()
    copy.register_forward_pre_hook(watch, prepend=True)
    try:
        with untouched_rng(), torch.no_grad(), MetaMode():
            call(copy, to_meta(tracer.example))
    except Exception:  # a network that takes its modules for what they are does not run while they are watched
        return True
    return watch.asked


class ModeWatch:
    """Notes whether code other than torch's own modules asks a network for its mode: functions beside a class may."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, model: nn.Module, _: object) -> None:
        """A hook before the forward pass: watches every module."""
        for _, module in named_modules(model):
            vars(module)[_WATCH] = self
            kind = _watched(type(module))  # type: ignore[arg-type]
            object.__setattr__(module, "__class__", kind)  # nn.Module looks at every value


_WATCH = "_watched by ranp"
"""Where a watched module keeps its watch: no name that code can have chosen."""


@cache
def _watched(kind: type[nn.Module]) -> type[nn.Module]:
    """A class like another one, whose modules tell their watch when they are asked for their mode."""
    return type(kind.__name__, (kind,), {"training": property(_asked)})


def _asked(module: nn.Module) -> Any:
    asker = sys._getframe(1).f_globals.get("__name__", "")
    vars(module)[_WATCH].asked |= not asker.startswith("torch.nn.")  # these hand it on to torch's kernels
    return vars(module)["training"]


def mentions_mode(module: nn.Module) -> bool:
    """True for modules other than torch's own whose class has to do with modes, or cannot be looked into."""
    bases = (base for base in type(module).__mro__ if not base.__module__.startswith("torch.nn."))
    return isinstance(module, torch.jit.ScriptModule) or any(map(_mentions_mode, bases))


@cache
def _mentions_mode(kind: type) -> bool:
    """True if the code of a class mentions ``training``, or says what becomes of a mode that is set."""
    if not {"train", "eval"}.isdisjoint(vars(kind)):
        return True
    methods = (
        inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))
        for value in vars(kind).values()
        if callable(value) or isinstance(value, property | classmethod | staticmethod)
    )
    return any(_mentions(code) for method in methods if isinstance(code := getattr(method, "__code__", None), CodeType))


def _mentions(code: CodeType) -> bool:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return "training" in (*code.co_names, *code.co_consts) or any(map(_mentions, inner))

"""Running a copy of the network with labels on its tensors: the one pass that sees everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ranp.running.calling import call, is_floating, named_modules, named_tensors, tensors_in, written_out
from ranp.running.dataless import execute
from ranp.running.operators import Schema, flat_tensors, schema_of
from ranp.running.randomness import RandomState, ambient_seed, reseed, untouched_rng
from ranp.running.recording import ModuleStack
from ranp.tracing import rules
from ranp.tracing.attributes import plain_tensors
from ranp.tracing.constants import Constants, MadeFromNumbers, compact
from ranp.tracing.cuts import Births
from ranp.tracing.deciding import TO_PYTHON, reduced_into, remember_reduced
from ranp.tracing.labels import FILLER, LabelSpace, Vector, has_filler
from ranp.tracing.ledger import Ledger, MetConstant, OpRecord, Place
from ranp.tracing.operation import ATTRIBUTE, TAINT, Op, labels_of, put_labels, taint_of
from ranp.tracing.reshaping import INNERMOST
from ranp.tracing.scaling import DefaultScale, Size
from ranp.tracing.trace import MAKES_OUTPUT, NEVER_READ, Cause

NAME = "_ranp_name"
PRODUCER = "_ranp_producer"


def give_birth(
    model: nn.Module,
    space: LabelSpace,
    births: Births | None = None,
    held: Collection[str] = (),
    through: Mapping[str, int] | None = None,
) -> dict[tuple[str, int], Vector]:
    """Labels every dimension (size > 1) of every floating-point parameter and buffer of a copy.

    And of the plain attributes ``held``. With ``births`` the labels of an earlier run of the same network are used
    again. Inputs of weights in ``through`` are numbered through so many groups. What cannot be cut, compiled
    submodules and tensors that the earlier network did not have, gets none and is rigid.
    """
    given: dict[tuple[str, int], Vector] = {}
    compiled = tuple(f"{name}." for name, module in named_modules(model) if isinstance(module, torch.jit.ScriptModule))
    named = dict(named_tensors(model))
    held = held if births is None else {name for name, _ in births} - named.keys()
    beside = {name: tensor for name, tensor in plain_tensors(model) if name in held} if held else {}
    for name, tensor in {**named, **beside}.items():
        if not is_floating(tensor) or (compiled and name.startswith(compiled)):
            continue
        labels: dict[int, Vector] = {}
        for dim, size in enumerate(tensor.shape):
            if births is None and size > 1:
                labels[dim] = space.new(size * (through or {}).get(name, 1) if dim == 1 else size)
            elif births is not None and len(births.get((name, dim), ())) > 1:
                labels[dim] = births[name, dim]
        given |= {(name, dim): vector for dim, vector in labels.items()}
        setattr(tensor, ATTRIBUTE, labels)
        setattr(tensor, NAME, name)
    return given


class LabelMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs every operator, then moves the labels by its rule."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap what runs for every operator, for those who compile under a mode

    def __init__(
        self,
        space: LabelSpace,
        ledger: Ledger,
        births: Births,
        stack: ModuleStack,
        layers: Collection[str],
        *,
        carriers: Mapping[int, int] | None = None,
        carriers_at: Mapping[Place, int] | None = None,
        depthwise: Collection[tuple[str, int]] | None = None,
        decisions: Mapping[int, Any] | None = None,
        before: Callable[[int, OpRecord, list[torch.Tensor]], None] | None = None,
        watches: bool = True,
        run: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] = execute,
        after: Callable[[Op, tuple[Any, ...], dict[str, Any]], None] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.space, self.ledger, self.stack, self.layers = space, ledger, stack, layers
        self.carriers, self.before, self.run, self.after = carriers or {}, before, run, after
        self.depthwise, self.decisions, self.turns = depthwise, decisions, Counter[str]()
        self.carriers_at, self.seen = carriers_at or {}, Counter[tuple[str, str]]()
        self.dataless = run is execute
        self.constants = Constants(meta=self.dataless)
        # Who reads what: results are held until they are read, which takes memory. Torch runs other operators on some
        # tensors that somebody holds, so two runs that are to be compared must watch alike.
        self.watches = watches
        self.unread: dict[int, tuple[torch.Tensor, set[bool]]] = {}
        self.births = births
        self.homes: dict[int, tuple[str, int]] = {}

    def birthplace(self, vector: Vector | None) -> tuple[str, int] | None:
        """The one (tensor, dimension) whose labels these are, in their order; None for anything else."""
        if vector is None or not vector.size:
            return None
        self.homes = self.homes or {int(labels[0]): key for key, labels in self.births.items()}
        key = self.homes.get(int(vector[0]))
        return key if key is not None and np.array_equal(vector, self.births[key]) else None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema, where, ledger, index = schema_of(func), self.stack.current, self.ledger, len(self.ledger.records)
        name = schema.name
        ins = flat_tensors((args, kwargs))
        known = [self.constants.of(tensor) for tensor in ins]
        record = self._recorded(func, schema, args, ins, known, where)
        if self.before is not None:
            self.before(index, record, ins)
        ledger.records.append(record)
        ledger.in_flight = True
        out = execute(func, args, kwargs, ins) if self.dataless else self.run(func, args, kwargs)
        ledger.in_flight = False
        if not self.dataless:
            out = self._decide(schema, ins, out, index)
            remember_reduced(name, ins, out)
            if name in TO_PYTHON:
                ledger.decided_by += [(vector, where) for tensor in ins for vector in reduced_into(tensor)]
        self.constants.follow(func, args, kwargs, out, known)
        if self.watches:
            self._consume(ins, where, name)
        turn = name, self.turns[name]
        self.turns[name] += 1
        depthwise = None if self.depthwise is None else turn in self.depthwise
        carrier = self.carriers.get(index, INNERMOST)
        if self.carriers_at:
            carrier = self.carriers_at.get(self._place(where, name), carrier)
        op = Op(
            func, args, kwargs, out, self.space, where, self.stack.module, index, carrier, depthwise, self._on_layer
        )
        found = rules.find(func)
        if found is not None:
            noted = len(self.space.left)
            found(op)
            if len(self.space.left) > noted:
                self.space.sources.append((noted, len(self.space.left), name, where))
            if self.watches:
                self._remember_unread(op)
            if op.split:
                ledger.splits.add(index)
            if op.depthwise:
                ledger.depthwise.add(turn)
        elif name not in rules.IGNORED:
            self._unknown(op, func)
        if self.after is not None:
            self.after(op, args, kwargs)
        return out

    def _recorded(
        self,
        func: Any,
        schema: Schema,
        args: tuple[Any, ...],
        ins: list[torch.Tensor],
        known: list[torch.Tensor | None],
        where: str,
    ) -> OpRecord:
        """What an operator is about to take in."""
        inputs: list[tuple[int, int, Vector]] = []
        shapes: list[tuple[int, ...] | None] = []
        constants = 0
        for number, (tensor, value) in enumerate(zip(ins, known, strict=True)):
            for dim, vector in labels_of(tensor).items():
                # labels with fillers may still be written to: the record keeps them as they are now
                inputs.append((number, dim, vector.copy() if has_filler(vector) else vector))
            constants += value is not None
            sized = value is None and is_floating(tensor) and not tensor.is_nested
            shapes.append(tensor.shape if sized else None)
        numbers = _numbers(args) if schema.pointwise or schema.name in _FILLING else ()
        met = self._met(func, ins, known) if 0 < constants < len(ins) and self.dataless else ()
        return OpRecord(schema.name, where, tuple(inputs), numbers, tuple(shapes), met)

    def _place(self, where: str, name: str) -> Place:
        """Where an operator stands; to be asked once for each."""
        self.seen[where, name] += 1
        return where, name, self.seen[where, name] - 1

    def _met(self, func: Any, ins: list[torch.Tensor], known: list[torch.Tensor | None]) -> tuple[MetConstant, ...]:
        """Constants among the arguments of an operator."""
        aligned = rules.by_element(func)
        found = []
        for number, (tensor, value) in enumerate(zip(ins, known, strict=True)):
            values = None if value is None or not (aligned or is_floating(tensor)) else compact(value)
            if values is not None:
                others = [other for other, its in zip(ins, known, strict=True) if its is None] if aligned else []
                lined_up, size = [*others, tensor], tensor.shape
                labels = tuple(_meeting(lined_up, values.ndim - dim, size[dim]) for dim in range(values.ndim))
                found.append(MetConstant(number, values, labels))
        return tuple(found)

    def _decide(self, schema: Schema, ins: list[torch.Tensor], out: Any, index: int) -> Any:
        """Writes down what data decided, or lets a cut copy decide as the full network did.

        A cut copy computes other values; it must still take the same branches, or nothing could be compared.
        """
        if schema.mutable or not any(is_floating(tensor) for tensor in ins):
            return out
        if self.decisions is None:
            self.ledger.decisions[index] = tree_map(_decision, out)
            return out
        earlier = self.decisions.get(index)
        return out if earlier is None else tree_map(_as_before, out, earlier)

    def _consume(self, ins: list[torch.Tensor], where: str, name: str) -> None:
        for tensor in ins:
            self.read(tensor)
            carried = vars(tensor)
            for vector in carried.get(TAINT, ()):
                self.space.pin(vector, "channels are addressed by number", where, op=name)
            if PRODUCER in carried:
                self.ledger.consumers.setdefault(carried[PRODUCER], set()).add(where)
            if NAME in carried:
                self.ledger.touched.add(carried[NAME])

    def read(self, tensor: torch.Tensor) -> None:
        """Notes that something reads a tensor: of several results of one operator, one reader will do."""
        found = self.unread.pop(id(tensor), None)
        if found is not None:
            found[1].clear()

    def never_read(self) -> list[Vector]:
        """Labels of results that nothing has read and that somebody may hold where no operator is seen."""
        return [vector for held, open_ in self.unread.values() if open_ for vector in labels_of(held).values()]

    def _remember_unread(self, op: Op) -> None:
        """Labels that no operator reads may go where nobody sees (numpy); of several results one reader will do.

        Without data nothing can go there: what nobody reads is a state that is thrown away, or kept for another call.
        A view that was written to is read through its base.
        """
        if self.dataless or (op.in_place and op["self"] is not None and op["self"]._is_view()):
            return
        open_ = {True}
        for tensor in flat_tensors(op.out):
            if is_floating(tensor) and _labelled(tensor):
                self.unread[id(tensor)] = tensor, open_

    def _unknown(self, op: Op, func: Any) -> None:
        labelled = [t for t in op.tensors if any(v.any() for v in labels_of(t).values())]
        for tensor in labelled:
            for vector in labels_of(tensor).values():
                self.space.pin(vector, "an operator without a rule", op.where, op=str(func), cause=Cause.OPERATOR)
        if labelled:
            self.ledger.unknown[f"{func} in {op.where or 'the network'}"] = None
        for out in flat_tensors(op.out):
            put_labels(out, {})

    def _on_layer(self, op: Op, inputs: Vector | None, outputs: Vector | None, result: Vector | None) -> None:
        """Called by contractions: notes which layer ran, and finds weights used by function call."""
        if op.where in self.layers:
            if result is not None:
                self.ledger.outputs.setdefault(op.where, result)
            setattr(op.out, PRODUCER, op.where)
            return
        home, source = self.birthplace(outputs), self.birthplace(inputs)
        if home is not None and (source is None or source[0] == home[0]):
            in_dim = source[1] if source is not None else 1 - home[1]
            self.ledger.functional.setdefault(home[0], (home[1], in_dim))
            self.ledger.functional_at[op.index] = home[0]


def _meeting(tensors: list[torch.Tensor], back: int, size: int) -> Vector | None:
    """Labels along a dimension, counted from the last, of the first tensor that has some there."""
    for tensor in tensors:
        vector = labels_of(tensor).get(tensor.dim() - back)
        if vector is not None and len(vector) == size:
            return vector
    return None


def _decision(value: Any) -> Any:
    """A copy of what is no floating-point tensor; None for the rest."""
    if isinstance(value, torch.Tensor):
        return None if is_floating(value) else value.clone()
    return value


def _as_before(now: Any, earlier: Any) -> Any:
    if isinstance(now, torch.Tensor):
        same = isinstance(earlier, torch.Tensor) and earlier.shape == now.shape and earlier.dtype == now.dtype
        return earlier.clone() if same else now
    return earlier if type(earlier) is type(now) else now


_FILLING = ("full", "new_full", "full_like")
"""Operators whose plain number arguments are values, not dimensions or sizes, beside the pointwise ones."""


def _numbers(args: tuple[Any, ...]) -> tuple[int | float, ...]:
    return tuple(a for a in args if type(a) in (int, float))


def _labelled(tensor: torch.Tensor) -> bool:
    return any(not vector.flags.writeable or vector.any() for vector in labels_of(tensor).values())


def run_labelled(
    model: nn.Module,
    inputs: Any,
    space: LabelSpace,
    ledger: Ledger,
    births: Births,
    layers: Collection[str],
    *,
    train: bool,
    named: bool = True,
    seed: int | None = None,
    head_size: Size | None = None,
    **options: Any,
) -> Any:
    """Runs a copy once with labels; pins what the outputs carry and what was made but never read.

    With ``named`` every note knows the module it arose in; a run whose notes are thrown away does without. Random
    numbers are those of Python's and numpy's generators as they stand, or of ``seed``. With ``head_size`` the default
    scale of fused attention is that of heads of that size.
    """
    model.train(train)
    with untouched_rng(), written_out(), torch.no_grad(), ModuleStack(model if named else nn.Module()) as stack:
        if seed is not None:
            reseed(seed)
        ambient_seed(seed or 0)
        mode = LabelMode(space, ledger, births, stack, layers, **options)
        before = RandomState.now()
        with mode, MadeFromNumbers() if head_size is None else DefaultScale(head_size):
            outputs = call(model, inputs)
        after, numbers = RandomState.now(), any(record.name in TO_PYTHON for record in ledger.records)
        ledger.drew = after.outside.moved(before.outside) or (numbers and not torch.equal(after.cpu, before.cpu))
    for tensor in tensors_in(outputs):
        mode.read(tensor)
        for vector in labels_of(tensor).values():
            space.pin(vector[vector != FILLER], MAKES_OUTPUT, "", cause=Cause.OUTPUT)
        for vector in taint_of(tensor):
            space.pin(vector, "channels are addressed by number", "")
    for vector in mode.never_read():
        space.pin(vector[vector != FILLER], NEVER_READ, "", cause=Cause.UNSEEN)
    return outputs

"""The program that ``torch.export`` makes of a network, with as few demands on the sizes of its inputs as possible."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from ranp.integrations.export_formats import Subject
from ranp.integrations.export_sizes import (
    Axis,
    Groups,
    Guards,
    Inputs,
    Shape,
    Span,
    free_batch_of_one,
    free_single_voxels,
    set_guards,
)
from ranp.running.calling import first_line, tensors_in
from ranp.running.copies import copy_model

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and which sizes it takes.

    Attributes:
        program: What ``torch.export`` made.
        guards: What it demands of sizes.
        spans: The dimensions that may vary.
        reasons: Why a batch of one is refused, if it is.
        also: Other shapes at which it is to be checked, since it was made there.
    """

    program: ExportedProgram
    guards: Guards
    spans: tuple[Span, ...]
    reasons: tuple[str, ...]
    also: tuple[tuple[Shape, ...], ...] = ()

    def limits(self, space: Groups) -> int:
        """How many spatial dimensions have an upper limit, or a symbol and yet one size only."""
        free = [
            (self.guards.names[index], dim)
            for group in space
            for index, dim in group
            if self.guards.is_free((index, dim))
        ]
        endless = {(span.input, span.dimension) for span in self.spans if span.high is None}
        return sum(place not in endless for place in free)


def make_program(subject: Subject, groups: Groups) -> Program:
    """Exports with these groups of dimensions free to vary.

    A batch of one is repeated: torch would take it for a constant. Sizes with an upper limit point to an example
    that shrinks to a single voxel inside the network, where torch asks questions about layout; then larger inputs are
    tried, and what they make is used if it agrees at the example too.

    Raises:
        Exception: Whatever ``torch.export`` and the network's code raise.
    """
    network, inputs = subject.network, subject.inputs
    batch, axes = inputs.batch_axes(), [axis for group in groups for axis in group]
    seen = inputs
    if batch and batch in groups:
        seen = inputs.at(inputs.resize({batch: max(inputs.shapes[0][0], 2)}))
    made = _described(_exported(network, seen, axes), subject, seen, groups)
    space = tuple(group for group in groups if group != batch)
    if not made.limits(space):
        return made
    try:
        sizes = {group: 2 * seen.shapes[group[0][0]][group[0][1]] for group in space}
        program = _exported(network, seen.at(seen.resize(sizes), empty="cpu"), axes)
        free_single_voxels(program, network, inputs)
        module = program.module()
        subject.compare(lambda given: tensors_in(given.run(module)), inputs)
        wider = _described(program, subject, seen, groups)
    except Exception as error:  # Nothing is lost: there is a program already.
        logger.info("a larger example does not help: %s", first_line(error))
        return made
    if wider.limits(space) or len(wider.spans) < len(made.spans):
        return made
    last = {space[-1]: sizes[space[-1]]}  # the largest size along one dimension is enough to leave the single voxel
    return replace(wider, also=(inputs.resize(last),))


def _exported(network: nn.Module, inputs: Inputs, axes: list[Axis]) -> ExportedProgram:
    # Without the setting, a size that happens to be 1 somewhere inside would be 1 for ever.
    settings: Any = torch.fx.experimental._config
    config = settings.patch(backed_size_oblivious=True) if hasattr(settings, "backed_size_oblivious") else nullcontext()
    varying: Any = torch.export.ShapesCollection()  # type: ignore[no-untyped-call]
    for index in {index for index, _ in axes}:
        varying[inputs.tensors[index]] = {dim: Dim.AUTO for other, dim in axes if other == index}
    copied = copy_model(network, meta=False)
    with config, torch.no_grad():
        return torch.export.export(copied, inputs.args, inputs.kwargs, dynamic_shapes=varying if axes else None)


def _described(program: ExportedProgram, subject: Subject, seen: Inputs, groups: Groups) -> Program:
    guards, reasons = Guards(program, seen), []
    batch = subject.inputs.batch_axes()
    if batch and batch in groups:
        if not all(guards.is_free(axis) for axis in batch):
            raise RuntimeError("the forward code depends on the batch size")
        if not _takes_one(program, subject):
            reasons.append("a batch of 1 is refused: the forward code treats it in its own way")
        guards = Guards(program, seen)
    return Program(program, guards, guards.spans(groups), tuple(reasons))


def _takes_one(program: ExportedProgram, subject: Subject) -> bool:
    """Frees a batch of one of guards on memory layout, if the program computes the same there."""
    inputs = subject.inputs
    one = inputs.at(inputs.resize({inputs.batch_axes(): 1}))
    before = free_batch_of_one(program)
    if not Guards(program, one).accept(one.shapes):
        return False
    module = program.module()
    try:
        subject.compare(lambda given: tensors_in(given.run(module)), one)
    except Exception:
        set_guards(program, before)
        return Guards(program, one).accept(one.shapes)
    return True

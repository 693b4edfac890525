"""From what the runs left behind to the Trace: layers with their classes, dimensions that can be cut, reasons."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from ranp.running.calling import named_modules, named_parameters
from ranp.running.flops import OpCall
from ranp.tracing.cuts import Births
from ranp.tracing.groups import Links, summed
from ranp.tracing.labels import FILLER, Classes, LabelSpace, PinNote, Vector
from ranp.tracing.trace import Cause, ClassIds, Layer, Pin, Trace

if TYPE_CHECKING:
    from ranp.tracing.tracer import Tracer

CHANNEL_NORMS = (nn.GroupNorm, nn.modules.batchnorm._NormBase)
PIECES = PinNote(np.zeros(0, np.int64), "pieces that must stay equal cannot", "", "", Cause.COUPLING)


def layer_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Convolutions, transposed convolutions and linear layers in ``named_modules`` order."""
    return {name: module for name, module in named_modules(model) if isinstance(module, _ConvNd | nn.Linear)}


def assemble(
    model: nn.Module,
    modules: dict[str, nn.Module],
    space: LabelSpace,
    classes: Classes,
    births: Births,
    attributes: Births,
    tracer: Tracer,
) -> Trace:
    """Puts the value together once the classes are final."""
    ledgers = [run.ledger for run in tracer.runs.values()]
    reasons = _Reasons(space, classes)
    names = {id(parameter): name for name, parameter in named_parameters(model)}
    layers: list[Layer] = []
    functional = {k: v for ledger in ledgers for k, v in ledger.functional.items()}
    taken = {names.get(id(module._parameters.get("weight")), f"{name}.weight") for name, module in modules.items()}
    for name, module in named_modules(model):
        if name in modules:
            computed = next((ledger.outputs[name] for ledger in ledgers if name in ledger.outputs), None)
            layers.append(_module_layer(name, module, names, births, computed, reasons, tracer))
        for key in module._parameters if functional else ():
            weight = f"{name}.{key}" if name else key
            if weight in functional and weight not in taken and not _computed(weight):
                layers.append(_function_layer(weight, *functional[weight], births, reasons))
    known = {key: classes.ids[labels] for key, labels in {**births, **attributes}.items()}
    dims = {key: ids for key, ids in known.items() if np.count_nonzero(ids)}
    return Trace(
        layers=tuple(layers),
        dims=dims,
        pieces=classes.pieces,
        calls=tuple(tracer.calls),
        spans=tuple({dim: classes.ids[v] for dim, v in found.items()} for found in tracer.call_labels),
        ops=_ops(tracer),
        op_spans=tuple({at: classes.ids[v] for at, v in found.items()} for found in tracer.op_labels),
        pins=summed(pin for layer in layers for pin in layer.pins),
        unknown=tuple({text: None for ledger in ledgers for text in ledger.unknown}),
        parameters={name: tuple(parameter.shape) for name, parameter in named_parameters(model)},
        links=_links(space, classes, births, reasons.outputs, layers),
    )


def _links(
    space: LabelSpace, classes: Classes, births: Births, outputs: dict[str, Vector], layers: list[Layer]
) -> Links:
    inputs = {layer.name: births.get((layer.weight, layer.in_dim)) for layer in layers}
    known = {name: labels for name, labels in inputs.items() if labels is not None}
    return Links(space.copy(), classes, outputs, known)


def _ops(tracer: Tracer) -> tuple[OpCall, ...]:
    weights = tracer.runs[False].ledger.functional_at
    return tuple(replace(op, weight=weights.get(index, "")) for index, op in tracer.ops.items())


def _computed(weight: str) -> bool:
    """True for tensors from which a layer's weight is computed: they belong to that layer."""
    return bool(re.search(r"(^|\.)parametrizations\.|\.weight_(v|g|orig)$", weight))


def _module_layer(
    name: str,
    module: nn.Module,
    names: dict[int, str],
    births: Births,
    computed: Vector | None,
    reasons: _Reasons,
    tracer: Tracer,
) -> Layer:
    transposed = isinstance(module, _ConvTransposeNd)
    groups = module.groups if isinstance(module, _ConvNd) else 1
    channels = int(getattr(module, "out_channels" if isinstance(module, _ConvNd) else "out_features"))
    weight = names.get(id(module._parameters.get("weight")), f"{name}.weight")
    out_dim = 1 if transposed else 0
    labels = births.get((weight, out_dim))
    if labels is None:
        labels = computed
    elif len(labels) != channels:
        labels = np.tile(labels, groups)
    if transposed and groups > 1 and module.in_channels == groups:
        inputs = births.get((weight, 0))  # depthwise: outputs follow the rows, not the shared multiplier
        labels = None if inputs is None else np.repeat(inputs, channels // groups)
    ids, pins = reasons.ids_and_pins(name, labels, channels)
    kind = "transposed" if transposed else "conv" if isinstance(module, _ConvNd) else "linear"
    depthwise = groups > 1 and isinstance(module, _ConvNd) and module.in_channels == groups
    norm = _norm_of(name, tracer)
    return Layer(
        name, kind, weight, out_dim, 1 - out_dim, groups, channels, ids, not depthwise, norm, _commonest(pins), pins
    )


def _function_layer(weight: str, out_dim: int, in_dim: int, births: Births, reasons: _Reasons) -> Layer:
    labels = births[weight, out_dim]
    ids, pins = reasons.ids_and_pins(weight, labels, len(labels))
    return Layer(weight, "parameter", weight, out_dim, in_dim, 1, len(labels), ids, True, None, _commonest(pins), pins)


def _commonest(pins: tuple[Pin, ...]) -> str:
    return str(pins[0]) if pins else ""


def _norm_of(name: str, tracer: Tracer) -> str | None:
    """The norm module that alone consumes what a layer makes."""
    readers = tracer.runs[False].ledger.consumers.get(name, set()) - {name}
    reader = next(iter(readers)) if len(readers) == 1 else ""
    return reader if reader and isinstance(tracer.model.get_submodule(reader), CHANNEL_NORMS) else None


class _Reasons:
    """Why classes must stay: the first note that reached each of them."""

    def __init__(self, space: LabelSpace, classes: Classes) -> None:
        self.notes = space.pins
        self.outputs: dict[str, Vector] = {}
        self.classes = classes
        self.first = np.full(space.size, -1, np.int64)
        for number in range(len(space.pins) - 1, -1, -1):
            note = space.pins[number]
            self.first[classes.roots[note.labels[note.labels != FILLER]]] = number

    def ids_and_pins(self, name: str, labels: Vector | None, channels: int) -> tuple[ClassIds, tuple[Pin, ...]]:
        """Classes of a layer's output channels, and the causes for which some must stay."""
        if labels is None or len(labels) != channels:
            single = ("a single channel", Cause.SINGLE)
            reason, cause = single if channels == 1 else ("its channels are not a tensor's own", Cause.OTHER)
            return np.zeros(channels, np.int64), (Pin(reason, "", channels, cause=cause),)
        self.outputs[name] = labels
        return self.classes.ids[labels], self.of(labels)

    def of(self, labels: Vector) -> tuple[Pin, ...]:
        """The causes for which these labels must stay, each with its operator and module, the commonest first."""
        stuck = labels[self.classes.ids[labels] == 0]
        counted = Counter(self.first[self.classes.roots[stuck]].tolist())
        notes = [(PIECES if number < 0 else self.notes[number], count) for number, count in counted.items()]
        return summed(Pin(note.reason, note.where, count, note.op, note.cause) for note, count in notes)

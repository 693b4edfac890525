"""Step 1 of 6: a model and an example become a Trace: layers, shapes, and which channels stand or fall together."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from ranp.arguments import told
from ranp.errors import UnsupportedError
from ranp.running.calling import at_least_two, redrawn, tensors_in, unwrap
from ranp.running.copies import copy_model, holdings, redraw_weights
from ranp.running.dataless import execute, to_meta
from ranp.running.operators import flat_tensors
from ranp.running.recording import LeafCall, LeafRecorder, OpCall, true_flops
from ranp.tracing.assembly import assemble, layer_modules
from ranp.tracing.cutting import cut_copy
from ranp.tracing.labels import FILLER, Classes, LabelSpace, Vector
from ranp.tracing.learning import CodePin, Failure, Lessons, learn
from ranp.tracing.ledger import Ledger, OpRecord
from ranp.tracing.operation import labels_of
from ranp.tracing.probing import (
    Comparison,
    LooseComparison,
    Mask,
    MisalignedError,
    finished,
    keeps_of,
    labels_at,
    meeting_constants,
    narrowed,
    random_keep,
    restricted,
)
from ranp.tracing.running import Births, give_birth, run_labelled
from ranp.tracing.trace import Trace

logger = logging.getLogger(__name__)

ROUNDS = 40
"""Trial cuts before everything that is still in doubt is kept. Real networks needed one to four."""


@torch.inference_mode(False)  # its operators are not taken apart into those that have rules
def trace(model: nn.Module, example: Any) -> Trace:
    """Runs a copy of the model on an example and finds which channels stand or fall together.

    Nothing is computed if the model allows it: tensors without data (meta) go through the ordinary Python code, once in
    eval mode, once in train mode, and once more in each mode through a copy that is cut at random, to find sizes that
    the code assumes. Where code needs values, the same happens with the real example.

    Args:
        model: Any network. It is not changed.
        example: Inputs of one call: a tensor, a tuple (splatted), a dict (keywords), any pytree. May be on meta.

        >>> net = nn.Sequential(nn.Conv3d(1, 8, 3), nn.ReLU(), nn.Conv3d(8, 2, 1))
        >>> [(layer.name, layer.pinned) for layer in trace(net, torch.zeros(1, 1, 8, 8, 8)).layers]
        [('0', False), ('2', True)]

    Raises:
        UnsupportedError: The model does not run on the example, or has parameters that are not initialised yet.
    """
    return Tracer(unwrap(model), example).trace()


def _directly(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


DRAWS = 8
"""Runs of a network that draws its path at random, beside the first."""


@dataclass(slots=True)
class Run:
    """One labelled run in one mode."""

    ledger: Ledger = field(default_factory=Ledger)
    failed: str = ""
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    """Shapes of the outputs."""


class Tracer:
    """Everything known about one network while it is traced, and the certificate run for a slim version of it."""

    def __init__(self, model: nn.Module, example: Any) -> None:
        self.model = model
        self.example = example
        self.layers = layer_modules(model)
        self.dropouts = {name for name, module in model.named_modules() if isinstance(module, _DropoutNd)}
        self.meta = True
        self.space = LabelSpace()
        self.births: Births = {}
        self.attributes: dict[tuple[str, int], Vector] = {}
        self.runs: dict[bool, Run] = {}
        self.calls: list[LeafCall] = []
        self.call_labels: list[dict[int, Vector]] = []
        self.ops: dict[int, OpCall] = {}
        self.settled = False
        self.lessons = Lessons()
        self.failure: Failure | None = None

    def trace(self) -> Trace:
        """Runs, probes, and runs again until a cut network behaves as the classes say."""
        self.start()
        return self.assembled(self.settle())

    def assembled(self, classes: Classes) -> Trace:
        """The Trace as it follows from the runs and these classes."""
        return assemble(self.model, self.layers, self.space, classes, self.births, self.attributes, self)

    def start(self) -> None:
        """Runs without data if the network allows it, else on the real example."""
        self._start()
        self._turn_views()

    def _turn_views(self) -> None:
        """Reads views that split channels the other way round where the usual way leaves nothing to prune."""
        if not any(run.ledger.splits for run in self.runs.values()):
            return
        ids = self.space.resolve().ids
        stuck = {
            (train, index)
            for train, run in self.runs.items()
            for index in run.ledger.splits
            if not any(ids[vector].any() for _, _, vector in run.ledger.records[index].inputs)
        }
        if stuck:
            self.lessons.outermost |= stuck
            self.run_full()
            if np.count_nonzero(self.space.resolve().ids) <= np.count_nonzero(ids):
                self.lessons.outermost -= stuck
                self.run_full()

    def _start(self) -> None:
        try:
            self.run_full()
        except UnsupportedError:
            raise
        except Exception as error:
            if any(t.device.type == "meta" for t in tensors_in(self.example)):
                raise UnsupportedError(
                    f"the network does not run without data ({told(error)}). Pass a real example, not one on meta."
                ) from error
            logger.info("running on the real example, since the network needs data: %s", _brief(error))
            self.meta = False
            try:
                self.run_full()
            except Exception as real:
                shapes = [tuple(t.shape) for t in tensors_in(self.example)]
                raise UnsupportedError(
                    f"the network does not run on the example of shapes {shapes}: {told(real)}. "
                    "Pass inputs of one call as example=."
                ) from real

    def settle(self) -> Classes:
        """Probes with trial cuts; each failure pins the channels of the operator where it showed, then tries again."""
        self.settled = True
        for round_ in range(ROUNDS):
            classes = self.space.resolve()
            if not classes.ids.any():
                return classes
            wide = random_keep(classes, self.births, seed=round_ % 2)
            for keep in (wide, narrowed(wide, classes, self.births)):
                failure = None if keep is None else self.probe(classes, keep)
                if failure is not None:
                    learn(self, classes, keep, failure)
                    break
            else:
                return classes
        self.space.pin(np.arange(2, self.space.size), "gave up: no cut of these channels ran", "")
        return self.space.resolve()

    def run_full(self) -> None:
        """Runs the full network in both modes into a fresh notebook, with what earlier failures taught."""
        self.space, self.runs, self.calls, self.ops, self.attributes = LabelSpace(), {}, [], {}, {}
        self.attributes.update(self.lessons.mirrors)
        self.births, copy, before = {}, None, None
        for train in (False, True):
            run = self.runs[train] = Run()
            # Real tensors may be rewritten by a run (statistics, codebooks), and modules may keep something of it.
            if copy is None or not self.meta or holdings(copy) != before:
                copy = copy_model(self.model, meta=self.meta)
                self.births = give_birth(copy, self.space, self.births or None)
                before = holdings(copy)
            try:
                outputs = self._run(copy, self.space, run.ledger, self.births, train, full=True)
                run.shapes = [tuple(tensor.shape) for tensor in tensors_in(outputs)]
            except Exception as error:
                if not train:
                    raise
                run.failed = _brief(error)
                logger.warning("the network does not run in train mode on the example: %s", run.failed)
            else:
                self._draw_again(run, train)
        touched = set().union(*(run.ledger.touched for run in self.runs.values()))
        for (name, _), labels in self.births.items():
            if name not in touched:
                self.space.pin(labels, "no operator of the run used it", "", quiet=True)
        for one, other in self.lessons.unions:
            self.space.unite(one, other)
        for vector, reason in self.lessons.distrusted:
            self.space.pin(vector, reason, "")
        self._keep_what_decides()
        for (train, index), pin in self.lessons.code_pins.items():
            records = self.runs[train].ledger.records
            for at, vectors in labels_at(records, index, _any).items():
                self.pin_at(records[at], vectors, pin)

    def pin_at(self, record: OpRecord, vectors: Sequence[Vector], pin: CodePin) -> None:
        """Keeps channels of an operator as a failed trial demands."""
        for vector in meeting_constants(record) if pin.constants else vectors:
            self.space.pin(vector[vector != FILLER], pin.reason, record.where, op=record.name)

    def _draw_again(self, run: Run, train: bool) -> None:
        """Runs a network that draws its path at random along other paths too, into the same notebook."""
        same, base = 0, [(record.name, record.where) for record in run.ledger.records]
        # A network that needs data and leaves layers alone may choose them by data: let it see other data.
        by_data = not self.meta and not {name for name, _ in self.births} <= run.ledger.touched
        for seed in range(1, DRAWS + 1):
            if not (run.ledger.drew or by_data) or same == 3:
                return
            ledger = Ledger()
            copy = copy_model(self.model, meta=self.meta)
            if by_data:
                redraw_weights(copy, seed)
            give_birth(copy, self.space, self.births)
            options: dict[str, Any] = {"full": True, "again": True, "seed": seed, "by_data": by_data}
            try:
                self._run(copy, self.space, ledger, self.births, train, **options)
            except Exception as error:
                logger.info("a path drawn at random does not run: %s", _brief(error))
            same = same + 1 if [(record.name, record.where) for record in ledger.records] == base else 0
            run.ledger.join(ledger)

    def _keep_what_decides(self) -> None:
        """Pins channels that no weight reads, but whose values decided something in the code."""
        deciding = [found for run in self.runs.values() for found in run.ledger.decided_by]
        if not deciding:
            return
        roots = self.space.resolve().roots
        read = {int(root) for vector in self.space.contracted for root in roots[vector]}
        for vector, where in deciding:
            alone = vector[[int(root) not in read for root in roots[vector]]]
            self.space.pin(alone[alone != FILLER], "code decides by its values what to do next", where, op="item")

    def _run(
        self,
        copy: nn.Module,
        space: LabelSpace,
        ledger: Ledger,
        births: Births,
        train: bool,
        *,
        full: bool,
        again: bool = False,
        by_data: bool = False,
        **more: Any,
    ) -> Any:
        inputs = to_meta(self.example) if self.meta else self.example
        if by_data:
            inputs = redrawn(inputs, more["seed"])
        if train:
            inputs = at_least_two(inputs)
        outermost = frozenset(index for mode, index in self.lessons.outermost if mode is train)
        options: dict[str, Any] = {"outermost": outermost, "run": execute if self.meta else _directly, **more}
        if not full:
            options |= {name: getattr(self.runs[train].ledger, name) for name in ("depthwise", "decisions")}
        with ExitStack() as stack:
            if full:
                for name, module in copy.named_modules():
                    if bare_norm(module):
                        stack.callback(module.register_forward_pre_hook(self._watch(name, module)).remove)
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message="None of the inputs have requires_grad")
            if full and not train and not again:
                self.call_labels = []
                self.calls = stack.enter_context(LeafRecorder(copy, self._note_result)).calls
                options["after"] = self._count
            return run_labelled(copy, inputs, space, ledger, births, self.layers, train=train, named=full, **options)

    def _note_result(self, tensor: torch.Tensor | None) -> None:
        self.call_labels.append({dim: vector.copy() for dim, vector in labels_of(tensor).items()})

    def _count(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, where: str) -> None:
        flops = true_flops(func, args, kwargs, out)
        if flops:
            index = len(self.runs[False].ledger.records) - 1
            size = sum(tensor.numel() for tensor in flat_tensors(out))
            self.ops[index] = OpCall(where, str(getattr(func, "_overloadpacket", func)), flops, size)

    def _watch(self, name: str, module: nn.Module) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        """Norms without parameters still mirror their channel count in an attribute: watch what comes in."""
        attribute = mirrored_attribute(module)
        first = -len(getattr(module, attribute)) if attribute == "normalized_shape" else 1

        def watch(module: nn.Module, args: tuple[Any, ...]) -> None:
            for dim, vector in labels_of(args[0] if args else None).items():
                at = dim - args[0].dim() - first if first < 0 else 0 if dim == 1 else -1
                if at >= 0:
                    key = (f"{name}.{attribute}", at)
                    self.space.unite(self.attributes.setdefault(key, vector), vector)

        return watch

    def probe(self, classes: Classes, keep: Mask) -> tuple[bool, int, str] | None:
        """Runs a cut copy in each mode beside the full records; tells mode, operator and reason of a failure."""
        keeps = keeps_of({**self.births, **self.attributes}, keep)
        copy = before = None
        for train, run in self.runs.items():
            if run.failed or (train and self.trains_alike()):
                continue
            if copy is None or not self.meta or holdings(copy) != before:
                copy = cut_copy(self.model, keeps, meta=self.meta)
                before = holdings(copy)
            failure = self.compare(copy, classes, keep, train)
            if failure is not None:
                return (train, *failure)
        return None

    def trains_alike(self) -> bool:
        """True if train mode runs the operators of eval mode on the same channels, but for what norms and dropout add.

        Then a trial cut that runs in one mode runs in the other.
        """
        one, other = ([r for r in self.runs[mode].ledger.records if self._tells(r)] for mode in (False, True))
        return len(one) == len(other) and all(
            a.name == b.name
            and a.where == b.where
            and len(a.inputs) == len(b.inputs)
            and all(x[:2] == y[:2] and np.array_equal(x[2], y[2]) for x, y in zip(a.inputs, b.inputs, strict=True))
            for a, b in zip(one, other, strict=True)
        )

    def _tells(self, record: OpRecord) -> bool:
        """True for operators on channels, outside of dropout."""
        return bool(record.inputs) and record.where not in self.dropouts

    def compare(self, slim: nn.Module, classes: Classes, keep: Mask, train: bool) -> tuple[int, str] | None:
        """Runs a cut copy beside the full network's records; None if they agree at every operator."""
        expected = self.runs[train].ledger.records
        return self._compare(slim, Comparison(expected, classes.roots, keep, numbers=self.meta), train)

    def follows(self, slim: nn.Module, classes: Classes, keep: Mask, train: bool) -> tuple[bool | None, str]:
        """The same for a copy with single channels: whether they agree (None: nobody can tell), and what differs."""
        expected = self.runs[train].ledger.records
        comparison = LooseComparison(expected, classes.roots, keep, numbers=self.meta)
        failure = self._compare(slim, comparison, train)
        if failure is not None:
            return False, failure[1]
        return (None if comparison.lost else True), ""

    def _compare(self, slim: nn.Module, comparison: Comparison, train: bool) -> tuple[int, str] | None:
        births = restricted(self.births, comparison.keep)
        scratch, ledger = LabelSpace(size=self.space.size), Ledger()
        give_birth(slim, scratch, births)
        try:
            out = self._run(slim, scratch, ledger, births, train, full=False, before=comparison)
            finished(comparison, len(ledger.records))
        except MisalignedError as error:
            self.failure = (train, error.index, error.detail)
            return self.failure[1:]
        except Exception as error:
            at = len(ledger.records) - (1 if ledger.in_flight else 0)
            self.failure = (train, at, f"code assumes a size: {_brief(error)}")
            return self.failure[1:]
        shapes = [tuple(tensor.shape) for tensor in tensors_in(out)]
        if shapes == self.runs[train].shapes:
            return None
        last = min(len(ledger.records), len(comparison.expected)) - 1
        self.failure = (train, last, f"the outputs have shapes {shapes}, not {self.runs[train].shapes}")
        return self.failure[1:]

    def layers_to_blame(self) -> tuple[str, ...]:
        """Layers whose channels the operator reads at which the last comparison failed, or the nearest before it."""
        if self.failure is None:
            return ()
        train, index, _ = self.failure
        classes = self.space.resolve()
        found = labels_at(self.runs[train].ledger.records, index, lambda vector: bool(classes.ids[vector].any()))
        ids = {int(i) for vectors in found.values() for vector in vectors for i in classes.ids[vector]} - {0}
        return tuple(layer.name for layer in self.assembled(classes).layers if ids & set(layer.classes.tolist()))

    def keeping(self, names: Collection[str], reason: str) -> Trace:
        """The Trace once the channels of some layers must stay."""
        classes = self.space.resolve()
        whole = [layer.classes for layer in self.assembled(classes).layers if layer.name in names]
        ids = np.unique(np.concatenate(whole))
        self.lessons.distrusted.append((np.flatnonzero(np.isin(classes.ids, ids[ids != 0])), reason))
        self.space.pin(*self.lessons.distrusted[-1], "")
        return self.assembled(self.settle())

    def relearned(self) -> Trace:
        """The Trace once what the last failed comparison taught is taken in."""
        if self.failure is not None:
            learn(self, self.space.resolve(), None, self.failure)
            self.failure = None
        return self.assembled(self.settle())


def bare_norm(module: nn.Module) -> bool:
    """True for norms that hold no tensor, so that no cut would reach their channel count."""
    kinds = (nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)
    return isinstance(module, kinds) and not list(module.parameters()) and getattr(module, "running_mean", None) is None


def mirrored_attribute(module: nn.Module) -> str:
    """The attribute in which a norm keeps its channel count."""
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return "normalized_shape"
    return "num_channels" if isinstance(module, nn.GroupNorm) else "num_features"


def _any(vector: Vector) -> bool:
    return bool(vector.any())


def _brief(error: BaseException) -> str:
    """First line of an error, with its type."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]

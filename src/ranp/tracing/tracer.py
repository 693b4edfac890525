"""Step 1 of 6: a model and an example become a Trace: layers, shapes, and which channels stand or fall together."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from ranp.arguments import described
from ranp.errors import UnsupportedError, asked
from ranp.running.calling import at_least_two, first_line, named_modules, redrawn, tensors_in, unwrap
from ranp.running.copies import copy_model, holdings, redraw_weights
from ranp.running.dataless import execute, to_meta
from ranp.running.flops import OpCall, call_of, true_flops
from ranp.running.operators import flat_tensors
from ranp.running.recording import LeafCall, LeafRecorder
from ranp.tracing.assembly import assemble, layer_modules
from ranp.tracing.attributes import standing_alone
from ranp.tracing.cuts import Births, Mask, narrowed, random_keep, uneven_keep
from ranp.tracing.deciding import keep_what_decides
from ranp.tracing.guesses import Cut, meeting_constants
from ranp.tracing.heads import BOTH, WHOLE, keep_places, start_with_heads
from ranp.tracing.labels import FILLER, Classes, LabelSpace, Vector
from ranp.tracing.learning import CodePin, Lessons, labels_at, learn
from ranp.tracing.ledger import Ledger, OpRecord, Run
from ranp.tracing.mirrors import keep_projected, watch_norms
from ranp.tracing.modes import classes_of_one_run
from ranp.tracing.numbering import number_through_groups
from ranp.tracing.operation import Op, labels_of
from ranp.tracing.probing import Failure, probe
from ranp.tracing.reshaping import OUTERMOST
from ranp.tracing.running import give_birth, run_labelled
from ranp.tracing.scaling import any_size
from ranp.tracing.siblings import Place
from ranp.tracing.trace import Cause, Trace

logger = logging.getLogger(__name__)

ROUNDS = 40
"""Trial cuts before everything that is still in doubt is kept. Real networks needed one to four."""


@torch.inference_mode(False)  # its operators are not taken apart into those that have rules
def trace(model: nn.Module, example: Any) -> Trace:
    """Runs a copy of the model on an example and finds which channels stand or fall together.

    Nothing is computed if the model allows it: tensors without data (meta) go through the ordinary Python code, once in
    eval mode, once in train mode, and once more in each mode through a copy that is cut at random, to find sizes that
    the code assumes. Where a cut copy in train mode runs what the full network runs in eval mode, these two runs are
    enough. Where code needs values, the same happens with the real example.

    Args:
        model: Any network. It is not changed.
        example: Inputs of one call: a tensor, a tuple (splatted), a dict (keywords), any pytree. May be on meta.

        >>> net = nn.Sequential(nn.Conv3d(1, 8, 3), nn.ReLU(), nn.Conv3d(8, 2, 1))
        >>> [(layer.name, layer.pinned) for layer in trace(net, torch.zeros(1, 1, 8, 8, 8)).layers]
        [('0', False), ('2', True)]

    Raises:
        UnsupportedError: The model does not run on the example, or has parameters that are not initialised yet.
    """
    return Tracer(unwrap(model), example).trace(both=False)


def _directly(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


DRAWS = 8
"""Runs of a network that draws its path at random, beside the first."""


class Tracer:
    """Everything known about one network while it is traced."""

    def __init__(self, model: nn.Module, example: Any, attention: str = BOTH) -> None:
        self.model, self.example, self.attention = model, example, attention
        self.layers = layer_modules(model)
        self.dropouts = {name for name, module in named_modules(model) if isinstance(module, _DropoutNd)}
        self.held = standing_alone(model)
        self.meta = True
        self.space = LabelSpace()
        self.births: Births = {}
        self.attributes: dict[tuple[str, int], Vector] = {}
        self.runs: dict[bool, Run] = {}
        self.calls: list[LeafCall] = []
        self.call_labels: list[dict[int, Vector]] = []
        self.ops: dict[int, OpCall] = {}
        self.op_labels: list[dict[tuple[int, int], Vector]] = []
        self.settled = False
        self.agreed: Classes | None = None
        self.lessons = Lessons()

    def trace(self, *, both: bool = True) -> Trace:
        """Runs, probes, and runs again until a cut network behaves as the classes say.

        Without ``both``, train mode is not written down if trial cuts show that it runs what eval mode runs: the trace
        is the same, but a slim network cannot be compared with it.
        """
        self.start(both=both)
        return self.assembled(self.settle() if self.agreed is None else self.agreed)

    def assembled(self, classes: Classes) -> Trace:
        """The Trace as it follows from the runs and these classes."""
        return assemble(self.model, self.layers, self.space, classes, self.births, self.attributes, self)

    def start(self, *, both: bool = True) -> None:
        """Runs without data if the network allows it, else on the real example."""
        self._start(both)
        self._turn_views()
        number_through_groups(self)
        if self.attention == WHOLE:
            start_with_heads(self)

    def _turn_views(self) -> None:
        """Reads views that split channels the other way round where the usual way leaves nothing to prune."""
        if not any(run.ledger.splits for run in self.runs.values()):
            return
        ids = self.space.resolve().ids
        stuck = self.stuck((train, index) for train, run in self.runs.items() for index in run.ledger.splits)
        if stuck:
            self.lessons.carriers |= dict.fromkeys(stuck, OUTERMOST)
            self.run_full()
            if np.count_nonzero(self.space.resolve().ids) <= np.count_nonzero(ids):
                for place in stuck:
                    del self.lessons.carriers[place]
                self.run_full()

    def stuck(self, places: Iterable[Place]) -> set[Place]:
        """Those of some operators that read nothing that can go."""
        ids = self.space.resolve().ids
        records = {(train, i): self.runs[train].ledger.records[i] for train, i in places}
        return {at for at, record in records.items() if not any(ids[vector].any() for _, _, vector in record.inputs)}

    def _start(self, both: bool) -> None:
        try:
            self.run_full(both=both)
        except UnsupportedError:
            raise
        except Exception as error:
            if any(t.device.type == "meta" for t in tensors_in(self.example)):
                raise UnsupportedError(
                    f"the network does not run without data ({described(error)}). Pass a real example, not one on meta."
                ) from error
            logger.info("running on the real example, since the network needs data: %s", first_line(error))
            self.meta = False
            try:
                self.run_full()
            except Exception as real:
                shapes = [tuple(t.shape) for t in tensors_in(self.example)]
                raise UnsupportedError(
                    f"the network does not run on the example of shapes {shapes}: {described(real)}. "
                    f"Pass inputs of one call as {asked('example')}."
                ) from real

    def settle(self) -> Classes:
        """Probes with trial cuts; each failure pins the channels of the operator where it showed, then tries again."""
        self.settled = True
        for round_ in range(ROUNDS):
            classes = self.space.resolve()
            if not classes.ids.any():
                return classes
            for cut, keep in self.trials(classes, round_ % 2):
                failure = None if keep is None else probe(self, classes, keep)
                if failure is not None:
                    learn(self, classes, (cut, partial(self._wide, seed=(round_ + 1) % 2)), failure)
                    break
            else:
                return classes
        self.space.pin(np.arange(2, self.space.size), "gave up: no cut of these channels ran", "", cause=Cause.CODE)
        return self.space.resolve()

    def trials(self, classes: Classes, seed: int = 0) -> Iterator[tuple[Cut, Mask | None]]:
        """What to try, with the labels that stay in it."""
        keep = self._wide(classes, seed)
        yield partial(self._wide, seed=seed), keep
        for odd in (0, 1) if self.lessons.knows_widths else ():
            yield partial(self._uneven, seed=odd), self._uneven(classes, odd)
        yield partial(self._narrow, seed=seed), narrowed(keep, classes, self.births)

    def _wide(self, classes: Classes, seed: int) -> Mask:
        return random_keep(classes, self.births, seed)

    def _uneven(self, classes: Classes, seed: int) -> Mask:
        return uneven_keep(classes, self.births, seed)

    def _narrow(self, classes: Classes, seed: int) -> Mask | None:
        return narrowed(self._wide(classes, seed), classes, self.births)

    def run_full(self, *, both: bool = True) -> None:
        """Runs the full network into a fresh notebook, with what was learnt; without ``both``, once if that serves."""
        self.space, self.runs, self.calls, self.ops, self.attributes = LabelSpace(), {}, [], {}, {}
        self.attributes.update(self.lessons.mirrors)
        self.births, self.agreed, copy, before = {}, None, None, None
        for train in (False, True):
            if train and not both and self._eval_is_enough():
                return
            run = self.runs[train] = Run()
            # Real tensors may be rewritten by a run (statistics, codebooks), and modules may keep something of it.
            if copy is None or not self.meta or holdings(copy) != before:
                copy = copy_model(self.model, meta=self.meta)
                self.births = give_birth(copy, self.space, self.births or None, self.held, self.lessons.through)
                before = holdings(copy) if both else None  # where one run is enough, none needs what it left behind
            try:
                outputs = self.run(copy, self.space, run.ledger, self.births, train, full=True)
                run.shapes = [tuple(tensor.shape) for tensor in tensors_in(outputs)]
            except Exception as error:
                if not train:
                    raise
                run.failed = first_line(error)
                logger.warning("the network does not run in train mode on the example: %s", run.failed)
            else:
                self._draw_again(run, train)
        self._conclude()

    def _eval_is_enough(self) -> bool:
        """True if train mode would add nothing to the notebook, which is then closed."""
        notes, self.space = self.space, self.space.copy()
        self._conclude()
        self.agreed = classes_of_one_run(self)
        if self.agreed is None:
            self.space = notes
        return self.agreed is not None

    def _conclude(self) -> None:
        """Notes what follows from the runs as a whole, and from what earlier failures taught."""
        touched = set().union(*(run.ledger.touched for run in self.runs.values()))
        for (name, _), labels in self.births.items():
            if name not in touched:
                self.space.pin(labels, "no operator of the run used it", "", cause=Cause.UNUSED)
        keep_projected(self.model, self.space, self.births)
        self.space.equal_counts += self.lessons.counts
        for vector, reason in self.lessons.distrusted:
            self.space.pin(vector, reason, "", cause=Cause.CODE)
        keep_what_decides(self.space, [run.ledger for run in self.runs.values()])
        if self.attention == WHOLE:
            keep_places(self)
        for (train, index), pin in self.lessons.code_pins.items():
            records = self.runs[train].ledger.records
            for at, vectors in labels_at(records, index, lambda vector: bool(vector.any())).items():
                self.pin_at(records[at], vectors, pin)

    def pin_at(self, record: OpRecord, vectors: Sequence[Vector], pin: CodePin) -> None:
        """Keeps channels of an operator as a failed trial demands."""
        for vector in meeting_constants(record) if pin.constants else vectors:
            self.space.pin(vector[vector != FILLER], pin.reason, record.where, op=record.name, cause=Cause.CODE)

    def _draw_again(self, run: Run, train: bool) -> None:
        """Runs a network that draws its path at random along other paths too, into the same notebook."""
        same, base = 0, [(record.name, record.where) for record in run.ledger.records]
        # A network that needs data and leaves layers alone may choose them by data: let it see other data.
        by_data = not self.meta and not {name for name, _ in self.births} - self.held <= run.ledger.touched
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
                self.run(copy, self.space, ledger, self.births, train, **options)
            except Exception as error:
                logger.info("a path drawn at random does not run: %s", first_line(error))
            same = same + 1 if [(record.name, record.where) for record in ledger.records] == base else 0
            run.ledger.join(ledger)

    def run(
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
        """Runs a copy with labels: the full network, or a cut one that decides by data as the full one did."""
        inputs = to_meta(self.example) if self.meta else self.example
        inputs = redrawn(inputs, more["seed"]) if by_data else inputs
        inputs = at_least_two(inputs) if train else inputs
        carriers = {index: part for (mode, index), part in self.lessons.carriers.items() if mode is train}
        options: dict[str, Any] = {"carriers": carriers, "run": execute if self.meta else _directly, **more}
        options["head_size"] = any_size if self.meta else None
        if not full:
            known = self.runs.get(train, self.runs[False]).ledger
            options |= {"depthwise": known.depthwise, "decisions": known.decisions}
        with ExitStack() as stack:
            if full:
                for hook in watch_norms(copy, self.space, self.attributes):
                    stack.callback(hook.remove)
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message="None of the inputs have requires_grad")
            if full and not train and not again:
                self.call_labels, self.op_labels = [], []
                self.calls = stack.enter_context(LeafRecorder(copy, self._note_result)).calls
                options["after"] = self._count
            return run_labelled(copy, inputs, space, ledger, births, self.layers, train=train, named=full, **options)

    def _note_result(self, tensor: torch.Tensor | None) -> None:
        self.call_labels.append({dim: vector.copy() for dim, vector in labels_of(tensor).items()})

    def _count(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        flops = true_flops(op.func, args, kwargs, op.out)
        if flops:
            size = sum(tensor.numel() for tensor in flat_tensors(op.out))
            name = str(getattr(op.func, "_overloadpacket", op.func))
            self.ops[op.index] = OpCall(op.where, name, flops, size, call=call_of(op.func, args, kwargs, op.out))
            tensors = flat_tensors((args, kwargs))
            held = {(i, dim): (v, x.shape[dim]) for i, x in enumerate(tensors) for dim, v in labels_of(x).items()}
            self.op_labels.append({at: op.standing_for(vector)[:size] for at, (vector, size) in held.items()})

    def layers_to_blame(self, failure: Failure | None) -> tuple[str, ...]:
        """Layers whose channels the operator reads at which a comparison failed, or the nearest before it."""
        if failure is None:
            return ()
        classes, records = self.space.resolve(), self.runs[failure.train].ledger.records
        found = labels_at(records, failure.index, lambda vector: bool(classes.ids[vector].any()))
        ids = {int(i) for vectors in found.values() for vector in vectors for i in classes.ids[vector]} - {0}
        return tuple(layer.name for layer in self.assembled(classes).layers if ids & set(layer.classes.tolist()))

    def keeping(self, names: Collection[str], reason: str) -> Trace:
        """The Trace once the channels of some layers must stay."""
        classes = self.space.resolve()
        whole = [layer.classes for layer in self.assembled(classes).layers if layer.name in names]
        ids = np.unique(np.concatenate(whole))
        self.lessons.distrusted.append((np.flatnonzero(np.isin(classes.ids, ids[ids != 0])), reason))
        self.space.pin(*self.lessons.distrusted[-1], "", cause=Cause.CODE)
        return self.assembled(self.settle())

    def relearned(self, failure: Failure | None) -> Trace:
        """The Trace once what a failed comparison taught is taken in."""
        if failure is not None:
            learn(self, self.space.resolve(), None, failure)
        return self.assembled(self.settle())

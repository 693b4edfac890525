"""Eval and train mode: where both run the same operators on the same channels, one run of the full network is enough.

A copy that is cut at random has to run anyway, to find sizes that code assumes. Run in train mode and compared with
what the full network did in eval mode, it shows both at once: what the code assumes, and that the modes agree. If
anything differs, nothing is concluded from it, and both modes are run as if this had not been tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from ranp.running.calling import named_modules, tensors_in
from ranp.tracing.asking import ModeWatch, mentions_mode
from ranp.tracing.cuts import keeps_of
from ranp.tracing.cutting import cut_copy
from ranp.tracing.labels import Classes
from ranp.tracing.probing import Comparison, compare_with

if TYPE_CHECKING:
    from ranp.tracing.tracer import Tracer


def classes_of_one_run(tracer: Tracer) -> Classes | None:
    """The classes as they follow from the run in eval mode, if trial cuts in train mode agree with it; else None."""
    ledger = tracer.runs[False].ledger
    modules = dict(named_modules(tracer.model)).values()
    if not tracer.meta or ledger.drew or ledger.splits or any(map(_has_modes, modules)):
        return None
    classes = tracer.space.resolve()
    if not classes.ids.any():
        return None
    repeated = any(tensor.dim() > 1 and tensor.shape[0] == 1 for tensor in tensors_in(tracer.example))
    for _, keep in tracer.trials(classes):
        if keep is None:
            continue
        copy = cut_copy(tracer.model, keeps_of({**tracer.births, **tracer.attributes}, keep), meta=True)
        for _, module in named_modules(copy):  # what these add in train mode moves no channels
            if isinstance(module, _DropoutNd):
                module.p = 0.0
            elif isinstance(module, _NormBase):
                module.num_batches_tracked = None
        watch = ModeWatch()
        copy.register_forward_pre_hook(watch, prepend=True)
        comparison = _AcrossModes(ledger.records, classes.roots, keep, repeated=repeated)
        if compare_with(tracer, copy, comparison, train=True) is not None or watch.asked:
            return None
    return classes


@dataclass(slots=True)
class _AcrossModes(Comparison):
    """Compares a slim run in train mode with a full one in eval mode.

    Attributes:
        repeated: True if the batch is one sample in eval mode, and two in train mode.
    """

    repeated: bool = False

    def fits(self, want: Any, found: Any) -> bool:
        """True for the same shape but for the batch."""
        if self.repeated and want[:1] == (1,) and found[:1] == (2,):
            want, found = want[1:], found[1:]
        return want == found or Comparison.fits(self, want, found)


def _has_modes(module: nn.Module) -> bool:
    """True if the modes may differ, or the batch moves to where channels are: a trial would be in vain."""
    return isinstance(module, _InstanceNorm) or mentions_mode(module)

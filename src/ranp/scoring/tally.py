"""The bookkeeping of step 2: turns each gradient into channel values the moment it exists, and lets go of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from ranp import arguments
from ranp.errors import DataError
from ranp.scoring.criteria import Criterion, by_channel
from ranp.scoring.terms import Terms, find_groups, find_terms
from ranp.tracing.layout import Layout
from ranp.tracing.trace import PINNED, Layer, Trace

NO_GRADIENT = "no gradient reaches it"
ALL_ZERO = "all its scores are zero"


class Tally:
    """Sums, over batches, the values of one criterion for every layer."""

    def __init__(
        self,
        layers: tuple[Layer, ...],
        criterion: Criterion,
        terms: Terms,
        unscored: dict[str, str],
        groups: Groups | None = None,
    ) -> None:
        self.layers, self.groups = layers, groups
        self.criterion = criterion
        self.terms = terms
        self.unscored = unscored
        self.totals = torch.zeros(sum(layer.channels for layer in layers), dtype=torch.float64, device="cpu")
        self.reached = torch.zeros(len(layers), dtype=torch.float64, device="cpu")
        self.batches = 0
        self.sums: dict[int, torch.Tensor] = {}
        self.batch: dict[int, torch.Tensor] = {}

    def end_batch(self, number: int) -> None:
        """Adds the running batch to the totals.

        Raises:
            DataError: A gradient was NaN or infinite; the message names layer and batch.
        """
        if self.groups is not None:
            self.groups.end_batch(self.batch)
        found = [
            self.batch[index].detach() if index in self.batch else torch.zeros(layer.channels, device="cpu")
            for index, layer in enumerate(self.layers)
        ]
        found = found if len({values.device for values in found}) == 1 else [values.cpu() for values in found]
        flat = torch.cat(found).cpu().double()  # one transfer a batch, and float64 on the CPU: MPS has none
        if not bool(flat.isfinite().all()):
            for layer, values in zip(self.layers, self.split(flat), strict=True):
                if not bool(values.isfinite().all()):
                    raise DataError(
                        f"the gradient of layer {layer.name!r} is NaN or infinite in batch {number} (counting from 1). "
                        "Check that batch and the loss; in float16, scale the loss down or use bfloat16."
                    )
        self.totals += flat
        for index in self.batch:
            self.reached[index] = 1
        self.batches += 1
        self.batch.clear()

    def split(self, flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The part of each layer in a vector over all channels."""
        return torch.split(flat, [layer.channels for layer in self.layers])

    def weight_sums(self) -> Iterator[tuple[torch.Tensor, list[Layer]]]:
        """Per-weight sums over batches and the layers they belong to, in an order that is the same on every rank."""
        for key, (parameter, terms) in self.terms.items():
            if key not in self.sums:  # no gradient reached it on this rank
                dtype = torch.promote_types(parameter.dtype, torch.float32)
                self.sums[key] = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
            yield self.sums[key], [self.layers[term.layer] for term in terms]

    def add(self, parameter: nn.Parameter, values: torch.Tensor) -> None:
        """Adds values of this batch; where sums per weight are kept this is only to see NaN and infinity."""
        if self.groups is not None:
            self.groups.add(parameter, values)
        for term in self.terms[id(parameter)][1]:
            layer = self.layers[term.layer]
            if values.shape == parameter.shape and term.is_weight:
                reduced = by_channel(values, layer, self.criterion.reduction if self.criterion.at_once else "sum")
            elif values.shape == parameter.shape:
                reduced = values.reshape(layer.channels, -1).sum(1)
            elif values.shape == (layer.channels,) and self.criterion.at_once:
                reduced = values.detach()
            else:
                allowed = f"{tuple(parameter.shape)}, the weight's" + (
                    f", or {(layer.channels,)}, one value per channel" if self.criterion.at_once else ""
                )
                raise DataError(
                    f"criterion {self.criterion.name!r} returned shape {tuple(values.shape)} for layer {layer.name!r}; "
                    f"allowed is {allowed}. Change what it returns."
                )
            seen = self.batch.get(term.layer)
            self.batch[term.layer] = reduced if seen is None else seen + reduced


class Groups:
    """Sums, in one batch, the values of everything that goes with each class of channels."""

    def __init__(self, network: nn.Module, trace: Trace) -> None:
        layout = Layout.of(trace)
        self.dims = find_groups(network, trace)
        self.members = [torch.as_tensor(classes) for classes in layout.by_layer(layout.classes)]
        size = 1 + int(max(layout.classes.max(initial=PINNED), layout.dims.max(initial=PINNED)))
        self.sums = torch.zeros(size, dtype=torch.float64, device="cpu")
        self.alone = torch.ones(size, dtype=torch.bool, device="cpu")
        self.alone[torch.as_tensor(layout.dims)] = False
        self.alone[PINNED] = True

    def add(self, parameter: nn.Parameter, values: torch.Tensor) -> None:
        """Adds the values of a parameter to the classes that its dimensions hold."""
        if values.shape != parameter.shape:
            raise DataError(
                f"a criterion on groups returned shape {tuple(values.shape)} for a parameter of shape "
                f"{tuple(parameter.shape)}. Return one value for each of its elements."
            )
        for dim, classes in self.dims.get(id(parameter), {}).items():
            groups = len(classes) // values.shape[dim]  # through which the inputs of a convolution may be numbered
            parts = values.detach().reshape(groups, -1, *values.shape[1:]) if groups > 1 else values.detach()[None]
            rest = [other for other in range(1, parts.ndim) if other != dim + 1]
            along = parts.sum(rest) if rest else parts
            self.sums.index_add_(0, classes.cpu(), along.flatten().cpu().double())

    def end_batch(self, batch: dict[int, torch.Tensor]) -> None:
        """Hands every channel what goes with it; those that must stay keep the values of their own weights."""
        for index, own in batch.items():
            classes = self.members[index]
            batch[index] = torch.where(self.alone[classes], own.detach().cpu().double(), self.sums[classes])
        self.sums.zero_()


class Stream:
    """The tallies of criteria that take the same values from a gradient: computed once, and summed once per weight.

    Checkpointing with ``use_reentrant=True`` runs backward passes inside the backward pass, and a parameter used in
    two of them gets its gradient in parts. What is linear in the gradient adds up by itself. Otherwise the parameter
    is marked, ``partial`` says that the batch must be run again, and from then on its gradient is read only when the
    whole backward pass has ended. A sum per weight cannot take a batch back, so there all are read at the end.
    """

    def __init__(self, tallies: Sequence[Tally]) -> None:
        self.tallies = tuple(tallies)
        self.values = tallies[0].criterion.values
        self.linear = tallies[0].criterion.linear
        self.partial = False
        self.parameters = {key: parameter for tally in tallies for key, (parameter, _) in tally.terms.items()}
        at_once = all(tally.criterion.at_once for tally in tallies)
        self._late: set[int] = set() if at_once or self.linear else set(self.parameters)
        self._fired: set[int] = set()
        self._waiting: dict[int, torch.Tensor] = {}
        self._sums: dict[int, torch.Tensor] = {}
        self._summed = {key for tally in tallies if not tally.criterion.at_once for key in tally.terms}
        for tally in tallies:
            tally.sums = self._sums

    def gather(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        """Takes a gradient, or a part of one, and may overwrite it."""
        key = id(parameter)
        if key in self._late:
            if key in self._waiting:
                self._waiting[key].add_(gradient)
            else:
                self._waiting[key] = gradient
        elif key in self._fired and not self.linear:
            self._late.add(key)
            self.partial = True
        else:
            self._fired.add(key)
            self._take(parameter, gradient)

    def forget_batch(self) -> None:
        """Drops what the running batch has gathered, to run it again."""
        self.partial = False
        self._fired.clear()
        self._waiting.clear()
        for tally in self.tallies:
            tally.batch.clear()
            if tally.groups is not None:
                tally.groups.sums.zero_()

    def end_batch(self, number: int) -> None:
        """Takes the gradients that had to wait for their last part, and adds the batch to the totals."""
        for key in tuple(self._waiting):
            self._take(self.parameters[key], self._waiting.pop(key))
        self._fired.clear()
        for tally in self.tallies:
            tally.end_batch(number)

    def _take(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        key, weight = id(parameter), parameter.detach()
        with arguments.blamed("the criterion"):
            values = self.values(weight, gradient)
        if not isinstance(values, torch.Tensor):
            raise DataError(f"the criterion returned {arguments.shown(values)}; a tensor like the weight is needed.")
        for tally in self.tallies:
            if key in tally.terms:
                tally.add(parameter, values)
        if key not in self._summed:
            return
        if key in self._sums:
            self._sums[key].add_(values)
        else:
            own = values.untyped_storage().data_ptr() != weight.untyped_storage().data_ptr()
            full = torch.promote_types(values.dtype, torch.float32)
            self._sums[key] = values.detach().to(full, copy=not own)


class Tallies:
    """The tallies of several criteria, all from the gradients of the same backward passes on one working copy.

    A gradient is reduced to channels in a hook that runs as soon as it is complete, and freed there, so that the
    gradients of two layers need not exist together. Only criteria that cannot be reduced at once keep a sum per weight.
    """

    def __init__(self, network: nn.Module, trace: Trace, criteria: Sequence[Criterion]) -> None:
        self.layers = trace.layers
        terms: dict[str, tuple[Terms, dict[str, str]]] = {}
        for criterion in criteria:
            if criterion.on not in terms:
                terms[criterion.on] = find_terms(network, trace, criterion.on)
        self.tallies = tuple(
            Tally(self.layers, rule, *terms[rule.on], Groups(network, trace) if rule.on == "groups" else None)
            for rule in criteria
        )
        alike: dict[tuple[int, bool], list[Tally]] = {}  # by identity: a callable need not be hashable
        for tally in self.tallies:
            if tally.criterion.needs == "gradients":
                alike.setdefault((id(tally.criterion.values), tally.criterion.linear), []).append(tally)
        self.streams = tuple(Stream(tallies) for tallies in alike.values())
        self.batches = 0
        self._again = False

    @contextmanager
    def listening(self, network: nn.Module) -> Iterator[None]:
        """Asks for the gradients that scores come from, of frozen parameters too, and hooks each; for no others."""
        wanted = {key for stream in self.streams for key in stream.parameters}
        with ExitStack() as stack:
            for parameter in network.parameters():
                if parameter.is_floating_point() or parameter.is_complex():
                    parameter.requires_grad_(id(parameter) in wanted)
                if id(parameter) in wanted:
                    hook = parameter.register_post_accumulate_grad_hook(self._gathered)  # type: ignore[no-untyped-call]
                    stack.callback(hook.remove)
            yield

    @property
    def layout(self) -> str:
        """What is added up over ranks, in words; two ranks can join their tallies only if it is the same."""
        names = ", ".join(repr(tally.criterion.name) for tally in self.tallies)
        return f"{len(self.layers)} layers with {len(self.tallies[0].totals)} channels by {names}"

    @property
    def partial(self) -> bool:
        """True if the running batch must be run again, see ``Stream``."""
        return any(stream.partial for stream in self.streams)

    @property
    def silent(self) -> bool:
        """True if a gradient reached a layer, and all its scores are zero."""
        return any(
            bool(seen) and not bool(values.any()) and layer.name not in tally.unscored
            for stream in self.streams
            for tally in stream.tallies
            for layer, seen, values in zip(tally.layers, tally.reached, tally.split(tally.totals), strict=True)
        )

    @property
    def missing(self) -> bool:
        """True if a layer of which something can go has no scores, for whatever reason."""
        return any(
            bool(layer.classes.any()) and not bool(values.any()) and layer.name not in tally.unscored
            for stream in self.streams
            for tally in stream.tallies
            for layer, values in zip(tally.layers, tally.split(tally.totals), strict=True)
        )

    def take_weights(self) -> None:
        """Scores the weights as they are, for the criteria that need no gradient."""
        for tally in self.tallies:
            if tally.criterion.needs == "weights":
                for parameter, _ in tally.terms.values():
                    weight = parameter.detach()
                    tally.add(parameter, tally.criterion.values(weight, weight.new_zeros(()).expand_as(weight)))
                tally.end_batch(1)

    def forget_batch(self) -> None:
        """Prepares to run the running batch again; what is linear in the gradient has it whole and keeps it."""
        self._again = True
        for stream in self.streams:
            if not stream.linear:
                stream.forget_batch()

    def end_batch(self, number: int) -> None:
        """Adds the running batch to the totals.

        Raises:
            DataError: A gradient was NaN or infinite; the message names layer and batch.
        """
        for stream in self.streams:
            stream.end_batch(number)
        self.batches += 1
        self._again = False

    def _gathered(self, parameter: nn.Parameter) -> None:
        """The hook: hands a gradient on and frees it. Each stream may overwrite its own, so all but one get a copy."""
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        takers = [
            stream
            for stream in self.streams
            if id(parameter) in stream.parameters and not (self._again and stream.linear)
        ]
        for stream in takers[1:]:
            stream.gather(parameter, gradient.clone())
        if takers:
            takers[0].gather(parameter, gradient)

"""What to prune and how: every option of ``ranp.prune`` once, as one frozen value that is checked when it is made.

``ranp.prune(**options)``, ``ranp prune``, ``search``, ``train`` and the integrations build it; a recipe is this value
as JSON. Nothing heavy is imported before a value is made, since the command line takes its defaults from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ranp.errors import DataError, UnsupportedError, asked, brief, unknown_name

if TYPE_CHECKING:
    from ranp.choosing.budgets import Budget
    from ranp.choosing.methods import Method
    from ranp.choosing.selection import Selection
    from ranp.costs.measuring import Resource
    from ranp.costs.step import TrainingStep
    from ranp.scoring.criteria import Criterion, Values
    from ranp.scoring.scores import Scores
    from ranp.slimming.initialisation import Initialiser
    from ranp.tracing.trace import Trace

FILLS = ("time", "none")
"""What ``fill`` may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to remove, how channels are chosen, and what is made of those that stay.

    Attributes:
        sparsity: Fraction of channels to remove (of weights, for ``snip``). Pass this or ``budget``.
        budget: What the slim network may need at most, one or several: ``"flops=5%"``, ``"macs=7.5G"``,
            ``"params=1M"``, ``"memory=25%"``, ``"train-memory=8GiB"``, ``"step-time=4x"`` (a quarter),
            ``"latency=30ms"``. The widest network by the method's own ranking that meets all of them; every layer
            keeps a channel.
        method: ``ranp-f``, ``ranp-m``, ``weighted``, ``vanilla``, ``layerwise``, ``random``, ``snip``, ``flat``,
            ``power``, ``balanced`` (with a budget), ``pretrained``, or a ``Method``. None: ``balanced`` with a budget,
            ``ranp-f`` with a sparsity, and where ``resource`` or ``strength`` says how scores are reweighted.
        resource: What the scores are reweighted by, default the method's own: ``flops``, ``memory``, ``params``,
            ``train-memory``, ``time``, a function of the trace, or several of these.
        strength: How much that counts, lambda in the paper; default 11.
        criterion: How channels are scored, default the method's own.
        mode: ``"train"`` (the paper) or ``"eval"``: how the model runs while it is scored.
        keep: ``fnmatch`` patterns of layers to leave alone. Layers that make the outputs always are.
        tie: How coupled layers agree: ``max`` (the paper) or ``union``.
        attention: What attention loses: ``"heads"``, whole ones; ``"dims"``, places inside heads, equally many in each;
            ``"both"``: places where code and scale allow it (a stored scale does, and the default one of fused
            attention, which follows what is left of a head; one that code works out from the size of a head does not),
            else whole heads. Places are the finer unit, and one head alone has no other.
        exact: True: remove that fraction of the prunable channels, after coupling. False: the paper's sparsity.
        min_channels: Least width of every layer. None: 1 for a sparsity; for a budget that of the method, 4, or less
            where that does not fit.
        round_to: Widths are rounded up to a multiple of this; within a budget, too. ``"auto"``, with a budget of time,
            is another word for ``fill="time"``.
        fill: ``"time"``: free channels. Within the budgets, layers are widened while the measured step does not get
            slower, since machines compute 8 or 16 channels at once. ``"none"``: not so. Default: with a budget of time.
        convention: How FLOPs, multiply-adds and memory are counted: ``"true"``, as torch does; ``"paper"`` or
            ``"equation"``, as the paper's tables or its text do.
        init: ``"copy"`` keeps the weights that stay (right for a pretrained model); ``"glorot"``, ``"orthogonal"``,
            ``"kaiming"`` or a function draw new ones, as the paper does. Names leave frozen parameters as they are.
        max_batches: Score on no more than this many batches.
        seed: Of everything random.
        step: What a training step is, for budgets and resources of memory and time; default: one of Adam in float32
            on the example. Its inputs are those of the example.
        checkpointing: Score with activation checkpointing: less memory, a third more time, the same scores.
        unchecked: Take a slim network whose numbers could not be compared with the full one's; ``verification.ok`` is
            then None. One that was found to be wrong is never returned.
    """

    sparsity: float | None = None
    budget: str | Budget | Iterable[str | Budget] | None = None
    method: str | Method | None = None
    resource: Resource | None = None
    strength: float | None = None
    criterion: str | Criterion | Values | None = None
    mode: str = "train"
    keep: Iterable[str] = ()
    tie: str = "max"
    attention: str = "both"
    exact: bool = False
    min_channels: int | None = None
    round_to: int | str = 1
    fill: str | None = None
    convention: str = "true"
    init: Initialiser = "copy"
    max_batches: int | None = None
    seed: int = 0
    step: TrainingStep | None = None
    checkpointing: bool = False
    unchecked: bool = False

    def __post_init__(self) -> None:
        from ranp import arguments
        from ranp.choosing import scopes
        from ranp.choosing.budgets import parse_all
        from ranp.choosing.methods import USUAL, USUAL_WITHIN_BUDGETS
        from ranp.choosing.refusals import needs_budget
        from ranp.choosing.selection import check_sparsity
        from ranp.choosing.ties import TIES
        from ranp.costs.counting import CONVENTIONS
        from ranp.costs.step import TrainingStep
        from ranp.slimming.initialisation import COPY, check_initialiser
        from ranp.tracing.heads import ATTENTION

        if self.sparsity is not None and self.budget is not None:
            both = f"{asked('sparsity', self.sparsity)} and {asked('budget', self.budget)}"
            raise UnsupportedError(f"{both} are both given. Pass one of them.")
        checked = {
            "sparsity": None if self.sparsity is None else check_sparsity(self.sparsity),
            "budget": None if self.budget is None else parse_all(self.budget),
            "keep": arguments.patterns(self.keep),
            "exact": arguments.flag("exact", self.exact),
            "checkpointing": arguments.flag("checkpointing", self.checkpointing),
            "unchecked": arguments.flag("unchecked", self.unchecked),
            "mode": arguments.choice("mode", self.mode, ("train", "eval")),
            "attention": arguments.choice("attention", self.attention, ATTENTION),
            "convention": arguments.choice("convention", self.convention, CONVENTIONS),
            "seed": arguments.seed(self.seed),
        }
        if self.max_batches is not None:
            allowed = "a whole number from 1 on, or None for all batches"
            checked["max_batches"] = arguments.whole(
                "max_batches", self.max_batches, most=2**63 - 1, allowed=allowed, error=DataError
            )
        if self.strength is not None:
            arguments.number("strength", self.strength, "a finite number, at least 0; 11 is usual", error=DataError)
        if self.step is not None:
            arguments.kind("step", self.step, TrainingStep, "a ranp.TrainingStep, or None")
        if self.min_channels is not None:
            checked["min_channels"] = arguments.width("min_channels", self.min_channels)
        if not isinstance(self.round_to, str):
            checked["round_to"] = arguments.width("round_to", self.round_to)
        if self.method is None:
            reweights = self.resource is not None or self.strength is not None
            checked["method"] = USUAL if self.budget is None or reweights else USUAL_WITHIN_BUDGETS
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        check_initialiser(self.init, COPY)
        TIES.get(self.tie)
        _ = self.how, self.rule, self.fills  # unknown names are refused here
        if self.sparsity is not None and scopes.resolve(self.how.scope).priced:
            raise UnsupportedError(needs_budget(asked("method", self.how.name)))

    @classmethod
    def of(cls, given: dict[str, Any], verb: str = "ranp.prune") -> Options:
        """The options that somebody passed by name.

        Raises:
            TypeError: There is no such option.
            RanpError: A value is not allowed; the message names it in the words of whoever asked.
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(f"{verb} got an unexpected keyword argument: {unknown_name('option', name, known)}")
        return cls(**given)

    @property
    def how(self) -> Method:
        """The method itself."""
        from ranp.choosing.methods import resolve

        assert self.method is not None  # decided when the options are made
        return resolve(self.method)

    @property
    def floor(self) -> int | None:
        """Least width under a budget, which gives way where it does not fit; None where one was asked for."""
        return self.how.floor if self.min_channels is None else None

    @property
    def rule(self) -> Criterion:
        """The criterion itself: the one asked for, or the method's own."""
        from ranp.scoring.criteria import find_criterion

        return find_criterion(self.how.criterion if self.criterion is None else self.criterion)

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """Empty where a sparsity is asked for."""
        return () if self.budget is None else self.budget  # type: ignore[return-value]

    @property
    def fills(self) -> bool:
        """Whether free channels are looked for.

        Raises:
            UnsupportedError: ``round_to`` is another word than ``"auto"``, no budget of time goes with that, or no
                budget at all with ``fill``.
        """
        from ranp import arguments

        is_timed = any(budget.quantity.is_measured for budget in self.budgets)
        if isinstance(self.round_to, str):
            given = asked("round_to", self.round_to)
            if self.round_to != "auto":
                raise UnsupportedError(f"{given} is not allowed. Pass a whole number from 1 on, or 'auto'.")
            if not is_timed:
                raise UnsupportedError(f"{given} chooses by time. Pass a budget of step-time or latency, or a number.")
        if self.fill is None:
            return is_timed
        arguments.choice("fill", self.fill, FILLS)
        if self.fill == "time" and not self.budgets:
            given = asked("fill", self.fill)
            raise UnsupportedError(f"{given} widens layers within a budget. Pass {asked('budget')}, or leave it out.")
        return self.fill == "time"

    def check_amount(self) -> None:
        """Refuses options that do not say how much to remove."""
        if self.sparsity is None and self.budget is None:
            raise UnsupportedError(
                f"nothing says how much to remove. Pass {asked('sparsity')}, a fraction from 0 up to below 1, or "
                f"{asked('budget')}, such as 'flops=5%'."
            )

    def selection(self, scores: Scores, trace: Trace) -> Selection:
        """Step 5 prepared."""
        from ranp.choosing.selection import Selection

        return Selection.of(
            scores,
            trace,
            scope=self.how.scope,
            keep=self.keep,
            tie=self.tie,
            min_channels=1 if self.min_channels is None else self.min_channels,
            round_to=1 if isinstance(self.round_to, str) else self.round_to,
            seed=self.seed,
        )

    def to_dict(self) -> dict[str, Any]:
        """The options as plain values, as recipes hold them; a function is called by its name."""
        step = {} if self.step is None else {"step": asdict(self.step)}
        return {
            **{field.name: _plain(getattr(self, field.name)) for field in fields(self)},
            "budget": [budget.text for budget in self.budgets],
            "method": self.how.name,
            "criterion": self.rule.name,
            "keep": list(self.keep),
            **step,
        }


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return getattr(value, "__name__", brief(value))
    return value

"""Methods by name: each one a criterion, a weighting and a scope, composed and never branched on.

A method of your own needs no registration, ``ranp.prune`` takes the value:

>>> mine = Method("mine", criterion="magnitude", balance=True, resource="params", scope="network")
>>> resolve(mine) is mine, resolve("ranp-f").resource
(True, 'flops')
"""

from __future__ import annotations

from dataclasses import dataclass

from ranp import arguments
from ranp.choosing.scopes import Scope, Wanted
from ranp.costs.measuring import Costs, Resource, measure
from ranp.costs.step import StepSetup
from ranp.errors import UnsupportedError
from ranp.registry import Registry
from ranp.scoring.scores import Scores
from ranp.tracing.trace import Trace
from ranp.weighting import balance, reweight

USUAL, USUAL_WITHIN_BUDGETS = "ranp-f", "balanced"
"""What is meant where nobody names a method: the paper's; within a budget, what docs/evidence.md found.

Deviation: the paper knows no budgets.
"""
STRENGTH = 11.0
"""The paper's lambda for ShapeNet; 15 for BraTS, 80 for UCF101, 100 for SceneFlow."""


@dataclass(frozen=True, slots=True)
class Method:
    """How channels are scored, weighted and selected.

    Attributes:
        name: What reports and plans call it.
        criterion: Name of the criterion of ``ranp.score``.
        balance: Whether layer means are made equal (``ranp.balance``).
        resource: The resource that reweights the scores (``ranp.reweight``), None for no reweighting.
        scope: The scope of ``ranp.select``: a name, a ``Scope``, or a function.
        description: One line for people.
        floor: Least width of every layer under a budget; it gives way where no network that wide fits.
    """

    name: str
    criterion: str = "mpmg-sum"
    balance: bool = False
    resource: Resource | None = None
    scope: str | Scope | Wanted = "network"
    description: str = ""
    floor: int = 4

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UnsupportedError(f"a method needs a name, got {arguments.shown(self.name)}. Pass a non-empty string.")
        arguments.flag("balance", self.balance)
        arguments.width("floor", self.floor)

    def costs(
        self,
        trace: Trace,
        resource: Resource | None = None,
        setup: StepSetup | None = None,
        *,
        convention: str = "true",
    ) -> Costs | None:
        """What the layers cost in the method's own resource, or in another one; None if it looks at no cost.

        Resources of a training step need its ``setup``.
        """
        resource = self.resource if resource is None else resource
        return None if resource is None else measure(trace, resource, convention=convention, setup=setup)

    def weigh(self, scores: Scores, costs: Costs | None, strength: float | None = None) -> Scores:
        """Step 4 as the method says: balanced over layers, then reweighted by cost."""
        scores = balance(scores) if self.balance else scores
        return scores if costs is None else reweight(scores, costs, STRENGTH if strength is None else strength)


METHODS: Registry[Method] = Registry("method")


def register(method: Method) -> Method:
    """Makes ``method`` known by its name, for the command line and for ``ranp.prune(method="name")``."""
    return METHODS.register(method.name, method)


def resolve(method: str | Method) -> Method:
    """The method of that name, or the method itself.

    Raises:
        UnsupportedError: No method has that name.
    """
    return method if isinstance(method, Method) else METHODS.get(method)


for _method in (
    Method(
        "ranp-f",
        balance=True,
        resource="flops",
        description="balanced, cheap layers first by FLOPs (RANP-f)",
    ),
    Method(
        "ranp-m",
        balance=True,
        resource="memory",
        description="balanced, cheap layers first by memory (RANP-m)",
    ),
    Method("weighted", balance=True, description="importance balanced over layers (weighted NP)"),
    Method("vanilla", description="importance as it is (vanilla NP)"),
    Method("layerwise", scope="layer", description="the same share of every layer (layer-wise NP)"),
    Method("random", criterion="random", scope="random", description="channels drawn blindly (random NP)"),
    Method("snip", criterion="snip", scope="weights", description="single weights first, then dead channels (SNIP NP)"),
    Method("flat", balance=True, scope="flat", description="the same width everywhere, as far as layers are that wide"),
    Method("power", balance=True, scope="power", description="widths by the root of the full ones"),
    Method(
        "balanced",
        balance=True,
        scope="balanced",
        description="widths that share a budget fairly by resolution and cost; needs a budget",
    ),
    Method(
        "pretrained",
        criterion="mpmg-group",
        scope="layer",
        description="for trained weights: the same share of every layer, its channels by what the loss would lose",
    ),
):
    register(_method)
del _method

"""What a study finds, as plain values that survive JSON: layers, coupled groups, and one sweep per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ranp.errors import StorageError
from ranp.scoring.scores import STAGES


@dataclass(frozen=True, slots=True)
class LayerStudy:
    """One layer: what it costs, how its channels score, and which of them a plan keeps.

    Attributes:
        name: The layer.
        kind: ``"conv"``, ``"transposed"``, ``"linear"`` or ``"parameter"``.
        channels: Output channels of the full network.
        flops: Of the layer itself in the full network.
        memory: Its output elements in the full network.
        scores: Stage (``"raw"``, ``"balanced"``, ``"reweighted"``) to one value per channel, for every stage that
            the scores of the method pass through.
        kept: Channels that the plan keeps, None without a plan.
        note: Why all or some of its channels cannot go, empty if all can.
    """

    name: str
    kind: str
    channels: int
    flops: int
    memory: int
    scores: Mapping[str, tuple[float, ...]]
    kept: tuple[int, ...] | None
    note: str


@dataclass(frozen=True, slots=True)
class Step:
    """The slim network at one sparsity.

    Attributes:
        sparsity: As requested.
        feasible: False if a layer would lose all its channels; all that follows is then empty.
        widths: Channels that stay, by layer, in layer order.
        removed: Share of all channels that really goes.
        params: Parameters of the slim network; in the paper's convention those of modules without children.
        flops: FLOPs of the slim network.
        memory: Bytes of its activations, as ``Report`` counts them.
    """

    sparsity: float
    feasible: bool
    widths: tuple[int, ...] = ()
    removed: float = 0.0
    params: int = 0
    flops: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Sweep:
    """One method over all sparsities.

    Attributes:
        method: Its name.
        largest: The largest feasible sparsity.
        steps: By rising sparsity: 0 first, ``largest`` among them, a few infeasible ones last.
    """

    method: str
    largest: float
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Study:
    """A network under several methods at many sparsities.

    Attributes:
        layers: In layer order.
        groups: Layers with channels that stand or fall together, by residual additions, depthwise convolutions and
            the like: two or more names each.
        sweeps: One per method, that of ``method`` first.
        method: The method that ``LayerStudy.scores`` tell of.
        strength: Lambda of the methods that reweight by cost.
        criterion: What the raw scores were made by.
    """

    layers: tuple[LayerStudy, ...]
    groups: tuple[tuple[str, ...], ...]
    sweeps: tuple[Sweep, ...]
    method: str
    strength: float
    criterion: str

    def to_dict(self) -> dict[str, Any]:
        """The study as plain values, ready for JSON; ``from_dict`` reads it back."""
        return {
            "method": self.method,
            "strength": self.strength,
            "criterion": self.criterion,
            "groups": [list(group) for group in self.groups],
            "layers": [_plain(layer) for layer in self.layers],
            "sweeps": [_plain(sweep) for sweep in self.sweeps],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Study:
        """The study that ``to_dict`` described.

        Raises:
            StorageError: An entry is missing, of the wrong kind, or contradicts another.
        """
        try:
            layers = tuple(_layer_from(entry) for entry in value["layers"])
            names = {layer.name for layer in layers}
            groups = tuple(tuple(map(str, group)) for group in value["groups"])
            for name in (name for group in groups for name in group if name not in names):
                raise ValueError(f"group member {name!r} is no layer")
            sweeps = tuple(_sweep_from(entry, layers) for entry in value["sweeps"])
            return cls(layers, groups, sweeps, str(value["method"]), float(value["strength"]), str(value["criterion"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise StorageError(f"this is not a valid study: {reason}. Make it again.") from error


def _plain(value: Any) -> Any:
    """A value of this module as JSON has it: objects and lists."""
    if isinstance(value, LayerStudy | Sweep | Step):
        return {name: _plain(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _layer_from(entry: Mapping[str, Any]) -> LayerStudy:
    name, channels, kept = str(entry["name"]), int(entry["channels"]), entry["kept"]
    scores = {str(stage): tuple(map(float, values)) for stage, values in entry["scores"].items()}
    for stage, values in scores.items():
        if stage not in STAGES or len(values) != channels:
            raise ValueError(f"layer {name!r} has {len(values)} scores of stage {stage!r} for {channels} channels")
    return LayerStudy(
        name=name,
        kind=str(entry["kind"]),
        channels=channels,
        flops=int(entry["flops"]),
        memory=int(entry["memory"]),
        scores=scores,
        kept=None if kept is None else tuple(map(int, kept)),
        note=str(entry["note"]),
    )


def _sweep_from(entry: Mapping[str, Any], layers: Sequence[LayerStudy]) -> Sweep:
    steps = tuple(_step_from(step) for step in entry["steps"])
    for step in steps:
        if len(step.widths) != (len(layers) if step.feasible else 0):
            raise ValueError(f"sparsity {step.sparsity} of {entry['method']!r} has {len(step.widths)} widths")
    if any(one.sparsity >= other.sparsity for one, other in pairwise(steps)):
        raise ValueError(f"the sparsities of {entry['method']!r} do not rise")
    return Sweep(str(entry["method"]), float(entry["largest"]), steps)


def _step_from(entry: Mapping[str, Any]) -> Step:
    figures = {name: int(entry[name]) for name in ("params", "flops", "memory")}
    return Step(
        sparsity=float(entry["sparsity"]),
        feasible=bool(entry["feasible"]),
        widths=tuple(map(int, entry["widths"])),
        removed=float(entry["removed"]),
        **figures,
    )

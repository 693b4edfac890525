"""What pruning did: channels, parameters, FLOPs, memory, before and after; what stayed whole and why; what was checked.

FLOPs are what ``torch.utils.flop_counter`` counts, memory is what a training step keeps for its backward pass; a report
in the paper's convention (``ranp.costs``) can be laid beside the paper's tables. Norms, activations and pooling make up
one row of their own, so that the rows of the table add up to its last line.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from ranp import arguments
from ranp.choosing.budgets import Spent, budget_lines, spent
from ranp.choosing.plan import Plan, Sparsity
from ranp.costs.counting import CONVENTIONS, FLOAT32
from ranp.costs.measuring import kept_for_backward, profile, profile_of
from ranp.costs.tuning import Tuned
from ranp.errors import PlanMismatchError, StorageError, UnsupportedError
from ranp.files import atomic
from ranp.reporting.causes import HeldChannels, by_cause, describe, what_stays
from ranp.reporting.figures import OTHERS, Amount, LayerReport, amount_from, both, change, compared, row_from, total
from ranp.reporting.format import MIB, UNITS, scaled, unit
from ranp.running.calling import unwrap
from ranp.tables import Grid, html
from ranp.tracing.trace import Trace

if TYPE_CHECKING:
    from ranp.slimming.verification import Verification

__all__ = ["OTHERS", "Amount", "Checks", "HeldChannels", "LayerReport", "Report"]

FORMAT = "ranp-report"
VERSION = 2

_SHOWN = 8
NARROW = 4
"""Layers of fewer channels than this are pointed out: little gets through them."""


@dataclass(frozen=True, slots=True)
class Checks:
    """What verification found: see ``ranp.Verification``; ``max_error`` is None if there is none."""

    ok: bool | None
    certificate: bool | None
    numeric: bool | None
    max_error: float | None
    where: str = ""

    def __post_init__(self) -> None:
        """Refuses what no verification finds: reports are read from files."""
        verdicts = all(found is None or type(found) is bool for found in (self.ok, self.certificate, self.numeric))
        error = self.max_error is None or (type(self.max_error) in (int, float) and abs(self.max_error) < 1e300)
        if not (verdicts and error and isinstance(self.where, str)):
            raise ValueError(
                f"no verification finds max_error={self.max_error!r}, where={self.where!r} or its verdicts"
            )

    @classmethod
    def of(cls, found: Verification) -> Checks:
        """The same findings, fit for JSON, which has no NaN."""
        error = float(found.max_error) if math.isfinite(found.max_error) else None
        return cls(found.ok, found.certificate, found.numeric, error, found.where)

    def __str__(self) -> str:
        structure = {
            True: "the slim network runs the same operators on the kept channels",
            None: "the slim network runs, with other operators where a single channel is left",
            False: "FAILED",
        }
        lines = [f"certificate: {structure[self.certificate]}"]
        if self.numeric is None:
            lines.append("numeric: NOT CHECKED")
        else:
            verdict = "slim equals masked" if self.numeric else "FAILED"
            lines.append(f"numeric: {verdict}, largest relative error {_error(self.max_error)}")
        return "\n".join([*lines, *([self.where] if self.where else [])])


@dataclass(frozen=True, slots=True)
class Report:
    """Before and after, layer by layer and in total. ``print`` it, or ``save`` it as JSON.

    Attributes:
        layers: One row per layer, in layer order, then ``OTHERS``.
        true_flops: FLOPs of the whole network as ``torch.utils.flop_counter`` counts them, in every convention.
        true_params: All parameters, those of no leaf module included, in every convention.
        sparsity: Requested and achieved.
        settings: How the plan was made.
        pins: What cannot be pruned and why: causes, each with the channels of every layer that it holds.
        unknown: Operators without a rule; what they touch was kept.
        checks: What verification found.
        convention: How the other figures are counted: ``"true"``, ``"paper"`` or ``"equation"``.
    """

    layers: tuple[LayerReport, ...]
    true_flops: Amount
    true_params: Amount
    sparsity: Sparsity
    settings: Mapping[str, Any] = field(default_factory=dict)
    pins: tuple[HeldChannels, ...] = ()
    unknown: tuple[str, ...] = ()
    checks: Checks | None = None
    convention: str = "true"

    @classmethod
    def of(
        cls,
        model: nn.Module,
        trace: Trace,
        plan: Plan,
        network: nn.Module,
        example: Any,
        verification: Verification,
        *,
        convention: str = "true",
    ) -> Report:
        """Compares the full network with the slim one on the same example; both are run without data.

        Args:
            model: The full network.
            trace: Of the full network, at the size of the example.
            plan: What was removed.
            network: The slim network.
            example: Inputs of one call.
            verification: What the checks found.
            convention: How costs are counted.
        """
        network = unwrap(network)
        kept = kept_for_backward(model, example) if convention == "true" else None
        before, after = (
            profile_of(trace, convention=convention, kept=kept),
            profile(network, example, convention=convention),
        )
        true = after if convention == "true" else profile(network, example)
        shapes = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
        pins = what_stays(trace, plan.notes)
        notes: dict[str, str] = {}
        for pin in pins:
            for name in pin.layers:
                notes.setdefault(name, str(pin))
        return cls(
            layers=compared(trace, plan, before, after, shapes, notes),
            true_flops=Amount(sum(op.flops for op in trace.ops), true.flops),
            true_params=Amount(sum(map(math.prod, trace.parameters.values())), true.params),
            sparsity=plan.sparsity,
            settings=dict(plan.settings),
            pins=pins,
            unknown=tuple(trace.unknown),
            checks=Checks.of(verification),
            convention=convention,
        )

    @property
    def channels(self) -> Amount:
        """Output channels of all layers."""
        return total(row.channels for row in self.layers)

    @property
    def params(self) -> Amount:
        """Parameters; in the paper's convention those of modules without children."""
        return total(row.params for row in self.layers)

    @property
    def flops(self) -> Amount:
        """FLOPs of one call."""
        return total(row.flops for row in self.layers)

    @property
    def memory(self) -> Amount:
        """Bytes of activations: those kept for the backward pass; in the paper's convention all, at 4 bytes each."""
        return total(row.memory for row in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, ready for JSON; ``from_dict`` reads it back."""
        sparsity = self.sparsity
        return {
            "convention": self.convention,
            "memory_unit": "bytes",
            "totals": {name: both(getattr(self, name)) for name in _FIGURES},
            "sparsity": {
                "requested": sparsity.requested,
                "achieved": sparsity.achieved,
                "of_channels": sparsity.of_channels,
                "of_prunable": sparsity.of_prunable,
                **asdict(sparsity),
            },
            "settings": dict(self.settings),
            "checks": None if self.checks is None else asdict(self.checks),
            "kept_whole": {row.name: row.note for row in self.layers if row.note},
            "stay": {"channels": sum(pin.channels for pin in self.pins), "by_cause": by_cause(self.pins)},
            "pins": [pin.to_dict() for pin in self.pins],
            "unknown_operators": list(self.unknown),
            "layers": [asdict(row) for row in self.layers],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Report:
        """The report that ``to_dict`` described.

        Raises:
            StorageError: An entry is missing or of the wrong kind.
        """
        try:
            totals, sparsity, checks = value["totals"], value["sparsity"], value["checks"]
            settings = dict(value["settings"])
            _ = budget_lines(settings), _fastest(settings.get("tuned"))  # refuses what nothing can need
            scale = 1 if value.get("memory_unit") == "bytes" else FLOAT32  # earlier reports counted elements
            return cls(
                layers=tuple(row_from(entry, memory_scale=scale) for entry in value["layers"]),
                true_flops=amount_from(totals["true_flops"]),
                true_params=amount_from(totals["true_params"]),
                sparsity=Sparsity(**{name: sparsity[name] for name in Sparsity.__slots__}),
                settings=settings,
                pins=tuple(HeldChannels.from_dict(pin) for pin in value["pins"]),
                unknown=tuple(map(str, value["unknown_operators"])),
                checks=None if checks is None else Checks(**checks),
                convention=arguments.choice("convention", value["convention"], CONVENTIONS),
            )
        except (KeyError, TypeError, AttributeError, ValueError, PlanMismatchError, UnsupportedError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise StorageError(f"this is not a valid report: {reason}. Make it again.") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as JSON.

        Raises:
            StorageError: The file cannot be written, or the settings are not plain JSON.
        """
        atomic.write_json(path, self.to_dict(), kind=FORMAT, version=VERSION)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Reads a report.

        Raises:
            StorageError: The file is missing, torn, of another kind, newer than this release, or an entry is wrong.
        """
        value = atomic.read_json(path, kind=FORMAT, version=VERSION)
        try:
            return cls.from_dict(value)
        except StorageError as error:
            raise StorageError(f"in {str(path)!r}: {error}") from error

    def __str__(self) -> str:
        """Tables by layer and in total, and below them what stayed whole, why, and what was checked."""
        return "\n\n".join(map(str, self.sections()))

    def _repr_html_(self) -> str:
        return html(self.sections())

    def sections(self) -> list[str | Grid]:
        """The paragraphs and tables that ``print`` and a notebook show."""
        sections: list[str | Grid] = [self._headline(), self._by_layer(), self._in_total()]
        sections[1:1] = ["\n".join(lines)] if (lines := self.budget_lines()) else []
        sections[1:1] = [why] if (why := self.settings.get("shortfall")) else []
        if narrow := self.narrow():
            sections.append(f"narrow, fewer than {NARROW} channels: {', '.join(narrow)}")
        if note := self.settings.get("data_note"):
            sections.append(f"scored on noise: {note}")
        if self.pins:
            sections.append(f"not prunable (* above): {describe(self.pins, self.channels.before)}")
        for title, lines in (
            ("operators without a rule (all they touch is kept):", list(self.unknown)),
            ("verification:", [] if self.checks is None else str(self.checks).splitlines()),
            ("fastest way to run it:", _fastest(self.settings.get("tuned"))),
        ):
            if lines:
                more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
                sections.append("\n".join([title, *(f"  {line}" for line in (*lines[:_SHOWN], *more))]))
        return sections

    def narrow(self) -> list[str]:
        """Layers that were left fewer than ``NARROW`` channels, the narrowest first, each with its width."""
        found = [row for row in self.layers if row.channels.after < min(NARROW, row.channels.before)]
        ranked = sorted(found, key=lambda row: row.channels.after)
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        return [*(f"{row.name} ({row.channels.after} of {row.channels.before})" for row in ranked[:_SHOWN]), *more]

    def budget_lines(self) -> list[str]:
        """What each budget allowed and how much of it is used, and what else a step needs, one line each."""
        return budget_lines(self.settings)

    def spent(self) -> list[Spent]:
        """The same as values."""
        return spent(self.settings)

    def _headline(self) -> str:
        sparsity, settings = self.sparsity, self.settings
        asked = "" if settings.get("budget") else f"sparsity {sparsity.requested:.2%} requested, "
        how = ", ".join(f"{name} {settings[name]}" for name in ("method", "criterion", "strength") if name in settings)
        return (
            f"{how + ': ' if how else ''}{asked}"
            f"{sparsity.removed} of {sparsity.channels} channels removed "
            f"({sparsity.of_channels:.2%} of all, {sparsity.of_prunable:.2%} of the {sparsity.prunable} prunable)"
        )

    def _by_layer(self) -> Grid:
        flops = unit(self.flops.before)
        header = ("layer", "kind", "channels", "params", flops, "memory MiB")
        units = (0.0, 0.0, UNITS[flops], MIB)

        def cells(name: str, kind: str, *amounts: Amount) -> tuple[str, ...]:
            changes = (change(amount, scale) for amount, scale in zip(amounts, units, strict=True))
            return (name, kind, *changes)

        body = [
            cells(f"{row.name}{'*' if row.note else ''}", row.kind, row.channels, row.params, row.flops, row.memory)
            for row in self.layers
        ]
        total = cells("total", "", self.channels, self.params, self.flops, self.memory)
        return Grid([header, None, *body, None, total], left=(0, 1))

    def _in_total(self) -> Grid:
        flops = unit(self.flops.before)
        rows: list[tuple[str, ...] | None] = [("", "before", "after", "removed"), None]
        labels = (flops, "memory MiB")
        if self.convention != "true":
            labels = (f"{flops}, {self.convention}", f"memory MiB, {self.convention}")
        figures = [
            ("channels", self.channels, 0.0),
            ("parameters", self.params, 0.0),
            (labels[0], self.flops, UNITS[flops]),
            (f"{flops}, true", self.true_flops, UNITS[flops]),
            (labels[1], self.memory, MIB),
        ]
        if self.convention == "true":
            del figures[3]
        for label, amount, scale in figures:
            shown = (scaled(amount.before, scale), scaled(amount.after, scale))
            rows.append((label, *shown, f"{amount.removed:.2%}"))
        return Grid(rows, left=[0])


_FIGURES = ("channels", "params", "flops", "memory", "true_flops", "true_params")


def _fastest(tuned: Mapping[str, Any] | None) -> list[str]:
    """How the slim network runs fastest, if that was measured."""
    return [] if tuned is None else str(Tuned(**tuned)).splitlines()


def _error(error: float | None) -> str:
    return "unknown" if error is None else f"{error:.1e}"

"""What pruning did: channels, parameters, FLOPs, memory, before and after; what stayed whole and why; what was checked.

Figures are in the paper's convention (``ranp.resources``), so that they can be laid beside its tables; the FLOPs that
``torch.utils.flop_counter`` counts stand below them. Norms, activations and pooling make up one row of their own, so
that the rows of the table add up to its last line.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from ranp import files
from ranp.errors import StorageError
from ranp.plan import Plan, Sparsity
from ranp.profiles import Profile
from ranp.resources import profile, profile_of
from ranp.tracing.stage import unwrap
from ranp.tracing.trace import Trace

if TYPE_CHECKING:
    from ranp.verification import Verification

__all__ = ["Amount", "Checks", "LayerReport", "Report"]

FORMAT = "ranp-report"
VERSION = 1

OTHERS = "(other modules)"
"""Name of the row that holds what is no layer: norms, activations, pooling."""
_MB = 4 / 1024**2
_UNITS = {"GFLOPs": 1e-9, "MFLOPs": 1e-6, "kFLOPs": 1e-3}
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Amount:
    """A figure before and after pruning.

    >>> Amount(200, 50).removed
    0.75
    """

    before: int
    after: int

    @property
    def ratio(self) -> float:
        """After over before; 1 where there was nothing."""
        return self.after / self.before if self.before else 1.0

    @property
    def removed(self) -> float:
        """The fraction that is gone."""
        return 1.0 - self.ratio


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One layer before and after, in the paper's convention.

    Attributes:
        name: The ``named_modules`` name, or ``OTHERS``.
        kind: ``"conv"``, ``"transposed"``, ``"linear"`` or ``"parameter"``; empty for ``OTHERS``.
        channels: Output channels.
        params: Parameters of the layer itself.
        flops: FLOPs of the layer itself.
        memory: Elements of its output.
        note: Why it was kept whole or in part; empty if it was free.
    """

    name: str
    kind: str
    channels: Amount
    params: Amount
    flops: Amount
    memory: Amount
    note: str = ""


@dataclass(frozen=True, slots=True)
class Checks:
    """What verification found: see ``ranp.verification.Verification``; ``max_error`` is None if it was left out."""

    ok: bool
    certificate: bool
    numeric: bool | None
    max_error: float | None
    where: str = ""

    @classmethod
    def of(cls, found: Verification) -> Checks:
        """The same findings, fit for JSON, which has no NaN."""
        error = float(found.max_error) if math.isfinite(found.max_error) else None
        return cls(found.ok, found.certificate, found.numeric, error, found.where)

    def __str__(self) -> str:
        structure = "the slim network runs the same operators on the kept channels"
        lines = [f"certificate: {structure if self.certificate else 'FAILED'}"]
        if self.numeric is None:
            lines.append("numeric: left out")
        else:
            verdict = "slim equals masked in float64" if self.numeric else "FAILED"
            lines.append(f"numeric: {verdict}, largest relative error {_error(self.max_error)}")
        return "\n".join([*lines, *([self.where] if self.where else [])])


@dataclass(frozen=True, slots=True)
class Report:
    """Before and after, layer by layer and in total. ``print`` it, or ``save`` it as JSON.

    Attributes:
        layers: One row per layer, in layer order, then ``OTHERS``.
        true_flops: FLOPs of the whole network as ``torch.utils.flop_counter`` counts them.
        true_params: All parameters, those of no leaf module included.
        sparsity: Requested and achieved.
        settings: How the plan was made.
        pins: Channels that must stay, by cause: ``{"reason", "where", "channels"}``.
        unknown: Operators without a rule; what they touch was kept.
        checks: What verification found.
    """

    layers: tuple[LayerReport, ...]
    true_flops: Amount
    true_params: Amount
    sparsity: Sparsity
    settings: Mapping[str, Any] = field(default_factory=dict)
    pins: tuple[Mapping[str, Any], ...] = ()
    unknown: tuple[str, ...] = ()
    checks: Checks | None = None

    @classmethod
    def of(cls, trace: Trace, plan: Plan, network: nn.Module, example: Any, verification: Verification) -> Report:
        """Compares the traced network with the slim one on the same example; the slim one is run without data.

        Args:
            trace: Of the full network, at the size of the example.
            plan: What was removed.
            network: The slim network.
            example: Inputs of one call.
            verification: What the checks found.
        """
        network = unwrap(network)
        before, after = profile_of(trace, convention="paper"), profile(network, example, convention="paper")
        true = profile(network, example, convention="true")
        shapes = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
        return cls(
            layers=_rows(trace, plan, before, after, shapes),
            true_flops=Amount(sum(op.flops for op in trace.ops), true.flops),
            true_params=Amount(sum(map(math.prod, trace.parameters.values())), true.params),
            sparsity=plan.sparsity,
            settings=dict(plan.settings),
            pins=tuple(asdict(pin) for pin in trace.pins),
            unknown=tuple(trace.unknown),
            checks=Checks.of(verification),
        )

    @property
    def channels(self) -> Amount:
        """Output channels of all layers."""
        return _total(row.channels for row in self.layers)

    @property
    def params(self) -> Amount:
        """Parameters of all leaf modules."""
        return _total(row.params for row in self.layers)

    @property
    def flops(self) -> Amount:
        """FLOPs in the paper's convention: multiply-adds."""
        return _total(row.flops for row in self.layers)

    @property
    def memory(self) -> Amount:
        """Elements of activations in the paper's convention."""
        return _total(row.memory for row in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, ready for JSON; ``from_dict`` reads it back."""
        sparsity = self.sparsity
        return {
            "convention": "paper",
            "totals": {name: _both(getattr(self, name)) for name in _FIGURES},
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
            "pins": [dict(pin) for pin in self.pins],
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
            return cls(
                layers=tuple(_row_from(entry) for entry in value["layers"]),
                true_flops=_amount(totals["true_flops"]),
                true_params=_amount(totals["true_params"]),
                sparsity=Sparsity(**{name: sparsity[name] for name in Sparsity.__slots__}),
                settings=dict(value["settings"]),
                pins=tuple(dict(pin) for pin in value["pins"]),
                unknown=tuple(map(str, value["unknown_operators"])),
                checks=None if checks is None else Checks(**checks),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise StorageError(f"this is not a valid report: {reason}. Make it again.") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as JSON.

        Raises:
            StorageError: The file cannot be written, or the settings are not plain JSON.
        """
        files.write_json(path, self.to_dict(), kind=FORMAT, version=VERSION)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Reads a report.

        Raises:
            StorageError: The file is missing, torn, of another kind, newer than this release, or an entry is wrong.
        """
        value = files.read_json(path, kind=FORMAT, version=VERSION)
        try:
            return cls.from_dict(value)
        except StorageError as error:
            raise StorageError(f"in {str(path)!r}: {error}") from error

    def __str__(self) -> str:
        """Tables by layer and in total, and below them what stayed whole, why, and what was checked."""
        sections = [self._headline(), self._by_layer(), self._in_total()]
        whole = [f"{row.name}: {row.note}" for row in self.layers if row.note]
        reasons = {row.note for row in self.layers}
        pins = [
            f"{pin['channels']} channels at {pin['where'] or 'the network'}: {pin['reason']}"
            for pin in self.pins
            if pin["reason"] not in reasons
        ]
        for title, lines in (
            ("kept whatever their scores:", whole),
            ("channels that must stay, by cause:", pins),
            ("operators without a rule (all they touch is kept):", list(self.unknown)),
            ("verification:", [] if self.checks is None else str(self.checks).splitlines()),
        ):
            if lines:
                more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
                sections.append("\n".join([title, *(f"  {line}" for line in (*lines[:_SHOWN], *more))]))
        return "\n\n".join(sections)

    def _headline(self) -> str:
        sparsity, settings = self.sparsity, self.settings
        told = ", ".join(f"{name} {settings[name]}" for name in ("method", "criterion", "strength") if name in settings)
        return (
            f"{told + ': ' if told else ''}sparsity {sparsity.requested:.2%} requested, "
            f"{sparsity.removed} of {sparsity.channels} channels removed "
            f"({sparsity.of_channels:.2%} of all, {sparsity.of_prunable:.2%} of the {sparsity.prunable} prunable)"
        )

    def _by_layer(self) -> str:
        unit = _unit(self.flops.before)
        header = ("layer", "kind", "channels", "params", unit, "memory MB")
        units = (0.0, 0.0, _UNITS[unit], _MB)

        def cells(name: str, kind: str, *amounts: Amount) -> tuple[str, ...]:
            changes = (_change(amount, scale) for amount, scale in zip(amounts, units, strict=True))
            return (name, kind, *changes)

        body = [
            cells(f"{row.name}{'*' if row.note else ''}", row.kind, row.channels, row.params, row.flops, row.memory)
            for row in self.layers
        ]
        total = cells("total", "", self.channels, self.params, self.flops, self.memory)
        return _table([header, None, *body, None, total], left=2)

    def _in_total(self) -> str:
        unit = _unit(self.flops.before)
        rows: list[tuple[str, ...] | None] = [("", "before", "after", "removed"), None]
        for label, amount, scale in (
            ("channels", self.channels, 0.0),
            ("parameters", self.params, 0.0),
            (f"{unit}, paper (multiply-adds)", self.flops, _UNITS[unit]),
            (f"{unit}, true", self.true_flops, _UNITS[unit]),
            ("memory MB, paper", self.memory, _MB),
        ):
            shown = (_scaled(amount.before, scale), _scaled(amount.after, scale))
            rows.append((label, *shown, f"{amount.removed:.2%}"))
        return _table(rows, left=1)


_FIGURES = ("channels", "params", "flops", "memory", "true_flops", "true_params")


def _rows(
    trace: Trace, plan: Plan, before: Profile, after: Profile, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[LayerReport, ...]:
    old, new = ({row.name: row for row in found.rows} for found in (before, after))
    notes = dict(note.split(": ", 1) for note in plan.notes if ": " in note)
    rows = []
    for layer in trace.layers:
        pairs = {name: Amount(0, 0) for name in ("params", "flops", "memory")}
        if layer.kind != "parameter":  # A weight used by function call is part of its module, whose row is no layer.
            for name in pairs:
                pairs[name] = Amount(getattr(old.get(layer.name), name, 0), getattr(new.get(layer.name), name, 0))
        elif layer.weight in shapes and layer.weight.rpartition(".")[0] in old:  # else it is in no total either
            pairs["params"] = Amount(math.prod(trace.parameters[layer.weight]), math.prod(shapes[layer.weight]))
        channels = Amount(layer.channels, len(plan.kept[layer.name]))
        note = notes.get(layer.name, "")
        rows.append(
            LayerReport(layer.name, layer.kind, channels, pairs["params"], pairs["flops"], pairs["memory"], note)
        )
    rest = {
        name: Amount(
            getattr(before, name) - sum(getattr(row, name).before for row in rows),
            getattr(after, name) - sum(getattr(row, name).after for row in rows),
        )
        for name in ("params", "flops", "memory")
    }
    return (*rows, LayerReport(OTHERS, "", Amount(0, 0), rest["params"], rest["flops"], rest["memory"]))


def _total(amounts: Iterable[Amount]) -> Amount:
    pairs = [(amount.before, amount.after) for amount in amounts]
    return Amount(sum(before for before, _ in pairs), sum(after for _, after in pairs))


def _both(amount: Amount) -> dict[str, Any]:
    return {**asdict(amount), "removed": amount.removed}


def _amount(value: Mapping[str, Any]) -> Amount:
    return Amount(int(value["before"]), int(value["after"]))


def _row_from(entry: Mapping[str, Any]) -> LayerReport:
    channels, params, flops, memory = (_amount(entry[name]) for name in ("channels", "params", "flops", "memory"))
    return LayerReport(str(entry["name"]), str(entry["kind"]), channels, params, flops, memory, str(entry["note"]))


def _unit(flops: int) -> str:
    """The unit in which a network of that many FLOPs is best read."""
    return next((unit for unit, scale in _UNITS.items() if flops * scale >= 1), "kFLOPs")


def _change(amount: Amount, scale: float) -> str:
    if not amount.before and not amount.after:
        return ""
    return f"{_scaled(amount.before, scale)} -> {_scaled(amount.after, scale)}"


def _scaled(value: int, scale: float) -> str:
    """A whole number, or a figure in another unit with two decimals, as the paper prints it."""
    if not scale:
        return f"{value:,}"
    return "<0.01" if 0 < value * scale < 0.005 else f"{value * scale:,.2f}"


def _error(error: float | None) -> str:
    return "unknown" if error is None else f"{error:.1e}"


def _table(lines: Sequence[tuple[str, ...] | None], *, left: int) -> str:
    """Cells in columns, the first ``left`` of them flush left; None draws a rule."""
    rows = [line for line in lines if line is not None]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rule = "  ".join("-" * width for width in widths)
    drawn = []
    for line in lines:
        if line is None:
            drawn.append(rule)
            continue
        cells = enumerate(zip(line, widths, strict=True))
        drawn.append("  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in cells).rstrip())
    return "\n".join(drawn)

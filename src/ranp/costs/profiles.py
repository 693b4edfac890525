"""The value that profiling returns: parameters, FLOPs and memory of a network, in total and by module."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any

from ranp.costs.counting import counts
from ranp.running.recording import LAYER_KIND, NORM_KIND, POOL_KIND
from ranp.tables import Grid, html

_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """What one module costs, all its calls together.

    Attributes:
        name: The ``named_modules`` name; empty for the network itself.
        kind: Name of the nearest torch class; empty where unknown.
        params: Parameters.
        macs: Multiply-adds.
        flops: FLOPs.
        memory: Elements.
        params_bytes: Size of the parameters.
        memory_bytes: Size of ``memory``.
    """

    name: str
    kind: str
    params: int
    macs: int
    flops: int
    memory: int
    params_bytes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What a network costs. See ``ranp.costs.measuring`` for what each figure means in each convention.

        >>> row = ProfileRow("head", "Conv3d", 10, 8, 10, 2**20, 40, 2**22)
        >>> profile = Profile((row,), "paper")
        >>> profile.params, profile.memory_mb, profile.part(dims=2).params
        (10, 4.0, 0)

    Attributes:
        rows: One per module that has a cost of its own, in the order of the run.
        convention: ``"paper"``, ``"equation"`` or ``"true"``.
    """

    rows: tuple[ProfileRow, ...]
    convention: str

    @property
    def params(self) -> int:
        """Number of parameters."""
        return sum(row.params for row in self.rows)

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        return sum(row.macs for row in self.rows)

    @property
    def flops(self) -> int:
        """FLOPs, as the convention counts them."""
        return sum(row.flops for row in self.rows)

    @property
    def memory(self) -> int:
        """Elements of activations, as the convention counts them."""
        return sum(row.memory for row in self.rows)

    @property
    def params_mb(self) -> float:
        """Size of the parameters in MiB (1024^2 bytes)."""
        return sum(row.params_bytes for row in self.rows) / _MIB

    @property
    def gflops(self) -> float:
        """FLOPs in units of 1e9."""
        return self.flops / 1e9

    @property
    def memory_bytes(self) -> int:
        """Size of the activations in bytes."""
        return sum(row.memory_bytes for row in self.rows)

    @property
    def memory_mb(self) -> float:
        """Size of the activations in MiB (1024^2 bytes)."""
        return self.memory_bytes / _MIB

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Kinds of modules that the paper's rules say nothing about, so that their FLOPs are not in the figures."""
        if self.convention == "true":
            return ()
        return tuple(sorted({row.kind for row in self.rows if row.memory and not counts(row.kind)}))

    def by_layer(self) -> tuple[ProfileRow, ...]:
        """The modules with a cost of their own, in the order of the run."""
        return self.rows

    def part(
        self, which: str | Collection[str] | Callable[[ProfileRow], bool] | None = None, *, dims: int | None = None
    ) -> Profile:
        """Returns the profile of some of the modules.

        Args:
            which: A kind (``"Conv3d"``), several kinds, or a predicate on rows. Default: all.
            dims: Only convolutions, norms and pooling over that many spatial dimensions, as the paper splits PSM.
        """
        rows = self.rows
        if callable(which):
            rows = tuple(row for row in rows if which(row))
        elif which is not None:
            kinds = {which} if isinstance(which, str) else set(which)
            rows = tuple(row for row in rows if row.kind in kinds)
        if dims is not None:
            rows = tuple(row for row in rows if row.kind.endswith(f"{dims}d") and _is_spatial(row.kind))
        return Profile(rows, self.convention)

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain values, ready for JSON."""
        names = ("convention", "params", "macs", "flops", "memory", "params_mb", "gflops", "memory_mb", "memory_bytes")
        return {
            **{name: getattr(self, name) for name in names},
            "uncounted": list(self.uncounted),
            "layers": [asdict(row) for row in self.rows],
        }

    def __str__(self) -> str:
        """A table with one line per module and the totals below."""
        return "\n".join(map(str, self._parts()))

    def _repr_html_(self) -> str:
        return html(self._parts())

    def _parts(self) -> list[str | Grid]:
        body = [
            (
                row.name or "(network)",
                row.kind,
                f"{row.params:,}",
                _figure(row.flops / 1e9),
                _figure(row.memory_bytes / _MIB),
            )
            for row in self.rows
        ]
        header = ("layer", "kind", "params", "GFLOPs", "memory MiB")
        total = ("total", self.convention, f"{self.params:,}", _figure(self.gflops), _figure(self.memory_mb))
        grid = Grid([header, None, *body, None, total], left=(0, 1))
        sums = f"params {self.params_mb:.2f} MiB, {self.gflops:.2f} GFLOPs, memory {self.memory_mb:.2f} MiB"
        uncounted = [f"no FLOPs rule for: {', '.join(self.uncounted)}"] if self.uncounted else []
        return [grid, f"{sums} ({self.convention} convention)", *uncounted]


def _is_spatial(kind: str) -> bool:
    return any(family.fullmatch(kind) for family in (LAYER_KIND, NORM_KIND, POOL_KIND))


def _figure(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 or value == 0 else f"{value:.1e}"

"""The value that steps 2 and 4 pass on: how much each output channel of each layer matters, on disk as safetensors."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ranp import arguments
from ranp.errors import DataError, StorageError, unknown_name
from ranp.files import sealed
from ranp.tables import Grid, html

STAGES = ("raw", "balanced", "reweighted")
FORMAT = sealed.Format("ranp.scoring.scores", 2, ("scores",), "Scores.save")

_CHANNELS, _WEIGHTS = "channels/", "weights/"


@dataclass(frozen=True, slots=True, eq=False)
class Scores(Mapping[str, torch.Tensor]):
    """Layer name -> one non-negative float64 value per output channel, in layer order, on the CPU.

    >>> scores = Scores({"conv": torch.tensor([1.0, 3.0])}, criterion="mpmg-sum", batches=4)
    >>> scores["conv"].tolist(), scores.stage
    ([1.0, 3.0], 'raw')

    Attributes:
        channels: The values by layer; ``scores[name]`` reads them.
        stage: ``"raw"``, ``"balanced"`` or ``"reweighted"``: what has been done to them.
        criterion: Name of the criterion that made them.
        weights: For SNIP: layer name -> one non-negative value per weight, shaped like the weight. Else empty.
        excluded: Layer name -> why the layer takes no part in balance and threshold. Its scores are zeros.
        batches: Number of batches seen, over all ranks.
    """

    channels: Mapping[str, torch.Tensor]
    stage: str = "raw"
    criterion: str = "custom"
    weights: Mapping[str, torch.Tensor] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    batches: int = 0

    def __post_init__(self) -> None:
        arguments.choice("stage of scores", self.stage, STAGES, DataError)
        for what, given in (("channels", self.channels), ("weights", self.weights), ("excluded", self.excluded)):
            arguments.kind(what, given, Mapping, "a mapping from layer names", DataError)
        arguments.kind("criterion", self.criterion, str, "the name of a criterion", DataError)
        object.__setattr__(self, "batches", arguments.whole("batches", self.batches, 0, error=DataError))
        if not self.channels:
            raise DataError("scores need at least one layer, got none. Score a network with conv or linear layers.")
        channels = {name: _checked(name, values).to(torch.float64) for name, values in self.channels.items()}
        for name, values in channels.items():
            if values.ndim != 1 or not len(values):
                raise DataError(
                    f"scores of layer {name!r} have shape {tuple(values.shape)}; one value per output channel is "
                    "needed, a vector. Reduce them over the weights of each channel."
                )
        for what, names in (("weights", self.weights), ("excluded", self.excluded)):
            for name in names:
                if name not in channels:
                    raise DataError(f"{what} of the scores: " + unknown_name("layer", name, channels))
        object.__setattr__(self, "channels", channels)
        object.__setattr__(self, "weights", {name: _checked(name, values) for name, values in self.weights.items()})
        object.__setattr__(self, "excluded", dict(self.excluded))

    def __getitem__(self, layer: str) -> torch.Tensor:
        return self.channels[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self.channels)

    def __len__(self) -> int:
        return len(self.channels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scores):
            return NotImplemented
        return self._settings() == other._settings() and all(
            torch.equal(mine, theirs)
            for ours, others in ((self.channels, other.channels), (self.weights, other.weights))
            for mine, theirs in zip(ours.values(), others.values(), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        total = sum(len(values) for values in self.channels.values())
        return (
            f"Scores({len(self)} layers, {total} channels, stage={self.stage!r}, criterion={self.criterion!r}, "
            f"batches={self.batches}, excluded={sorted(self.excluded)})"
        )

    def _repr_html_(self) -> str:
        rows = [("layer", "channels", "least", "mean", "largest")]
        for name, values in self.channels.items():
            least, mean, largest = (f"{float(figure):.3g}" for figure in (values.min(), values.mean(), values.max()))
            rows.append((name, f"{len(values):,}", least, mean, largest))
        left_out = [f"{name}: left out, {why}" for name, why in self.excluded.items()]
        return html([repr(self), Grid(rows, left=[0]), *left_out])

    @property
    def included(self) -> tuple[str, ...]:
        """The layers that take part in balance and threshold, in layer order."""
        return tuple(name for name in self.channels if name not in self.excluded)

    def by_channel(self) -> Scores:
        """The same scores without those of single weights, which may be as large as the network."""
        return dataclasses.replace(self, weights={}) if self.weights else self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the scores to one safetensors file, whole or not at all.

        Stage, criterion and the other settings stand as JSON in its header, beside a checksum.

        Raises:
            StorageError: The file cannot be written.
        """
        arguments.path(path)
        tensors = {_CHANNELS + name: values for name, values in self.channels.items()}
        tensors |= {_WEIGHTS + name: values for name, values in self.weights.items()}
        FORMAT.write(path, tensors, {"scores": self._settings()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Scores:
        """Reads what ``save`` wrote.

        Raises:
            StorageError: The file is missing, torn, altered, of another kind, or of a newer version.
        """
        arguments.path(path)
        header, tensors = FORMAT.read(path)
        settings = header.object("scores")
        try:
            return cls(
                {name: tensors[_CHANNELS + name] for name in settings["layers"]},
                stage=settings["stage"],
                criterion=settings["criterion"],
                weights={name: tensors[_WEIGHTS + name] for name in settings["weights"]},
                excluded=settings["excluded"],
                batches=settings["batches"],
            )
        except (KeyError, TypeError, ValueError, DataError) as error:
            raise StorageError(f"{str(path)!r} does not hold valid scores ({error}). Score again.") from error

    def _settings(self) -> dict[str, Any]:
        """Everything but the tensors; the order of the layers too, which safetensors does not keep."""
        return {
            "layers": list(self.channels),
            "stage": self.stage,
            "criterion": self.criterion,
            "weights": list(self.weights),
            "excluded": dict(self.excluded),
            "batches": self.batches,
        }


def _checked(layer: str, values: torch.Tensor) -> torch.Tensor:
    """A copy of the values of a layer, on the CPU; refused unless real, finite and non-negative."""
    if not isinstance(values, torch.Tensor) or values.is_complex():
        got = values.dtype if isinstance(values, torch.Tensor) else type(values).__name__
        raise DataError(f"scores of layer {layer!r} are {got}; a tensor of real numbers is needed. Pass such a tensor.")
    if not bool(torch.isfinite(values).all()) or bool((values < 0).any()):
        raise DataError(
            f"scores of layer {layer!r} hold a NaN, infinite or negative value; all must be finite and at least 0. "
            "Check the criterion, or take the absolute value."
        )
    return values.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)

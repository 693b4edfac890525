"""A cell of a table: one network, pruned in one way and trained once, told completely by its own value."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ranp.errors import UnsupportedError
from ranp.paper import models, tasks
from ranp.paper.experiments.scales import SCALES
from ranp.paper.recipe import Recipe, Setting, read_setting, setting_text
from ranp.paper.scoring import example_of
from ranp.paper.tasks.task import Task
from ranp.paper.training import runs
from ranp.paper.training.team import Team
from ranp.progress import Labelled

__all__ = ["FULL", "Cell"]

FULL = "full"
"""The method that prunes nothing."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is run. Equal cells of two tables are one run.

    Attributes:
        task: Name of the task.
        method: ``"full"``, or a name that ``ranp.prune`` knows.
        seed: Of weights, samples and their order.
        scale: A name of ``scales.SCALES``: networks, sizes and recipe.
        sparsity: Fraction of channels to remove (of weights, for ``snip``); None for the largest feasible one.
        settings: Changes to the recipe of the scale, the network and its size included; of a key the last one counts.
        criterion: How channels are scored, default the method's own.
        size: Edge of the samples that are scored, default that of training.
        batches: How many batches are scored.
        batch: Samples in such a batch; the paper's is 1.
        equal: ``"flops"`` or ``"memory"``: what RANP-f at ``sparsity`` takes of it, by torch's count, is the budget of
            this cell's network.
        floor: Least width of every layer within that budget, or less where it does not fit.
        origin: Take the plan that this cell makes, on its own task, instead of making one.
        among: Where ``sparsity`` is None: the least of the largest feasible sparsities of these cells, so that all of
            them can be pruned alike.
        at_most: Where ``sparsity`` is None: no more than this, and no more than .95 of what would be feasible.
        trains: False: what the network costs is all that is asked for.
        data: Folder of the published data set; None for procedural samples.
    """

    task: str
    method: str = FULL
    seed: int = 0
    scale: str = "cpu"
    sparsity: float | None = 0.0
    settings: tuple[Setting, ...] = ()
    criterion: str | None = None
    size: int | None = None
    batches: int = 16
    batch: int = 1
    equal: str | None = None
    floor: int = 1
    origin: Cell | None = None
    among: tuple[Cell, ...] = ()
    at_most: float | None = None
    trains: bool = True
    data: str | None = None

    @property
    def id(self) -> str:
        """Name of its folder: readable, and another one for every other cell."""
        words = [self.recipe().network, self.method, *([self.criterion] if self.criterion else []), str(self.seed)]
        digest = hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()
        return "-".join([*words, digest[:10]])

    def open(self) -> Task:
        """Its task, on published data if it names a folder."""
        return tasks.get(self.task, self.data, allow_missing=self.data is not None, fold=self.recipe().fold)

    def recipe(self) -> Recipe:
        """How its network is built and trained."""
        task = tasks.get(self.task)
        base = task.recipe if self.scale == "paper" else task.cpu
        settings = (*SCALES[self.scale].get(self.task, {}).items(), *self.settings)
        return dataclasses.replace(base, seed=self.seed, tensorboard=False).having(settings)

    def example(self, task: Task) -> Any:
        """The inputs of one call, without data, that costs are taken at: the paper's own for its own networks."""
        recipe = self.recipe()
        if self.scale == "paper" and self.data is None and recipe.options == task.recipe.options:
            return models.example(recipe.network, "meta")
        return example_of(task, recipe.size, recipe.seed)

    def setting(self, team: Team, progress: Labelled | None = None) -> runs.Setting:
        """What its network is pruned in, on its own task."""
        task = self.open()
        return runs.Setting(task, self.recipe(), self.example(task), team, progress)

    def to_dict(self) -> dict[str, Any]:
        """The cell as plain values; what is at its default is left out, so that new fields do not rename old cells."""
        always = ("task", "method", "seed", "scale")
        values = {field: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = {field.name: value for field, value in values.items() if field.name in always or value != field.default}
        return plain | {
            name: value
            for name, value in (
                ("settings", [setting_text(*setting) for setting in self.settings]),
                ("origin", self.origin and self.origin.to_dict()),
                ("among", [cell.to_dict() for cell in self.among]),
            )
            if value
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Cell:
        """The cell that ``to_dict`` made plain.

        Raises:
            UnsupportedError: It has a field that no cell has.
        """
        origin = value.get("origin")
        try:
            return cls(
                **{
                    **value,
                    "settings": tuple(map(read_setting, value.get("settings", ()))),
                    "origin": None if origin is None else cls.from_dict(origin),
                    "among": tuple(map(cls.from_dict, value.get("among", ()))),
                }
            )
        except TypeError as error:
            raise UnsupportedError(f"this is no cell: {error}. Make it again.") from error

"""nnU-Net v2: a trainer whose network is pruned before its first training and slim ever after.

    class nnUNetTrainerRANP(PrunedTraining, nnUNetTrainer):
        prune_options = {"sparsity": 0.5}
        build_network_architecture = slimmed(nnUNetTrainer.build_network_architecture)

Continued training and inference build the network from ``plans.json`` alone, without data, so the plan is put there,
among the arguments of the architecture: it travels with the model, also through ``nnUNetv2_export_model_to_zip``. All
folds share one plan, since nnU-Net predicts with their weights in one network. nnU-Net itself is not imported here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from ranp.choosing.budgets import parse_all
from ranp.choosing.plan import Plan
from ranp.costs.step import TrainingStep
from ranp.costs.step.optimisers import name_of
from ranp.errors import PlanMismatchError
from ranp.pruning import prune
from ranp.slimming.slim import apply_plan

KEY = "ranp_plan"
"""Where the plan stands in ``plans.json``: ``configurations.<name>.architecture.arch_kwargs.ranp_plan``."""


def slimmed(build: Callable[..., nn.Module]) -> Any:
    """A static ``build_network_architecture`` that makes slim what ``build`` made, if its arguments hold a plan.

    Takes both forms of the hook: ``(plans_manager, configuration_manager, ...)`` as of nnU-Net 2.8, and before that
    ``(architecture_class_name, arch_init_kwargs, ...)``.
    """

    @wraps(build)  # nnU-Net asks for the names of the arguments
    def build_slim(*args: Any, **kwargs: Any) -> nn.Module:
        plans: list[Plan] = []
        network = build(
            *(_without_plan(arg, plans) for arg in args), **{k: _without_plan(arg, plans) for k, arg in kwargs.items()}
        )
        return apply_plan(network, plans[0]) if plans else network

    return staticmethod(build_slim)


def _without_plan(argument: Any, found: list[Plan]) -> Any:
    """The argument, or a copy of it without the plan it holds."""
    holds = argument if isinstance(argument, Mapping) else getattr(argument, "network_arch_init_kwargs", None)
    if not isinstance(holds, Mapping) or KEY not in holds:
        return argument
    found.append(Plan.from_json(json.dumps(holds[KEY]), source="the plan in plans.json"))
    if argument is holds:
        return {name: value for name, value in holds.items() if name != KEY}
    copied = deepcopy(argument)
    copied.network_arch_init_kwargs.pop(KEY)
    return copied


class PrunedTraining:
    """Comes before ``nnUNetTrainer`` among the bases of a trainer: makes the plan once, then applies it.

    The first fold scores the full network on its own training patches, with its own loss, and leaves ``ranp_plan.json``
    and ``ranp_report.json`` beside the folders of the folds, for the others to use.
    Delete them to prune anew. Another sparsity deserves a trainer of another name, as any other setting does.

    Attributes:
        prune_options: Of ``ranp.prune``; ``max_batches`` counts patches, scored one by one to need no more memory than
            training does.
    """

    prune_options: ClassVar[Mapping[str, Any]] = {"sparsity": 0.5}

    def initialize(self: Any) -> None:
        """Makes or finds the plan, then lets nnU-Net build the slim network, its optimiser and its DDP wrapper."""
        if not self.was_initialized:
            self._put_plan(self._known_plan() or self._new_plan())
        super().initialize()  # type: ignore[misc]

    def _known_plan(self: Any) -> Plan | None:
        """The plan in the given plans, of an earlier fold, or in the plans of a finished or imported model."""
        folder, name = Path(self.output_folder_base), self.configuration_name
        kwargs = self.configuration_manager.network_arch_init_kwargs
        if KEY in kwargs:
            return Plan.from_json(json.dumps(kwargs[KEY]), source="the plan in plans.json")
        plan = None
        if (folder / f"{KEY}.json").exists():
            plan = Plan.load(folder / f"{KEY}.json")
        elif (folder / "plans.json").exists():
            known = json.loads((folder / "plans.json").read_text(encoding="utf-8"))["configurations"].get(name, {})
            entry = known.get("architecture", {}).get("arch_kwargs", {}).get(KEY)
            source = f"the plan in {str(folder / 'plans.json')!r}"
            plan = None if entry is None else Plan.from_json(json.dumps(entry), source=source)
        asked = _asked(self.prune_options)
        if plan is not None and asked and (held := _held(plan)) != asked:
            raise PlanMismatchError(
                f"{str(folder)!r} holds a plan for {held}, this trainer asks for {asked}. "
                f"Give the trainer another name, or delete {KEY}.json and plans.json there to start over."
            )
        return plan

    def _new_plan(self: Any) -> Plan:
        percent = self.oversample_foreground_percent  # under DDP, initialize overwrites it with this rank's share
        super().initialize()  # type: ignore[misc]
        loaders = self.get_dataloaders()
        try:
            options = {"max_batches": 20, "step": self._step(), **self.prune_options}
            pruned = prune(self.network, _patches(loaders[0], self.device), self.loss, **options)
        finally:
            for loader in loaders:  # the training starts its own
                getattr(loader, "_finish", lambda: None)()
        self.print_to_log_file(str(pruned.report), also_print_to_console=self.local_rank == 0)
        plan, folder = pruned.plan, Path(self.output_folder_base)
        if not getattr(self, "is_ddp", False) and (folder / f"{KEY}.json").exists():
            plan = Plan.load(folder / f"{KEY}.json")  # another fold was faster
        elif self.local_rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            pruned.report.save(folder / "ranp_report.json")
            plan.save(folder / f"{KEY}.json")
        self.network = self.optimizer = self.lr_scheduler = self.loss = None
        self.was_initialized, self.oversample_foreground_percent = False, percent
        return plan

    def _step(self: Any) -> TrainingStep:
        """A training step of nnU-Net: its batch, its optimiser, and autocast where there is a GPU."""
        precision = "amp-float16" if self.device.type == "cuda" else "float32"
        optimiser = name_of(self.optimizer) or "nesterov"
        return TrainingStep(self.configuration_manager.batch_size, optimiser, precision)

    def _put_plan(self: Any, plan: Plan) -> None:
        """Into what the builder is given now, and into what ``plans.json`` and the checkpoints will say."""
        architecture = self.configuration_manager.configuration["architecture"]
        architecture["arch_kwargs"][KEY] = json.loads(plan.to_json())
        self.plans_manager.plans["configurations"][self.configuration_name]["architecture"] = deepcopy(architecture)


def _asked(options: Mapping[str, Any]) -> str:
    """How much to remove, in words; empty if nothing says it."""
    if options.get("budget") is not None:
        return ", ".join(budget.text for budget in parse_all(options["budget"]))
    return "" if options.get("sparsity") is None else f"sparsity {options['sparsity']}"


def _held(plan: Plan) -> str:
    """How much the plan was asked to remove, in the same words."""
    budgets = plan.settings.get("budget", ())
    return ", ".join(entry["budget"] for entry in budgets) if budgets else f"sparsity {plan.sparsity.requested}"


def _patches(loader: Any, device: torch.device) -> Iterator[tuple[torch.Tensor, Any]]:
    """Single patches of nnU-Net's endless batches: the last ones of a batch are those with foreground."""
    for batch in loader:
        data, target = batch["data"], batch["target"]
        for i in range(len(data)):
            several = isinstance(target, list | tuple)
            one = [part[i : i + 1].to(device) for part in target] if several else target[i : i + 1].to(device)
            yield data[i : i + 1].to(device), one

"""Lightning: a callback that makes the network slim before the optimiser is made, and keeps it slim over checkpoints.

    trainer = Trainer(callbacks=[PruneAtInitialisation(0.5)])
    trainer.fit(module, datamodule)                # prunes module.model, then trains it
    trainer.fit(module, ckpt_path="last.ckpt")     # slim by the plan in the checkpoint, then its weights

Lightning restores weights, wraps the module (DDP) and makes the optimisers after all ``setup`` hooks, with no hook in
between. So the callback steps in front of two methods of the trainer's strategy, for one call each: the one that loads
weights, where a checkpoint's plan is applied, and ``setup``, where a module that got no plan is pruned.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ranp import arguments
from ranp.choosing.plan import Plan
from ranp.errors import DataError, PlanMismatchError, RanpError, UnsupportedError, unknown_name
from ranp.integrations.lightning_step import HOW, OwnStep, as_pair, check_trainer, in_front, state_kept, step_of
from ranp.integrations.placing import apply, differs, is_slim, network_of, replace
from ranp.pruning import prune
from ranp.reporting.pruned import Pruned
from ranp.reporting.report import Report
from ranp.running.calling import map_tensors, plain_tensor
from ranp.running.randomness import reseed, untouched_rng
from ranp.scoring.passes import Loss

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.utilities import CombinedLoader
else:
    try:
        if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
            raise ModuleNotFoundError  # the same library under its older name, whose trainers want their own classes
        from lightning.pytorch import Callback
        from lightning.pytorch.utilities import CombinedLoader
    except ModuleNotFoundError:
        try:
            from pytorch_lightning import Callback
            from pytorch_lightning.utilities import CombinedLoader
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "ranp.integrations.lightning needs Lightning: pip install 'ranp[lightning]'"
            ) from error

logger = logging.getLogger(__name__)

Unpack = Callable[[Any], tuple[Any, Any]]
_STATE = "ranp-plan"


class PruneAtInitialisation(Callback):
    """Replaces a network of the module by a slim one when ``fit`` begins, before the optimiser sees its parameters.

        >>> from lightning.pytorch import Trainer
        >>> callback = PruneAtInitialisation(0.5, init="glorot", max_batches=4)
        >>> trainer = Trainer(callbacks=[callback], logger=False)

    Without ``loss``, the module's own ``training_step`` gives it: the step runs with the network's output put in, its
    ``self.log`` silent. ``plan.json`` and ``report.json`` go to ``trainer.log_dir``; the plan is in every checkpoint.
    One callback prunes one network; use several for several networks.

    Attributes:
        plan: What was kept; None until ``fit`` has begun.
        report: Before and after; None if the plan was given.
        pruned: All that ``ranp.prune`` returned; None if the plan was given or came from a checkpoint.

    Args:
        sparsity: Fraction of channels to remove.
        loss: ``loss(output, target)``, a scalar; default the module's ``training_step``.
        unpack: Makes ``(inputs, target)`` of a batch; only with ``loss``. Default: the batch is such a pair.
        attribute: The network's name in the module (``"model"``, ``"nets.student"``); None for the module itself.
        batches: What to score on instead of the training data, or a function that makes it.
        max_batches: Score on no more than this many.
        plan: A plan, or the file of one, to apply instead of scoring; also for checkpoints that hold no plan.
        seed: Of everything random. The random state of the training is left alone.
        options: All other options of ``ranp.prune``: ``method``, ``init``, ``keep``, ``example``, ... Unless there is
            ``step``, it is that of the module's optimiser and the trainer's precision.

    Raises:
        UnsupportedError: An option is unknown, or nothing says how much to remove; in ``fit``, the trainer's strategy
            or another callback does not allow it.
        DataError: In ``fit``, there is no training data, or ``training_step`` cannot be run on its own.
        PlanMismatchError: A checkpoint, a plan and the module do not belong together.
    """

    def __init__(
        self,
        sparsity: float | None = None,
        *,
        loss: Loss | None = None,
        unpack: Unpack | None = None,
        attribute: str | None = "model",
        batches: Iterable[Any] | Callable[[], Iterable[Any]] | None = None,
        max_batches: int | None = 10,
        plan: Plan | str | os.PathLike[str] | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        known = inspect.signature(prune).parameters.keys() - {"model", "batches", "loss"}
        for name in options.keys() - known:
            raise UnsupportedError(unknown_name("option", name, known))
        if sparsity is None and plan is None and "budget" not in options:
            raise UnsupportedError("nothing says how much to remove. Pass sparsity=, from 0 up to below 1, or plan=.")
        if unpack is not None and loss is None:
            raise UnsupportedError(f"unpack= is for a loss of your own. {HOW}")
        arguments.seed(seed)
        self.attribute = attribute
        self.plan: Plan | None = None
        self.report: Report | None = None
        self.pruned: Pruned | None = None
        self._given = plan if plan is None or isinstance(plan, Plan) else Plan.load(plan)
        self._loss, self._unpack, self._batches = loss, unpack, batches
        self._options = {**options, "sparsity": sparsity, "max_batches": max_batches, "seed": seed}
        self._ready = False
        self._turn = object()

    @property
    def state_key(self) -> str:
        """One entry in a checkpoint for each network that is pruned."""
        return self._generate_state_key(attribute=self.attribute)

    def state_dict(self) -> dict[str, Any]:
        """The plan and the report as text, for the checkpoint."""
        if self.plan is None:
            return {}
        report = "" if self.report is None else json.dumps(self.report.to_dict())
        return {_STATE: self.plan.to_json(), "report": report, "attribute": self.attribute or ""}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes plan and report over from a checkpoint; the network was made slim before its weights were loaded."""
        self.plan = Plan.from_json(state_dict[_STATE], source="the plan in the checkpoint")
        self.report = Report.from_dict(json.loads(state_dict["report"])) if state_dict["report"] else None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Waits for weights to be loaded, or else for the strategy to be set up."""
        fitting = str(getattr(stage, "value", stage)) == "fit"
        if fitting:
            check_trainer(trainer)
        self._ready, self._turn = False, (turn := object())

        def load(checkpoint: Mapping[str, Any], *_: Any, **__: Any) -> None:
            if self._turn is turn:
                self._load(pl_module, fitting, checkpoint)

        def start(*_: Any, **__: Any) -> None:
            undo()
            if self._turn is turn and fitting:
                self._prune(trainer, pl_module)

        undo = in_front(trainer.strategy, "load_model_state_dict", load)
        in_front(trainer.strategy, "setup", start)

    def _load(self, module: nn.Module, fitting: bool, checkpoint: Mapping[str, Any]) -> None:
        """A checkpoint is about to be loaded: the network takes its widths."""
        state = checkpoint.get("callbacks", {}).get(self.state_key, {})
        if _STATE in state:
            self.load_state_dict(state)
        elif self._given is not None:
            self.plan = self._given
        elif fitting or differs(module, checkpoint["state_dict"]):
            raise PlanMismatchError(
                "the checkpoint holds no plan: it was saved without this callback or with save_weights_only=True. "
                "Pass plan='.../plan.json' of its run; to prune a trained network, load its weights into the module "
                "and call fit without ckpt_path."
            )
        else:
            return
        assert self.plan is not None
        apply(module, self.plan, self.attribute)
        self._ready = True

    def _prune(self, trainer: Trainer, module: LightningModule) -> None:
        """The last moment at which parameters may change: after every ``setup``, before DDP and the optimisers."""
        network = network_of(module, self.attribute)
        if self._ready or self._is_done(network):
            self._save(trainer)
            return
        if self._given is not None:
            self.plan, self.report, self.pruned = self._given, None, None
            apply(module, self.plan, self.attribute)
        else:
            network.to(trainer.strategy.root_device)
            self.pruned = self._scored(trainer, module, network)
            self.plan, self.report = self.pruned.plan, self.pruned.report
            replace(module, self.attribute, self.pruned.model)
        self._ready = True
        self._log_report(trainer)
        self._save(trainer)

    def _is_done(self, network: nn.Module) -> bool:
        """Whether an earlier ``fit`` pruned this very network: a new one is pruned anew."""
        try:
            return self.plan is not None and is_slim(network, self.plan)
        except PlanMismatchError:
            return False

    def _scored(self, trainer: Trainer, module: LightningModule, network: nn.Module) -> Pruned:
        """Prunes; all ranks start from the weights of the first, as DDP will have it, and end with the same plan."""
        devices = {tensor.device for tensor in chain(network.parameters(), network.buffers())}
        if trainer.world_size > 1:
            for tensor in chain(network.parameters(), network.buffers()):
                torch.distributed.broadcast(tensor.detach(), src=0)
        own = None if self._loss else OwnStep(module, self.attribute, devices)
        unpack: Unpack = own.unpack if own else self._unpack or as_pair
        loss: Loss = own.loss if own else self._loss  # type: ignore[assignment]
        source = self._source(trainer)
        loaders = source.flattened if isinstance(source, CombinedLoader) else [source]
        with untouched_rng(devices), state_kept(module, loaders):
            reseed(self._options["seed"] + trainer.global_rank, devices)  # ranks that shuffle see different batches
            pairs = (unpack(batch) for batch in _moved(source, module, trainer))
            options = {"step": step_of(module, trainer, network), **self._options}
            pruned = prune(network, ((map_tensors(plain_tensor, x), y) for x, y in pairs), loss, **options)
        plan = Plan.from_json(trainer.strategy.broadcast(pruned.plan.to_json()), source="the plan of rank 0")
        if pruned.plan.diff(plan):
            raise RanpError("the ranks decided differently. Give all the same module, or make a plan first: plan=.")
        return pruned

    def _source(self, trainer: Trainer) -> Iterable[Any]:
        if self._batches is not None:
            return self._batches() if callable(self._batches) else self._batches
        source = trainer.fit_loop._data_source
        if source.instance is None or not source.is_defined():
            raise DataError(
                "there is no training data to score on. Give fit a loader or a datamodule, or pass batches=."
            )
        found = source.dataloader()
        return found if isinstance(found, CombinedLoader) else CombinedLoader(found, "max_size_cycle")

    def _log_report(self, trainer: Trainer) -> None:
        if self.report is not None:
            logger.info("%s", self.report)
            figures = {
                f"ranp/{name}_{when}": float(getattr(getattr(self.report, name), when))
                for name in ("channels", "params", "flops")
                for when in ("before", "after")
            }
            for writer in trainer.loggers:
                writer.log_metrics(figures, step=0)

    def _save(self, trainer: Trainer) -> None:
        assert self.plan is not None
        folder = str(trainer.log_dir or trainer.default_root_dir)  # on every rank: Lightning asks them all
        if trainer.is_global_zero and not getattr(trainer, "fast_dev_run", False) and "://" not in folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.plan.save(Path(folder, "plan.json"))
            if self.report is not None:
                self.report.save(Path(folder, "report.json"))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuses optimisers that hold parameters of the full network, which nothing would train."""
        if not self._ready and self.plan is None:
            raise UnsupportedError("this callback came after setup. Pass it to the Trainer: Trainer(callbacks=[...]).")
        own = {id(parameter) for parameter in pl_module.parameters()}
        held = [p for optimiser in trainer.optimizers for group in optimiser.param_groups for p in group["params"]]
        if strange := sum(id(parameter) not in own for parameter in held):
            raise UnsupportedError(
                f"{strange} of the optimiser's {len(held)} parameters are not the module's: they were taken before it "
                "was pruned. Call self.parameters() inside configure_optimizers, not earlier."
            )


def slim_like(module: nn.Module, checkpoint: Mapping[str, Any]) -> None:
    """Makes a full module as slim as a loaded checkpoint, in place; does nothing if the checkpoint has no plan.

    Two lines let ``load_from_checkpoint`` work, with or without a trainer::

        def on_load_checkpoint(self, checkpoint):
            slim_like(self, checkpoint)

    Raises:
        PlanMismatchError: The checkpoint is not of this module.
    """
    for state in checkpoint.get("callbacks", {}).values():
        if isinstance(state, dict) and _STATE in state:
            plan = Plan.from_json(state[_STATE], source="the plan in the checkpoint")
            apply(module, plan, state["attribute"] or None)


def slim_from_checkpoint(path: str | os.PathLike[str], module: nn.Module, *, weights_only: bool = True) -> nn.Module:
    """Loads a checkpoint of a pruned run into a full module: makes it slim in place, loads the weights, returns it.

    Raises:
        PlanMismatchError: The checkpoint holds no plan and its shapes differ, or it is not of this module.
    """
    checkpoint = torch.load(path, map_location="cpu", weights_only=weights_only)
    slim_like(module, checkpoint)
    if differs(module, checkpoint["state_dict"]):
        raise PlanMismatchError(
            f"{str(path)!r} holds no plan for this module. Use apply(module, ranp.Plan.load('.../plan.json')) with the "
            "plan of its run, then module.load_state_dict(checkpoint['state_dict'])."
        )
    module.load_state_dict(checkpoint["state_dict"])
    return module


def _moved(source: Iterable[Any], module: Any, trainer: Trainer) -> Iterator[Any]:
    """Batches through the module's and the datamodule's transfer hooks, as in training."""
    for item in source:
        batch = item[0] if isinstance(source, CombinedLoader) else item
        yield trainer.strategy.batch_to_device(module._on_before_batch_transfer(batch))

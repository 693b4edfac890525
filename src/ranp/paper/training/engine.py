"""The training loop: one process or many, from the beginning or from a checkpoint, the same steps bit by bit."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranp.costs.tuning import Tuned
from ranp.errors import DataError, StorageError
from ranp.files.checkpoints import Checkpoints, Mark, Position, State
from ranp.files.journal import Journal
from ranp.paper.recipe import Recipe
from ranp.paper.tasks.task import Samples, Task
from ranp.paper.training.evaluation import validate
from ranp.paper.training.interruption import Listener, StoppedError, explained, listening
from ranp.paper.training.loading import Batch, Feed, Order, training_parts
from ranp.paper.training.network import autocast, make_optimiser, placed
from ranp.paper.training.normalisation import share_statistics
from ranp.paper.training.team import Team
from ranp.progress import Labelled, logged, silent, under
from ranp.reporting.folder import versions
from ranp.running import randomness
from ranp.running.calling import call

logger = logging.getLogger(__name__)


class Engine:
    """Trains one network by one recipe.

    Args:
        task: Data, loss and metrics.
        recipe: How.
        model: The network, trained in place.
        folder: The run folder; checkpoints and the journal go there.
        run: Tells this run from others, see ``State.run``.
        team: The processes that train together.
        progress: Called after every step and every batch of validation, on the rank that leads; default: they are
            logged now and then.
        begun_on: The versions the run was begun on, if it goes on.
    """

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        model: nn.Module,
        folder: Path,
        run: str,
        team: Team,
        progress: Labelled | None = None,
        begun_on: Mapping[str, str] | None = None,
    ) -> None:
        self.task, self.recipe, self.folder, self.run, self.team = task, recipe, folder, run, team
        self.progress: Labelled = (progress or logged(logger)) if team.leads else silent
        self.model = model.to(team.device)
        if recipe.batch_norm == "sync":
            self.model = share_statistics(self.model, team)
        if recipe.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
        self.model = Tuned.named(recipe.memory_format).prepare(self.model)
        self.optimiser = make_optimiser(self.model, recipe)
        self.scaler = torch.amp.GradScaler(team.device.type, enabled=recipe.precision == "amp-float16")
        self.checkpoints = Checkpoints(folder, recipe.keep_checkpoints)
        self.position = Position()
        self.journal: Journal | None = None
        self.mark = Mark()
        self.before = dict(begun_on or versions())

    def train(self, *, resume: bool, begin: Callable[[], object] | None = None) -> list[dict[str, Any]]:
        """Trains to the last epoch and returns the records of the epochs of this start.

        Args:
            resume: Go on from the newest checkpoint that is whole, if there is one.
            begin: Called when everything that can be refused has been looked at, before the first step: so that a run
                that is refused leaves nothing behind.

        Raises:
            DataError: The data are not usable, or the loss is no longer finite.
            StoppedError: A signal, no memory, a lost rank; the last checkpoint is there to go on from.
            StorageError: A file cannot be written, or no checkpoint is whole.
        """
        with explained(self._where), _repeatable(self.recipe.deterministic):
            return self._train(resume, begin)

    def _train(self, resume: bool, begin: Callable[[], object] | None) -> list[dict[str, Any]]:
        recipe = self.recipe
        training = self.task.train_data(recipe.size, recipe.train_count, recipe.seed)
        validation = self.task.valid_data(recipe.size, recipe.valid_count, recipe.seed)
        order = Order.of(recipe, len(training), self.team.size)
        randomness.seed_rank(recipe.seed, self.team.rank, self.team.device)
        if resume:
            self._go_on()
        if recipe.check_data and not self.position.steps:  # a run that goes on has looked already
            self.team.lead(lambda: self._check(training, validation))
        if begin is not None:
            begin()
        with listening() as listener:
            return self._epochs(training, validation, order, listener)

    def _epochs(self, training: Samples, validation: Samples, order: Order, listener: Listener) -> list[dict[str, Any]]:
        recipe, records = self.recipe, []
        self.journal = self._journal()
        self._tell_versions()
        network = self._wrapped()
        pin = self.team.device.type == "cuda"
        feeds = Feed(training, recipe.workers, pin=pin), Feed(validation, recipe.workers, pin=pin)
        try:
            while self.position.epoch < recipe.epochs:
                self._epoch(network, feeds[0], order, listener)
                epoch = self.position.epoch + 1
                record = {
                    "kind": "epoch",
                    "epoch": epoch,
                    "step": self.position.steps,
                    "loss": self.position.loss / order.steps,
                    "learning_rate": recipe.rate(epoch - 1),
                    "seconds": round(self.position.seconds, 3),
                }
                if epoch % recipe.valid_every == 0 or epoch == recipe.epochs:
                    record["valid"] = self._validated(feeds[1])
                self.position = dataclasses.replace(self.position, epoch=epoch, step=0, loss=0.0)
                self._tell(record)
                records.append(record)
                self._save()
                self.progress("epoch", epoch, recipe.epochs, _line(record))
        finally:
            if self.journal is not None:
                self.journal.close()
        return records

    def _epoch(self, network: nn.Module, feed: Feed, order: Order, listener: Listener) -> None:
        """The steps of the present epoch that are not over yet."""
        recipe, epoch, first = self.recipe, self.position.epoch, self.position.step
        rate = recipe.rate(epoch)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.model.train()
        total = recipe.epochs * order.steps
        for parts in training_parts(feed, order, epoch, first, self.team.rank):
            started = time.perf_counter()
            loss, stop = self._step(network, parts, listener)
            here = self.position
            if stop:
                self._save()
                raise self._stopped(stop)
            if not math.isfinite(loss):
                samples = ", ".join(map(str, sorted(order.batch_of(epoch, here.step))))
                raise DataError(
                    f"the loss is {loss} at step {here.steps + 1} (epoch {epoch + 1}, samples {samples}). Look at "
                    f"these samples, or start another run with a learning_rate below {rate:g}. {self._where()}"
                )
            self.position = Position(
                epoch, here.step + 1, here.steps + 1, here.seconds + time.perf_counter() - started, here.loss + loss
            )
            record = {"kind": "step", "epoch": epoch + 1, "step": here.steps + 1, "loss": loss, "learning_rate": rate}
            self._tell({**record, "seconds": round(self.position.seconds, 3)})
            self.progress("training", here.steps + 1, total, f"epoch {epoch + 1}, loss {loss:.4f}")
            last = here.step + 1 == order.steps
            if recipe.checkpoint_every and self.position.steps % recipe.checkpoint_every == 0 and not last:
                self._save()

    def _step(self, network: nn.Module, parts: list[Batch], listener: Listener) -> tuple[float, int]:
        """One step of the optimiser: the loss of the whole batch, and the signal that stops all ranks, or 0.

        Means over parts and ranks are weighted by what each is a mean of, so that their sum is the mean over the batch.
        No parameter changes if a loss is not finite, on any rank, or if a rank was asked to stop.
        """
        weights = [self.task.weight(target) for _, target in parts]
        whole, stop = self.team.total([sum(weights), float(listener.signal)])
        if stop:
            return 0.0, max(map(int, self.team.gather(str(listener.signal))))
        self.optimiser.zero_grad(set_to_none=True)
        mine = 0.0
        for number, ((inputs, target), weight) in enumerate(zip(parts, weights, strict=True), 1):
            with self._quiet(network, number < len(parts)):
                with autocast(self.recipe, self.team.device):
                    output = call(network, placed(inputs, self.recipe, self.team.device))
                    loss = self.task.loss(output, target.to(self.team.device, non_blocking=True))
                share = weight / whole if whole else 0.0
                # DistributedDataParallel takes the mean over ranks of what is to be summed.
                self.scaler.scale(loss * (share * self.team.size)).backward()  # type: ignore[no-untyped-call]
                mine += float(loss.detach()) * share
        (loss_of_all,) = self.team.total([mine])
        if math.isfinite(loss_of_all):
            self.scaler.step(self.optimiser)
            self.scaler.update()
        return loss_of_all, 0

    def _validated(self, feed: Feed) -> dict[str, float]:
        return validate(self.model, self.task, self.recipe, feed, self.team, under("validating", self.progress))

    def _check(self, training: Samples, validation: Samples) -> None:
        """Looks at every label, before the first step."""
        for what, data in (("training", training), ("validation", validation)):
            data.check(under(f"checking {what} data", self.progress))

    def _go_on(self) -> None:
        """Puts everything into the state of the newest checkpoint."""
        state = self.checkpoints.newest(self.run) if self.team.leads or self.checkpoints.files() else None
        self.team.agree("checkpoint to go on from", str(state.position.steps if state else 0))
        if state is None:
            return
        try:
            self.model.load_state_dict(dict(state.model))
            self.optimiser.load_state_dict(dict(state.optimiser))
            if state.scaler:
                self.scaler.load_state_dict(dict(state.scaler))
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(
                f"the newest checkpoint in {str(self.folder)!r} does not fit the network ({error}). Remove it to go on "
                "from the one before."
            ) from error
        if self.team.rank < len(state.random) == self.team.size:
            randomness.restore(state.random[self.team.rank], self.team.device)
        else:
            logger.warning(
                "the checkpoint is of %d ranks, now there are %d: dropout draws other numbers from here on",
                len(state.random),
                self.team.size,
            )
        if self.team.leads:
            self.checkpoints.drop_after(state.position.steps)
        self.position, self.mark, self.before = state.position, state.journal, dict(state.versions)
        logger.info("going on after step %d", state.position.steps)

    def _save(self) -> None:
        texts = self.team.gather(randomness.capture(self.team.device))
        if self.team.leads:
            scaler = self.scaler.state_dict() if self.scaler.is_enabled() else {}
            self.mark = self.journal.mark() if self.journal is not None else self.mark
            model, optimiser = self.model.state_dict(), self.optimiser.state_dict()
            self.checkpoints.write(
                State(self.position, model, optimiser, scaler, tuple(texts), self.run, self.mark, versions())
            )

    def _journal(self) -> Journal | None:
        if not self.team.leads:
            return None
        return Journal(self.folder, self.mark, self.position.steps, tensorboard=self.recipe.tensorboard)

    def _tell(self, record: dict[str, Any]) -> None:
        if self.journal is not None:
            self.journal.write(record)

    def _tell_versions(self) -> None:
        """Says so where a run goes on under other versions: its steps are no longer those of one run, bit by bit."""
        now = versions()
        if self.before != now:
            old, new = (
                " and ".join(f"{name} {version}" for name, version in one.items()) for one in (self.before, now)
            )
            logger.warning(
                "the run was trained with %s so far and goes on with %s: what comes out need not be bit by bit what "
                "one version alone would make of it",
                old,
                new,
            )
            self._tell({"kind": "versions", "step": self.position.steps, "before": self.before, "now": now})

    def _wrapped(self) -> nn.Module:
        network: nn.Module = torch.compile(self.model) if self.recipe.compile else self.model  # type: ignore[assignment]
        if self.team.size == 1:
            return network
        ids = [self.team.device.index] if self.team.device.type == "cuda" else None
        return DistributedDataParallel(network, device_ids=ids, gradient_as_bucket_view=True)

    def _quiet(self, network: nn.Module, more_to_come: bool) -> AbstractContextManager[Any]:
        """Ranks talk about gradients once a step, at its last part."""
        if more_to_come and isinstance(network, DistributedDataParallel):
            quiet: AbstractContextManager[Any] = network.no_sync()
            return quiet
        return nullcontext()

    def _stopped(self, number: int) -> StoppedError:
        import signal

        what = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}.get(signal.Signals(number), str(number))
        return StoppedError(f"stopped by {what} after step {self.position.steps}. {self._where()}", 128 + number)

    def _where(self) -> str:
        """What is safe."""
        found = self.checkpoints.files()
        if not found:
            return "There is no checkpoint yet."
        return f"The last checkpoint is {found[0].name}; go on with --resume."


@contextmanager
def _repeatable(wanted: bool) -> Iterator[None]:
    """Lets torch refuse operators that do not repeat bit by bit."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it CUDA's matrix products are refused
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


def _line(record: dict[str, Any]) -> str:
    figures = {"loss": record["loss"], **record.get("valid", {})}
    return ", ".join(f"{name} {value:.4f}" for name, value in figures.items())

"""How a network is trained: every choice of the paper as a field, every field checked, every field overridable.

A recipe is a value: a task carries the paper's and a small one, ``--set key=value`` makes another, a run folder holds
the one it was made with.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ranp.errors import UnsupportedError, unknown_name

if TYPE_CHECKING:
    from ranp.costs.step import TrainingStep

_FORMATS = ("contiguous", "channels_last_3d", "channels_last")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "optimiser": ("sgd", "adam"),
    "schedule": ("constant", "exponential", "step"),
    "precision": ("float32", "amp-bfloat16", "amp-float16"),
    "batch_norm": ("rank", "sync"),
    "init": ("glorot", "orthogonal", "kaiming"),
    "memory_format": ("auto", *map("".join, product(_FORMATS, ("", "+halved"), ("", "+pointwise")))),
}
_ALSO: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "optimiser": {
        "momentum": {"optimiser": "sgd"},
        "nesterov": {"optimiser": "sgd", "nesterov": True},
        "amsgrad": {"optimiser": "adam", "amsgrad": True},
    },
    "precision": {"bf16": {"precision": "amp-bfloat16"}, "fp16": {"precision": "amp-float16"}},
}
"""Other words for a choice, and the fields they stand for: those of ``ranp.TrainingStep``, and of older recipes."""
_SPELLINGS = {"optimizer": "optimiser"}
"""Other spellings of a field, at the command line."""
_RANGES: Mapping[str, tuple[float, float]] = {
    "size": (8, 640),
    "epochs": (1, 10**6),
    "batch": (1, 2**16),
    "valid_batch": (1, 2**16),
    "accumulate": (1, 2**16),
    "train_count": (1, 10**6),
    "valid_count": (1, 10**6),
    "valid_every": (1, 10**6),
    "checkpoint_every": (1, 10**9),
    "keep_checkpoints": (1, 10**6),
    "workers": (0, 256),
    "fold": (0, 2**16),
    "seed": (0, 2**63 - 1),
    "weight_decay": (0, 1e6),
    "decay": (0, 1e6),
}
"""The least and the most of a field; the most is far above what is useful, and below what fills a machine's memory."""
_KINDS: Mapping[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,)}
_WANTED = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a word"}
_OPTIONS = "options."

Setting = tuple[str, Any]
"""A field of a recipe, or ``options.`` and an argument of the network, and its value."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a network is trained.

    Attributes:
        network: Name in ``ranp.paper.models``.
        options: Arguments of the network's class that differ from that name's, such as ``{"widths": (16, 32)}``.
        size: Edge of a training sample, as the task means it.
        epochs: Passes over the training data.
        batch: Samples of one optimiser step, over all ranks and all accumulated parts.
        optimiser: ``"sgd"`` or ``"adam"``; ``"momentum"``, ``"nesterov"`` and ``"amsgrad"`` set their fields, too.
        learning_rate: At the first epoch.
        momentum: Of SGD.
        nesterov: Nesterov's momentum, of SGD.
        amsgrad: AMSGrad, of Adam.
        weight_decay: As the optimiser applies it.
        schedule: ``"constant"``, ``"exponential"`` (times ``exp(-decay * epoch)``) or ``"step"`` (times ``decay`` at
            each of ``milestones``).
        decay: See ``schedule``.
        milestones: Epochs at which a step schedule steps.
        init: How the weights are drawn, of the full and of the slim network: ``"glorot"``, ``"orthogonal"``,
            ``"kaiming"``.
        train_count: Samples of an epoch; None for all there are.
        valid_count: Samples to validate on; None for all there are.
        valid_batch: Samples of one step of validation.
        valid_every: Epochs from one validation to the next; the last epoch is always validated.
        fold: Which part of the data validates: of five folds (BraTS), of three splits (UCF101).
        accumulate: Parts that a rank's share of a batch is computed in, one after the other.
        precision: ``"float32"``, or autocast: ``"amp-bfloat16"`` (``"bf16"``) or ``"amp-float16"`` (``"fp16"``).
        channels_last: Memory format ``channels_last_3d``.
        memory_format: How the network runs: ``"contiguous"``, ``"channels_last_3d"`` or ``"channels_last"``, with
            ``+halved`` or ``+pointwise`` for the convolutions of ``ranp.costs.drop_ins``, or ``"auto"``: the fastest of
            these on this machine, by ``ranp.tune`` when the run begins.
        compile: ``torch.compile``.
        batch_norm: Over which samples batch norm takes its statistics: those of a ``"rank"``, or ``"sync"``, of all.
        workers: Processes of each rank that load data.
        deterministic: Refuse operators that do not repeat bit by bit.
        checkpoint_every: Steps from one checkpoint to the next; None for one at the end of every epoch.
        keep_checkpoints: How many are kept.
        check_data: Look at every label before the first step; large data sets may be known to be good.
        tensorboard: Write TensorBoard's files too, if it is installed.
        seed: Of weights, samples and their order.
    """

    network: str
    size: int
    epochs: int
    batch: int
    optimiser: str
    learning_rate: float
    options: Mapping[str, Any] = field(default_factory=dict)
    momentum: float = 0.9
    nesterov: bool = False
    amsgrad: bool = False
    weight_decay: float = 0.0
    schedule: str = "constant"
    decay: float = 0.1
    milestones: tuple[int, ...] = ()
    init: str = "glorot"
    train_count: int | None = None
    valid_count: int | None = None
    valid_batch: int = 1
    valid_every: int = 1
    fold: int = 0
    accumulate: int = 1
    precision: str = "float32"
    channels_last: bool = False
    memory_format: str = "contiguous"
    compile: bool = False
    batch_norm: str = "rank"
    workers: int = 0
    deterministic: bool = False
    checkpoint_every: int | None = None
    keep_checkpoints: int = 3
    check_data: bool = True
    tensorboard: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses values out of range, whoever made the recipe."""
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        for name, words in _ALSO.items():
            for entry, meant in words.get(str(getattr(self, name)), {}).items():
                object.__setattr__(self, entry, meant)
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise UnsupportedError(unknown_name(name, getattr(self, name), (*allowed, *_ALSO.get(name, ()))))
        for typed in dataclasses.fields(self):
            value: Any = getattr(self, typed.name)
            kind, *optional = str(typed.type).split(" | ")
            if kind in _KINDS and not (value is None and optional):
                _check(typed.name, kind, value)
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise UnsupportedError(f"learning_rate={self.learning_rate}: it must be finite and above 0.")
        if not 0 <= self.momentum < 1:
            raise UnsupportedError(f"momentum={self.momentum}: it must be from 0 up to below 1.")
        if self.nesterov and self.optimiser == "sgd" and not self.momentum:
            raise UnsupportedError("nesterov=true needs momentum above 0. Set momentum, or nesterov=false.")
        if not all(type(step) is int for step in self.milestones):
            raise UnsupportedError(f"milestones={list(self.milestones)}: they must be whole numbers.")
        if list(self.milestones) != sorted({step for step in self.milestones if step > 0}):
            raise UnsupportedError(
                f"milestones={list(self.milestones)}: they must be epochs above 0, in rising order, none twice."
            )

    def step(self, ranks: int = 1) -> TrainingStep:
        """What one training step is to budgets and predictions of memory and time.

        >>> Recipe("unet3d-shapenet", 64, 1, 12, "sgd", 0.1, nesterov=True, accumulate=2, precision="bf16").step()
        TrainingStep(batch=6, optimiser='nesterov', precision='amp-bfloat16', checkpointing=False)

        Args:
            ranks: Processes that share a batch; the step is that of one of them, on one accumulated part.
        """
        from ranp.costs.step import TrainingStep

        optimiser = self.optimiser
        if optimiser == "sgd" and self.momentum:
            optimiser = "nesterov" if self.nesterov else "momentum"
        elif optimiser == "adam" and self.amsgrad:
            optimiser = "amsgrad"
        return TrainingStep(max(1, self.batch // (ranks * self.accumulate)), optimiser, self.precision)

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        if self.schedule == "exponential":
            return self.learning_rate * math.exp(-self.decay * epoch)
        if self.schedule == "step":
            return self.learning_rate * self.decay ** sum(epoch >= step for step in self.milestones)
        return self.learning_rate

    def but(self, settings: Iterable[str]) -> Recipe:
        """The recipe with ``key=value`` settings of a command line.

        A value is read as the field is typed; lists are written ``40,55,60``, "all" and "none" say None. A key
        ``options.widths`` sets an argument of the network.

        Raises:
            UnsupportedError: No such field, or a value that it cannot have.
        """
        return self.having(map(read_setting, settings))

    def having(self, settings: Iterable[Setting]) -> Recipe:
        """The recipe with other values, the last of a key's; ``options.widths`` is an argument of the network."""
        changes: dict[str, Any] = {}
        options = dict(self.options)
        for key, value in settings:
            if key.startswith(_OPTIONS):
                options[key.removeprefix(_OPTIONS)] = value
            else:
                changes[key] = value
        return dataclasses.replace(self, options=options, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The recipe as plain values, ready for JSON."""
        plain = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return {**plain, "options": _plain(dict(self.options)), "milestones": list(self.milestones)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Recipe:
        """The recipe that ``to_dict`` made plain.

        Raises:
            UnsupportedError: A field is unknown, missing or out of range.
        """
        known = {entry.name for entry in dataclasses.fields(cls)}
        for name in value:
            if name not in known:
                raise UnsupportedError(unknown_name("setting", name, known))
        try:
            return cls(
                **{
                    **value,
                    "options": as_arguments(value.get("options", {})),
                    "milestones": tuple(value.get("milestones", ())),
                }
            )
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UnsupportedError(f"the recipe is not complete: {error}. Restore it, or start again.") from error


def read_setting(text: str) -> Setting:
    """A ``key=value`` of a command line as a key and a value of the type of its field.

    Raises:
        UnsupportedError: No such field, or a value that it cannot have.

    >>> read_setting("milestones=40,55"), read_setting("options.widths=16,32")
    (('milestones', (40, 55)), ('options.widths', (16, 32)))
    """
    kinds = {entry.name: str(entry.type) for entry in dataclasses.fields(Recipe)}
    key, equals, value = (part.strip() for part in text.partition("="))
    key = _SPELLINGS.get(key, key)
    if not equals or not key or not value:
        raise UnsupportedError(f"--set {text!r} is not key=value. For example --set epochs=10.")
    if key.startswith(_OPTIONS):
        return key, _loosely(value)
    if key not in kinds or key == "options":
        raise UnsupportedError(f"--set {text!r}: {unknown_name('setting', key, (*kinds, _OPTIONS + '*'))}")
    return key, _read(key, kinds[key], value)


def setting_text(key: str, value: Any) -> str:
    """The ``key=value`` that ``read_setting`` reads.

    >>> setting_text("milestones", (40, 55)), setting_text("weight_decay", 0.0), setting_text("nesterov", False)
    ('milestones=40,55', 'weight_decay=0', 'nesterov=false')
    """
    entries = value if isinstance(value, tuple) else (value,)
    words = [str(entry).lower() if isinstance(entry, bool | None) else str(entry) for entry in entries]
    return f"{key}={','.join(word.removesuffix('.0') for word in words) or 'none'}"


def _check(name: str, kind: str, value: Any) -> None:
    if type(value) not in _KINDS[kind]:
        raise UnsupportedError(f"{name}={value!r}: it must be {_WANTED[kind]}.")
    if name in _RANGES:
        least, most = _RANGES[name]
        if not least <= value <= most:
            bound = f"at most {most:g}" if value > most else f"at least {least:g}"
            raise UnsupportedError(f"{name}={value}: it must be {bound}.")


def _read(key: str, kind: str, text: str) -> Any:
    """A value as its field is typed."""
    if "None" in kind and text.lower() in ("none", "all"):
        return None
    try:
        if kind.startswith("bool"):
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        if kind.startswith("int"):
            return int(text)
        if kind.startswith("float"):
            return float(text)
        if kind.startswith("tuple"):
            return tuple(int(part) for part in text.split(",")) if text.lower() != "none" else ()
    except (ValueError, KeyError) as error:
        wanted = _WANTED.get(kind.split(" | ")[0], "whole numbers, 40,55")
        also = ", or none" if "None" in kind else ""
        raise UnsupportedError(f"--set {key}={text}: {key} is {wanted}{also}.") from error
    return text


def _loosely(text: str) -> Any:
    """A value whose type only the network knows: numbers and booleans as they look, 4,8 a tuple, else the word."""
    if "," in text:
        return tuple(_loosely(part.strip()) for part in text.split(",") if part.strip())
    try:
        return json.loads(text)
    except ValueError:
        return text


def as_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a network that JSON has turned into lists: tuples again, however deep."""
    return {name: _tuples(value) for name, value in options.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value

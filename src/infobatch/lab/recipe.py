"""A recipe: everything that defines a training except the seed. ``infobatch train cifar10 --set lr=0.05``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_type_hints

from ..core.checks import check_choice
from . import optimisers

if TYPE_CHECKING:
    from .tasks.task import Task

_R = TypeVar("_R", bound="Recipe")
PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class Recipe(ABC):
    """The settings of one training; each kind of task has a subclass with further keys.

    ``samples`` None is all samples; ``precision`` other than fp32 is automatic mixed precision; ``clip`` is the
    largest norm of a gradient, 0 for no limit. The model is judged on test data after every ``judge_every``-th epoch
    and after the last. ``delta``, ``warmup`` and ``score_momentum`` are arguments of InfoBatch (``score_momentum`` is
    its ``momentum``), for all methods that do not set their own.
    """

    task: ClassVar[str]  # the task's name in a recipe's file
    choices: ClassVar[dict[str, Iterable[str]]] = {  # allowed values of the keys whose value is a name
        "optimizer": optimisers.OPTIMISERS,
        "schedule": optimisers.SCHEDULES,
        "precision": PRECISIONS,
    }

    dataset: str
    model: str
    epochs: int
    batch_size: int = 128
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "onecycle"
    clip: float = 0.0
    precision: str = "fp32"
    samples: int | None = None
    workers: int = 0
    judge_every: int = 1
    delta: float = 0.875
    warmup: int = 0
    score_momentum: float = 1.0

    def __post_init__(self) -> None:
        for name, choices in self.choices.items():
            if self._is_choice(name):
                check_choice(name, getattr(self, name), choices)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("epochs", "batch_size", "samples", "judge_every", "pool"):
                if value is not None and value < 1:
                    raise ValueError(f"{field.name} must be at least 1, got {value}")
            elif isinstance(value, int | float) and value < 0:
                raise ValueError(f"{field.name} must not be negative, got {value}")
        if self.momentum >= 1:
            raise ValueError(f"momentum must be below 1, got {self.momentum}")

    @abstractmethod
    def create_task(self, data: Path | None = None) -> Task:
        """The task to train, with its data from this folder; None looks where data sets usually are."""

    def _is_choice(self, name: str) -> bool:
        """Whether this key's value must be one of its choices."""
        return True

    def as_data(self) -> dict[str, Any]:
        """The recipe as plain numbers and strings."""
        return {"task": self.task, **asdict(self)}

    def changed(self: _R, settings: Iterable[str]) -> _R:
        """The recipe with ``key=value`` settings applied.

        >>> from infobatch.lab import recipes
        >>> recipes.get("cifar10").changed(["lr=0.05", "epochs=3"]).lr
        0.05
        """
        pairs = [setting.partition("=") for setting in settings]
        for key, equals, _ in pairs:
            if not equals:
                raise ValueError(f"{key!r} must be KEY=VALUE, for example lr=0.05")
        return self._replace_keys({key: self._parse_setting(key, text) for key, _, text in pairs})

    def _replace_keys(self: _R, settings: Mapping[str, Any]) -> _R:
        for key in settings:
            check_choice("a recipe's key", key, [field.name for field in fields(self)])
        return replace(self, **settings)

    def _parse_setting(self, key: str, text: str) -> Any:
        """The value of a setting, converted from text to the type of its key."""
        kind = get_type_hints(type(self), localns={"Task": Any}).get(key, str)
        if kind is str:
            return text
        if text.lower() == "none" and kind == (int | None):
            return None
        if kind is bool:
            check_choice(key, text.lower(), ("true", "false"))
            return text.lower() == "true"
        number = float if kind is float else int
        try:
            return number(text)
        except ValueError:
            whole = "number" if number is float else "whole number"
            raise ValueError(f"{key} must be a {whole}, got {text!r}") from None

"""A recipe: all that defines a training but the seed, as data. ``infobatch train cifar10 --set lr=0.05``."""

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
    """One training; each kind of task has its own, with the keys it needs.

    ``samples`` None is all of them; ``precision`` other than fp32 is automatic mixed precision; ``clip`` is the
    largest norm of a gradient, 0 for any. The test data is looked at after every ``judge_every``-th epoch and after
    the last, always at the end. ``delta``, ``warmup`` and ``score_momentum`` are InfoBatch's arguments (the
    last one its ``momentum``), for all methods that do not give their own.
    """

    task: ClassVar[str]  # its name in a recipe's file
    choices: ClassVar[dict[str, Iterable[str]]] = {  # of the keys whose value is a name
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
        """What is trained, with its data from this folder, or from where it usually lies."""

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
        return self._with({key: self._parsed(key, text) for key, _, text in pairs})

    def _with(self: _R, settings: Mapping[str, Any]) -> _R:
        for key in settings:
            check_choice("a recipe's key", key, [field.name for field in fields(self)])
        return replace(self, **settings)

    def _parsed(self, key: str, text: str) -> Any:
        """The text of a setting as the type of that key."""
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

"""A recipe: all that defines a training but the seed, as data. ``infobatch train cifar10 --set lr=0.05``."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from . import datasets, models, optimisers

AUGMENTATIONS = ("none", "flip", "crop-flip")
PRECISIONS = ("fp32", "bf16", "fp16")


_CHOICES: dict[str, Iterable[str]] = {
    "dataset": datasets.NAMES,
    "model": models.NAMES,
    "optimizer": optimisers.OPTIMISERS,
    "schedule": optimisers.SCHEDULES,
    "augment": AUGMENTATIONS,
    "precision": PRECISIONS,
}


def check_choice(what: str, value: str, choices: Iterable[str]) -> None:
    """Raise, naming the nearest choice, unless ``value`` is one of them."""
    choices = list(choices)
    if value not in choices:
        near = difflib.get_close_matches(value, choices, 1, cutoff=0.5)
        guess = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"{what}: there is no {value!r}; {guess}It must be one of {', '.join(choices)}")


@dataclass(frozen=True)
class Recipe:
    """One training. ``samples`` None is all of them; ``precision`` other than fp32 is automatic mixed precision."""

    dataset: str
    model: str
    epochs: int
    batch_size: int = 128
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "onecycle"
    label_smoothing: float = 0.0
    augment: str = "crop-flip"
    precision: str = "fp32"
    samples: int | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if not (name == "dataset" and self.dataset.startswith(datasets.HUGGING_FACE)):
                check_choice(name, getattr(self, name), choices)
        for name in ("epochs", "batch_size", "samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name in ("lr", "momentum", "weight_decay", "label_smoothing", "workers"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.momentum >= 1:
            raise ValueError(f"momentum must be below 1, got {self.momentum}")

    def as_data(self) -> dict[str, Any]:
        """The recipe as plain numbers and strings."""
        return asdict(self)

    def changed(self, settings: Iterable[str]) -> Recipe:
        """The recipe with ``key=value`` settings applied.

        >>> get("cifar10").changed(["lr=0.05", "epochs=3"]).lr
        0.05
        """
        pairs = [setting.partition("=") for setting in settings]
        for key, equals, _ in pairs:
            if not equals:
                raise ValueError(f"{key!r} must be KEY=VALUE, for example lr=0.05")
        return self._with({key: _parsed(key, text) for key, _, text in pairs})

    def _with(self, settings: Mapping[str, Any]) -> Recipe:
        for key in settings:
            check_choice("a recipe's key", key, [field.name for field in fields(self)])
        return replace(self, **settings)


# The paper's own set-ups (sec. 4.1, appendix A), and small ones that two CPU cores train in minutes.
RECIPES: dict[str, dict[str, Recipe]] = {
    "fashion-mnist": {
        "small": Recipe("fashion-mnist", "small-cnn", 10, lr=0.2, augment="flip"),
    },
    "cifar10": {
        "small": Recipe("cifar10", "resnet-compact", 15, lr=0.3),
        "paper": Recipe("cifar10", "resnet18", 200, lr=0.2, label_smoothing=0.1, precision="fp16"),
    },
    "cifar100": {
        "small": Recipe("cifar100", "resnet-compact", 15, lr=0.3),
        "paper": Recipe("cifar100", "resnet18", 200, lr=0.05, label_smoothing=0.1, precision="fp16"),
    },
    "imagenet": {
        "paper": Recipe("imagenet", "resnet50", 90, 1024, "lars", lr=6.4, precision="fp16", workers=8),
    },
}


def get(name: str, preset: str = "small") -> Recipe:
    """A recipe by its name, or from a ``.json`` file that gives a recipe's keys and their values."""
    if name.endswith(".json"):
        return _from_file(Path(name))
    check_choice("recipe", name, RECIPES)
    check_choice(f"preset of {name}", preset, RECIPES[name])
    return RECIPES[name][preset]


def _from_file(path: Path) -> Recipe:
    given = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(given, dict):
        raise ValueError(f"{path} must hold one JSON object, the recipe's keys and their values")
    for key in given:
        check_choice(f"a key of {path}", key, [field.name for field in fields(Recipe)])
    try:
        return Recipe(**given)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error


def _parsed(key: str, text: str) -> Any:
    """The text of a setting as the type of that key."""
    kind = get_type_hints(Recipe).get(key, str)
    if kind is str:
        return text
    if text.lower() == "none" and kind == (int | None):
        return None
    number = float if kind is float else int
    try:
        return number(text)
    except ValueError:
        raise ValueError(f"{key} must be a {'number' if number is float else 'whole number'}, got {text!r}") from None

"""The recipes by name: the paper's own set-ups, and small ones that two CPU cores train in minutes."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from .classification import ClassificationRecipe
from .recipe import Recipe, check_choice

KINDS: dict[str, type[Recipe]] = {kind.task: kind for kind in (ClassificationRecipe,)}

# sec. 4.1 and appendix A of the paper
RECIPES: dict[str, dict[str, Recipe]] = {
    "fashion-mnist": {
        "small": ClassificationRecipe("fashion-mnist", "small-cnn", 10, lr=0.2, augment="flip"),
    },
    "cifar10": {
        "small": ClassificationRecipe("cifar10", "resnet-compact", 15, lr=0.3),
        "paper": ClassificationRecipe("cifar10", "resnet18", 200, lr=0.2, label_smoothing=0.1, precision="fp16"),
    },
    "cifar100": {
        "small": ClassificationRecipe("cifar100", "resnet-compact", 15, lr=0.3),
        "paper": ClassificationRecipe("cifar100", "resnet18", 200, lr=0.05, label_smoothing=0.1, precision="fp16"),
    },
    "imagenet": {
        "paper": ClassificationRecipe("imagenet", "resnet50", 90, 1024, "lars", lr=6.4, precision="fp16", workers=8),
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
    task = given.pop("task", ClassificationRecipe.task)
    check_choice(f"task of {path}", task, KINDS)
    kind = KINDS[task]
    for key in given:
        check_choice(f"a key of {path}", key, ["task", *(field.name for field in fields(kind))])
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error

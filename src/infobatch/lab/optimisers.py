"""Optimisers and learning-rate schedules by name: those the paper uses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from ..integrations import needs

if TYPE_CHECKING:
    from .recipe import Recipe

OPTIMISERS = ("sgd", "adam", "adamw", "radam", "lars", "lamb")
SCHEDULES = ("onecycle", "cosine", "warmup-cosine", "warmup20-cosine", "poly", "constant")
_BETA2 = 0.999
_POWER = 0.9  # mmsegmentation's
# The share of steps with warm-up: the paper's for Swin (appendix A.3), and 20 %.
_WARM_UP = {"warmup-cosine": 10 / 350, "warmup20-cosine": 0.2}
_LOWEST = 1e-3  # share of the learning rate at the start of the warm-up and the end of the cosine


def optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """The recipe's optimiser over the model's parameters. Adam and its like take ``momentum`` as first beta."""
    parameters: Any = model.parameters()
    rate: dict[str, Any] = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=recipe.momentum, nesterov=recipe.momentum > 0, **rate)
    if recipe.optimizer in ("lars", "lamb"):
        with needs("timm", "timm"):
            from timm.optim import Lamb, Lars
        layerwise: torch.optim.Optimizer
        if recipe.optimizer == "lars":
            layerwise = Lars(parameters, momentum=recipe.momentum, **rate)
        else:
            layerwise = Lamb(parameters, betas=(recipe.momentum, _BETA2), **rate)
        return layerwise
    kinds: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "radam": torch.optim.RAdam}
    if recipe.optimizer != "radam":
        rate["fused"] = True  # one pass over the weights: a fifth of a fine-tuning step's time on a CPU
    optimiser: torch.optim.Optimizer = kinds[recipe.optimizer](parameters, betas=(recipe.momentum, _BETA2), **rate)
    return optimiser


def schedule(recipe: Recipe, optimiser: torch.optim.Optimizer, total_steps: int) -> lr_scheduler.LRScheduler:
    """The recipe's schedule, over the steps of full training.

    "onecycle" also moves the momentum, against the learning rate and around the recipe's: a momentum of 0.9 moves
    between 0.85 and 0.95, as torch's own, and 0 stays 0.
    """
    if recipe.schedule == "onecycle":
        mean = recipe.momentum
        swing = min(mean, 1 - mean) / 2
        return lr_scheduler.OneCycleLR(
            optimiser, recipe.lr, total_steps=total_steps, base_momentum=mean - swing, max_momentum=mean + swing
        )
    if recipe.schedule == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimiser, total_steps)
    if recipe.schedule == "poly":
        return lr_scheduler.PolynomialLR(optimiser, total_steps, power=_POWER)
    if recipe.schedule in _WARM_UP:
        warm = max(1, round(_WARM_UP[recipe.schedule] * total_steps))
        return lr_scheduler.LambdaLR(optimiser, lambda step: _warm_up_share(step, warm, total_steps))
    return lr_scheduler.ConstantLR(optimiser, factor=1.0)


def _warm_up_share(step: int, warm: int, total_steps: int) -> float:
    """The share of the learning rate: linear warm-up over ``warm`` steps, then half a cosine down."""
    down = (1 + math.cos(math.pi * (step - warm) / max(1, total_steps - warm))) / 2
    return _LOWEST + (1 - _LOWEST) * (step / warm if step < warm else down)

"""The demonstration: one small CNN, trained with full data and with a pruning method, side by side.

Both runs start from the same weights. They are trained in turn, an epoch of one and an epoch of the other,
so that a machine that gets slower or faster meanwhile does so for both.
"""

from __future__ import annotations

import numpy as np

from ..report.records import Pair
from . import fashion
from .classification import Classification, ClassificationRecipe
from .comparison import environment
from .datasets import Images, ImageSplit
from .method import MethodSpec
from .training import Training, Watch

RECIPE = ClassificationRecipe("fashion-mnist", "small-cnn", epochs=16, lr=0.2, augment="flip")


def prepare(
    recipe: ClassificationRecipe, method: MethodSpec, seed: int, data: fashion.Fashion
) -> tuple[Training, Training]:
    """A run with full data and one with the method, which start from the same weights."""
    splits = [ImageSplit(split.images[..., None], split.labels.astype(np.int64)) for split in (data.train, data.test)]
    images = Images("fashion-mnist", splits[0], splits[1], (fashion.MEAN,), (fashion.STD,), fashion.CLASSES)
    task = Classification(recipe, images)
    return Training(task, recipe, MethodSpec("full", "full"), seed), Training(task, recipe, method, seed)


def train(full: Training, pruned: Training, watch: Watch = lambda tick: None) -> Pair:
    """Train both, an epoch of one and an epoch of the other."""
    full.warm_up()
    for epoch in range(full.recipe.epochs):
        # Who goes first changes, so that neither always follows the other through the caches.
        for run in (full, pruned) if epoch % 2 == 0 else (pruned, full):
            run.train_epoch(watch)
    return Pair(full.record(environment()), pruned.record(environment()))

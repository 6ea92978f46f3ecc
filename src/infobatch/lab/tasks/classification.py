"""Image classification as a task of the lab: batches, losses and the test metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...scoring import classification as scoring
from ..data import datasets
from ..data.folders import Lazy
from . import mixing, models
from .device import autocast, using_generator
from .images import AugmentedRecipe, ImageTask
from .mixing import MixedLosses
from .rows import take_rows
from .task import Selectable


@dataclass(frozen=True)
class ClassificationRecipe(AugmentedRecipe):
    """A recipe for image classification.

    ``mixup`` and ``cutmix`` are the α of MixUp and CutMix, 0 for none: with them, inputs are mixed in pairs, scored as
    in appendix A.3 of the paper and weighed as pairs. ``random_erase`` is the probability of Random Erasing. ``ema`` is
    the decay of a running average of the weights, which is judged in their place; 0 judges the weights themselves.
    ``pool`` makes images in memory smaller by that factor; ``size`` is the side, in pixels, to which images from files
    are cut, None for 224. With ``judge_rest`` the training images after the first ``samples`` join the test images, so
    that small differences show.
    """

    task: ClassVar[str] = "classification"
    choices: ClassVar[dict[str, Iterable[str]]] = {
        **AugmentedRecipe.choices,
        "model": models.NAMES,
    }

    label_smoothing: float = 0.0
    random_erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    ema: float = 0.0
    pool: int = 1
    judge_rest: bool = False
    size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.random_erase > 1:
            raise ValueError(f"random_erase must be a probability, at most 1, got {self.random_erase}")
        for name in ("label_smoothing", "ema"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name} must be below 1, got {getattr(self, name)}")
        if self.size is not None and self.size < 1:
            raise ValueError(f"size must be at least 1 pixel, got {self.size}")
        if self.judge_rest and self.samples is None:
            raise ValueError(
                "judge_rest=true needs samples, got None: set samples, so that training images are left to judge by"
            )

    def create_task(self, data: Path | None = None) -> Classification:
        return Classification(self, self._prepare_images(datasets.load(self.dataset, data)))

    def _prepare_images(self, data: datasets.Images) -> datasets.Images:
        """Apply ``size``, ``pool`` and ``judge_rest`` to the images."""
        if self.size is not None:
            if not isinstance(data.train, Lazy) or not isinstance(data.test, Lazy):
                raise ValueError(f"size is for images that are read from files; {data.name} is in memory: leave it out")
            sized = replace(data.train, size=self.size), replace(data.test, size=self.size)
            data = replace(data, train=sized[0], test=sized[1])
        if self.pool == 1 and not self.judge_rest:
            return data
        train, test = data.train, data.test
        if not isinstance(train, datasets.ImageSplit) or not isinstance(test, datasets.ImageSplit):
            raise ValueError(
                f"pool and judge_rest are for images in memory; {data.name} is read from files: leave them out"
            )
        if self.judge_rest:
            assert self.samples is not None
            test = train.after(self.samples, test)
        if self.pool > 1:
            train, test = train.average_pool(self.pool), test.average_pool(self.pool)
        return replace(data, train=train, test=test)


class Classification(ImageTask, Selectable):
    """Image classification as the training loop sees it."""

    recipe: ClassificationRecipe
    metric = "test accuracy, %"
    higher_is_better = True

    def model(self, seed: int) -> nn.Module:
        """The recipe's network, on the device."""
        classes, channels, size = len(self.data.classes), len(self.data.mean), self.data.train.size
        model = models.create(self.recipe.model, classes, channels, size, seed)
        return model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of each training image."""
        labels: NDArray[np.int64] = self.train.labels.numpy()
        return labels

    def losses(
        self,
        model: nn.Module,
        batch: tuple[Tensor, Tensor],
        generator: torch.Generator,
        rows: Tensor | None = None,
    ) -> Tensor | MixedLosses:
        """One loss per sample of augmented images, in fp32; for mixed images also the scores of their samples.

        Only images of ``rows`` are mixed with each other.
        """
        recipe = self.recipe
        images, labels = (part.to(self.device, non_blocking=True) for part in batch)
        images = self._augment(images, generator)
        if not (recipe.mixup or recipe.cutmix):
            images, labels = take_rows((self._normalise_and_erase(images, generator), labels), rows)
            logits = self._training_logits(model, images, generator)
            return cross_entropy(logits, labels, reduction="none", label_smoothing=recipe.label_smoothing)
        images, labels = take_rows((images, labels), rows)
        target = mixing.smooth_labels(labels, len(self.data.classes), recipe.label_smoothing)
        images, target, share = mixing.mix(images, target, recipe.mixup, recipe.cutmix, generator)
        logits = self._training_logits(model, self._normalise_and_erase(images, generator), generator)
        score = scoring.mixed_score(logits.detach().softmax(1), target, labels)
        return MixedLosses(scoring.cross_entropy(logits, target), score, share)

    def plain_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The training images in order, normalised and not augmented, and their labels."""
        for images, labels in self._batches(self._unaugmented_images()):
            yield self._normalise(images.to(self.device)), labels.to(self.device)

    @torch.inference_mode()
    def evaluate(self, model: nn.Module) -> float:
        """The metric on the test images."""
        model.eval()
        right = torch.zeros((), dtype=torch.int64, device=self.device)
        for images, labels in self._batches(self.test):
            guesses = self._logits(model, self._normalise(images.to(self.device))).argmax(1)
            right += (guesses == labels.to(self.device)).sum()
        return 100 * right.item() / len(self.test)

    def _normalise_and_erase(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Normalise images, and erase random parts of them if the recipe says so."""
        images, probability = self._normalise(images), self.recipe.random_erase
        return mixing.erase(images, probability, generator) if probability else images

    def _training_logits(self, model: nn.Module, images: Tensor, generator: torch.Generator) -> Tensor:
        if not models.draws(self.recipe.model):
            return self._logits(model, images)
        with using_generator(generator, self.device):
            return self._logits(model, images)

    def _normalise(self, images: Tensor) -> Tensor:
        return self._standardise(images).contiguous(memory_format=torch.channels_last)

    def _logits(self, model: nn.Module, images: Tensor) -> Tensor:
        with autocast(self.recipe.precision, self.device):
            logits: Tensor = model(images)
        return logits.float()

"""Image classification as a task of the lab: batches, losses and the test metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torch.utils.data import DataLoader, Dataset

from ..scoring import classification as scoring
from . import datasets, mixing, models
from .datasets import Images, Split
from .device import autocast, dice, for_precision
from .folders import Decoded, Lazy
from .mixing import MixedLosses
from .recipe import Recipe

_PADDING = 4
_TEST_BATCH = 500
AUGMENTATIONS = ("none", "flip", "crop-flip")


@dataclass(frozen=True)
class ClassificationRecipe(Recipe):
    """A recipe for image classification.

    ``mixup`` and ``cutmix`` are the α of these, 0 for none: inputs are then mixed in pairs, scored as in appendix A.3
    of the paper and weighed as pairs. ``random_erase`` is its probability. ``ema`` is the decay of a running average of
    the weights, by which the model is judged; 0 judges the weights themselves.
    """

    task: ClassVar[str] = "classification"
    choices: ClassVar[dict[str, Iterable[str]]] = {
        **Recipe.choices,
        "dataset": datasets.NAMES,
        "model": models.NAMES,
        "augment": AUGMENTATIONS,
    }

    label_smoothing: float = 0.0
    augment: str = "crop-flip"
    random_erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    ema: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.random_erase > 1:
            raise ValueError(f"random_erase must be a probability, at most 1, got {self.random_erase}")
        for name in ("label_smoothing", "ema"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name} must be below 1, got {getattr(self, name)}")

    def _is_choice(self, name: str) -> bool:
        return not (name == "dataset" and self.dataset.startswith(datasets.HUGGING_FACE))

    def create_task(self, data: Path | None = None) -> Classification:
        return Classification(self, datasets.load(self.dataset, data))


class InMemory(Dataset[tuple[Tensor, Tensor]]):
    """Images and labels as tensors of which a batch is taken at once."""

    def __init__(self, split: Split) -> None:
        self.images = torch.from_numpy(np.ascontiguousarray(split.images.transpose(0, 3, 1, 2)))
        self.labels = torch.from_numpy(split.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        index = torch.tensor(indices)
        return self.images[index], self.labels[index]


class Classification:
    """What the training loop asks of a task. It computes on ``device``: the GPU if there is one, else the CPU.

    Images in memory are augmented a batch at a time, there; images that are read when needed, by the loader's workers.
    """

    metric = "test accuracy, %"
    higher_is_better = True

    def __init__(self, recipe: ClassificationRecipe, data: Images, device: torch.device | str | None = None) -> None:
        self.recipe, self.data = recipe, data
        self.device = for_precision(recipe.precision, device)
        train, test = data.train.head(recipe.samples), data.test
        if isinstance(train, Lazy) and recipe.workers == 0:
            raise ValueError(
                f"{data.name} is read and cropped at random by the loader's workers, which draw from its generator: "
                "workers must be at least 1, got 0 (--set workers=4)"
            )
        self.train = Decoded(train, recipe.augment) if isinstance(train, Lazy) else InMemory(train)
        self.test = Decoded(test) if isinstance(test, Lazy) else InMemory(test)
        self.mean, self.std = (
            torch.tensor(value, device=self.device).view(1, -1, 1, 1) * 255 for value in (data.mean, data.std)
        )

    @staticmethod
    def collate(batch: Any) -> Any:
        """Batches come whole."""
        return batch

    def model(self, seed: int) -> nn.Module:
        """The recipe's network, on the device."""
        classes, channels, size = len(self.data.classes), len(self.data.mean), self.data.train.size
        model = models.create(self.recipe.model, classes, channels, size, seed)
        return model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of each training image."""
        found: NDArray[np.int64] = self.train.labels.numpy()
        return found

    def losses(
        self, model: nn.Module, batch: tuple[Tensor, Tensor], generator: torch.Generator
    ) -> Tensor | MixedLosses:
        """One loss per sample, of augmented images, in fp32; of mixed ones with the scores they are traced back to."""
        recipe = self.recipe
        images, labels = (part.to(self.device, non_blocking=True) for part in batch)
        if isinstance(self.train, InMemory):
            images = augmented(images, recipe.augment, generator)
        if not (recipe.mixup or recipe.cutmix):
            logits = self._training_logits(model, images, generator)
            return cross_entropy(logits, labels, reduction="none", label_smoothing=recipe.label_smoothing)
        target = mixing.smoothed(labels, len(self.data.classes), recipe.label_smoothing)
        images, target, share = mixing.mix(images, target, recipe.mixup, recipe.cutmix, generator)
        logits = self._training_logits(model, images, generator)
        score = scoring.mixed_score(logits.detach().softmax(1), target, labels)
        return MixedLosses(scoring.cross_entropy(logits, target), score, share)

    def plain(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The training images in their order, normalised and not augmented, with their labels."""
        view = Decoded(self.train.source) if isinstance(self.train, Decoded) else self.train
        for images, labels in self._batches(view):
            yield self._normalised(images.to(self.device)), labels.to(self.device)

    @torch.inference_mode()
    def evaluate(self, model: nn.Module) -> float:
        """The metric on the test images."""
        model.eval()
        right = torch.zeros((), dtype=torch.int64, device=self.device)
        for images, labels in self._batches(self.test):
            guesses = self._logits(model, self._normalised(images.to(self.device))).argmax(1)
            right += (guesses == labels.to(self.device)).sum()
        return 100 * right.item() / len(self.test)

    def pictures(self, indices: list[int]) -> tuple[NDArray[np.uint8], list[str]]:
        """Training images and what they show, for the report."""
        view = Decoded(self.train.source) if isinstance(self.train, Decoded) else self.train
        images, labels = view.__getitems__(indices)
        return images.permute(0, 2, 3, 1).numpy(), [self.data.classes[label] for label in labels.tolist()]

    def _training_logits(self, model: nn.Module, images: Tensor, generator: torch.Generator) -> Tensor:
        images = self._normalised(images)
        if self.recipe.random_erase:
            images = mixing.erase(images, self.recipe.random_erase, generator)
        if not models.draws(self.recipe.model):
            return self._logits(model, images)
        with dice(generator, self.device):
            return self._logits(model, images)

    def _normalised(self, images: Tensor) -> Tensor:
        return ((images - self.mean) / self.std).contiguous(memory_format=torch.channels_last)

    def _logits(self, model: nn.Module, images: Tensor) -> Tensor:
        with autocast(self.recipe.precision, self.device):
            logits: Tensor = model(images)
        return logits.float()

    def _batches(self, data: InMemory | Decoded) -> Iterator[tuple[Tensor, Tensor]]:
        if isinstance(data, InMemory):
            return zip(*(torch.split(part, _TEST_BATCH) for part in (data.images, data.labels)), strict=True)
        # Given a generator, the loader leaves torch's global random state alone.
        size, workers = self.recipe.batch_size, self.recipe.workers
        loader: DataLoader[tuple[Tensor, Tensor]] = DataLoader(
            data, size, num_workers=workers, collate_fn=self.collate, generator=torch.Generator()
        )
        return iter(loader)


def augmented(images: Tensor, how: str, generator: torch.Generator) -> Tensor:
    """Images mirrored with probability ½ and, with "crop-flip", shifted by up to 4 pixels, each by its own chance.

    Chance is drawn on the CPU, so that it is the same whatever device the images are on.
    """
    if how == "none":
        return images
    count, _, height, width = images.shape
    mirrored = torch.rand(count, generator=generator) < 0.5
    columns = torch.arange(width).expand(count, -1)
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    rows = torch.arange(height).expand(count, -1)
    if how == "crop-flip":
        images = pad(images, (_PADDING,) * 4)
        columns = columns + torch.randint(0, 2 * _PADDING + 1, (count, 1), generator=generator)
        rows = rows + torch.randint(0, 2 * _PADDING + 1, (count, 1), generator=generator)
    # One gather for all images: element [b, c, y, x] is images[b, c, rows[b, y], columns[b, x]].
    flat = (rows * images.shape[3])[:, :, None] + columns[:, None, :]
    index = flat.flatten(1)[:, None, :].to(images.device)
    found = images.flatten(2).gather(2, index.expand(-1, images.shape[1], -1))
    return found.view(count, -1, height, width)

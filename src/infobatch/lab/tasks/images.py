"""Images for tasks of the lab: batches of tensors, augmented for training and unchanged for testing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import DataLoader, Dataset

from ..data import datasets
from ..data.datasets import Images, ImageSplit
from ..data.folders import Decoded, Lazy
from ..recipe import Recipe
from .device import choose_device
from .task import Task

_TEST_BATCH = 500  # of images in memory
# The farthest shift in pixels, and whether images are mirrored.
AUGMENTATIONS = {
    "none": (0, False),
    "flip": (0, True),
    "crop-flip": (4, True),
    "shift-1": (1, False),
    "shift-2": (2, False),
    "shift-2-flip": (2, True),
}


class ImageRecipe(Recipe):
    """A recipe with a data set of images, by its name or from the Hugging Face hub."""

    choices: ClassVar[dict[str, Iterable[str]]] = {**Recipe.choices, "dataset": datasets.NAMES}

    def _is_choice(self, name: str) -> bool:
        return not (name == "dataset" and self.dataset.startswith(datasets.HUGGING_FACE))


@dataclass(frozen=True)
class AugmentedRecipe(ImageRecipe):
    """A recipe with random augmentation; ``augment`` names its kind (:func:`augmented`)."""

    choices: ClassVar[dict[str, Iterable[str]]] = {**ImageRecipe.choices, "augment": AUGMENTATIONS}

    augment: str = "crop-flip"


class InMemory(Dataset[tuple[Tensor, Tensor]]):
    """Images and labels as tensors, a batch of which is taken at once."""

    def __init__(self, split: ImageSplit) -> None:
        self.images = torch.from_numpy(np.ascontiguousarray(split.images.transpose(0, 3, 1, 2)))
        self.labels = torch.from_numpy(split.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        index = torch.tensor(indices)
        return self.images[index], self.labels[index]


class ImageTask(Task):
    """The part that tasks on images share. It computes on ``device``: the GPU if there is one, else the CPU.

    Images in memory are augmented a batch at a time, on the device; images from files by the loader's workers.
    """

    recipe: AugmentedRecipe
    train: InMemory | Decoded

    def __init__(
        self,
        recipe: AugmentedRecipe,
        data: Images,
        device: torch.device | str | None = None,
        held_out: int | None = None,
    ) -> None:
        self.recipe, self.data = recipe, data
        self.device = choose_device(recipe.precision, device)
        train, test = data.train.head(recipe.samples), data.test.head(held_out)
        if isinstance(train, Lazy) and recipe.workers == 0:
            raise ValueError(
                f"{data.name} is read and cropped at random by the loader's workers: workers must be at least 1, got 0 "
                "(--set workers=4)"
            )
        if isinstance(train, Lazy) and recipe.augment.startswith("shift"):
            raise ValueError(
                f"augment must be crop-flip, flip or none for images from files, as {data.name} has them, got "
                f"{recipe.augment}, which is for images in memory"
            )
        self.train = Decoded(train, recipe.augment) if isinstance(train, Lazy) else InMemory(train)
        self.test = Decoded(test) if isinstance(test, Lazy) else InMemory(test)
        self.mean, self.std = (
            torch.tensor(value, device=self.device).view(1, -1, 1, 1) * 255 for value in (data.mean, data.std)
        )

    def pictures(self, indices: list[int]) -> tuple[NDArray[np.uint8], list[str]]:
        """Training images and the names of their classes, for the report."""
        return to_pictures(self._unaugmented_images(), self.data.classes, indices)

    def _unaugmented_images(self) -> InMemory | Decoded:
        """The training images without augmentation."""
        return Decoded(self.train.source) if isinstance(self.train, Decoded) else self.train

    def _augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment images in memory; the workers have augmented other images already."""
        return augmented(images, self.recipe.augment, generator) if isinstance(self.train, InMemory) else images

    def _standardise(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std

    def _batches(self, data: InMemory | Decoded) -> Iterator[tuple[Tensor, Tensor]]:
        return batches(data, self.recipe)


def to_pictures(
    images: InMemory | Decoded, classes: tuple[str, ...], indices: list[int]
) -> tuple[NDArray[np.uint8], list[str]]:
    """Images as a report shows them, height × width × channels, and the names of their classes."""
    pictures, labels = images.__getitems__(indices)
    return pictures.permute(0, 2, 3, 1).numpy(), [classes[label] for label in labels.tolist()]


def batches(data: InMemory | Decoded, recipe: Recipe) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of all images in order, and their labels; torch's global random state stays as it is."""
    if isinstance(data, InMemory):
        return zip(*(torch.split(part, _TEST_BATCH) for part in (data.images, data.labels)), strict=True)
    loader: DataLoader[tuple[Tensor, Tensor]] = DataLoader(
        data,
        recipe.batch_size,
        num_workers=recipe.workers,
        collate_fn=Task.collate,
        generator=torch.Generator(),  # without a generator, the loader would draw from the global state
    )
    return iter(loader)


def augmented(images: Tensor, how: str, generator: torch.Generator) -> Tensor:
    """Images mirrored with probability ½ and shifted, as ``how`` says, each image on its own.

    Random numbers are drawn on the CPU, so that they are the same on every device.
    """
    if how == "none":
        return images
    count, _, height, width = images.shape
    furthest, mirrors = AUGMENTATIONS[how]
    columns = torch.arange(width).expand(count, -1)
    if mirrors:
        mirrored = torch.rand(count, generator=generator) < 0.5
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    rows = torch.arange(height).expand(count, -1)
    if furthest:
        images = pad(images, (furthest,) * 4)
        columns = columns + torch.randint(0, 2 * furthest + 1, (count, 1), generator=generator)
        rows = rows + torch.randint(0, 2 * furthest + 1, (count, 1), generator=generator)
    # One gather for all images: element [b, c, y, x] is images[b, c, rows[b, y], columns[b, x]].
    flat = (rows * images.shape[3])[:, :, None] + columns[:, None, :]
    index = flat.flatten(1)[:, None, :].to(images.device)
    moved = images.flatten(2).gather(2, index.expand(-1, images.shape[1], -1))
    return moved.view(count, -1, height, width)

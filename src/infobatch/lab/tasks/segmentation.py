"""Segmentation as a task of the lab: UPerNet on a ResNet, with an auxiliary head, and the mean IoU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad
from torch.utils.data import DataLoader

from ...integrations import needs
from ...scoring.segmentation import AUXILIARY_WEIGHT, IGNORED, image_losses, with_auxiliary
from ..data import scenes
from ..data.folders import middle_cut
from ..data.scenes import Scenes, SceneSamples
from ..recipe import Recipe
from .device import autocast, choose_device, using_generator
from .rows import take_rows
from .task import Task

_SHOWN_SIZE, _SHOWN_CLASSES = 128, 3  # a picture's side in pixels and its named classes, in the report
_TEST_BATCH = 16
_STAGE = -2  # the encoder's stage that the auxiliary head sees: the third of four, as in mmsegmentation
_Sample = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class _Network:
    """A network of segmentation-models-pytorch; the auxiliary head has half as many channels as the decoder."""

    encoder: str
    decoder_channels: int
    options: dict[str, Any]


_NETWORKS = {
    "upernet-resnet50": _Network("resnet50", 512, {}),  # mmsegmentation's widths
    "upernet-resnet18": _Network("resnet18", 512, {}),
    # A quarter of the width, for one CPU core; "tu-" is for timm's networks, whose width can be set.
    "upernet-resnet18-narrow": _Network("tu-resnet18", 32, {"channels": (16, 32, 64, 128)}),
}


@dataclass(frozen=True)
class SegmentationRecipe(Recipe):
    """A recipe for segmentation.

    Images have a shorter side of ``size`` pixels. For training, each image is scaled by a random factor from
    ``smallest`` to ``largest``, and a random window of ``crop`` × ``crop`` pixels is cut out, mirrored or not.
    ``auxiliary`` is the weight of the auxiliary head's loss, 0 for no such head; ``pretrained`` starts the encoder from
    ImageNet weights, which are downloaded.
    """

    task: ClassVar[str] = "segmentation"
    choices: ClassVar[dict[str, Iterable[str]]] = {**Recipe.choices, "dataset": scenes.NAMES, "model": _NETWORKS}

    delta: float = 0.85
    size: int = 512
    crop: int = 512
    smallest: float = 1.0
    largest: float = 1.0
    auxiliary: float = AUXILIARY_WEIGHT
    dropout: float = 0.0
    pretrained: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("size", "crop"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1 pixel, got {getattr(self, name)}")
        if not 0 < self.smallest <= self.largest:
            raise ValueError(f"smallest must be above 0 and not above largest, got {self.smallest} and {self.largest}")
        if self.dropout >= 1:
            raise ValueError(f"dropout must be below 1, got {self.dropout}")
        if self.pretrained and _NETWORKS[self.model].options:
            raise ValueError(
                f"pretrained must be false for {self.model}, which has a width without pretrained weights, got true"
            )

    def create_task(self, data: Path | None = None) -> Segmentation:
        return Segmentation(self, scenes.load(self.dataset, data))


class UPerNet(nn.Module):
    """A decoder over all stages of an encoder; in training also an auxiliary head on the last stage but one."""

    def __init__(self, network: _Network, classes: int, recipe: SegmentationRecipe) -> None:
        super().__init__()
        with needs("segmentation_models_pytorch", "segmentation"):
            import segmentation_models_pytorch

        body = segmentation_models_pytorch.UPerNet(
            network.encoder,
            encoder_weights="imagenet" if recipe.pretrained else None,
            decoder_channels=network.decoder_channels,
            classes=classes,
            **network.options,
        )
        self.encoder, self.decoder = body.encoder, body.decoder
        self.head = _classifier(network.decoder_channels, classes, recipe.dropout)
        self.auxiliary: nn.Module | None = None
        if recipe.auxiliary:
            inputs, width = body.encoder.out_channels[_STAGE], network.decoder_channels // 2
            convolution = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
            classifier = _classifier(width, classes, recipe.dropout)
            self.auxiliary = nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU(), *classifier)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Logits of every pixel, followed by the auxiliary head's in training."""
        features = self.encoder(images)
        maps = [self.head(self.decoder(features))]
        if self.auxiliary is not None and self.training:
            maps.append(self.auxiliary(features[_STAGE]))
        return [_resize(logits, images.shape[2:]) for logits in maps]


def _classifier(channels: int, classes: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Dropout2d(dropout), nn.Conv2d(channels, classes, 1))


def _resize(logits: Tensor, size: Iterable[int]) -> Tensor:
    return interpolate(logits, tuple(size), mode="bilinear", align_corners=False)


class Segmentation(Task):
    """Segmentation as the training loop sees it, on ``device``: the GPU if there is one, else the CPU.

    The loader, or its workers, only read images, which may differ in size; they are scaled and cut on the device.
    """

    train: SceneSamples
    metric = "test mIoU, %"
    higher_is_better = True

    def __init__(self, recipe: SegmentationRecipe, data: Scenes, device: torch.device | str | None = None) -> None:
        self.recipe, self.data = recipe, data
        self.device = choose_device(recipe.precision, device)
        self.train = SceneSamples(data.train.head(recipe.samples), recipe.size, in_memory=data.small)
        self.test = SceneSamples(data.test, recipe.size, whole_labels=True, in_memory=data.small)
        self.mean, self.std = (
            torch.tensor(value, device=self.device).view(-1, 1, 1) * 255 for value in (data.mean, data.std)
        )

    def model(self, seed: int) -> nn.Module:
        """The recipe's network, initialised from ``seed``; torch's global random state stays as it is."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            model = UPerNet(_NETWORKS[self.recipe.model], len(self.data.classes), self.recipe)
        return model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    def losses(
        self, model: nn.Module, batch: list[_Sample], generator: torch.Generator, rows: Tensor | None = None
    ) -> Tensor:
        """One loss per randomly cut image, in fp32: the decoder's loss plus the weighted auxiliary loss."""
        recipe = self.recipe
        cuts = [
            random_cut(self._normalise(image), labels.to(self.device), recipe, generator) for image, labels in batch
        ]
        cuts = take_rows(cuts, rows)
        if single := len(cuts) == 1:
            cuts *= 2  # batch norm needs two values per channel; twice the same image has the same statistics
        images, labels = (torch.stack(parts) for parts in zip(*cuts, strict=True))
        with using_generator(generator, self.device) if recipe.dropout else nullcontext():
            logits, *auxiliary = self._logits(model, images)
        if auxiliary:
            losses = with_auxiliary(logits, auxiliary[0], labels, weight=recipe.auxiliary)
        else:
            losses = image_losses(logits, labels).mean
        return losses.mean(0, keepdim=True) if single else losses

    @torch.inference_mode()
    def evaluate(self, model: nn.Module) -> float:
        """The metric over all pixels of all test images, at the size of their label maps."""
        with needs("torchmetrics", "segmentation"):
            from torchmetrics.classification import MulticlassJaccardIndex

        # The labels were checked when they were read.
        index = MulticlassJaccardIndex(len(self.data.classes), ignore_index=IGNORED, validate_args=False)
        index.to(self.device)
        model.eval()
        for images, labels in self._test_batches():
            (logits,) = self._logits(model, self._normalise(images))
            index.update(_resize(logits, labels.shape[1:]).argmax(1), labels.to(self.device))
        return 100 * float(index.compute())

    def pictures(self, indices: list[int]) -> tuple[NDArray[np.uint8], list[str]]:
        """The middle of training images, and the names of the classes that cover most of each, for the report."""
        source = self.train.source
        images = [np.array(middle_cut(source.picture(index), _SHOWN_SIZE)) for index in indices]
        return np.stack(images), [self._caption(source.labels(index)) for index in indices]

    def _caption(self, labels: NDArray[np.uint8]) -> str:
        counts = np.bincount(labels.ravel(), minlength=len(self.data.classes))[: len(self.data.classes)]
        largest = np.argsort(-counts, kind="stable")[:_SHOWN_CLASSES]
        return ", ".join(self.data.classes[label] for label in largest if counts[label]) or "nothing labelled"

    def _normalise(self, images: Tensor) -> Tensor:
        return (images.to(self.device, non_blocking=True) - self.mean) / self.std

    def _logits(self, model: nn.Module, images: Tensor) -> list[Tensor]:
        with autocast(self.recipe.precision, self.device):
            maps: list[Tensor] = model(images.contiguous(memory_format=torch.channels_last))
        return [logits.float() for logits in maps]

    def _test_batches(self) -> Iterator[_Sample]:
        """Batches of test images; neighbours of the same size share a batch."""
        # With its own generator, the loader leaves torch's global random state alone.
        loader: DataLoader[Any] = DataLoader(
            self.test,
            _TEST_BATCH,
            num_workers=self.recipe.workers,
            collate_fn=self.collate,
            generator=torch.Generator(),
        )
        for batch in loader:
            for _, alike in groupby(batch, lambda sample: (sample[0].shape, sample[1].shape)):
                images, labels = zip(*alike, strict=True)
                yield torch.stack(images), torch.stack(labels)


def random_cut(
    image: Tensor, labels: Tensor, recipe: SegmentationRecipe, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """A random window of ``crop`` × ``crop`` pixels of the image, which is randomly scaled and mirrored.

    If the image is smaller than the window, the rest is 0 and not labelled. Random numbers are drawn on the CPU, so
    that they are the same on every device.
    """
    crop, (size, y, x, side) = recipe.crop, torch.rand(4, generator=generator, dtype=torch.float64).tolist()
    scale = recipe.smallest + size * (recipe.largest - recipe.smallest)
    if scale != 1:
        image = _resize(image[None], (max(1, round(length * scale)) for length in image.shape[1:]))[0]
        labels = interpolate(labels[None, None], tuple(image.shape[1:]), mode="nearest-exact")[0, 0]
    height, width = labels.shape
    missing = (0, max(0, crop - width), 0, max(0, crop - height))
    top, left = int(y * (max(height, crop) - crop + 1)), int(x * (max(width, crop) - crop + 1))
    down, across = slice(top, top + crop), slice(left, left + crop)
    image, labels = pad(image, missing)[:, down, across], pad(labels, missing, value=IGNORED)[down, across]
    return (image.flip(2), labels.flip(1)) if side < 0.5 else (image, labels)

"""Object detection as a task of the lab: scenes with known boxes, a DETR detector, average precision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...integrations import needs
from ...scoring.detection import PerImage, iou
from ..data import datasets, fashion, fashion_scenes
from ..data.fashion_scenes import FashionScenes, Scene
from ..recipe import Recipe
from .device import autocast, choose_device, using_generator
from .rows import take_rows
from .task import Task

MODELS = ("deformable-detr-tiny", "conditional-detr-tiny", "detr-tiny")
_TRAIN, _TEST = 0, 1  # streams of scenes; stream and number seed a scene
_TEST_BATCH = 100


@dataclass(frozen=True)
class DetectionRecipe(Recipe):
    """A recipe for object detection: ``scenes`` scenes to train on and ``held_out`` scenes to judge by."""

    task: ClassVar[str] = "detection"
    choices: ClassVar[dict[str, Iterable[str]]] = {**Recipe.choices, "dataset": (fashion_scenes.NAME,), "model": MODELS}

    scenes: int = 3000
    held_out: int = 500

    def create_task(self, data: Path | None = None) -> Detection:
        """Make scenes of the pictures in the package, or of the original pictures in a folder."""
        source: Any = fashion.load() if data is None else datasets.load("fashion-mnist", data)
        train, test = (
            fashion.Split(split.images.reshape(-1, 28, 28), split.labels) for split in (source.train, source.test)
        )
        return Detection(self, train, test)


# -- the task -------------------------------------------------------------------------------------------------------


class Detection(Task):
    """Object detection as the training loop sees it."""

    metric = "AP at IoU 0.5, %"
    higher_is_better = True

    def __init__(
        self,
        recipe: DetectionRecipe,
        train: fashion.Split,
        test: fashion.Split,
        device: torch.device | str | None = None,
    ) -> None:
        self.recipe = recipe
        self.device = choose_device(recipe.precision, device)
        self.train = FashionScenes(train, _TRAIN, min(recipe.scenes, recipe.samples or recipe.scenes))
        self.test = FashionScenes(test, _TEST, recipe.held_out)
        self.mean_boxes = sum(len(scene.boxes) for scene in self.train.scenes) / len(self.train)

    @staticmethod
    def collate(batch: list[Scene]) -> tuple[Tensor, list[dict[str, Tensor]]]:
        """Pictures, and their classes and boxes in the form that transformers takes."""
        targets = [{"class_labels": scene.labels, "boxes": scene.boxes} for scene in batch]
        return torch.stack([scene.image for scene in batch]), targets

    def model(self, seed: int) -> nn.Module:
        """The detector from its config, with a loss per image."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            model: Any = create(self.recipe.model, len(fashion.CLASSES))
        model.loss_function = PerImage(self.mean_boxes)
        detector: nn.Module = model.to(self.device)
        return detector

    def losses(
        self,
        model: nn.Module,
        batch: tuple[Tensor, list[dict[str, Tensor]]],
        generator: torch.Generator,
        rows: Tensor | None = None,
    ) -> Tensor:
        """One loss per scene: the sum of all terms over all decoder layers."""
        images, targets = take_rows(batch, rows)
        targets = [{name: part.to(self.device) for name, part in target.items()} for target in targets]
        with using_generator(
            generator, self.device
        ):  # for layers that are left out by chance, none here, a number is drawn
            losses: Tensor = self._outputs(model, images, labels=targets).loss
        return losses

    @torch.inference_mode()
    def evaluate(self, model: nn.Module) -> float:
        """Average precision on the held-out scenes, in %, the mean over the classes."""
        model.eval()
        guesses: list[Guesses] = []
        for start in range(0, len(self.test), _TEST_BATCH):
            images = torch.stack([scene.image for scene in self.test.scenes[start : start + _TEST_BATCH]])
            outputs = self._outputs(model, images)
            guesses += [
                Guesses.of(*each) for each in zip(self._chances(outputs.logits), outputs.pred_boxes, strict=True)
            ]
        return 100 * average_precision(guesses, self.test.scenes)

    def pictures(self, indices: list[int]) -> tuple[NDArray[np.uint8], list[str]]:
        """Training scenes and the names of their objects, for the report."""
        scenes = [self.train[index] for index in indices]
        names = [", ".join(fashion.CLASSES[label] for label in scene.labels.tolist()) for scene in scenes]
        return torch.stack([scene.image for scene in scenes]).permute(0, 2, 3, 1).numpy(), names

    def _outputs(self, model: nn.Module, images: Tensor, **more: Any) -> Any:
        pixels = (images.to(self.device) / 255 - fashion.MEAN) / fashion.STD
        with autocast(self.recipe.precision, self.device):
            return model(pixel_values=pixels, **more)

    def _chances(self, logits: Tensor) -> Tensor:
        """The probability of each class for each query."""
        softmax = self.recipe.model == "detr-tiny"  # its last class means that there is nothing
        return logits.float().softmax(-1)[..., :-1] if softmax else logits.float().sigmoid()


def create(name: str, classes: int) -> nn.Module:
    """A detector small enough for one CPU core, from its config, with weights from torch's global generator."""
    with needs("transformers", "transformers"):
        import transformers

    # ConvNeXt's normalisation learns from the first step; a ResNet's is frozen here and needs pretrained weights.
    backbone = transformers.ConvNextConfig(
        num_channels=1, num_stages=3, hidden_sizes=[16, 32, 64], depths=[1, 1, 1], out_features=["stage2", "stage3"]
    )
    shared: dict[str, Any] = {
        "backbone_config": backbone,
        "num_labels": classes,
        "num_channels": 1,
        "num_queries": 10,
        "d_model": 64,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "dropout": 0.0,
        "auxiliary_loss": True,
    }
    detector: nn.Module
    if name == "deformable-detr-tiny":
        config: Any = transformers.DeformableDetrConfig(num_feature_levels=2, **shared)
        detector = transformers.DeformableDetrForObjectDetection(config)
    elif name == "conditional-detr-tiny":
        detector = transformers.ConditionalDetrForObjectDetection(transformers.ConditionalDetrConfig(**shared))
    else:
        detector = transformers.DetrForObjectDetection(transformers.DetrConfig(**shared))
    return detector


# -- average precision ----------------------------------------------------------------------------------------------


class Guesses(NamedTuple):
    """The boxes that a model sees in a picture, their classes, and the probability of each."""

    boxes: Tensor
    labels: Tensor
    chances: Tensor

    @classmethod
    def of(cls, chances: Tensor, boxes: Tensor) -> Guesses:
        """Each query's likeliest class."""
        best, labels = chances.max(-1)
        return cls(boxes.float(), labels, best)


def average_precision(guesses: Sequence[Guesses], truth: Sequence[Scene], threshold: float = 0.5) -> float:
    """The mean over the classes of COCO's average precision at one threshold of IoU.

    Guesses of a class are taken in order of their probability. A guess is right if it overlaps a box of its class in
    its picture that no earlier guess has claimed. Precision, made to fall with recall, is averaged over the recalls 0,
    0.01, …, 1.
    """
    by_class = []
    for label in sorted({int(label) for scene in truth for label in scene.labels}):
        right, chances, boxes = [], [], 0
        for guess, scene in zip(guesses, truth, strict=True):
            guessed, true = guess.labels == label, scene.labels == label
            boxes += int(true.sum())
            right += _mark_right(
                guess.boxes[guessed], guess.chances[guessed], scene.boxes[true].to(guess.boxes), threshold
            )
            chances += guess.chances[guessed].tolist()
        by_class.append(_average_over_recall(np.array(right, bool), np.array(chances), boxes))
    return float(np.mean(by_class))


def _mark_right(boxes: Tensor, chances: Tensor, truth: Tensor, threshold: float) -> list[bool]:
    """Whether each guess of one class in one picture is right."""
    right = [False] * len(boxes)
    overlaps = iou(boxes[:, None], truth).cpu().numpy()
    for i in torch.argsort(chances, descending=True, stable=True).tolist():
        if len(truth) and overlaps[i].max() >= threshold:
            right[i] = True
            overlaps[:, overlaps[i].argmax()] = -1  # claimed
    return right


def _average_over_recall(right: NDArray[np.bool_], chances: NDArray[np.float64], boxes: int) -> float:
    """The mean precision over the recalls 0, 0.01, …, 1."""
    right = right[np.argsort(-chances, kind="stable")]
    hits = np.cumsum(right)
    precision = hits / np.arange(1, len(right) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]  # the best at this recall or a higher one
    reached = np.searchsorted(100 * hits, np.arange(101) * boxes)  # whole numbers: shares would be rounded
    return float(np.append(precision, 0.0)[reached].mean())

"""What a task is: what the training loop, a comparison and a selection ask of what is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from ...records import Measure
from .mixing import MixedLosses

Losses = Tensor | tuple[Tensor, Tensor] | MixedLosses


class Task(ABC):
    """What is trained: ``train``, a map-style dataset, a model, one loss per sample, and a figure of merit."""

    metric: str
    higher_is_better: bool
    train: Dataset[Any]

    @staticmethod
    def collate(batch: Any) -> Any:
        """A batch of what the dataset gives: called by the loader for each; here it is one already."""
        return batch

    @abstractmethod
    def model(self, seed: int) -> nn.Module:
        """The model as it starts: called once, when a run begins."""

    @abstractmethod
    def losses(self, model: nn.Module, batch: Any, generator: torch.Generator, rows: Tensor | None = None) -> Losses:
        """One loss per sample; with a second tensor where the score is something else; more where inputs are mixed.

        Called in each step. With ``rows`` only these samples of the batch go through the model; augmentation is drawn
        for all of it.
        """

    @abstractmethod
    def evaluate(self, model: nn.Module) -> float:
        """The metric on held-out data: called after the epochs that the recipe's ``judge_every`` names and the last."""

    def further(self, model: nn.Module) -> Sequence[Measure]:
        """What else is measured: called once, after the last epoch, with the model that is judged. Here nothing."""
        return ()

    def pictures(self, indices: list[int]) -> tuple[NDArray[np.uint8], list[str]] | None:
        """Training samples as images with captions: called when a comparison is done, for its report. Here none."""
        return None


class Selectable(Task):
    """A task whose training data a static method can select from. Its hooks are called before any run begins."""

    @property
    @abstractmethod
    def labels(self) -> NDArray[np.int64]:
        """The class of each training sample."""

    @abstractmethod
    def plain_batches(self) -> Iterable[tuple[Tensor, Tensor]]:
        """The training data in its order, as the model sees it without augmentation, with its labels, in batches.

        Called after each epoch of a teacher.
        """

"""The interface of a task, for the training loop, comparisons and selections."""

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
    """Something to train: ``train``, a map-style dataset, a model, one loss per sample, and a metric."""

    metric: str
    higher_is_better: bool
    train: Dataset[Any]

    @staticmethod
    def collate(batch: Any) -> Any:
        """Make a batch of the dataset's samples: called by the loader. By default the dataset gives batches itself."""
        return batch

    @abstractmethod
    def model(self, seed: int) -> nn.Module:
        """A new model: called once, when a run begins."""

    @abstractmethod
    def losses(self, model: nn.Module, batch: Any, generator: torch.Generator, rows: Tensor | None = None) -> Losses:
        """One loss per sample; losses and scores if scores differ from losses; ``MixedLosses`` for mixed inputs.

        Called in each step. With ``rows`` only these samples of the batch go through the model; augmentation is drawn
        for the whole batch.
        """

    @abstractmethod
    def evaluate(self, model: nn.Module) -> float:
        """The metric on held-out data: called after every ``judge_every``-th epoch and after the last."""

    def further(self, model: nn.Module) -> Sequence[Measure]:
        """Other measures: called once, after the last epoch, with the model that is judged. By default none."""
        return ()

    def pictures(self, indices: list[int]) -> tuple[NDArray[np.uint8], list[str]] | None:
        """Training samples as images with captions: called for the report of a finished comparison. By default none."""
        return None


class Selectable(Task):
    """A task whose training data a static method can select from. Its hooks are called before any run begins."""

    @property
    @abstractmethod
    def labels(self) -> NDArray[np.int64]:
        """The class of each training sample."""

    @abstractmethod
    def plain_batches(self) -> Iterable[tuple[Tensor, Tensor]]:
        """Batches of the training data in order, as the model sees it without augmentation, and the labels.

        Called after each epoch of a teacher.
        """

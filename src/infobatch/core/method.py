"""The interface of a pruning method: scores in, one epoch's weights out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from .weights import Weights

Memory = Mapping[str, NDArray[np.float32]]
Gradients = tuple[torch.Tensor, ...]
"""Factors of a batch's gradients, a row per sample in each: a sample's gradient is the outer product of its rows."""


@dataclass(frozen=True)
class MethodInfo:
    """A method's card in the registry."""

    name: str
    summary: str
    reference: str
    unbiased: bool  # E[weight · kept] = 1 for every sample with default options; a test shows it
    anneals: bool = True  # whether the last (1 - delta) of the epochs are full by default
    full_first: int = 1  # how many epochs are full at the start, to gather scores


@dataclass(frozen=True)
class Epoch:
    """The epoch to plan, as a method sees it."""

    index: int
    pruning: range  # the epochs that may be pruned
    num_epochs: int
    pruned_before: int  # samples left out in all epochs before this one
    before: Weights | None = None  # the weights of the previous epoch
    memory: Memory = field(default_factory=dict)  # the method's own arrays, a number (or several) per sample
    batch: int = 0  # samples in a step of all ranks; 0 if not known

    @property
    def progress(self) -> float:
        """The share of training that lies before this epoch."""
        return self.index / self.num_epochs

    def fit(self, kept: int, total: int) -> int:
        """How many of ``total`` samples to keep, near ``kept``: full data must have a batch of the last one's size.

        See :func:`infobatch.core.plan.surplus`, which cuts the plans of methods that do not call this.

        >>> [Epoch(1, range(1, 9), 10, 0, batch=32).fit(kept, 2050) for kept in (1281, 1283, 1310)]
        [1280, 1282, 1312]
        """
        if not self.batch or kept >= total or total <= self.batch:
            return kept
        whole, usual = kept - kept % self.batch, total % self.batch
        allowed = (whole + usual - self.batch, whole, whole + usual, whole + self.batch)
        return min(
            (count for count in allowed if 0 < count <= total), key=lambda count: abs(count - kept), default=kept
        )


class Method(ABC):
    """Turns the score table into the weights of the next epoch.

    A method holds options, never data: it depends only on its options and the arguments of :meth:`select`.
    """

    info: ClassVar[MethodInfo]
    scores_batches: ClassVar[bool] = False  # the mean of a batch's losses is the score of each of its samples
    compares_in_batch: ClassVar[bool] = False  # a score is a loss minus the mean of its batch
    refreshes: ClassVar[bool] = False  # uses new scores of samples that were left out, given by InfoBatch.note

    @property
    def many_weights(self) -> bool:
        """Whether an epoch may need more different weights than fit into one byte per sample."""
        return False

    @abstractmethod
    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        """The weights of one epoch. ``scores`` is NaN where a sample has never been scored."""

    @abstractmethod
    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        """The share of full training this method is expected to save, before any score is known."""

    @abstractmethod
    def options(self) -> dict[str, object]:
        """The options this method was made with: plain values, for checkpoints and messages."""

    def squared_norms(self, scores: NDArray[np.float32]) -> NDArray[np.floating]:
        """The squared gradient norms that follow from these scores, up to a factor."""
        return smooth_bound(scores)

    def check(self, size: int, pruning: range, num_epochs: int) -> None:  # noqa: B027 (a hook, not a duty)
        """Raise ValueError if the options cannot be met on this many samples and epochs."""

    # -- for methods that need more than each sample's last score --------------------------------------------------

    def memory(self) -> dict[str, int]:
        """The method's own arrays: name -> how many numbers it holds per sample. NaN until written."""
        return {}

    def observe(self, scores: NDArray[np.float32], trained: NDArray[np.integer], memory: Memory) -> None:  # noqa: B027
        """Write into the memory's arrays after an epoch in which the samples ``trained`` were trained."""


class BatchMethod(Method):
    """A method that chooses within batches, by losses that were computed for it beforehand."""

    needs_gradients: ClassVar[bool] = False  # chooses by each sample's gradient

    def chooses(self, progress: float, step: int) -> bool:
        """Whether to train on only part of batch ``step`` of an epoch before which ``progress`` was done."""
        return True

    @abstractmethod
    def choose(
        self, loss: torch.Tensor, generator: torch.Generator, gradients: Gradients | None = None
    ) -> torch.Tensor:
        """The positions in the batch to train on."""

    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        """Plans are full: samples are left out within their batches."""
        return Weights.ones(len(scores))


def smooth_bound(loss: NDArray[np.floating]) -> NDArray[np.floating]:
    """A bound on the squared gradient norms of a smooth loss, up to a factor: ‖∇l‖² ≤ 2L·(l - its lowest value).

    The lowest value is 0, or the lowest seen where losses are negative.

    >>> smooth_bound(np.array([0.5, 2.0])).tolist(), smooth_bound(np.array([-1.0, np.nan, 2.0])).tolist()
    ([0.5, 2.0], [0.0, nan, 3.0])
    """
    return np.asarray(loss - np.fmin.reduce(loss, initial=0))


def blank_memory(method: Method, size: int) -> dict[str, NDArray[np.float32]]:
    """An empty memory for a method: one array per name, with a row for each of its numbers."""
    return {
        name: np.full(size if width == 1 else (width, size), np.nan, np.float32)
        for name, width in method.memory().items()
    }

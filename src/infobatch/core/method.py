"""What a pruning method is: scores in, one epoch's weights out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .weights import Weights


@dataclass(frozen=True)
class MethodInfo:
    """A method's card in the registry."""

    name: str
    summary: str
    reference: str
    unbiased: bool  # E[weight · kept] = 1 for every sample with default options; a test shows it
    anneals: bool = True  # whether the last (1 - delta) of the epochs are full by default


@dataclass(frozen=True)
class Epoch:
    """What a method may know about the epoch it plans."""

    index: int
    pruning: range  # the epochs that may be pruned
    num_epochs: int
    pruned_before: int  # samples left out in all epochs before this one


class Method(ABC):
    """Turns the score table into the weights of the next epoch.

    A method holds options, never data: all it depends on comes in through :meth:`select`.
    """

    info: ClassVar[MethodInfo]

    @property
    def many_weights(self) -> bool:
        """Whether an epoch may need more different weights than fit into one byte a sample."""
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

    def check(self, size: int, pruning: range, num_epochs: int) -> None:  # noqa: B027 (a hook, not a duty)
        """Raise ValueError if the options cannot be met on this many samples and epochs."""

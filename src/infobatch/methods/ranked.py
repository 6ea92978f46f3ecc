"""Methods that keep the samples of the highest rank, and the averages some of them rank by."""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..core.checks import checked_ratio
from ..core.method import Epoch, Memory, Method
from ..core.thresholds import highest
from ..core.weights import Weights


class RankedMethod(Method):
    """Keeps a fixed number of samples, chosen anew every ``period`` epochs and the same in between.

    ``ratio`` of all samples are left out. A sample of which nothing is known yet ranks first.
    """

    def __init__(self, ratio: float = 0.5, *, period: int = 1) -> None:
        if isinstance(period, bool) or not isinstance(period, int) or period < 1:
            raise ValueError(f"period must be a whole number of epochs, at least 1, got {period!r}")
        self.ratio = checked_ratio(ratio)
        self.period = period

    @abstractmethod
    def rank(self, scores: NDArray[np.float32], memory: Memory) -> NDArray[np.floating]:
        """A number for every sample: the higher, the more it is worth training on; NaN where nothing is known."""

    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        fresh = (epoch.index - epoch.pruning.start) % self.period == 0
        if not fresh and epoch.before is not None and not epoch.before.uniform:
            return epoch.before
        count = epoch.fit(self.kept_of(len(scores)), len(scores))
        return self.keep(self.rank(scores, epoch.memory), count, rng)

    def keep(self, rank: NDArray[np.floating], count: int, rng: np.random.Generator) -> Weights:
        """The ``count`` samples of the highest rank."""
        return Weights.only(highest(rank, count, rng))

    def kept_of(self, size: int) -> int:
        """How many of ``size`` samples are kept."""
        return size - math.floor(Fraction(repr(self.ratio)) * size)

    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        return self.ratio * len(pruning) / num_epochs

    def options(self) -> dict[str, object]:
        return {"ratio": self.ratio, "period": self.period}


def average(mean: NDArray[np.float32], value: NDArray[np.float32], alpha: float) -> NDArray[np.float32]:
    """(1 - alpha)·mean + alpha·value; the value itself where there is no mean yet, and the mean where no value."""
    moved = (1 - alpha) * mean + alpha * value
    return np.where(np.isnan(mean), value, np.where(np.isnan(value), mean, moved)).astype(np.float32)

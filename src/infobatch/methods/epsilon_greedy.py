"""ε-greedy: mostly the samples of the highest average loss, and some of the others by chance."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import check_flag, checked_part
from ..core.draw import ALWAYS, fixed_size
from ..core.method import Memory, MethodInfo
from ..core.thresholds import highest
from ..core.weights import Weights
from .ranked import RankedMethod, average


class EpsilonGreedy(RankedMethod):
    """Of the k samples to keep, (1 - ``epsilon``)·k have the highest average loss; the rest is drawn from the others.

    The average is s ← (1 - ``alpha``)·s + ``alpha``·loss. With ``rescale=True`` the drawn ones weigh 1/π, so that the
    expected gradient is that of full data.
    """

    info: ClassVar = MethodInfo(
        name="epsilon-greedy",
        summary="the highest average losses, and a share epsilon by chance from the rest",
        reference="Raju et al., Accelerating deep learning with dynamic data pruning, 2021",
        unbiased=False,
        anneals=False,
    )

    def __init__(
        self,
        ratio: float = 0.5,
        *,
        epsilon: float = 0.1,
        alpha: float = 0.8,
        period: int = 10,
        rescale: bool = False,
    ) -> None:
        super().__init__(ratio, period=period)
        self.epsilon = checked_part("epsilon", epsilon, "the share of the kept samples that chance chooses")
        self.alpha = checked_part("alpha", alpha, "how much of a new loss enters the average")
        check_flag("rescale", rescale, "whether kept samples weigh more")
        self.rescale = bool(rescale)

    def memory(self) -> dict[str, int]:
        return {"mean": 1}

    def observe(self, scores: NDArray[np.float32], trained: NDArray[np.integer], memory: Memory) -> None:
        mean = memory["mean"]
        mean[trained] = average(mean[trained], scores[trained], self.alpha)

    def rank(self, scores: NDArray[np.float32], memory: Memory) -> NDArray[np.floating]:
        return memory["mean"]

    def keep(self, rank: NDArray[np.floating], count: int, rng: np.random.Generator) -> Weights:
        drawn = max(1, math.floor(Fraction(repr(self.epsilon)) * count))  # at least one: no sample is lost for ever
        best = highest(rank, count - drawn, rng)
        group = np.where(best, ALWAYS, ALWAYS + 1).astype(np.uint8)
        return fixed_size(group, np.array([0, len(rank) - count]), rng, self.rescale)

    def options(self) -> dict[str, object]:
        own = {"epsilon": self.epsilon, "alpha": self.alpha, "rescale": self.rescale}
        return {**super().options(), **own}

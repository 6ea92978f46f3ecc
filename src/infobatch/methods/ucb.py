"""UCB: the samples of the highest upper confidence bound of the loss."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import checked_part, is_real
from ..core.method import Memory, MethodInfo
from .ranked import RankedMethod, average


class UpperConfidenceBound(RankedMethod):
    """Keeps the samples with the highest mean + ``c``·variance, both moving averages with ``alpha``."""

    info: ClassVar = MethodInfo(
        name="ucb",
        summary="the highest average loss plus c times its average variance",
        reference="Raju et al., Accelerating deep learning with dynamic data pruning, 2021",
        unbiased=False,
        anneals=False,
    )

    def __init__(self, ratio: float = 0.5, *, c: float = 1.0, alpha: float = 0.8, period: int = 10) -> None:
        super().__init__(ratio, period=period)
        if not is_real(c) or c < 0:
            raise ValueError(f"c must not be negative (the weight of the variance), got {c!r}")
        self.c = float(c)
        self.alpha = checked_part("alpha", alpha, "how much of a new loss enters the averages")

    def memory(self) -> dict[str, int]:
        return {"mean": 1, "variance": 1}

    def observe(self, scores: NDArray[np.float32], trained: NDArray[np.integer], memory: Memory) -> None:
        mean, variance, value = memory["mean"], memory["variance"], scores[trained]
        deviation = np.where(np.isnan(mean[trained]), 0, (value - mean[trained]) ** 2).astype(np.float32)
        variance[trained] = average(variance[trained], deviation, self.alpha)
        mean[trained] = average(mean[trained], value, self.alpha)

    def rank(self, scores: NDArray[np.float32], memory: Memory) -> NDArray[np.floating]:
        rank: NDArray[np.float32] = memory["mean"] + np.float32(self.c) * memory["variance"]
        return rank

    def options(self) -> dict[str, object]:
        return {**super().options(), "c": self.c, "alpha": self.alpha}

"""RS2: repeated sampling of random subsets, without a sample coming again before all others came."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import check_flag
from ..core.method import Epoch, Memory, MethodInfo
from ..core.weights import Weights
from .ranked import RankedMethod


class RepeatedSampling(RankedMethod):
    """Each epoch takes the next samples of one random order of all, which is shuffled anew when it is used up.

    Where an epoch reaches beyond the end of the order, the samples it has taken are not taken again in it. With
    ``rescale=True`` every sample weighs N/k, the inverse of its probability to be in an epoch.
    """

    info: ClassVar = MethodInfo(
        name="rs2",
        summary="consecutive slices of one random order, shuffled anew when used up",
        reference="Okanovic et al., Repeated random sampling for minimizing the time-to-accuracy of learning, 2024",
        unbiased=False,
        anneals=False,
    )

    def __init__(self, ratio: float = 0.5, *, rescale: bool = False) -> None:
        super().__init__(ratio)
        check_flag("rescale", rescale, "whether kept samples weigh more")
        self.rescale = bool(rescale)

    def memory(self) -> dict[str, int]:
        return {"uses": 1}

    def observe(self, scores: NDArray[np.float32], trained: NDArray[np.integer], memory: Memory) -> None:
        memory["uses"][trained] = np.nan_to_num(memory["uses"][trained]) + 1

    def rank(self, scores: NDArray[np.float32], memory: Memory) -> NDArray[np.floating]:
        """The less a sample was used, the higher; those of equal use are in random order."""
        return -np.nan_to_num(memory["uses"])

    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        weights = super().select(scores, epoch, rng)
        if not self.rescale or weights.uniform:
            return weights
        return Weights.only(weights.of(np.arange(weights.size)) > 0, weights.size / weights.count)

    def options(self) -> dict[str, object]:
        return {"ratio": self.ratio, "rescale": self.rescale}

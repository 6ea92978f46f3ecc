"""BLS: InfoBatch's mean rule on scores that only need the mean loss of each batch."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import checked_ratio
from ..core.method import Epoch, Memory, MethodInfo
from ..core.weights import Weights
from .infobatch import MeanRule


class BatchLossScore(MeanRule):
    """A sample's score is the average s ← ``alpha``·s + (1 - ``alpha``)·(mean loss of its batch), from 0 on.

    ``update`` may be given that mean alone; it is then multiplied by the mean weight of the batch, which is exact as
    far as weight and loss are unrelated within a batch. Where there is one loss per sample, each gets its own weight.
    """

    info: ClassVar = MethodInfo(
        name="bls",
        summary="the mean rule on averages of batch losses: works where only a batch's mean loss is known",
        reference="Zhou et al., Batch loss score for dynamic data pruning, CVPR 2026",
        unbiased=True,
    )
    scores_batches: ClassVar = True

    def __init__(self, ratio: float = 0.5, *, alpha: float = 0.9, **options: Any) -> None:
        super().__init__(ratio, **options)
        self.usual_sizes = (0.5, 0.5)  # means of batches lie around their mean, unlike single losses
        self.alpha = checked_ratio(alpha, "alpha", "how much of the old score stays when a batch's loss enters")

    def memory(self) -> dict[str, int]:
        return {"mean": 1}

    def observe(self, scores: NDArray[np.float32], trained: NDArray[np.integer], memory: Memory) -> None:
        mean = memory["mean"]
        mean[trained] = self.alpha * np.nan_to_num(mean[trained]) + (1 - self.alpha) * scores[trained]

    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        return super().select(epoch.memory["mean"], epoch, rng)

    def options(self) -> dict[str, object]:
        return {"alpha": self.alpha, **super().options()}

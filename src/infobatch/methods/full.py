"""No pruning: the baseline every other method is compared with."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.method import Epoch, Method, MethodInfo
from ..core.weights import Weights


class Full(Method):
    """Every sample in every epoch, weight 1."""

    info: ClassVar = MethodInfo(
        name="full",
        summary="all data in every epoch",
        reference="plain training",
        unbiased=True,
        anneals=False,
    )

    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        return Weights.ones(len(scores))

    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        return 0.0

    def options(self) -> dict[str, object]:
        return {}

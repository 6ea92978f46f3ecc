"""InfoBatch's mean rule: prune part of the samples whose score is below the mean (Eq. 3)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import checked_ratio
from ..core.method import MethodInfo
from ..core.thresholds import as_float32_bound, exact_mean
from .grouped import GroupedMethod


class MeanRule(GroupedMethod):
    """Each sample with a score below the mean is pruned with probability ``ratio``; survivors weigh n/k.

    Of n such samples exactly ⌊ratio·n⌋ go. ``condition="above"`` prunes above the mean instead (table 5).
    """

    info: ClassVar = MethodInfo(
        name="infobatch",
        summary="soft pruning below the mean score, rescaled and annealed",
        reference="Qin et al., InfoBatch, ICLR 2024, Eq. 3, 4, 8, 10",
        unbiased=True,
    )

    def __init__(self, ratio: float = 0.5, *, condition: str = "below", **options: Any) -> None:
        super().__init__(**options)
        if condition not in ("below", "above"):
            raise ValueError(f'condition must be "below" or "above" (the mean score), got {condition!r}')
        self.ratio = checked_ratio(ratio)
        self.condition = condition
        self.shares = (0.0, self.ratio)
        below = 1 - np.exp(-1)  # of an exponential distribution, which losses resemble
        self.usual_sizes = (1 - below, below) if condition == "below" else (below, 1 - below)

    def group(self, scores: NDArray[np.float32]) -> NDArray[np.uint8]:
        mean = exact_mean(scores)
        pruned: NDArray[np.bool_] = scores < as_float32_bound(mean)
        if self.condition == "above":
            pruned = scores > -as_float32_bound(-mean)
        return pruned.view(np.uint8)

    def options(self) -> dict[str, object]:
        return {"ratio": self.ratio, "condition": self.condition, **super().options()}

"""OrderDP: a random subset, and of it the samples of the highest loss."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import checked_part
from ..core.method import Memory, MethodInfo
from ..core.thresholds import highest
from ..core.weights import Weights
from .ranked import RankedMethod


class OrderStatistics(RankedMethod):
    """Each epoch draws (1 - ``ratio``)/``top`` of all samples by chance and keeps the ``top`` share of highest loss.

    None for ``top`` is √(1 - ``ratio``): chance and order leave out the same share. All weights are 1.
    """

    info: ClassVar = MethodInfo(
        name="orderdp",
        summary="of a random subset, drawn anew each epoch, the samples of the highest loss",
        reference="Jin et al., OrderDP: A theoretically guaranteed lossless dynamic data pruning framework, ICLR 2026",
        unbiased=False,
        anneals=False,
    )

    def __init__(self, ratio: float = 0.5, *, top: float | None = None) -> None:
        super().__init__(ratio)
        self.top = math.sqrt(1 - self.ratio)
        if top is not None:
            self.top = checked_part("top", top, "the share of the drawn samples that is kept")
        if self.top + self.ratio < 1 - 1e-9:
            raise ValueError(
                f"top must be at least 1 - ratio, {1 - self.ratio:g}, or more samples would be drawn than there are; "
                f"got {top!r}: raise top, or ratio"
            )

    def rank(self, scores: NDArray[np.float32], memory: Memory) -> NDArray[np.floating]:
        return scores

    def keep(self, rank: NDArray[np.floating], count: int, rng: np.random.Generator) -> Weights:
        size = len(rank)
        some = min(max(round(count / self.top), count), size)
        drawn = rng.choice(np.arange(size), some, replace=False, shuffle=False)
        kept = np.zeros(size, bool)
        kept[drawn[highest(rank[drawn], count, rng)]] = True
        return Weights.only(kept)

    def options(self) -> dict[str, object]:
        return {"ratio": self.ratio, "top": self.top}

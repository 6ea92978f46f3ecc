"""Random pruning: a fresh uniform subset every epoch, whatever the scores."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import checked_ratio
from ..core.method import MethodInfo
from .grouped import GroupedMethod


class RandomSubset(GroupedMethod):
    """Leaves ``ratio`` of all samples out. As in table 1 (Random*) neither rescaled nor annealed.

    With ``rescale=True, anneal=True`` it is the "Random" of table 5.
    """

    info: ClassVar = MethodInfo(
        name="random",
        summary="a fresh uniform subset every epoch; rescale=True, anneal=True for table 5's variant",
        reference="Random* of Qin et al., InfoBatch, ICLR 2024, tables 1, 4, 5",
        unbiased=False,
        anneals=False,
    )
    needs_scores = False
    usual_sizes = (0.0, 1.0)

    def __init__(self, ratio: float = 0.5, **options: Any) -> None:
        super().__init__(**options)
        self.ratio = checked_ratio(ratio)
        self.shares = (0.0, self.ratio)

    def group(self, scores: NDArray[np.float32]) -> NDArray[np.uint8]:
        return np.ones(len(scores), np.uint8)

    def options(self) -> dict[str, object]:
        return {"ratio": self.ratio, **super().options()}

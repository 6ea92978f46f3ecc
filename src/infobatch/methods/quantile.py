"""InfoBatch's quantile rule: the lower the score, the more is pruned. The paper's 40 % preset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import checked_ratio
from ..core.method import MethodInfo
from ..core.thresholds import as_float32_bound, quantiles
from .grouped import GroupedMethod

PRESET = (0.2, 0.85)


class QuantileRule(GroupedMethod):
    """Groups between quantiles of the score, each with its own share to keep.

    ``levels`` lists (quantile, keep): the default ((0.2, 0.25), (0.85, 0.5)) keeps 25 % below the 20th percentile,
    50 % from there to the 85th and everything above, which is what the authors ran for their 40 % figures. ``ratio``
    scales that preset: keep (1 - ratio)² and 1 - ratio.
    """

    info: ClassVar = MethodInfo(
        name="infobatch-quantile",
        summary="25 % / 50 % / 100 % kept below the 20th, below the 85th and above the 85th percentile",
        reference="Qin et al., InfoBatch, ICLR 2024, sec. 3.1 and the authors' ImageNet, ADE20K and diffusion code",
        unbiased=True,
    )

    def __init__(
        self, ratio: float = 0.5, *, levels: Sequence[tuple[float, float]] | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        if levels is None:
            keep = 1 - checked_ratio(ratio)
            levels = ((PRESET[0], keep**2), (PRESET[1], keep))
        elif ratio != 0.5:
            raise ValueError(f"give ratio or levels, not both: got ratio={ratio} and levels={levels}")
        self.levels = _checked(levels)
        bounds = [0.0, *(quantile for quantile, _ in self.levels), 1.0]
        self.usual_sizes = tuple(np.diff(bounds).tolist())
        self.shares = (*(1 - keep for _, keep in self.levels), 0.0)

    def group(self, scores: NDArray[np.float32]) -> NDArray[np.uint8]:
        group = np.zeros(len(scores), np.uint8)
        for threshold in quantiles(scores, [quantile for quantile, _ in self.levels]):
            group += scores >= as_float32_bound(threshold)
        return group

    def options(self) -> dict[str, object]:
        return {"levels": self.levels, **super().options()}


def _checked(levels: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    levels = tuple((float(quantile), float(keep)) for quantile, keep in levels)
    positions = [quantile for quantile, _ in levels]
    if not (
        0 < len(levels) <= 100
        and all(0 < quantile < 1 and 0 < keep <= 1 for quantile, keep in levels)
        and positions == sorted(set(positions))
    ):
        raise ValueError(
            "levels must be pairs (quantile, share to keep) with quantiles in (0, 1) ascending and shares in (0, 1], "
            f"got {levels}: the paper's preset is ((0.2, 0.25), (0.85, 0.5))"
        )
    return levels

"""Dyn-Unc: the samples whose prediction varies most from epoch to epoch."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.method import Memory, MethodInfo
from .ranked import RankedMethod


class DynamicUncertainty(RankedMethod):
    """Keeps the samples of the highest dynamic uncertainty.

    The uncertainty of a window is the standard deviation of the true label's probability over the last ``window``
    epochs in which the sample was trained; the dynamic uncertainty is its mean over all windows so far. The probability
    is exp(-score): what a cross-entropy without smoothing says. Before a window is full it is taken over what is there.
    """

    info: ClassVar = MethodInfo(
        name="dyn-unc",
        summary="the highest standard deviation of the label's probability over a window of epochs",
        reference="He et al., Large-scale dataset pruning with dynamic uncertainty, 2023",
        unbiased=False,
        anneals=False,
    )

    def __init__(self, ratio: float = 0.5, *, window: int = 10, period: int = 1) -> None:
        super().__init__(ratio, period=period)
        if isinstance(window, bool) or not isinstance(window, int) or window < 2:
            raise ValueError(f"window must be a whole number of epochs, at least 2, got {window!r}")
        self.window = window

    def memory(self) -> dict[str, int]:
        return {"seen": 1, "probability": self.window, "deviations": 1, "windows": 1}

    def observe(self, scores: NDArray[np.float32], trained: NDArray[np.integer], memory: Memory) -> None:
        seen, probability = memory["seen"], memory["probability"]
        deviations, windows = memory["deviations"], memory["windows"]
        count = np.nan_to_num(seen[trained]).astype(np.int64)
        probability[count % self.window, trained] = np.exp(-scores[trained])
        seen[trained] = count + 1
        full = trained[count + 1 >= self.window]
        deviations[full] = np.nan_to_num(deviations[full]) + probability[:, full].std(axis=0, ddof=1)
        windows[full] = np.nan_to_num(windows[full]) + 1

    def rank(self, scores: NDArray[np.float32], memory: Memory) -> NDArray[np.floating]:
        rank = memory["deviations"] / memory["windows"]
        early = np.flatnonzero(~(memory["windows"] > 0) & (memory["seen"] >= 2))
        rank[early] = np.nanstd(memory["probability"][:, early], axis=0, ddof=1)
        return rank

    def options(self) -> dict[str, object]:
        return {**super().options(), "window": self.window}

"""Weighted Bernoulli sampling with history: probabilities of least variance, from averages of past gradient norms."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.budget import SIZES, check_size
from ..core.checks import check_share, checked_part, checked_ratio
from ..core.draw import systematic
from ..core.method import Epoch, Memory, Method, MethodInfo
from ..core.weights import Weights
from .ranked import average


class WeightedBernoulli(Method):
    """Keeps sample i with probability min(1, c·g_i), g being an average of its past gradient norms, and weighs it 1/π.

    c is such that 1 - ``ratio`` of all samples are kept: of all ways to keep so many, without repeats and unbiased,
    this one adds least to the variance of the gradient. With ``smoothing`` s the probability is
    (1 - s)·min(1, c·g_i) + s·(1 - ratio), so that no weight exceeds 1/(s·(1 - ratio)). ``alpha`` of a new norm enters
    the average; ``size`` says how a norm follows from the score, as for ``infobatch-adaptive``.
    """

    info: ClassVar = MethodInfo(
        name="weighted-bernoulli",
        summary="keep probabilities of least variance, from an average of past gradient norms; weights 1/π",
        reference="Learn from the past: dynamic data pruning with historically weighted Bernoulli sampling, 2024",
        unbiased=True,
        anneals=False,
    )
    bits = 32  # of which probabilities are multiples

    def __init__(
        self, ratio: float = 0.5, *, alpha: float = 0.5, smoothing: float = 0.2, size: str = "cross-entropy"
    ) -> None:
        self.ratio = checked_ratio(ratio)
        self.alpha = checked_part("alpha", alpha, "how much of a new norm enters the average")
        check_share("smoothing", smoothing, "how much of a probability is the same for all samples")
        if not smoothing:
            raise ValueError("smoothing must be above 0: without it a sample of norm 0 would never be drawn; use 0.01")
        check_size(size)
        self.smoothing = float(smoothing)
        self.size = size

    @property
    def many_weights(self) -> bool:
        return True

    def squared_norms(self, scores: NDArray[np.float32]) -> NDArray[np.floating]:
        return SIZES[self.size](scores)

    def memory(self) -> dict[str, int]:
        return {"norm": 1}

    def observe(self, scores: NDArray[np.float32], trained: NDArray[np.integer], memory: Memory) -> None:
        norm = memory["norm"]
        new = np.sqrt(self.squared_norms(scores[trained])).astype(np.float32)
        norm[trained] = average(norm[trained], new, self.alpha)

    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        norm = epoch.memory["norm"].astype(np.float64)
        known = ~np.isnan(norm)
        keep = np.ones(len(norm))
        best = of_least_variance(norm[known], (1 - self.ratio) * np.count_nonzero(known))
        keep[known] = (1 - self.smoothing) * best + self.smoothing * (1 - self.ratio)
        return systematic(keep, rng, self.bits)

    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        return self.ratio * len(pruning) / num_epochs

    def options(self) -> dict[str, object]:
        return {"ratio": self.ratio, "alpha": self.alpha, "smoothing": self.smoothing, "size": self.size}


def of_least_variance(norm: NDArray[np.float64], count: float) -> NDArray[np.float64]:
    """min(1, c·norm) with the sum ``count``: those that c·norm would lift above 1 are set to 1, and c is found anew.

    >>> of_least_variance(np.array([1.0, 2.0, 9.0]), 2).round(3).tolist()
    [0.333, 0.667, 1.0]
    """
    certain = np.zeros(len(norm), bool)
    while True:
        rest = float(norm[~certain].sum())
        left = count - int(np.count_nonzero(certain))
        if rest <= 0:  # the others say nothing: all alike
            return np.where(certain, 1.0, left / max(int(np.count_nonzero(~certain)), 1))
        keep = np.where(certain, 1.0, norm / rest * left)
        if not (keep > 1).any():
            return keep
        certain |= keep >= 1

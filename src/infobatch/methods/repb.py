"""RePB: losses are compared within their batch only, what was left out comes back, and weights even out the past."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import check_flag, check_share, checked_ratio
from ..core.method import Epoch, Memory, MethodInfo
from ..core.weights import Weights
from .grouped import GroupedMethod

_BELOW = 1 - np.exp(-1)  # of an exponential distribution, which losses resemble, so much is below the mean


class LocalComparison(GroupedMethod):
    """Of the samples whose loss was below the mean of its batch in the last epoch, ``ratio`` are left out of the next.

    A loss is thus compared only with losses of (nearly) the same model. Of the samples that were left out, ``readded``
    come back, by chance. With ``rescale`` a sample weighs the number of epochs so far over the number of those in which
    it was trained on, this one included.
    """

    info: ClassVar = MethodInfo(
        name="repb",
        summary="soft pruning below the mean of each batch; what was left out comes back; weights by past use",
        reference="Zhou et al., Inconsistency biases in dynamic data pruning, ICLR 2026",
        unbiased=False,
    )
    compares_in_batch: ClassVar = True

    def __init__(self, ratio: float = 0.5, *, readded: float = 1.0, rescale: bool = True) -> None:
        super().__init__(rescale=False)
        check_flag("rescale", rescale, "whether samples that were left out before weigh more")
        check_share("readded", readded, "the share of the samples left out that comes back in the next epoch")
        self.ratio = checked_ratio(ratio)
        self.readded = float(readded)
        self.evens_out = bool(rescale)
        self.shares = (0.0, self.ratio, 1 - self.readded)

    @property
    def many_weights(self) -> bool:
        return self.evens_out

    def memory(self) -> dict[str, int]:
        """In how many epochs a sample was trained on."""
        return {"times": 1}

    def observe(self, scores: NDArray[np.float32], trained: NDArray[np.integer], memory: Memory) -> None:
        memory["times"][trained] = np.nan_to_num(memory["times"][trained]) + 1

    def group(self, scores: NDArray[np.float32]) -> NDArray[np.uint8]:
        """0 above the mean of its batch, 1 below, 2 not in the last epoch."""
        return (scores < 0).astype(np.uint8) + np.isneginf(scores)

    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        every = np.arange(len(scores))
        if epoch.before is not None:
            scores = np.where(epoch.before.of(every) > 0, scores, np.float32(-np.inf))
        weights = super().select(scores, epoch, rng)
        if not self.evens_out:
            return weights
        past = (epoch.index + 1) / (np.nan_to_num(epoch.memory["times"]).astype(np.float64) + 1)
        return Weights.dense(np.where(weights.of(every) > 0, past, 0.0))

    def squared_norms(self, scores: NDArray[np.float32]) -> NDArray[np.floating]:
        """All alike: a loss less its batch's mean says nothing of a gradient's size."""
        return np.ones(len(scores))

    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        left_out, saved = 0.0, 0.0
        for _ in pruning:
            left_out = self.ratio * _BELOW * (1 - left_out) + (1 - self.readded) * left_out
            saved += left_out
        return saved / num_epochs

    def options(self) -> dict[str, object]:
        return {"ratio": self.ratio, "readded": self.readded, "rescale": self.evens_out}

"""Weights of pairs: what an input made of two samples weighs."""

from __future__ import annotations

import numpy as np
import torch

from .plan import EpochPlan


class PairWeights:
    """What an input that mixes two samples weighs in one epoch, so that the expected step is the one of full data.

    With full data every ordered pair of the N samples is mixed equally often. A plan of n entries that keeps pair
    (i, j) with probability π_ij mixes it in the share 1/(n - 1) of the cases, so it weighs (n - 1) / ((N - 1) π_ij).
    Of a group of which k are kept, with weight w each, π_ij = (k - 1) / (w (wk - 1)); across groups samples are kept
    independently, π_ij = 1 / (w_i w_j). A group is known by its weight, and N is the sum of all weights.
    """

    def __init__(self, plan: EpochPlan, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.plan = plan
        levels, level, kept = np.unique(plan.weights, return_inverse=True, return_counts=True)
        by_sample = np.zeros(plan.by_sample.size, np.int32)
        by_sample[plan.indices] = level
        total = levels @ kept
        ratio = (len(plan) - 1) / (total - 1)
        others = np.maximum(kept - 1, 1)  # of a group that keeps one sample no pair occurs
        self._level = torch.from_numpy(by_sample).to(device)
        self._across = torch.from_numpy(ratio * levels).to(device, dtype)
        self._within = torch.from_numpy(ratio * (levels * kept - 1) / others).to(device, dtype)

    def relative(self, index: torch.Tensor, partner: torch.Tensor) -> torch.Tensor:
        """The weights of inputs that mix ``index`` with ``partner``, over those of ``index`` alone."""
        own, other = self._level[index].long(), self._level[partner].long()
        return torch.where(own == other, self._within[own], self._across[other])

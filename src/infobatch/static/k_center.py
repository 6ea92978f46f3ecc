"""Cover the data: always take the sample that is farthest from all taken so far."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .greedy import Picks, lazy_greedy
from .scores import probabilities
from .vectors import Kernel, Vectors, points, squared_distance


def k_center(features: ArrayLike, count: int, *, seed: int = 0) -> Picks:
    """Greedy k-center on Euclidean distance, from a first sample drawn by ``seed``; in the order of picking.

    The largest distance to the nearest pick is at most twice the smallest possible (Gonzalez, 1985).

    >>> sorted(k_center([[0.0], [1.0], [9.0], [10.0], [20.0]], 3).tolist())
    [0, 3, 4]
    """
    return _farthest_first(points(features), count, squared_distance, seed)


def contextual_diversity(logits: ArrayLike, count: int, *, seed: int = 0) -> Picks:
    """k-center on the symmetric Kullback-Leibler divergence of the predictions (Agarwal et al., 2020).

    A probability counts as at least 1e-12: no divergence is infinite.
    """
    likely = torch.from_numpy(np.maximum(probabilities(logits), 1e-12))
    likely /= likely.sum(1, keepdim=True)
    return _farthest_first(Vectors(torch.cat([likely, likely.log()], 1)), count, _symmetric_divergence, seed)


def _symmetric_divergence(one: Vectors, other: Vectors) -> Tensor:
    """Σ (p - q)(log p - log q) for each pair, where a vector is (p, log p)."""
    (left,), (right,) = one.factors, other.factors
    crossed = right.roll(right.shape[1] // 2, 1)  # (log q, q)
    own = [(rows * rows.roll(rows.shape[1] // 2, 1)).sum(1) / 2 for rows in (left, right)]
    return (own[0][:, None] + own[1] - left @ crossed.T).clamp_(min=0)


def _farthest_first(vectors: Vectors, count: int, kernel: Kernel, seed: int) -> Picks:
    first = int(np.random.default_rng(seed).integers(len(vectors)))
    values = kernel(vectors, vectors.take([first]))[:, 0]
    values[first] = -torch.inf

    def nearest(values: Tensor, block: Tensor) -> Tensor:
        return torch.minimum(values, block.amin(1))

    picks = lazy_greedy(values, count - 1, vectors, kernel, nearest)
    return np.concatenate([[first], picks])

"""Greedy selection without a matrix of all pairs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .vectors import Kernel, Vectors

Picks = NDArray[np.int64]

EXACT = 8192
"""Up to this many samples, facility location holds all pairs (256 MB) and looks at every candidate."""
POOL = 2048  # candidates that are kept up to date between two passes over all samples
COLUMNS = 256  # how many columns of the matrix of all pairs are held at a time
BOUNDS = 16  # how many upper bounds are updated at a time


def lazy_greedy(
    values: Tensor, count: int, vectors: Vectors, kernel: Kernel, fold: Callable[[Tensor, Tensor], Tensor]
) -> Picks:
    """Pick the sample of the highest value ``count`` times, where a pick only ever lowers the values of the others.

    ``fold(values, block)`` lowers the values of some samples by a block of the kernel between them and new picks.
    A value that is not up to date is then an upper bound: as long as the best of a pool beats the bounds of all
    samples outside of it, only the pool has to be kept up to date, and the others wait for one matrix product.
    """
    picks: list[int] = []
    while len(picks) < count:
        top = values.topk(min(POOL + 1, len(values)))
        rows, current = top.indices[:POOL], top.values[:POOL]
        limit = float(top.values[POOL]) if len(top.values) > POOL else -math.inf
        pool, begin = vectors.take(rows), len(picks)
        while len(picks) < count:
            best = int(current.argmax())
            if float(current[best]) < limit or current[best] == -math.inf:
                break
            picks.append(int(rows[best]))
            current = fold(current, kernel(pool, vectors.take(picks[-1:])))
            current[best] = -math.inf
        for start in range(begin, len(picks), COLUMNS):
            values = fold(values, kernel(vectors, vectors.take(picks[start : min(start + COLUMNS, len(picks))])))
        values[picks[begin:]] = -math.inf
    return np.asarray(picks, np.int64)


class Coverage:
    """The state of facility location: each sample's distance to its nearest pick, and which pick that is."""

    def __init__(self, size: int, farthest: Tensor) -> None:
        self.distance = farthest.repeat(size)
        self.owner = torch.full((size,), -1)

    def gains(self, block: Tensor) -> Tensor:
        """How much each candidate would lower the sum of distances, from its row of distances to all samples."""
        return (self.distance - block).clamp_(min=0).sum(1)

    def gains_by_part(self, candidates: Tensor, rows: Callable[[Tensor], Tensor]) -> Tensor:
        """The gains of more candidates than memory has room for rows, computed part by part."""
        gains = self.distance.new_empty(len(candidates))  # made first: small pieces between large ones hold memory
        for start in range(0, len(candidates), COLUMNS):
            gains[start : start + COLUMNS] = self.gains(rows(candidates[start : start + COLUMNS]))
        return gains

    def add(self, pick: int, row: Tensor) -> None:
        """Let the pick stand for itself and for every sample that is nearer to it than to earlier picks."""
        self.owner = torch.where(row < self.distance, pick, self.owner)
        self.distance = torch.minimum(row, self.distance)
        self.owner[pick], self.distance[pick] = pick, 0


def facility_location(
    vectors: Vectors, count: int, kernel: Kernel, farthest: Tensor, epsilon: float, rng: np.random.Generator
) -> tuple[Picks, Picks]:
    """(picks, how many samples each stands for): greedily minimise the sum of distances to the nearest pick.

    With ``epsilon`` 0 every pick is the best of all; otherwise the best of (n/count)·ln(1/ε) drawn at random, whose
    sum is, on average, within 1 - 1/e - ε of the optimum (Mirzasoleiman et al., *Lazier than lazy greedy*, 2015).
    """
    coverage = Coverage(len(vectors), farthest)
    pick = _pick_from_all if epsilon == 0 else _pick_from_drawn
    picks = np.asarray(pick(vectors, count, kernel, coverage, epsilon, rng), np.int64)
    sizes = np.bincount(coverage.owner.numpy(), minlength=len(vectors))
    return picks, sizes[picks]


def _pick_from_all(
    vectors: Vectors, count: int, kernel: Kernel, coverage: Coverage, epsilon: float, rng: np.random.Generator
) -> list[int]:
    """Lazy greedy (Minoux, 1978): a gain only falls as picks are made, so an old one is an upper bound."""
    size = len(vectors)
    held = kernel(vectors, vectors) if size <= EXACT else None

    def rows(candidates: Tensor) -> Tensor:
        return kernel(vectors.take(candidates), vectors) if held is None else held[candidates]

    bounds = coverage.gains_by_part(torch.arange(size), rows)
    checked = torch.zeros(size, dtype=torch.int64)  # the number of picks at which a bound was the gain
    picks: list[int] = []
    while len(picks) < count:
        top = bounds.topk(min(BOUNDS, size)).indices
        best = int(top[0])
        if checked[best] < len(picks):
            bounds[top] = torch.where(bounds[top] == -math.inf, -math.inf, coverage.gains(rows(top)))
            checked[top] = len(picks)
        else:
            coverage.add(best, rows(top[:1])[0])
            bounds[best] = -math.inf
            picks.append(best)
    return picks


def _pick_from_drawn(
    vectors: Vectors, count: int, kernel: Kernel, coverage: Coverage, epsilon: float, rng: np.random.Generator
) -> list[int]:
    """Stochastic greedy, with the candidates of many picks drawn and compared with all samples at a time."""
    each = math.ceil(len(vectors) / count * math.log(1 / epsilon))
    rest = np.ones(len(vectors), bool)
    picks: list[int] = []
    while len(picks) < count:
        left = np.flatnonzero(rest)
        drawn = torch.from_numpy(rng.choice(left, min(max(COLUMNS, each), len(left)), replace=False))
        if each > COLUMNS:  # one pick's candidates are too many to hold: leave only the best of them
            gains = coverage.gains_by_part(drawn, lambda part: kernel(vectors.take(part), vectors))
            drawn = drawn[gains.argmax()].view(1)
        block = kernel(vectors.take(drawn), vectors)
        for candidates, rows in zip(torch.split(drawn, each), torch.split(block, each), strict=True):
            best = int(coverage.gains(rows).argmax())
            coverage.add(int(candidates[best]), rows[best])
            picks.append(int(candidates[best]))
            if len(picks) == count:
                break
        rest[picks] = False
    return picks

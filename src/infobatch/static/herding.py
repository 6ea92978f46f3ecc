"""Match a sum: pick samples whose vectors add up to something close to a wanted vector."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .greedy import Picks
from .vectors import Vectors, points

CANDIDATES = 4096
PICKED = 1 / 32  # share of the drawn candidates that is picked before new ones are drawn


def herding(features: ArrayLike, count: int, *, candidates: int | None = CANDIDATES, seed: int = 0) -> Picks:
    """Herding: each pick brings the mean of the picks as close to the mean of all as one sample can (Welling, 2009).

    Above ``candidates`` samples a pick is the best of that many drawn by ``seed``; None looks at all of them.

    >>> herding([[0.0], [4.0], [5.0], [11.0]], 3).tolist()  # their mean is 5
    [2, 1, 3]
    """
    return nearest_sum(points(features), count, None, candidates, np.random.default_rng(seed))


def nearest_sum(
    vectors: Vectors, count: int, wanted: Tensor | None, candidates: int | None, rng: np.random.Generator
) -> Picks:
    """Greedily bring the sum of the picks close to ``wanted`` (None: 0): the next v has the least ‖sum + v - wanted‖.

    That is the least ‖v‖²/2 + v·(sum - wanted): one product of a matrix and a vector per pick.
    """
    if candidates is not None and candidates < 1:
        raise ValueError(f"candidates must be at least 1, or None for all samples, got {candidates!r}")
    limit = len(vectors) if candidates is None else candidates
    beyond = torch.zeros_like(vectors.take([0]).sum(), dtype=torch.float64)  # sum - wanted
    if wanted is not None:
        beyond -= wanted
    rest = np.arange(len(vectors))
    picks: list[int] = []
    while len(picks) < count:
        more = count - len(picks)
        if len(vectors) <= limit:
            members, pool = rest, vectors
        else:
            members = rng.choice(rest, min(limit, len(rest)), replace=False)
            pool = vectors.take(torch.from_numpy(members))
            more = min(more, math.ceil(PICKED * len(members)))
        costs = pool.squares / 2
        for _ in range(more):
            best = int((costs + pool.along(beyond.to(costs.dtype))).argmin())
            costs[best] = torch.inf
            beyond += pool.take([best]).sum()
            picks.append(int(members[best]))
        rest = np.setdiff1d(rest, picks[-more:], assume_unique=True)
    return np.asarray(picks, np.int64)

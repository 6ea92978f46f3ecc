"""Thresholds on scores, and the samples above them: the same on any number of threads and ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

_LANES = 4096


def exact_mean(scores: NDArray[np.float32]) -> float:
    """The mean, summed in float64 in one fixed order.

    Lane j adds every 4096th score, one after the other (elementwise additions only, so that no vector unit can
    change their order); the lanes are then summed exactly. Up to 2**29 equal scores have exactly their value as
    mean, so that equal scores are never below it.

    >>> exact_mean(np.full(10_000, 0.1, np.float32)) == float(np.float32(0.1))
    True
    """
    return fixed_order_sum(scores) / len(scores)


def fixed_order_sum(scores: NDArray[np.float32]) -> float:
    """The sum in the fixed order of :func:`exact_mean`."""
    whole = len(scores) - len(scores) % _LANES
    lanes = np.zeros(_LANES)
    if whole:
        lanes = np.add.reduce(scores[:whole].reshape(-1, _LANES), axis=0, dtype=np.float64)
    lanes[: len(scores) - whole] += scores[whole:]
    return math.fsum(lanes)


def quantiles(scores: NDArray[np.float32], shares: Sequence[float]) -> list[float]:
    """The quantiles at ascending ``shares``, linear between neighbours as in numpy, by selection instead of sorting.

    >>> quantiles(np.array([3, 1, 2, 5, 4], np.float32), [0.25, 0.875])
    [2.0, 4.5]
    """
    values = []
    above, skipped = scores.copy(), 0  # the scores from rank `skipped` on, partly sorted
    for share in shares:
        place = share * (len(scores) - 1)
        rank = math.floor(place)
        above.partition(rank - skipped)
        above = above[rank - skipped :]
        skipped = rank
        low = float(above[0])
        high = float(above[1:].min()) if len(above) > 1 else low
        values.append(low + (place - rank) * (high - low))
    return values


def as_float32_bound(threshold: float | Fraction) -> np.float32:
    """The smallest float32 that is not below ``threshold``.

    For float32 scores, ``score < threshold`` holds exactly when ``score < as_float32_bound(threshold)`` does, so that
    the comparison over all scores needs no float64 copy.
    """
    bound: np.float32 = np.float32(threshold)
    if float(bound) < threshold:
        bound = np.float32(np.nextafter(bound, np.float32(np.inf)))
    return bound


def highest(values: NDArray[np.floating], count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A mask of the ``count`` highest values. NaN counts as higher than any number.

    >>> highest(np.array([1.0, 3.0, np.nan, 2.0]), 2, np.random.default_rng(0)).tolist()
    [False, True, True, False]
    """
    size = len(values)
    if count <= 0:
        return np.zeros(size, bool)
    if count >= size:
        return np.ones(size, bool)
    values = np.where(np.isnan(values), np.inf, values)
    bound = np.partition(values, size - count)[size - count]
    chosen: NDArray[np.bool_] = values > bound
    ties = np.flatnonzero(values == bound)
    missing = count - int(np.count_nonzero(chosen))
    chosen[ties if missing == len(ties) else rng.choice(ties, missing, replace=False, shuffle=False)] = True
    return chosen

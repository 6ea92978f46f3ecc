"""Chance with exact inclusion probabilities: fixed-size draws per group, and systematic sampling.

Both return weights that are the inverse of the true inclusion probability, so that for every sample
E[weight · kept] = 1 exactly, whatever the group's size.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .weights import MAX_LEVELS, Weights

ALWAYS = 0  # the group of samples that are never left out


def fixed_size(
    group: NDArray[np.integer], prune: NDArray[np.int64], rng: np.random.Generator, rescale: bool = True
) -> Weights:
    """Leave exactly ``prune[g]`` samples of every group g out, each set of that size equally likely.

    A survivor of a group of n with k kept has inclusion probability k/n and so weighs n/k (Eq. 8's |D|/|S|, made
    exact per group); with ``rescale=False`` it weighs 1. Group 0 is kept whole.

    >>> w = fixed_size(np.array([1, 1, 0, 1]), np.array([0, 2]), np.random.default_rng(0))
    >>> sorted(w.of(w.kept()).tolist())
    [1.0, 3.0]
    """
    size = np.bincount(group, minlength=len(prune))
    assert prune[ALWAYS] == 0
    assert np.all((prune < size) | (prune == 0))
    if not prune.any():
        return Weights.ones(len(group))
    weight = np.where(rescale & (prune > 0), size / np.maximum(size - prune, 1), 1.0)
    levels, code = np.unique(np.append(weight, 0.0), return_inverse=True)  # 0 sorts first: the level "left out"
    if len(levels) <= MAX_LEVELS:
        codes = code.astype(np.uint8)[group]
        for members, g in _members(group, np.flatnonzero(prune)):
            codes[rng.choice(members, int(prune[g]), replace=False, shuffle=False)] = 0
        return Weights.coded(codes, levels)
    values = weight[group]
    for members, g in _members(group, np.flatnonzero(prune)):
        values[rng.choice(members, int(prune[g]), replace=False, shuffle=False)] = 0
    return Weights.dense(values)


def _members(group: NDArray[np.integer], wanted: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], np.intp]]:
    """The samples of each wanted group: one pass a group for a few, one stable (radix) sort for many."""
    if len(wanted) <= 4:
        for g in wanted:
            yield np.flatnonzero(group == g), g
        return
    by_group = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group))
    for g in wanted:
        yield by_group[ends[g - 1] : ends[g]], g


def systematic(keep: NDArray[np.floating], rng: np.random.Generator, bits: int = 32) -> Weights:
    """Keep sample i with probability ``keep[i]``, exactly; the number kept varies by less than one.

    Probabilities are rounded up to multiples of 2**-bits and summed as integers in random order; a sample is kept
    when its interval covers a point of a comb with random offset. Inclusion probability and weight then hold without
    any rounding error: ``weight = 2**bits / ticks``.
    """
    if not np.all((keep > 0) & (keep <= 1)):
        raise ValueError("keep: probabilities must lie in (0, 1]: a sample that can never be drawn has no weight")
    period = 1 << bits
    ticks = np.maximum(np.ceil(np.asarray(keep, np.float64) * period), 1).astype(np.int64)
    order = rng.permutation(len(ticks))
    reached = np.cumsum(ticks[order]) + rng.integers(period)
    tooth = reached >> bits
    taken = tooth > np.concatenate(([(reached[0] - ticks[order[0]]) >> bits], tooth[:-1]))
    values = np.zeros(len(ticks))
    kept = order[taken]
    values[kept] = period / ticks[kept]
    return Weights.dense(values)

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
_FEW = 4  # up to so many groups, a pass over all samples for each beats one that sorts them
_SMALL = 4096  # a group of this size fits the cache, so that drawing one by one is fast


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
    size = group_sizes(group, len(prune))
    assert prune[ALWAYS] == 0
    assert np.all((prune < size) | (prune == 0))
    if not prune.any():
        return Weights.ones(len(group))
    weight = np.where(rescale & (prune > 0), size / np.maximum(size - prune, 1), 1.0)
    levels, code = np.unique(np.append(weight, 0.0), return_inverse=True)  # 0 sorts first: the level "left out"
    if len(levels) <= MAX_LEVELS:
        weights = Weights.coded(_codes(code[:-1].astype(np.uint8), group), levels)
    else:
        weights = Weights.dense(weight[group])
    for g, members in _members(group, np.flatnonzero(prune)):
        weights.leave_out(_subset(members, int(prune[g]), rng))
    return weights


def _codes(code: NDArray[np.uint8], group: NDArray[np.integer]) -> NDArray[np.uint8]:
    """The code of each sample's group, in one pass over bytes where the groups fit into them."""
    if group.dtype != np.uint8:
        return np.asarray(code[group])
    return np.frombuffer(bytearray(group.data).translate(bytes(code).ljust(256, b"\0")), np.uint8)


def group_sizes(group: NDArray[np.integer], groups: int) -> NDArray[np.int64]:
    """How many samples each group has."""
    if groups > _FEW:
        return np.bincount(group, minlength=groups)
    return np.array([np.count_nonzero(group == g) for g in range(groups)])


def _members(
    group: NDArray[np.integer], wanted: NDArray[np.intp]
) -> Iterator[tuple[int, NDArray[np.bool_] | NDArray[np.intp]]]:
    """The samples of each wanted group: as masks, a pass a group, for a few; by one stable (radix) sort for many."""
    if len(wanted) <= _FEW:
        for g in wanted:
            yield int(g), group == g
        return
    by_group = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group))
    for g in wanted:
        yield int(g), by_group[ends[g - 1] : ends[g]]


def _subset(
    members: NDArray[np.bool_] | NDArray[np.intp], count: int, rng: np.random.Generator, bits: int = 8
) -> NDArray[np.bool_] | NDArray[np.intp]:
    """``count`` of the members, every set of that size equally likely.

    From a large mask by passes over bytes: every member gets a random key; the lowest keys are in, and only among those
    with the key at which the count is reached are members drawn one by one.
    """
    if members.dtype != bool:
        return rng.choice(members, count, replace=False, shuffle=False)
    if len(members) <= _SMALL:
        return rng.choice(np.flatnonzero(members), count, replace=False, shuffle=False)
    key = rng.integers(0, 1 << bits, len(members), dtype=np.uint8)
    low, high = 0, 1 << bits  # the members with a key below `low` are too few, or just enough; below `high`, more
    while high - low > 1:
        middle = (low + high) // 2
        if np.count_nonzero((key < middle) & members) <= count:
            low = middle
        else:
            high = middle
    chosen = (key < low) & members
    undecided = np.flatnonzero((key == low) & members)
    missing = count - np.count_nonzero(chosen)
    chosen[rng.choice(undecided, missing, replace=False, shuffle=False)] = True
    return chosen


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

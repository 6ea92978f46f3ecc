"""Chance with exact inclusion probabilities: fixed-size draws per group, and systematic sampling.

Both return weights that are the inverse of the true inclusion probability, so that for every sample
E[weight · kept] = 1 exactly, whatever the group's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .threads import workers
from .weights import LEFT_OUT, MAX_LEVELS, Weights

ALWAYS = 0  # the group of samples that are never left out
_FEW = 4  # up to this many groups, a pass over all samples per group is faster than sorting
_SMALL = 4096  # a group of this size fits the cache, so that drawing one by one is fast
_CHUNK = 1 << 18  # samples drawn from at a time: what is known of them fits the cache


def fixed_size(
    group: NDArray[np.integer], prune: NDArray[np.int64], rng: np.random.Generator, rescale: bool = True
) -> Weights:
    """Leave out exactly ``prune[g]`` samples of every group g, each set of that size equally likely.

    A sample kept from a group of n, of which k are kept, has inclusion probability k/n and so the weight n/k (Eq. 8's
    |D|/|S|, made exact per group); with ``rescale=False`` its weight is 1. Group 0 is kept whole.

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
    coded = len(levels) <= MAX_LEVELS
    table = code[:-1].astype(np.uint8) if coded else weight
    wanted = np.flatnonzero(prune)
    values = np.empty(len(group), table.dtype)
    if len(wanted) <= _FEW:
        _leave_out_by_chunks(values, table, group, {int(g): int(prune[g]) for g in wanted}, rng)
    elif len(group) > _SMALL and group.dtype == table.dtype == np.uint8 and len(levels) < MAX_LEVELS:
        _leave_out_by_keys(values, table, group, prune, rng, undecided=len(levels))
    else:
        values[:] = table[group]
        for g, members in zip(wanted, _members(group, wanted), strict=True):
            values[rng.choice(members, prune[g], replace=False, shuffle=False)] = LEFT_OUT
    return Weights.coded(values, levels) if coded else Weights.dense(values)


def group_sizes(group: NDArray[np.integer], groups: int) -> NDArray[np.int64]:
    """How many samples each group has."""
    if groups > _FEW:
        return np.bincount(group, minlength=groups)
    return np.array([np.count_nonzero(group == g) for g in range(groups)])


def _members(group: NDArray[np.integer], wanted: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """The samples of each wanted group, by one stable (radix) sort."""
    by_group = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group))
    for g in wanted:
        yield by_group[ends[g - 1] : ends[g]]


def _leave_out_by_chunks(
    values: NDArray[Any],
    table: NDArray[Any],
    group: NDArray[np.integer],
    prune: dict[int, int],
    rng: np.random.Generator,
) -> None:
    """Fill ``values`` with ``table[group]``, and with 0 where a sample is left out.

    How many go from each chunk is drawn first, as if the whole group were drawn from (multivariate hypergeometric); a
    uniform subset of that size in each chunk then makes a uniform subset of the group. Chunks have seeds of their own,
    so that the outcome is the same on any number of threads.
    """
    starts = range(0, len(group), _CHUNK)
    counts = {g: [count] for g, count in prune.items()}
    sources = [rng]
    if len(starts) > 1:
        for g, count in prune.items():
            sizes = [np.count_nonzero(group[start : start + _CHUNK] == g) for start in starts]
            counts[g] = rng.multivariate_hypergeometric(sizes, count).tolist()
        sources = [np.random.Generator(np.random.SFC64(seed)) for seed in rng.integers(1 << 63, size=len(starts))]

    def draw(number: int, start: int, source: np.random.Generator) -> None:
        here, out = group[start : start + _CHUNK], values[start : start + _CHUNK]
        out[:] = look_up(table, here)
        for g in prune:
            leave_out(out, here == g, counts[g][number], source)

    with workers(len(group)) as each:
        for _ in each(draw, range(len(starts)), starts, sources):
            pass


def _leave_out_by_keys(
    values: NDArray[np.uint8],
    table: NDArray[np.uint8],
    group: NDArray[np.integer],
    prune: NDArray[np.int64],
    rng: np.random.Generator,
    undecided: int,
) -> None:
    """As :func:`_leave_out_by_chunks`, for many groups, in a few passes over all samples.

    Every sample gets a random byte. In each group the samples with the lowest bytes are left out. Samples with the byte
    at which the number is reached are ``undecided`` at first, and are then drawn one by one.
    """
    cell = group.astype(np.uint16) << np.uint16(8) | random_bytes(rng, len(group))
    reached = np.cumsum(np.bincount(cell, minlength=256 * len(table)).reshape(-1, 256), axis=1)
    bound = np.count_nonzero(reached <= prune[:, None], axis=1)  # the byte at which a group's number is passed
    code = np.where(np.arange(256) < bound[:, None], LEFT_OUT, table[:, None])
    wanted = np.flatnonzero(prune)
    code[wanted, bound[wanted]] = undecided
    code[prune == 0] = table[prune == 0, None]
    values[:] = code.astype(np.uint8).ravel()[cell]
    drawn_from = np.flatnonzero(values == undecided)
    values[drawn_from] = table[group[drawn_from]]
    missing = prune - np.where(bound > 0, reached[np.arange(len(bound)), bound - 1], 0)
    for g, members in zip(wanted, _members(group[drawn_from], wanted), strict=True):
        values[rng.choice(drawn_from[members], missing[g], replace=False, shuffle=False)] = LEFT_OUT


def look_up(table: NDArray[Any], group: NDArray[np.integer]) -> NDArray[Any]:
    """``table[group]``, by one pass over bytes where both are bytes."""
    if group.dtype != np.uint8 or table.dtype != np.uint8:
        return np.asarray(table[group])
    return np.frombuffer(group.tobytes().translate(bytes(table).ljust(256, b"\0")), np.uint8)


def leave_out(
    values: NDArray[Any], members: NDArray[np.bool_], count: int, rng: np.random.Generator, bits: int = 8
) -> None:
    """Set ``count`` of the members' values to 0, every set of that size equally likely.

    Many members are handled by passes over bytes: every member gets a random key, the members with the lowest keys are
    taken, and only members with the key at which the count is reached are drawn one by one.
    """
    if len(members) <= _SMALL:
        values[rng.choice(np.flatnonzero(members), count, replace=False, shuffle=False)] = LEFT_OUT
        return
    key = random_bytes(rng, len(members)) >> np.uint8(8 - bits)
    low, high = 0, 1 << bits  # the members with a key below `low` are too few, or just enough; below `high`, more
    bound = count * high // max(int(np.count_nonzero(members)), 1)  # a step or two from where it will be
    while high - low > 1:
        bound = min(max(bound, low + 1), high - 1)
        if np.count_nonzero((key < bound) & members) <= count:
            low, bound = bound, bound + 1
        else:
            high, bound = bound, bound - 1
    chosen = (key < low) & members
    undecided = np.flatnonzero((key == low) & members)
    missing = count - np.count_nonzero(chosen)
    chosen[rng.choice(undecided, missing, replace=False, shuffle=False)] = True
    np.multiply(
        values, (~chosen).view(np.uint8), out=values
    )  # one pass, where setting by mask would branch at each sample


def random_bytes(rng: np.random.Generator, count: int) -> NDArray[np.uint8]:
    """Independent uniform bytes, eight at a time; the same on machines of either byte order."""
    return rng.integers(0, 1 << 64, -(-count // 8), dtype=np.uint64).astype("<u8", copy=False).view(np.uint8)[:count]


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

"""A uniform shuffle that stays in the processor's cache.

Fisher-Yates jumps through the whole array: at millions of entries each jump waits for memory. Here every entry first
goes to one of 256 buckets at random, by sequential passes; each bucket, small enough for the cache, is then permuted by
itself. Independent buckets and uniform orders within them make every permutation equally likely (to the 32 bits of the
random numbers that torch's own permutations use).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

_BUCKETS = 256
_CHUNK = 1 << 16  # entries sorted into buckets at a time: keys, order and entries fit into the cache together
_SMALL = 1 << 18  # below this the whole array fits


def in_random_order(indices: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.integer]:
    """``indices`` in uniformly random order; the given array is used up."""
    permutation = _Permutation(rng)
    if len(indices) <= _SMALL:
        return indices[permutation(len(indices))]
    bounds = [
        _sort_into_buckets(indices[start : start + _CHUNK], rng) + start for start in range(0, len(indices), _CHUNK)
    ]
    result = np.empty_like(indices)
    end = 0
    for bucket in range(_BUCKETS):
        pieces = [indices[b[bucket] : b[bucket + 1]] for b in bounds]
        entries = np.concatenate(pieces)
        start, end = end, end + len(entries)
        np.take(entries, permutation(len(entries)), out=result[start:end], mode="clip")
    return result


def _sort_into_buckets(chunk: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.intp]:
    """Group the chunk by random buckets, in place; returns where each bucket starts, and the end."""
    bucket = rng.integers(0, _BUCKETS, len(chunk), dtype=np.uint8)
    chunk[:] = chunk[np.argsort(bucket, kind="stable")]
    return np.concatenate(([0], np.cumsum(np.bincount(bucket, minlength=_BUCKETS))))


class _Permutation:
    """Small uniform permutations, by torch's generator, which makes them twice as fast as numpy's."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._generator = torch.Generator(device="cpu").manual_seed(int(rng.integers(1 << 63)))

    def __call__(self, size: int) -> NDArray[np.int64]:
        return torch.randperm(size, generator=self._generator, device="cpu").numpy()

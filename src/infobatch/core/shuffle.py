"""A uniform shuffle that stays in the processor's cache.

Fisher-Yates jumps through the whole array: at millions of entries each jump waits for memory. Here every entry first
goes to one of 256 buckets at random, by sequential passes; each bucket, small enough for the cache, is then permuted by
itself. Independent buckets and uniform orders within them make every permutation equally likely (to the 32 bits of the
random numbers that torch's own permutations use).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_SEEDS = 1 << 63
_BUCKETS = 256
_CHUNK = 1 << 16  # entries sorted into buckets at a time: keys, order and entries fit into the cache together
_SMALL = 1 << 18  # below this the whole array fits
_LARGE = 1 << 22  # from here on a bucket is work enough for a thread of its own


def in_random_order(indices: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.integer]:
    """``indices`` in uniformly random order; the given array is used up.

    Chunks and buckets have seeds of their own, so that the order is the same on any number of threads.
    """
    if len(indices) <= _SMALL:
        return indices[_permutation(len(indices), int(rng.integers(_SEEDS)))]
    starts = range(0, len(indices), _CHUNK)
    chunk_seeds = rng.integers(_SEEDS, size=len(starts)).tolist()
    bucket_seeds = rng.integers(_SEEDS, size=_BUCKETS).tolist()
    result = np.empty_like(indices)

    def sort_chunk(start: int, seed: int) -> NDArray[np.intp]:
        return start + _sort_into_buckets(indices[start : start + _CHUNK], seed)

    with _workers(len(indices)) as each:
        bounds = np.stack(list(each(sort_chunk, starts, chunk_seeds)))
        ends = np.cumsum(np.diff(bounds, axis=1).sum(axis=0))

        def permute_bucket(bucket: int, seed: int) -> None:
            pieces = zip(bounds[:, bucket].tolist(), bounds[:, bucket + 1].tolist(), strict=True)
            entries = np.concatenate([indices[start:end] for start, end in pieces])
            out = result[ends[bucket] - len(entries) : ends[bucket]]
            np.take(entries, _permutation(len(entries), seed), out=out, mode="clip")

        for _ in each(permute_bucket, range(_BUCKETS), bucket_seeds):
            pass
    return result


@contextmanager
def _workers(size: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """``map``, or a threaded one where the pieces are large enough to be worth it."""
    threads = min(torch.get_num_threads(), 8)
    if size < _LARGE or threads == 1:
        yield map
        return
    with ThreadPoolExecutor(threads) as pool:
        yield pool.map


def _sort_into_buckets(chunk: NDArray[np.integer], seed: int) -> NDArray[np.intp]:
    """Group the chunk by random buckets, in place; returns where each bucket starts, and the end."""
    bucket = np.random.Generator(np.random.SFC64(seed)).integers(0, _BUCKETS, len(chunk), dtype=np.uint8)
    chunk[:] = chunk[np.argsort(bucket, kind="stable")]
    return np.concatenate(([0], np.cumsum(np.bincount(bucket, minlength=_BUCKETS))))


def _permutation(size: int, seed: int) -> NDArray[np.int64]:
    """A permutation, by torch, which makes them twice as fast as numpy."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    return torch.randperm(size, generator=generator, device="cpu").numpy()

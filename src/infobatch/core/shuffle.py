"""A uniform shuffle that stays in the processor's cache, and is done only as far as entries are read.

Fisher-Yates jumps through the whole array: at many millions of entries each jump waits for memory. Here every entry
first goes to one of up to 256 buckets at random, by sequential passes; each bucket, small enough for the cache, is
permuted by itself when its entries are first read, so that an epoch starts before its last batches are in order.
Independent buckets and uniform orders within them make every permutation equally likely (to the 32 bits of the random
numbers that torch's own permutations use).
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray

from .draw import random_bytes
from .threads import workers

_SEEDS = 1 << 63
_MAX_BUCKETS = 256  # their numbers are bytes
_BUCKET = 1 << 18  # entries that fit into the cache
_CHUNK = 1 << 16  # entries sorted into buckets at a time: keys, order and entries fit into the cache together
_SMALL = 1 << 22  # below this one permutation of all is faster


class Order:
    """Indices in their order of training: ``order[start:stop]`` is a read-only array.

    Entries that were not read yet may still have to be permuted, bucket by bucket: ``ends`` and ``seeds`` have one
    value per bucket. Several threads may read: a loader can run in a thread of its own.
    """

    __slots__ = ("_ends", "_entries", "_final", "_lock", "_seeds")

    def __init__(self, entries: NDArray[np.integer], ends: Iterable[int] = (), seeds: Iterable[int] = ()) -> None:
        self._entries = entries
        self._ends, self._seeds = list(ends)[::-1], list(seeds)[::-1]
        self._lock = Lock()
        self._final = 0 if self._ends else len(entries)  # how many entries, from the front, are in their place

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, wanted: slice) -> NDArray[np.integer]:
        start, stop, step = wanted.indices(len(self))
        self._settle(max(start + 1, stop) if step > 0 else start + 1)
        view = self._entries[wanted]
        view.setflags(write=False)
        return view

    def _settle(self, stop: int) -> None:
        """Put the first ``stop`` entries in their place, and those that share a bucket with them."""
        if self._final >= min(stop, len(self)):
            return
        with self._lock:
            while self._final < min(stop, len(self)):
                end = self._ends.pop()
                bucket = self._entries[self._final : end]
                bucket[:] = _permute(bucket, self._seeds.pop())
                self._final = end

    def __reduce__(self) -> tuple[type[Order], tuple[NDArray[np.integer]]]:
        return Order, (self[:],)


def in_random_order(indices: NDArray[np.integer], rng: np.random.Generator) -> Order:
    """``indices`` in uniformly random order; the array itself may be overwritten.

    Chunks and buckets have seeds of their own, so that the order is the same on any number of threads.
    """
    if len(indices) <= _SMALL:
        return Order(_permute(indices, int(rng.integers(_SEEDS))))
    buckets = min(_MAX_BUCKETS, 1 << (len(indices) // _BUCKET).bit_length())
    starts = range(0, len(indices), _CHUNK)
    chunk_seeds = rng.integers(_SEEDS, size=len(starts)).tolist()
    bucket_seeds = rng.integers(_SEEDS, size=buckets).tolist()
    gathered = np.empty_like(indices)

    def sort_chunk(start: int, seed: int) -> NDArray[np.intp]:
        return start + _sort_into_buckets(indices[start : start + _CHUNK], buckets, seed)

    with workers(len(indices)) as each:
        bounds = np.stack(list(each(sort_chunk, starts, chunk_seeds)))
        sizes = np.diff(bounds, axis=1).sum(axis=0)
        ends = np.cumsum(sizes)

        def gather(bucket: int) -> None:
            pieces = zip(bounds[:, bucket].tolist(), bounds[:, bucket + 1].tolist(), strict=True)
            out = gathered[ends[bucket] - sizes[bucket] : ends[bucket]]
            np.concatenate([indices[start:end] for start, end in pieces], out=out)

        for _ in each(gather, range(buckets)):
            pass
    return Order(gathered, ends.tolist(), bucket_seeds)


def _sort_into_buckets(chunk: NDArray[np.integer], buckets: int, seed: int) -> NDArray[np.intp]:
    """Group the chunk by random buckets, a power of two, in place; returns where each starts, and the end."""
    rng = np.random.Generator(np.random.SFC64(seed))
    bucket = random_bytes(rng, len(chunk)) & np.uint8(buckets - 1)
    chunk[:] = chunk[np.argsort(bucket, kind="stable")]
    return np.concatenate(([0], np.cumsum(np.bincount(bucket, minlength=buckets))))


def _permute(entries: NDArray[np.integer], seed: int) -> NDArray[np.integer]:
    """The entries in random order, by torch, which is several times as fast as numpy."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    dtype = torch.int32 if len(entries) <= np.iinfo(np.int32).max else torch.int64
    places = torch.randperm(len(entries), generator=generator, dtype=dtype, device="cpu")
    return torch.from_numpy(entries).index_select(0, places).numpy()

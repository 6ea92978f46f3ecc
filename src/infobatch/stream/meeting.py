"""Ranks that go through their streams together: they end at the same step, and share their figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..distributed.ranks import Ranks

NEW_KEYS = 64  # how many new keys a rank can send to the others at a time


def in_step(loader: Iterable[Any], ranks: Ranks) -> Iterator[Any]:
    """Batches of ``loader`` for as long as every rank has one.

    Before each batch is handed out, each rank sends a stop flag that says whether it has a batch. The first rank whose
    stream is over ends the pass for all: a batch that another rank already holds is dropped.
    """
    batches = iter(loader)
    while True:
        batch = list(itertools.islice(batches, 1))
        if not ranks.all_gather(torch.tensor([len(batch)])).all():
            return
        yield batch[0]


def share(
    ranks: Ranks, figures: NDArray[np.float64], totals: list[float], new_keys: list[int]
) -> tuple[NDArray[np.float64], list[float], list[int]]:
    """The sums over all ranks, and the new keys of all in the order of the ranks: one collective of fixed size.

    Hashes of keys have 44 bits, which a double holds exactly; each rank has its own places for them.
    """
    rank, world = ranks.here()
    keys = np.zeros((world, NEW_KEYS))
    keys[rank, : len(new_keys)] = np.asarray(new_keys, np.float64) + 1
    message = np.concatenate([keys.ravel(), totals, figures.ravel()])
    received = ranks.all_reduce(torch.from_numpy(message)).numpy()
    keys, totals_of_all, rest = np.split(received, [keys.size, keys.size + len(totals)])
    hashes = [int(key) - 1 for key in keys if key]
    return rest.reshape(figures.shape), totals_of_all.tolist(), list(dict.fromkeys(hashes))

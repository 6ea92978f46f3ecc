"""The plan of one epoch: which samples, in which order, with which weights."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .shuffle import Order, in_random_order
from .weights import Weights


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """One epoch's samples in the order of training, and their weights.

    ``indices[j]`` is trained on j-th; its loss is multiplied by ``weights[j]``.
    """

    epoch: int
    order: Order  # the indices, of which those that no one asked for yet may still have to be shuffled
    by_sample: Weights
    total: int  # how many samples the epoch would have had without pruning
    repeats: bool = False  # whether a sample may occur more than once (in an order of the user's own)

    @property
    def indices(self) -> NDArray[np.integer]:
        """The samples, in the order of training."""
        return self.order[:]

    @property
    def weights(self) -> NDArray[np.float64]:
        """One weight per entry of ``indices``."""
        return self.by_sample.of(self.indices)

    def __len__(self) -> int:
        return len(self.order)

    def __repr__(self) -> str:
        return f"EpochPlan(epoch={self.epoch}, kept {len(self)} of {self.total})"


def generator(seed: int, epoch: int) -> np.random.Generator:
    """The source of chance for one epoch: the same on every rank and platform, none of it global."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch))))


def shuffled(epoch: int, weights: Weights, rng: np.random.Generator, order: Iterable[int] | None = None) -> EpochPlan:
    """A plan over the samples that ``weights`` keeps, uniformly shuffled, or in the user's own ``order``.

    With an own order (any iterable of indices, repeats allowed) the plan is that order less the samples left out. One
    that has ``set_epoch``, as samplers for several processes do, is told the epoch first.
    """
    if order is None:
        return EpochPlan(epoch, in_random_order(weights.kept(), rng), weights, weights.size)
    if callable(set_epoch := getattr(order, "set_epoch", None)):
        set_epoch(epoch)
    wanted = _as_indices(order)
    if len(wanted) and not (wanted.min() >= 0 and wanted.max() < weights.size):
        raise IndexError(
            f"order gave an index outside 0..{weights.size - 1}: it must yield indices of the wrapped dataset"
        )
    return EpochPlan(epoch, Order(wanted[weights.of(wanted) > 0]), weights, len(wanted), repeats=True)


def _as_indices(order: Iterable[int]) -> NDArray[np.int64]:
    """The user's order as an array, drawn anew."""
    if isinstance(order, Iterator):
        raise TypeError(
            f"order must be something that can be iterated more than once, an epoch each time, got the "
            f"{type(order).__name__} {order!r}: give a sampler or a list"
        )
    try:
        return np.fromiter((operator.index(i) for i in order), dtype=np.int64)
    except TypeError as error:
        raise TypeError(f"order must yield whole numbers, indices of the wrapped dataset: {error}") from error

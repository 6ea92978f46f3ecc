"""The plan of one epoch: which epochs are pruned, which samples a plan holds, and which of them are this rank's."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from .shuffle import Order, in_random_order
from .weights import Weights

_MOST_CUT = Fraction(1, 4)  # of a plan's samples, to make its last batch a whole one


def pruning_epochs(num_epochs: int, delta: float, warmup: int = 0) -> range:
    """The epochs t that may be pruned: ``max(1, warmup) <= t < delta * num_epochs`` (Eq. 10).

    The first epoch has no scores yet and is always full. With ``delta`` below 1 the last epoch is full as well, even
    if Eq. 10 would prune it because δ·C is no whole number. ``delta`` is read as the decimal number the user wrote,
    so that 0.07 of 100 epochs is 7 and not 7.000000000000001.

    >>> pruning_epochs(10, 0.875)  # δ·C = 8.75: epoch 8 is still pruned, epoch 9 is full
    range(1, 9)
    >>> pruning_epochs(5, 0.875)  # δ·C = 4.375
    range(1, 4)
    """
    end = math.ceil(Fraction(repr(float(delta))) * num_epochs)
    if delta < 1:
        end = min(end, num_epochs - 1)
    first = max(1, warmup)
    return range(first, max(first, end))


def generator(seed: int, epoch: int) -> np.random.Generator:
    """The random generator of one epoch: the same on every rank and platform, and not a global one."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch))))


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """One epoch's samples in the order of training, and their weights.

    ``indices[j]`` is trained on j-th; its loss is multiplied by ``weights[j]``.
    """

    epoch: int
    order: Order  # the indices; those not read yet may still have to be shuffled
    by_sample: Weights
    total: int  # how many samples the epoch would have had without pruning
    repeats: bool = False  # whether a sample may occur more than once (with the user's own order)

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


def shuffled(
    epoch: int, weights: Weights, rng: np.random.Generator, order: Iterable[int] | None = None, batch: int = 0
) -> EpochPlan:
    """A plan over the samples that ``weights`` keeps, uniformly shuffled, or in the user's own ``order``.

    With the user's ``order`` (any iterable of indices, repeats allowed) the plan is that order without the samples left
    out. If the order has ``set_epoch``, as samplers for several processes do, it is called first. ``batch`` is the
    number of samples in a step of all ranks, 0 if it is not known: see :func:`surplus`.
    """
    if order is None:
        weights = cut_to_batches(weights, batch, rng)
        return EpochPlan(epoch, in_random_order(weights.kept(), rng), weights, weights.size)
    if callable(set_epoch := getattr(order, "set_epoch", None)):
        set_epoch(epoch)
    wanted = _as_indices(order)
    if len(wanted) and not (wanted.min() >= 0 and wanted.max() < weights.size):
        raise IndexError(
            f"order yields an index outside 0..{weights.size - 1}: it must yield indices of the wrapped dataset"
        )
    entries = wanted[weights.of(wanted) > 0]
    cut = surplus(len(entries), len(wanted), batch)
    if cut is None:
        entries, weights = wanted, Weights.ones(weights.size)
    elif cut:
        weights = weights.scaled(len(entries) / (len(entries) - cut))
        entries = entries[np.sort(rng.choice(len(entries), len(entries) - cut, replace=False))]
    return EpochPlan(epoch, Order(entries), weights, len(wanted), repeats=True)


def surplus(kept: int, total: int, batch: int) -> int | None:
    """How many samples to leave out so that full data has a batch of the last one's size too; None: do not prune.

    Full data of 2,048 samples in batches of 32 never has a batch of one sample, but a plan of 1,281 samples ends in
    one, and batch norm fails on it. Full data ends in a whole batch or in one of ``total % batch`` samples; so must a
    plan. A plan that would lose more than a quarter of its samples by this, or would be shorter than a batch, is better
    not pruned. If all data fits into one batch, only a batch of one sample is avoided.

    >>> surplus(1281, 2048, 32), surplus(1281, 2049, 32), surplus(40, 64, 32), surplus(60, 64, 32)
    (1, 0, 8, None)
    """
    if not batch or kept == total or (total <= batch and kept > 1):
        return 0
    rest, usual = kept % batch, total % batch
    cut = rest - usual if rest >= usual else rest
    return cut if cut <= _MOST_CUT * kept else None


def cut_to_batches(weights: Weights, batch: int, rng: np.random.Generator) -> Weights:
    """``weights`` without the :func:`surplus`, which is drawn at random; the weights stay exact."""
    cut = surplus(weights.count, weights.size, batch)
    if cut is None:
        return Weights.ones(weights.size)
    return weights.without(cut, rng) if cut else weights


def _as_indices(order: Iterable[int]) -> NDArray[np.int64]:
    """The user's order as an array, drawn anew."""
    if isinstance(order, Iterator):
        raise TypeError(
            f"order must be something that can be iterated more than once, an epoch each time, got the "
            f"{type(order).__name__} {order!r}: use a sampler or a list"
        )
    try:
        return np.fromiter((operator.index(i) for i in order), dtype=np.int64)
    except TypeError as error:
        raise TypeError(f"order must yield whole numbers, indices of the wrapped dataset: {error}") from error


@dataclass(frozen=True)
class Slice:
    """Rank ``rank``'s part of a plan from entry ``start`` on: every rank has the same number of entries.

    Rank r takes every world-th entry from r on, so that step k of all ranks together is the k-th block of the plan, as
    in one process with a batch ``world`` times as large. If the plan does not divide evenly, the last ranks get the
    plan's first sample once more, with weight 0; the mean of that last step is over the real samples of all ranks.

    >>> [Slice(Order(np.arange(5)), rank, world=2)[:].tolist() for rank in range(2)]
    [[0, 2, 4], [1, 3, 0]]
    """

    order: Order
    rank: int = 0
    world: int = 1
    start: int = 0

    def __len__(self) -> int:
        return -(-self._left // self.world)

    def __getitem__(self, wanted: slice) -> NDArray[np.integer]:
        first, last, _ = wanted.indices(len(self))
        offset = self.start + self.rank
        own = self.order[offset + first * self.world : offset + last * self.world : self.world]
        if self.padded and first < last == len(self):
            own = np.append(own, self.padding)
        return own

    @property
    def padded(self) -> bool:
        """Whether this rank's last entry is padding."""
        return self.rank >= self.world - self.global_padding

    @property
    def global_padding(self) -> int:
        """How many ranks are padded."""
        return -self._left % self.world

    @property
    def padding(self) -> int:
        """The sample that pads ranks: the same wherever the epoch was resumed."""
        return int(self.order[:1][0])

    def done(self, own: int) -> int:
        """How many entries of the whole plan are done when every rank has done ``own`` of its part."""
        return min(self.start + own * self.world, len(self.order))

    @property
    def _left(self) -> int:
        return len(self.order) - self.start


@dataclass(frozen=True)
class Cut:
    """How ``length`` entries are cut into batches: of ``batch_size``, or into ``steps`` of sizes that differ by one.

    >>> Cut(10, batch_size=4).ends().tolist(), Cut(10, steps=4).ends().tolist()
    ([0, 4, 8, 10], [0, 3, 6, 8, 10])
    """

    length: int
    batch_size: int = 1
    steps: int | None = None

    def end(self, batches: int) -> int:
        """How many entries the first ``batches`` batches have."""
        if self.steps is None:
            return min(batches * self.batch_size, self.length)
        size, larger = divmod(self.length, self.steps)
        return batches * size + min(batches, larger)

    def ends(self) -> NDArray[np.int64]:
        """0, and where each batch ends."""
        if self.steps is None:
            return np.minimum(np.arange(0, self.length + self.batch_size, self.batch_size), self.length)
        size, larger = divmod(self.length, self.steps)
        batches = np.arange(self.steps + 1)
        return batches * size + np.minimum(batches, larger)

"""Methods that sort samples into groups and leave a share of each group out."""

from __future__ import annotations

import math
import zlib
from abc import abstractmethod
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.checks import check_flag, is_real
from ..core.draw import ALWAYS, fixed_size, group_sizes
from ..core.method import Epoch, Method
from ..core.weights import MAX_LEVELS, Weights

MAX_SHARE = 0.75  # with a target saving no group loses more than this, so that no weight exceeds 4


class GroupedMethod(Method):
    """A method given by a grouping rule and the share of each group to prune.

    Subclasses set ``shares``, one per group, and say in :meth:`group` which group a score falls into. With ``saving``
    the shares give only the proportions: how much is pruned follows from what is still to be saved, spread evenly over
    the pruned epochs that remain. With ``strata`` (a label per sample) the rule is applied within each label by itself.
    """

    shares: tuple[float, ...]
    usual_sizes: tuple[float, ...]  # the share of the data each group is expected to hold
    needs_scores = True  # a sample that was never scored is kept

    def __init__(
        self, *, saving: float | None = None, rescale: bool | None = None, strata: ArrayLike | None = None
    ) -> None:
        if saving is not None and (not is_real(saving) or not 0 < saving < 1):
            raise ValueError(
                f"saving must lie in (0, 1), the share of full training to leave out, got {saving!r}: "
                "use saving=0.4 for 40 %, or leave it out and set ratio"
            )
        check_flag("rescale", rescale, "whether samples that stand in for pruned ones weigh more")
        self.saving = None if saving is None else float(saving)
        self.rescale = self.info.unbiased if rescale is None else bool(rescale)
        self.strata = None if strata is None else numbered_labels(strata)

    @abstractmethod
    def group(self, scores: NDArray[np.float32]) -> NDArray[np.uint8]:
        """The group of each score, a number below ``len(shares)``."""

    def check(self, size: int, pruning: range, num_epochs: int) -> None:
        if self.strata is not None and len(self.strata) != size:
            raise ValueError(f"strata must hold one label per sample: got {len(self.strata)} for a dataset of {size}")
        most = MAX_SHARE * len(pruning) / num_epochs
        if self.saving is not None and self.saving > most:
            raise ValueError(
                f"saving={self.saving} cannot be reached: {len(pruning)} of {num_epochs} epochs are pruned, each by "
                f"at most {MAX_SHARE:.0%}, which saves {most:.3f}. Ask for less, raise delta, or train more epochs"
            )

    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        if self.saving is not None:
            return self.saving
        share = float(np.dot(self.shares, self.usual_sizes))
        return share * len(pruning) / num_epochs

    @property
    def many_weights(self) -> bool:
        labels = 1 if self.strata is None else int(self.strata.max()) + 1
        return self.rescale and 2 + labels * len(self.shares) > MAX_LEVELS

    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        width = len(self.shares)
        cell, cells = self._cells(scores)
        size = group_sizes(cell, cells)
        shares = np.asarray(self.shares)
        target = None
        if self.saving is not None:
            left_to_save = self.saving * epoch.num_epochs * len(scores) - epoch.pruned_before
            target = left_to_save / len(range(epoch.index, epoch.pruning.stop))
            shares = _shares_for(target, shares, size[1:].reshape(-1, width).sum(axis=0))
        prune = counts(np.concatenate(([0.0], np.tile(shares, cells // width))), size, target)
        kept = len(scores) - int(prune.sum())
        prune = scaled_to(prune, size, len(scores) - epoch.fit(kept, len(scores)))
        return fixed_size(cell, prune, rng, self.rescale)

    def options(self) -> dict[str, object]:
        return {"saving": self.saving, "rescale": self.rescale, "strata": label_digest(self.strata)}

    def _cells(self, scores: NDArray[np.float32]) -> tuple[NDArray[np.integer], int]:
        """(the cell of each sample, how many cells there are): ALWAYS, then each label's groups."""
        unknown = np.zeros(0, bool)
        if self.needs_scores and np.isnan(scores.min(initial=0)):
            unknown = np.isnan(scores)
        if self.strata is None and not len(unknown):
            return self.group(scores) + np.uint8(ALWAYS + 1), ALWAYS + 1 + len(self.shares)
        cell = np.full(len(scores), ALWAYS, np.uint8 if self.strata is None else np.int32)
        cells = ALWAYS + 1
        for members in self._members(unknown):
            cell[members] = self.group(scores[members])
            cell[members] += cell.dtype.type(cells)
            cells += len(self.shares)
        return cell, cells

    def _members(self, unknown: NDArray[np.bool_]) -> Iterator[NDArray[np.intp]]:
        """The scored samples, label by label."""
        if self.strata is None:
            if not unknown.all():
                yield np.flatnonzero(~unknown)
            return
        by_label = np.argsort(self.strata, kind="stable")
        ends = np.cumsum(np.bincount(self.strata))
        for start, end in zip(np.append(0, ends[:-1]), ends, strict=True):
            members = by_label[start:end]
            if unknown.any():
                members = members[~unknown[members]]
            if len(members):
                yield members


def numbered_labels(labels: ArrayLike) -> NDArray[np.int32]:
    """Labels of any kind as numbers 0, 1, 2, …"""
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise ValueError(f"strata must be one label per sample, a flat array, got shape {labels.shape}")
    if labels.dtype == object and (missing := [number for number, label in enumerate(labels) if label is None]):
        raise ValueError(
            f"strata must hold a label for every sample, got None for {len(missing)} of them (sample {missing[0]} "
            'first): give those a label of their own, such as "unknown"'
        )
    try:
        return np.unique(labels, return_inverse=True)[1].astype(np.int32)
    except TypeError as error:
        raise TypeError(f"strata must hold labels of one kind, all numbers or all strings: {error}") from error


def label_digest(labels: NDArray[np.int32] | None) -> int | None:
    """A number by which labels can be told apart in a checkpoint."""
    return None if labels is None else zlib.crc32(labels.tobytes())


def counts(share: NDArray[np.float64], size: NDArray[np.int64], target: float | None) -> NDArray[np.int64]:
    """How many of each cell to prune: ⌊share · size⌋, and never all of them.

    With a target the cells that lost most by rounding down give one more each, as far as the target is missed.
    """
    exact = [Fraction(repr(s)) * n for s, n in zip(share.tolist(), size.tolist(), strict=True)]
    prune = np.minimum([math.floor(e) for e in exact], np.maximum(size - 1, 0)).astype(np.int64)
    missing = 0 if target is None else round(min(target, float(sum(exact)))) - int(prune.sum())
    if missing > 0:
        remainder = np.array([float(e) for e in exact]) - prune
        remainder[(share == 0) | (prune >= size - 1)] = -1
        first = np.argsort(-remainder, kind="stable")[:missing]
        prune[first[remainder[first] > 0]] += 1
    return prune


def scaled_to(prune: NDArray[np.int64], size: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """``prune``, in proportion, so that its sum is ``total``, as far as no cell loses all its samples."""
    if total == prune.sum():
        return prune
    exact = prune * (total / prune.sum())
    scaled: NDArray[np.int64] = np.minimum(np.floor(exact), np.maximum(size - 1, 0)).astype(np.int64)
    remainder = np.where((prune > 0) & (scaled < size - 1), exact - scaled, -1.0)
    first = np.argsort(-remainder, kind="stable")[: total - int(scaled.sum())]
    scaled[first[remainder[first] >= 0]] += 1
    return scaled


def _shares_for(target: float, shares: NDArray[np.float64], size: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of each group to prune so that ``target`` samples go in all.

    Proportional to the method's own ``shares`` while none exceeds MAX_SHARE; what these groups cannot give is taken
    evenly from the groups the method would keep whole. Every share is a known probability, so nothing here biases.
    """
    pruned = np.zeros(len(shares))
    for open_groups in (shares > 0, shares == 0):
        proportion = np.where(open_groups, np.where(shares > 0, shares, 1.0), 0.0)
        while target > 0 and (free := (proportion > 0) & (pruned < MAX_SHARE) & (size > 0)).any():
            factor = target / np.dot(proportion[free], size[free])
            step = np.where(free, np.minimum(pruned + factor * proportion, MAX_SHARE) - pruned, 0.0)
            pruned += step
            target -= float(np.dot(step, size))
            if target < 1e-6:
                target = 0.0
    return pruned

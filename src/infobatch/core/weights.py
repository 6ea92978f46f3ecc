"""One epoch's weights: the factor for each sample's loss, 0 for a sample that is left out.

A plan needs few different weights (one per stratum), so they are kept as one small code per sample and a short
list of levels: one byte per sample instead of eight, and nothing at all if every weight is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .threads import workers

if TYPE_CHECKING:
    from .plan import EpochPlan

MAX_LEVELS = 256
_CHUNK = 1 << 18
LEFT_OUT = 0  # the code of a sample that is not in the epoch


class Weights:
    """The weight of every sample of a data set in one epoch.

    >>> w = Weights.coded(np.array([1, 0, 2], np.uint8), np.array([0.0, 1.0, 4.0]))
    >>> w.kept().tolist(), w.of(w.kept()).tolist()
    ([0, 2], [1.0, 4.0])
    """

    __slots__ = ("codes", "levels", "size", "values")

    def __init__(
        self,
        size: int,
        codes: NDArray[np.uint8] | None = None,
        levels: NDArray[np.float64] | None = None,
        values: NDArray[np.float64] | None = None,
    ) -> None:
        self.size = size
        self.codes = codes
        self.levels = levels
        self.values = values

    @classmethod
    def ones(cls, size: int) -> Weights:
        """Every sample, weight 1."""
        return cls(size)

    @classmethod
    def coded(cls, codes: NDArray[np.uint8], levels: NDArray[np.float64]) -> Weights:
        """Sample i has the weight ``levels[codes[i]]``; level 0 is 0."""
        assert levels[LEFT_OUT] == 0
        assert len(levels) <= MAX_LEVELS
        return cls(len(codes), codes=codes, levels=levels)

    @classmethod
    def dense(cls, values: NDArray[np.float64]) -> Weights:
        """Sample i has the weight ``values[i]``."""
        return cls(len(values), values=values)

    @classmethod
    def only(cls, chosen: NDArray[np.bool_], weight: float = 1.0) -> Weights:
        """The chosen samples, with the same weight each."""
        if weight == 1.0 and chosen.all():
            return cls.ones(len(chosen))
        return cls.coded(chosen.view(np.uint8), np.array([0.0, weight]))

    @property
    def uniform(self) -> bool:
        """Whether no sample is left out, and all weights are 1."""
        return self.codes is None and self.values is None

    def _present(self) -> NDArray[Any]:
        """An array over all samples that is 0 for samples left out."""
        present = self.values if self.codes is None else self.codes
        assert present is not None
        return present

    def kept(self) -> NDArray[np.integer]:
        """The samples of the epoch, ascending, in the smallest integer type that holds them."""
        dtype = np.int32 if self.size <= np.iinfo(np.int32).max else np.int64
        if self.uniform:
            return np.arange(self.size, dtype=dtype)
        present = self._present()
        starts = range(0, self.size, _CHUNK)  # so that the wide indices numpy finds never exist all at once
        ends = np.cumsum([np.count_nonzero(present[start : start + _CHUNK]) for start in starts])
        kept = np.empty(ends[-1] if len(ends) else 0, dtype)

        def find(start: int, end: int) -> None:
            places = np.flatnonzero(present[start : start + _CHUNK] != LEFT_OUT)
            np.add(places, start, out=kept[end - len(places) : end], casting="unsafe")

        with workers(self.size) as each:
            for _ in each(find, starts, ends.tolist()):
                pass
        return kept

    def of(self, indices: NDArray[np.integer]) -> NDArray[np.float64]:
        """The weights of these samples."""
        if self.codes is not None:
            assert self.levels is not None
            return np.asarray(self.levels[self.codes[indices]])
        if self.values is not None:
            return np.asarray(self.values[indices])
        return np.broadcast_to(np.float64(1), np.shape(indices))

    @property
    def count(self) -> int:
        """How many samples the epoch has."""
        if self.uniform:
            return self.size
        return int(np.count_nonzero(self._present()))

    def mean(self) -> float:
        """The mean weight of the samples of the epoch."""
        if self.uniform or not self.count:
            return 1.0
        if self.codes is not None and self.levels is not None:
            return float(np.bincount(self.codes, minlength=len(self.levels)) @ self.levels) / self.count
        assert self.values is not None
        return float(self.values.sum()) / self.count

    def scaled(self, factor: float) -> Weights:
        """Every weight times ``factor``; if all weights are 1, the plan is not rescaled and they stay 1."""
        if self.values is not None:
            return Weights.dense(self.values * factor)
        if self.codes is None or self.levels is None or set(self.levels[1:]) == {1.0}:
            return self
        return Weights.coded(self.codes, self.levels * factor)

    def without(self, cut: int, rng: np.random.Generator) -> Weights:
        """Leave out ``cut`` more samples at random; other weights grow, so that E[weight · kept] stays what it was.

        The samples come from one level, if one is large enough: of its k samples a uniform subset of k - cut stays,
        with k / (k - cut) times the weight, so that the sum of all weights stays too. Else they come from all levels.
        If all weights are 1, the plan is not rescaled and they stay 1.
        """
        if self.codes is None or self.levels is None:
            assert self.values is not None
            values = self.values * (self.count / (self.count - cut))
            values[rng.choice(self.kept(), cut, replace=False, shuffle=False)] = 0
            return Weights.dense(values)
        size = np.bincount(self.codes, minlength=len(self.levels))
        size[LEFT_OUT] = 0
        large = np.where(size >= 4 * cut, size, 0)
        pruned = np.where(self.levels > 1, large, 0)  # better than a level that the method keeps whole
        level = int(np.argmax(pruned if pruned.any() else large))
        from_level = self.codes == level if large.any() else self.codes != LEFT_OUT
        levels = self.levels.copy()
        if (levels > 1).any():
            before = int(np.count_nonzero(from_level))
            levels[level if large.any() else slice(None)] *= before / (before - cut)
        codes = self.codes.copy()
        codes[_some_of(from_level, cut, rng)] = LEFT_OUT
        return Weights.coded(codes, levels)

    def noise(self, size: NDArray[np.floating]) -> float:
        """The noise factor V = Σ(m/π) / Σ m of an epoch; ``size``: its samples' squared gradient norms m, π = 1/weight.

        Both sums are estimated from the samples that were kept, each of which stands for ``weight`` of them.
        """
        if self.uniform:
            return 1.0
        size = np.nan_to_num(size, nan=0.0, posinf=0.0, neginf=0.0).clip(min=0)
        weight, of_weight = self.values, size
        if self.codes is not None and self.levels is not None:
            used = self.levels > 0  # a loaded state has more levels, unused: the sums must be the same to the bit
            weight = self.levels[used]
            of_weight = np.bincount(self.codes, size, len(self.levels)).astype(np.float64)[used]
        assert weight is not None
        total = float(weight @ of_weight)
        return float(np.square(weight) @ of_weight) / total if total > 0 else 1.0

    def lookup(self, device: torch.device, dtype: torch.dtype) -> WeightLookup:
        """The same weights as tensors, for the training step."""
        if self.values is not None:
            return WeightLookup(None, torch.from_numpy(self.values).to(device, dtype))
        levels = torch.zeros(MAX_LEVELS, dtype=dtype, device="cpu")
        if self.codes is None:
            levels[1] = 1
            codes = torch.ones(1, dtype=torch.uint8, device="cpu").expand(
                self.size
            )  # no memory: one byte, seen N times
        else:
            assert self.levels is not None
            levels[: len(self.levels)] = torch.from_numpy(self.levels)
            codes = torch.from_numpy(self.codes)
        return WeightLookup(codes.to(device), levels.to(device))


def _some_of(members: NDArray[np.bool_], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``count`` of the members, every set of that size equally likely."""
    if len(members) <= _CHUNK:
        return rng.choice(np.flatnonzero(members), count, replace=False, shuffle=False)
    chosen: dict[int, None] = {}  # distinct, in the order in which they were drawn
    while len(chosen) < count:
        drawn = rng.integers(len(members), size=4 * count)
        chosen.update(dict.fromkeys(drawn[members[drawn]].tolist()))
    return np.array(list(chosen)[:count])


class WeightLookup:
    """Weights by sample index on the loss's device; shapes never change, so compiled steps are not rebuilt."""

    __slots__ = ("codes", "levels")

    def __init__(self, codes: torch.Tensor | None, levels: torch.Tensor) -> None:
        self.codes = codes
        self.levels = levels

    def of(self, index: torch.Tensor) -> torch.Tensor:
        """The weights of these samples."""
        if self.codes is not None:
            index = self.codes.index_select(0, index).long()
        return self.levels.index_select(0, index)

    def fits(self, like: torch.Tensor) -> bool:
        """Whether the look-up returns tensors on this loss's device, in its working precision."""
        return self.levels.device == like.device and self.levels.dtype == working_dtype(like)


def working_dtype(loss: torch.Tensor) -> torch.dtype:
    """The precision in which a loss is weighted: fp64 for fp64, else fp32."""
    return torch.float64 if loss.dtype == torch.float64 else torch.float32


class PairWeights:
    """The weights of inputs that mix two samples, in one epoch: the expected step is that of full data.

    With full data every ordered pair of the N samples is mixed equally often. A plan of n entries that keeps pair
    (i, j) with probability π_ij mixes it in the share 1/(n - 1) of the cases: its weight is (n - 1) / ((N - 1) π_ij).
    Within a group with k samples kept, each with weight w, π_ij = (k - 1) / (w (wk - 1)); across groups samples are
    kept independently, π_ij = 1 / (w_i w_j). A group is known by its weight, and N is the sum of all weights.
    """

    def __init__(self, plan: EpochPlan, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.plan = plan
        levels, level, kept = np.unique(plan.weights, return_inverse=True, return_counts=True)
        by_sample = np.zeros(plan.by_sample.size, np.int32)
        by_sample[plan.indices] = level
        total = levels @ kept
        ratio = (len(plan) - 1) / (total - 1)
        others = np.maximum(kept - 1, 1)  # a group that keeps one sample has no pair
        self._level = torch.from_numpy(by_sample).to(device)
        self._across = torch.from_numpy(ratio * levels).to(device, dtype)
        self._within = torch.from_numpy(ratio * (levels * kept - 1) / others).to(device, dtype)

    def relative(self, index: torch.Tensor, partner: torch.Tensor) -> torch.Tensor:
        """The weights of inputs that mix ``index`` with ``partner``, divided by those of ``index`` alone."""
        own, other = self._level[index].long(), self._level[partner].long()
        return torch.where(own == other, self._within[own], self._across[other])

"""One epoch's weights: by what each sample's loss is multiplied, 0 for a sample that is left out.

A plan needs few different weights (one per stratum), so they are kept as one small code per sample and a short
list of levels: one byte a sample instead of eight, and nothing at all when every weight is 1.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from .threads import workers

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
        """Sample i weighs ``levels[codes[i]]``; level 0 is 0."""
        assert levels[LEFT_OUT] == 0
        assert len(levels) <= MAX_LEVELS
        return cls(len(codes), codes=codes, levels=levels)

    @classmethod
    def dense(cls, values: NDArray[np.float64]) -> Weights:
        """Sample i weighs ``values[i]``."""
        return cls(len(values), values=values)

    @classmethod
    def only(cls, chosen: NDArray[np.bool_], weight: float = 1.0) -> Weights:
        """The chosen samples, with the same weight each."""
        if weight == 1.0 and chosen.all():
            return cls.ones(len(chosen))
        return cls.coded(chosen.view(np.uint8), np.array([0.0, weight]))

    @property
    def uniform(self) -> bool:
        """Whether every sample is in, with weight 1."""
        return self.codes is None and self.values is None

    def kept(self) -> NDArray[np.integer]:
        """The samples of the epoch, ascending, in the smallest integer type that holds them."""
        dtype = np.int32 if self.size <= np.iinfo(np.int32).max else np.int64
        if self.uniform:
            return np.arange(self.size, dtype=dtype)
        present = self.codes if self.codes is not None else self.values
        assert present is not None
        starts = range(0, self.size, _CHUNK)  # so that the wide indices numpy finds never exist all at once
        ends = np.cumsum([np.count_nonzero(present[start : start + _CHUNK]) for start in starts])
        kept = np.empty(ends[-1] if len(ends) else 0, dtype)

        def find(start: int, end: int) -> None:
            found = np.flatnonzero(present[start : start + _CHUNK] != LEFT_OUT)
            np.add(found, start, out=kept[end - len(found) : end], casting="unsafe")

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


class WeightLookup:
    """Weights by sample index on the loss's device; shapes never change, so compiled steps are not rebuilt."""

    __slots__ = ("codes", "levels")

    def __init__(self, codes: torch.Tensor | None, levels: torch.Tensor) -> None:
        self.codes = codes
        self.levels = levels

    def __call__(self, index: torch.Tensor) -> torch.Tensor:
        if self.codes is not None:
            index = self.codes.index_select(0, index).long()
        return self.levels.index_select(0, index)

    def fits(self, like: torch.Tensor) -> bool:
        """Whether the look-up gives tensors for this loss's device, in a precision that serves it."""
        return self.levels.device == like.device and self.levels.dtype == working_dtype(like)


def working_dtype(loss: torch.Tensor) -> torch.dtype:
    """The precision in which a loss is weighted: fp64 for fp64, else fp32."""
    return torch.float64 if loss.dtype == torch.float64 else torch.float32

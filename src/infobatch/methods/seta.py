"""SeTa: random pruning, then a window over groups of like loss that slides from easy to hard."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import checked_part, checked_ratio
from ..core.method import Epoch, Method, MethodInfo
from ..core.weights import Weights

_USUAL = 4096  # losses, exponentially distributed, by which the saving is foretold
_ROUNDS = 300  # at most, of moving the centres of the groups


class SlidingWindow(Method):
    """``random`` of all samples are left out by chance; the others are sorted into ``groups`` of like loss.

    In epoch t round(``groups``·``window``) neighbouring groups are trained on, from group t mod (groups - that + 1) on,
    so that the window moves from easy to hard and begins again. From ``until`` of training on, only chance prunes.
    """

    info: ClassVar = MethodInfo(
        name="seta",
        summary="random pruning, then a window sliding over groups of like loss, easy to hard",
        reference="Zhou et al., Scale efficient training for large datasets, CVPR 2025",
        unbiased=False,
        anneals=False,
    )

    def __init__(self, random: float = 0.1, *, groups: int = 5, window: float = 0.9, until: float = 0.875) -> None:
        if isinstance(groups, bool) or not isinstance(groups, int) or groups < 2:
            raise ValueError(f"groups must be a whole number, at least 2, got {groups!r}")
        self.random = checked_ratio(random, "random", "the share of all samples that chance leaves out")
        self.groups = groups
        self.window = checked_part("window", window, "the share of the groups that is trained on")
        self.until = checked_part("until", until, "the share of training in which the window is used")
        self.width = round(groups * self.window)
        if self.width < 1:
            raise ValueError(f"window={window} of groups={groups} holds no group: raise one of them")

    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        size = len(scores)
        kept = np.ones(size, bool)
        count = min(math.floor(Fraction(repr(self.random)) * size), size - 1)
        kept[rng.choice(np.arange(size), count, replace=False, shuffle=False)] = False
        if epoch.progress < self.until:
            kept &= self._in_window(scores, kept, epoch.index)
        return Weights.only(kept)

    def _in_window(self, scores: NDArray[np.float32], drawn: NDArray[np.bool_], epoch: int) -> NDArray[np.bool_]:
        """The samples whose group is in the window; groups are formed by those that were drawn."""
        known = ~np.isnan(scores)
        if not (drawn & known).any():
            return np.ones(len(scores), bool)
        bounds = group_bounds(scores[drawn & known], self.groups)
        first = epoch % (len(bounds) + 2 - min(self.width, len(bounds) + 1))
        group = np.searchsorted(bounds, scores, side="right")
        window: NDArray[np.bool_] = (group >= first) & (group < first + self.width)
        return window | ~known

    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        usual = -np.log1p(-(np.arange(_USUAL) + 0.5) / _USUAL).astype(np.float32)
        everything = np.ones(_USUAL, bool)
        cycle = {t: 1 - self._in_window(usual, everything, t).mean() for t in range(self.groups)}
        slides = self.groups - self.width + 1
        windows = [cycle[t % slides] if t / num_epochs < self.until else 0.0 for t in pruning]
        return float(sum(1 - (1 - self.random) * (1 - share) for share in windows)) / num_epochs

    def options(self) -> dict[str, object]:
        return {"random": self.random, "groups": self.groups, "window": self.window, "until": self.until}


def group_bounds(values: NDArray[np.float32], groups: int) -> NDArray[np.float64]:
    """The values that part k-means groups of numbers: a number belongs to the group after the bounds it reaches.

    Lloyd's algorithm on the sorted numbers, from centres at their quantiles: of sorted numbers a group is a stretch,
    and its mean a difference of running sums. Groups that stay empty are left out.
    """
    ordered = np.sort(values).astype(np.float64)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    centres = np.unique(ordered[((np.arange(groups) + 0.5) / groups * len(ordered)).astype(np.int64)])
    for _ in range(_ROUNDS):
        bounds = (centres[1:] + centres[:-1]) / 2
        ends = np.concatenate(([0], np.searchsorted(ordered, bounds, side="left"), [len(ordered)]))
        sizes = np.diff(ends)
        moved = (np.diff(sums[ends]) / np.maximum(sizes, 1))[sizes > 0]
        if np.array_equal(moved, centres):
            break
        centres = moved
    return (centres[1:] + centres[:-1]) / 2

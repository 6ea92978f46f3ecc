"""Pruning within a noise budget: as much as the gradient noise allows, and nothing where scores say nothing.

With as many steps as full data, keeping sample i with probability π_i and weighing it 1/π_i multiplies the second
moment of a step's gradient by the noise factor V = Σ(m_i/π_i) / Σ m_i, where m_i is the squared norm of the sample's
gradient: training is as if the batch were V times smaller. The fewest samples at V ≤ 1 + noise are kept by
π_i = min(1, c·√m_i).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.budget import KEYS, SIZES, check_noise, check_size, key_of, leaving_out, within_noise
from ..core.checks import checked_part, is_real
from ..core.draw import ALWAYS, fixed_size, group_sizes, look_up
from ..core.method import Epoch, Memory, Method, MethodInfo
from ..core.weights import MAX_LEVELS, Weights
from .grouped import counts, label_digest, numbered_labels, scaled_to

BINS = 32
FORGOTTEN = 0.2  # the share of a past loss's weight that is lost with every epoch
_PAIRS = 1 << 17  # about so many are looked at
_LEAST = 4  # pairs in a bin
_NAN = 0xFF81  # the first key of what is not a number


class NoiseBudget(Method):
    """Prunes as much as keeps the noise factor V at ``1 + noise``.

    A sample is predicted by the average of its past losses, in which recent ones count more. What gradient to expect
    where a prediction is so high is learned from the last epoch (:class:`Calibration`): each sample that was trained in
    it is a pair of its prediction before and its loss then. Probabilities are per bin of the prediction, draws of fixed
    size per bin, weights exact.

    ``size`` says how a gradient's size follows from the score: "smooth" for any loss, "cross-entropy", or "norm" where
    the score is a gradient's norm. ``floor`` is the least probability. With ``saving``, that share of training is saved
    at the least noise instead. The first two epochs are full: there are no pairs before.
    """

    info: ClassVar = MethodInfo(
        name="infobatch-adaptive",
        summary="as much as keeps the gradient noise within a budget: as if the batch were 1 + noise times smaller",
        reference="this library; after Qin et al., InfoBatch, ICLR 2024, appendix B.3",
        unbiased=True,
        anneals=False,  # results/README.md: full epochs at the end brought nothing that 8 seeds could show
        full_first=2,
    )

    def __init__(
        self,
        noise: float = 0.1,
        *,
        saving: float | None = None,
        size: str = "smooth",
        floor: float = 0.1,
        strata: ArrayLike | None = None,
    ) -> None:
        check_noise(noise)
        if saving is not None and (not is_real(saving) or not 0 < saving < 1):
            raise ValueError(f"saving must lie in (0, 1), the share of full training to leave out, got {saving!r}")
        check_size(size)
        self.noise = float(noise)
        self.saving = None if saving is None else float(saving)
        self.size = size
        self.floor = checked_part("floor", floor, "the least probability to keep a sample")
        self.strata = None if strata is None else numbered_labels(strata)

    def squared_norms(self, scores: NDArray[np.float32]) -> NDArray[np.floating]:
        return SIZES[self.size](scores)

    def check(self, size: int, pruning: range, num_epochs: int) -> None:
        if self.strata is not None and len(self.strata) != size:
            raise ValueError(f"strata must hold one label per sample: got {len(self.strata)} for a dataset of {size}")
        most = (1 - self.floor) * len(pruning) / num_epochs
        if self.saving is not None and self.saving > most:
            raise ValueError(
                f"saving={self.saving} cannot be reached: {len(pruning)} of {num_epochs} epochs are pruned, "
                f"each by at most {1 - self.floor:.0%}, which saves {most:.3f}. Ask for less, raise delta, or "
                "train more epochs"
            )

    def memory(self) -> dict[str, int]:
        """The prediction of each sample and by how many losses it counts; the prediction before its last training."""
        return {"prediction": 1, "count": 1, "before": 1}

    def observe(self, scores: NDArray[np.float32], trained: NDArray[np.integer], memory: Memory) -> None:
        prediction, count, before = memory["prediction"], memory["count"], memory["before"]
        now = np.zeros(len(scores), bool)
        now[trained] = True
        now &= ~np.isnan(scores)
        count *= np.float32(1 - FORGOTTEN)
        first = now & np.isnan(count)
        np.copyto(before, prediction, where=now)
        np.copyto(prediction, (count * prediction + scores) / (count + 1), where=now)
        np.copyto(prediction, scores, where=first)
        np.add(count, 1, out=count, where=now)
        np.copyto(count, 1, where=first)

    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        some = np.arange(0, len(scores), max(1, len(scores) // _PAIRS))  # enough to calibrate by
        weight = np.ones(len(some)) if epoch.before is None else epoch.before.of(some)
        before, loss = epoch.memory["before"][some], scores[some]
        pairs = (weight > 0) & ~np.isnan(before) & ~np.isnan(loss)
        if np.count_nonzero(pairs) < _LEAST:
            return Weights.ones(len(scores))
        size = SIZES[self.size](loss[pairs].astype(np.float64))
        calibration = Calibration.of(before[pairs], size, weight[pairs])
        return self._drawn(calibration, calibration.bin_of(epoch.memory["prediction"]), epoch, rng)

    def _keep(self, rule: Calibration, count: NDArray[np.integer], epoch: Epoch, size: int) -> NDArray[np.float64]:
        """The probability of each bin: at the noise budget, or at the wanted saving."""
        if self.saving is None:
            return within_noise(rule.size, count, self.noise, self.floor)
        left_to_save = self.saving * epoch.num_epochs * size - epoch.pruned_before
        target = left_to_save / len(range(epoch.index, epoch.pruning.stop))
        return leaving_out(rule.size, count, target, self.floor)

    def _drawn(
        self, calibration: Calibration, bin_of_sample: NDArray[np.uint8], epoch: Epoch, rng: np.random.Generator
    ) -> Weights:
        """A draw of fixed size from the bins of each probability, or from each label's part of them."""
        total, labels = len(bin_of_sample), 1
        keep = self._keep(calibration, group_sizes(bin_of_sample, 1 + len(calibration.size))[1:], epoch, total)
        # Groups are numbered by falling probability, so that what is surely kept is group 0, ALWAYS.
        left_out, group = np.unique(np.append(0.0, 1 - keep), return_inverse=True)
        cell: NDArray[np.integer] = look_up(group.astype(np.uint8), bin_of_sample)
        if self.strata is not None:
            labels = int(self.strata.max()) + 1
            cell = np.where(cell == ALWAYS, ALWAYS, cell + (len(left_out) - 1) * self.strata)
        share = np.append(0.0, np.tile(left_out[1:], labels))
        count = group_sizes(cell, len(share))
        prune = counts(share, count, float(share @ count))
        prune = scaled_to(prune, count, total - epoch.fit(total - int(prune.sum()), total))
        return fixed_size(cell, prune, rng)

    @property
    def many_weights(self) -> bool:
        labels = 1 if self.strata is None else int(self.strata.max()) + 1
        return 2 + labels * BINS > MAX_LEVELS

    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        if self.saving is not None:
            return self.saving
        return self.noise / (1 + self.noise) * len(pruning) / num_epochs  # if scores say nothing

    def options(self) -> dict[str, object]:
        return {
            "noise": self.noise,
            "saving": self.saving,
            "size": self.size,
            "floor": self.floor,
            "strata": label_digest(self.strata),
        }


@dataclass(frozen=True)
class Calibration:
    """Bins of the prediction, and the squared gradient norm to expect in each: never less than in the bin below."""

    edges: NDArray[np.uint16]  # the key of the lowest prediction in each bin but the first
    size: NDArray[np.float64]  # m, one per bin

    @classmethod
    def of(cls, before: NDArray[np.float32], size: NDArray[np.floating], weight: NDArray[np.float64]) -> Calibration:
        """Learn from weighted pairs (prediction ``before``, ``size`` found), cut into bins of equally many.

        A bin's size is the mean of its pairs plus its standard error. Without that, bins whose few pairs happen to be
        small would be pruned most, and the noise would exceed its budget.
        """
        key = key_of(before)
        bins_wanted = min(BINS, len(key) // _LEAST)
        places = np.arange(1, bins_wanted) * len(key) // bins_wanted
        reached = np.cumsum(np.bincount(key, minlength=KEYS))
        edges = np.unique(np.searchsorted(reached, places, side="right")).astype(np.uint16)
        bins = _bin_of_key(edges)[key]
        total = np.bincount(bins, weight, len(edges) + 1)
        at_least_one = np.maximum(total, np.finfo(float).tiny)
        mean = np.bincount(bins, weight * size, len(edges) + 1) / at_least_one
        error = np.sqrt(np.bincount(bins, np.square(weight * (size - mean[bins])), len(edges) + 1)) / at_least_one
        return cls(edges, rising(mean + error, total))

    def bin_of(self, prediction: NDArray[np.float32]) -> NDArray[np.uint8]:
        """The bin of each sample, from 1 on; 0 where nothing is known of it."""
        bins = _bin_of_key(self.edges) + np.uint8(1)
        bins[_NAN:] = ALWAYS
        return np.asarray(bins[key_of(prediction)])


def rising(values: NDArray[np.float64], weight: NDArray[np.floating | np.integer]) -> NDArray[np.float64]:
    """The nearest values, by weighted squares, that never fall: neighbours out of order are averaged.

    >>> rising(np.array([1.0, 4.0, 2.0, 5.0]), np.array([1.0, 1.0, 1.0, 1.0])).tolist()
    [1.0, 3.0, 3.0, 5.0]
    """
    blocks: list[tuple[float, float, int]] = []  # value, weight, how many
    for value, worth in zip(values.tolist(), weight.tolist(), strict=True):
        block = (value, worth, 1)
        while blocks and blocks[-1][0] > block[0]:
            (low, less, few), (high, more, many) = blocks.pop(), block
            both = max(less + more, np.finfo(float).tiny)
            block = ((low * less + high * more) / both, less + more, few + many)
        blocks.append(block)
    return np.repeat([value for value, _, _ in blocks], [many for _, _, many in blocks])


def _bin_of_key(edges: NDArray[np.uint16]) -> NDArray[np.uint8]:
    return np.searchsorted(edges, np.arange(KEYS), side="right").astype(np.uint8)

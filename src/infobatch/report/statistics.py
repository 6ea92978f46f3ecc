"""Paired differences with their uncertainty, and the verdict on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np
from numpy.typing import NDArray

from ..records import RunRecord

# Two-sided 97.5 % quantiles of Student's t for 1 … 30 degrees of freedom; beyond, the normal's with a correction.
_T = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
    2.0452, 2.0423,
)  # fmt: skip
FEWEST = 3  # paired seeds that a verdict needs


def t_quantile(degrees: int) -> float:
    """How many standard errors a 95 % interval reaches to either side.

    >>> t_quantile(4), round(t_quantile(1000), 3)
    (2.7764, 1.962)
    """
    if degrees <= len(_T):
        return _T[degrees - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


@dataclass(frozen=True)
class Difference:
    """A method's metric less full data's, seed by seed; positive is always better, also where a lower metric is.

    >>> d = Difference.of([92.0, 91.5, 91.8], [91.9, 91.7, 91.8])
    >>> round(d.mean, 3), [round(x, 2) for x in d.interval], d.verdict(0.5)
    (0.033, [-0.35, 0.41], 'lossless within 0.5')
    >>> Difference((-0.2, -0.25, -0.21)).verdict(0.5)
    'within the margin, worse by 0.22'
    """

    values: tuple[float, ...]

    @classmethod
    def of(cls, full: Sequence[float], method: Sequence[float], higher_is_better: bool = True) -> Difference:
        """Make the difference from the metrics of paired runs."""
        sign = 1 if higher_is_better else -1
        return cls(tuple(sign * (m - f) for f, m in zip(full, method, strict=True)))

    @property
    def mean(self) -> float:
        """The mean difference."""
        return mean(self.values)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the mean; infinite for one seed, or if a run diverged."""
        n = len(self.values)
        if n < 2 or not all(map(math.isfinite, self.values)):
            return -math.inf, math.inf
        reach = t_quantile(n - 1) * stdev(self.values) / math.sqrt(n)
        return self.mean - reach, self.mean + reach

    def describe(self, form: str) -> str:
        """The mean with its interval, if there is one, as text.

        >>> Difference((-0.1, -0.3)).describe("+.2f"), Difference((0.5,)).describe("+.2f")
        ('-0.20 [-1.47, +1.07]', '+0.50')
        """
        low, high = (format(end, form) for end in self.interval)
        return format(self.mean, form) + (f" [{low}, {high}]" if len(self.values) > 1 else "")

    def verdict(self, margin: float) -> str:
        """The verdict that the interval allows. Fewer than three seeds get none: two may agree by chance.

        A method whose whole interval lies below 0 is never called lossless, however small the difference.
        """
        if not all(map(math.isfinite, self.values)):
            return "a run diverged"
        if len(self.values) < FEWEST:
            return "too few seeds"
        low, high = self.interval
        if low > -margin:
            return (
                f"lossless within {margin:g}"
                if high >= 0
                else f"within the margin, worse by {self._format_loss(margin)}"
            )
        if high < -margin:
            return f"worse by more than {margin:g}"
        return "undecided: more seeds" if high >= 0 else f"worse by {self._format_loss(margin)}"

    def _format_loss(self, margin: float) -> str:
        return f"{-self.mean:.{digits_of(margin)}f}"


def pair_runs(records: Sequence[RunRecord], method: str, other: str = "full") -> list[tuple[RunRecord, RunRecord]]:
    """The runs of ``other`` and of ``method`` that share a seed, in the order of the seeds."""
    by_key = {(record.method, record.seed): record for record in records}
    seeds = sorted({record.seed for record in records})
    return [(by_key[other, s], by_key[method, s]) for s in seeds if {(other, s), (method, s)} <= by_key.keys()]


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation; NaN where all values on one side are equal. Ties get the mean of their ranks.

    >>> round(spearman([1, 2, 3, 4], [2, 4, 3, 9]), 3)
    0.8
    """
    ranks = np.array([_ranks(one), _ranks(other)])
    ranks -= ranks.mean(axis=1, keepdims=True)
    spread = float(np.sqrt((ranks**2).sum(axis=1).prod()))
    return float(ranks[0] @ ranks[1]) / spread if spread else math.nan


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks


def spread(values: Sequence[float], form: str) -> str:
    """Mean ± sample standard deviation; one value alone has no spread.

    >>> spread([0.25], ".2f"), spread([1.0, 2.0, 3.0], "+.1f")
    ('0.25', '+2.0 ± 1.0')
    """
    text = format(mean(values), form)
    return (
        text
        if len(values) == 1 or not all(map(math.isfinite, values))
        else f"{text} ± {format(stdev(values), form.lstrip('+'))}"
    )


def digits_of(margin: float) -> int:
    """Enough digits after the point to show two of the margin's, and never fewer than two.

    >>> digits_of(0.5), digits_of(0.002), digits_of(0)
    (2, 4, 2)
    """
    return max(2, 1 - math.floor(math.log10(margin))) if margin else 2

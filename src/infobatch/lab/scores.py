"""The part of a score table that a record keeps: a histogram, and the samples with the highest scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..records import SCORE_EDGES

SHOWN = 12  # a record names this many of the hardest and of the most pruned samples


def count_scores(scores: NDArray[np.float32]) -> list[int]:
    """Count the scores between each two ``SCORE_EDGES``; scores outside count at the ends, NaN does not count.

    >>> sum(count_scores(np.array([0.0, 0.5, 1e9, np.nan], np.float32)))
    3
    """
    finite = scores[~np.isnan(scores)].astype(np.float64)  # in float32 the lowest edge is rounded to below itself
    counts: list[int] = np.histogram(np.clip(finite, SCORE_EDGES[0], SCORE_EDGES[-1]), SCORE_EDGES)[0].tolist()
    return counts


def take_highest(values: NDArray[Any], count: int = SHOWN) -> tuple[tuple[int, float], ...]:
    """The samples with the highest values, each with its value.

    >>> take_highest(np.array([0.5, 2.0, 1.0]), 2)
    ((1, 2.0), (2, 1.0))
    """
    first = np.argsort(-values, kind="stable")[:count]
    return tuple((int(i), float(values[i])) for i in first)

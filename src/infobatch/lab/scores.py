"""What a record keeps of a score table: how many scores lie where, and which samples have the highest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..records import SCORE_EDGES

SHOWN = 12  # of the hardest and of the most pruned samples, so many are named in the record


def counted(scores: NDArray[np.float32]) -> list[int]:
    """How many scores lie between two ``SCORE_EDGES``; those outside are counted at the ends, NaN is not.

    >>> sum(counted(np.array([0.0, 0.5, 1e9, np.nan], np.float32)))
    3
    """
    known = scores[~np.isnan(scores)].astype(np.float64)  # in float32 the lowest edge is rounded to below itself
    counts: list[int] = np.histogram(np.clip(known, SCORE_EDGES[0], SCORE_EDGES[-1]), SCORE_EDGES)[0].tolist()
    return counts


def highest(values: NDArray[Any], count: int = SHOWN) -> tuple[tuple[int, float], ...]:
    """The samples of the highest values, and these.

    >>> highest(np.array([0.5, 2.0, 1.0]), 2)
    ((1, 2.0), (2, 1.0))
    """
    first = np.argsort(-values, kind="stable")[:count]
    return tuple((int(i), float(values[i])) for i in first)

"""The samples of the highest values, by selection rather than sorting; ties are broken by chance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def highest(values: NDArray[np.floating], count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A mask of the ``count`` highest values. NaN counts as higher than any number.

    >>> highest(np.array([1.0, 3.0, np.nan, 2.0]), 2, np.random.default_rng(0)).tolist()
    [False, True, True, False]
    """
    size = len(values)
    if count <= 0:
        return np.zeros(size, bool)
    if count >= size:
        return np.ones(size, bool)
    values = np.where(np.isnan(values), np.inf, values)
    bound = np.partition(values, size - count)[size - count]
    chosen: NDArray[np.bool_] = values > bound
    ties = np.flatnonzero(values == bound)
    missing = count - int(np.count_nonzero(chosen))
    chosen[ties if missing == len(ties) else rng.choice(ties, missing, replace=False, shuffle=False)] = True
    return chosen

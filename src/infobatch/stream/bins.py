"""Bins of scores: an eighth of an octave each, so that scores of any scale have a group without a look at the data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.budget import KEYS, key_of

_SHIFT = 4
BINS = KEYS >> _SHIFT  # 4,096, of which a few dozen are used


def bin_of(score: NDArray[np.floating]) -> NDArray[np.int64]:
    """The bin of each score; scores that are equal to about 10 % share one.

    >>> bin_of(np.array([1.0, 1.05, 1.2, 2.0])).tolist()
    [3064, 3064, 3065, 3072]
    """
    return key_of(np.asarray(score, np.float32)).astype(np.int64) >> _SHIFT

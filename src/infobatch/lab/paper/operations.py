"""Table 11: the time to sort scores, to find a percentile and to take the mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ... import methods
from ...core.method import Epoch

SIZES = {"ImageNet-1K (1.28M)": 1_281_167, "ImageNet-22K (14M)": 14_197_122}
_REPEATS = 5


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one operation, in the paper and as measured here, for each size."""

    operation: str
    paper: tuple[str, ...]
    measured: tuple[float, ...]


def _plan(method: str) -> Callable[[NDArray[np.float32]], object]:
    """The whole pruning of an epoch: thresholds, draws and weights."""
    created, epoch = methods.create(method), Epoch(1, range(1, 2), 2, 0)
    return lambda scores: created.select(scores, epoch, np.random.default_rng(0))


_OPERATIONS: dict[str, tuple[Callable[[NDArray[np.float32]], object], tuple[str, ...]]] = {
    "sort": (np.sort, ("123.4", "1630.1")),
    "percentile": (lambda scores: np.percentile(scores, 20), ("13.0", "232.6")),
    "mean": (np.mean, ("1.2", "6.4")),
    "infobatch's pruning of an epoch": (_plan("infobatch"), ("", "")),
    "infobatch-quantile's": (_plan("infobatch-quantile"), ("", "")),
}


def measure(sizes: Sequence[int] = tuple(SIZES.values()), repeats: int = _REPEATS) -> list[Timing]:
    """The fastest of several repetitions of each operation, on losses drawn from an exponential distribution."""
    losses = [np.random.default_rng(0).exponential(size=size).astype(np.float32) for size in sizes]
    return [
        Timing(name, paper, tuple(min(_milliseconds(operation, scores) for _ in range(repeats)) for scores in losses))
        for name, (operation, paper) in _OPERATIONS.items()
    ]


def _milliseconds(operation: Callable[[NDArray[np.float32]], object], scores: NDArray[np.float32]) -> float:
    began = time.perf_counter()
    operation(scores)
    return 1000 * (time.perf_counter() - began)

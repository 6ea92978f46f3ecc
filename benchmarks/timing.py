"""Interleaved timing: every contestant once per round, so that a noisy machine is noisy for all of them."""

from __future__ import annotations

import gc
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

Contestant = Callable[[], object]


@dataclass(frozen=True)
class Comparison:
    """Median seconds by contestant; ``bar`` is the largest ratio of the first to the second that we accept."""

    name: str
    seconds: dict[str, float]
    bar: float | None

    @property
    def ratio(self) -> float:
        """The first contestant's time over the second's."""
        ours, theirs, *_ = self.seconds.values()
        return ours / theirs

    @property
    def verdict(self) -> str:
        """Whether the bar was met."""
        return "" if self.bar is None else "ok" if self.ratio <= self.bar else "MISSED"


def compare(name: str, contestants: dict[str, Contestant], rounds: int, bar: float | None = None) -> Comparison:
    """Time every contestant ``rounds`` times after a warm-up; the first is ours, the second what it is measured by."""
    print(f"{name} …", file=sys.stderr, flush=True)
    times: dict[str, list[float]] = {who: [] for who in contestants}
    for measured in range(-1, rounds):
        # Who goes first changes: the first one of a round finds the caches cold.
        for who, run in list(contestants.items())[:: 1 if measured % 2 else -1]:
            gc.collect()
            gc.disable()
            start = time.perf_counter()
            run()
            elapsed = time.perf_counter() - start
            gc.enable()
            if measured >= 0:
                times[who].append(elapsed)
    return Comparison(name, {who: statistics.median(t) for who, t in times.items()}, bar)


def growth(seconds: dict[int, float]) -> float:
    """The exponent b of seconds ~ size**b, fitted; NaN for fewer than two sizes."""
    if len(seconds) < 2:
        return math.nan
    slope, _ = statistics.linear_regression([math.log(n) for n in seconds], [math.log(s) for s in seconds.values()])
    return slope

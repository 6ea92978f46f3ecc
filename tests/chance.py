"""All outcomes of chance: a stand-in for numpy's Generator that walks through them, each with its probability."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infobatch.core.weights import Weights


class EveryOutcome:
    """One path through the tree of outcomes: each call takes the branch that ``path`` says, or the first."""

    def __init__(self, path: list[tuple[int, int]]) -> None:
        self._path = path  # (branch taken, branches there are) of each call
        self._depth = 0
        self.probability = Fraction(1)

    def _branch(self, count: int) -> int:
        if self._depth == len(self._path):
            self._path.append((0, count))
        taken, branches = self._path[self._depth]
        assert branches == count
        self._depth += 1
        self.probability /= count
        return taken

    def choice(self, members: NDArray[np.intp], size: int, *, replace: bool, shuffle: bool = True) -> NDArray[np.intp]:
        """Each set of ``size`` members is equally likely."""
        assert not replace
        sets = itertools.combinations(range(len(members)), size)
        return members[list(_nth(sets, self._branch(math.comb(len(members), size))))]

    def permutation(self, count: int) -> NDArray[np.intp]:
        """Each order is equally likely."""
        return np.array(_nth(itertools.permutations(range(count)), self._branch(math.factorial(count))))

    def bytes(self, count: int) -> bytes:
        """Bytes of which only the two highest bits vary: enough for keys of so many bits."""
        return bytes(64 * self._branch(4) for _ in range(count))

    def integers(self, low: int, high: int | None = None, size: int | None = None, dtype: type = int) -> Any:
        """Each number of the range, or each sequence of ``size`` of them, is equally likely."""
        start, stop = (0, low) if high is None else (low, high)
        if size is None:
            return start + self._branch(stop - start)
        return np.array([start + self._branch(stop - start) for _ in range(size)], dtype)


def outcomes(draw: Callable[[EveryOutcome], Weights]) -> Iterator[tuple[Fraction, list[float]]]:
    """(probability, weight of every sample) of all that ``draw(rng)`` can give."""
    path: list[tuple[int, int]] = []
    while True:
        rng = EveryOutcome(path)
        weights = draw(rng)
        yield rng.probability, weights.of(np.arange(weights.size)).tolist()
        while path and path[-1][0] + 1 == path[-1][1]:
            path.pop()
        if not path:
            return
        path[-1] = (path[-1][0] + 1, path[-1][1])


def expected_weights(draw: Callable[[EveryOutcome], Weights]) -> list[Fraction]:
    """E[weight · kept] of every sample, over all outcomes, summed without rounding."""
    total: list[Fraction] | None = None
    for probability, weights in outcomes(draw):
        share = [probability * Fraction(weight) for weight in weights]
        total = share if total is None else [a + b for a, b in zip(total, share, strict=True)]
    assert total is not None
    return total


def is_unbiased(draw: Callable[[EveryOutcome], Weights]) -> bool:
    """Whether E[weight · kept] = 1 for every sample, to 1e-12."""
    return all(abs(expected - 1) < Fraction(1, 10**12) for expected in expected_weights(draw))


def _nth(items: Iterator[tuple[int, ...]], n: int) -> tuple[int, ...]:
    return next(itertools.islice(items, n, None))

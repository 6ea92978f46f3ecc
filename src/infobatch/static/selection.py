"""The result of a selection, indices and weights, and how large it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, Subset


@dataclass(frozen=True)
class Selection:
    """The samples to train on, ascending, and the factor for each sample's loss (1 for most methods).

    >>> Selection(np.array([4, 7]), np.ones(2)).subset(range(10))[1]
    7
    """

    indices: NDArray[np.int64]
    weights: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.indices)

    def subset(self, dataset: Dataset[Any]) -> Subset[Any]:
        """These samples of the dataset, ready for a loader or for ``InfoBatch``."""
        last = int(self.indices[-1]) if len(self) else -1
        if last >= len(dataset):  # type: ignore[arg-type]
            raise ValueError(
                f"dataset has {len(dataset)} samples, but sample {last} was selected: "  # type: ignore[arg-type]
                "pass the dataset that the arrays were collected from"
            )
        return Subset(dataset, self.indices.tolist())

    def save(self, path: str | Path) -> None:
        """Write an ``.npz`` file with the arrays ``indices`` and ``weights``."""
        with Path(path).open("wb") as file:
            np.savez(file, indices=self.indices, weights=self.weights)

    @classmethod
    def load(cls, path: str | Path) -> Selection:
        """Read what ``save`` wrote."""
        with np.load(path) as arrays:
            return cls(arrays["indices"], arrays["weights"])


def count_of(size: float, available: int) -> int:
    """How many samples ``size`` means: a whole number is a count, a float a share of all.

    >>> count_of(0.25, 10), count_of(7, 10)
    (2, 7)
    """
    if isinstance(size, int | np.integer) and not isinstance(size, bool):
        if not 1 <= size <= available:
            raise ValueError(f"size must be a count from 1 to {available}, the samples there are, got {size}")
        return int(size)
    if not isinstance(size, float | np.floating) or not 0 < size <= 1:
        raise ValueError(f"size must be a share in (0, 1] or a whole number of samples, got {size!r}")
    return max(round(float(size) * available), 1)


def shares(labels: NDArray[Any], count: int) -> list[tuple[NDArray[np.int64], int]]:
    """(members, how many of them) for each class, so that every class keeps the same share to within one sample.

    Samples left over by rounding down go to the classes that lost most by it. If ``count`` allows, every class gets at
    least one: a class whose share is less gets one, and the others share the rest.

    >>> [(members.tolist(), few) for members, few in shares(np.array([0, 1, 1, 0, 1, 1]), 3)]
    [([0, 3], 1), ([1, 2, 4, 5], 2)]
    >>> [few for _, few in shares(np.array([0] * 37 + [1] * 3), 4)]
    [3, 1]
    """
    classes, sizes = np.unique(labels, return_counts=True)
    exact = count * sizes / len(labels)
    if count >= len(classes):
        while (small := exact < 1).any():
            one = small | (exact == 1)
            exact = np.where(one, 1, (count - one.sum()) * sizes / max(sizes[~one].sum(), 1))
    few = np.floor(exact).astype(np.int64)
    few[np.argsort(few - exact, kind="stable")[: count - few.sum()]] += 1
    return [(np.flatnonzero(labels == label), int(k)) for label, k in zip(classes, few, strict=True)]


def highest(scores: NDArray[Any], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The ``count`` highest scores, highest first; among equal ones chance decides, not the order of the data."""
    return np.lexsort((rng.random(len(scores)), -scores))[:count]

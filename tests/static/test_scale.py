"""Memory never grows with the square of the number of samples."""

from __future__ import annotations

import multiprocessing as mp

import pytest
from benchmarks.static import METHODS, clustered, measure

SIZE = 25_000  # all pairs would be 2.5 GB


@pytest.fixture(scope="module")
def most() -> dict[tuple[str, int], float]:
    """The most megabytes that a fresh process had held after each of the methods."""
    with mp.get_context("spawn").Pool(1) as pool:
        return {
            (method, count): pool.apply(measure, (method, clustered, SIZE, 4, count))["MB"]
            for method in METHODS
            if method != "dq"  # many graph cuts
            for count in (3, 300)
        }


def test_memory_stays_far_below_all_pairs(most: dict[tuple[str, int], float]) -> None:
    assert len(most) == 8
    assert max(most.values()) < 1000, most

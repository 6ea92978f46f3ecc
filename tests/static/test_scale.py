"""Memory never grows with the square of the number of samples."""

from __future__ import annotations

import multiprocessing as mp

import pytest
from benchmarks.static import METHODS, clustered, measure

SIZE, COUNT = 20_000, 3  # all pairs would be 1.6 GB, and with few picks a greedy has the most candidates for each

GREEDY = [method for method in METHODS if method != "dq"]  # which is many graph cuts


@pytest.fixture(scope="module")
def most() -> dict[str, float]:
    """The most megabytes that a fresh process had held after each of the methods."""
    with mp.get_context("spawn").Pool(1) as pool:
        return {method: pool.apply(measure, (method, clustered, SIZE, 4, COUNT))["MB"] for method in GREEDY}


def test_memory_stays_far_below_all_pairs(most: dict[str, float]) -> None:
    assert max(most.values()) < 800, most

"""Greedy k-center: farthest first, and never worse than twice the optimum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from infobatch.static import contextual_diversity, greedy, k_center
from infobatch.static.scores import probabilities


def naive(distances: np.ndarray, first: int, count: int) -> list[int]:
    picks = [first]
    while len(picks) < count:
        nearest = distances[:, picks].min(1)
        nearest[picks] = -1
        picks.append(int(nearest.argmax()))
    return picks


def euclidean(rows: np.ndarray) -> np.ndarray:
    return np.linalg.norm(rows[:, None] - rows, axis=2)


@pytest.mark.parametrize("seed", range(5))
def test_within_twice_the_optimum(seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(12, 2))
    distances = euclidean(rows)
    picks = k_center(rows, 3, seed=seed)
    best = min(distances[:, [*some]].min(1).max() for some in itertools.combinations(range(12), 3))
    assert distances[:, picks].min(1).max() <= 2 * best


@pytest.mark.parametrize("pool", [1, 7, 2048])
@pytest.mark.parametrize("clustered", [False, True])
def test_picks_are_those_of_the_naive_greedy(monkeypatch: pytest.MonkeyPatch, pool: int, clustered: bool) -> None:
    monkeypatch.setattr(greedy, "POOL", pool)
    monkeypatch.setattr(greedy, "COLUMNS", 5)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(150, 6))
    if clustered:
        rows = 5 * rng.normal(size=(8, 6))[rng.integers(8, size=150)] + rows / 5
    picks = k_center(rows, 60, seed=3)
    assert picks.tolist() == naive(euclidean(rows), int(picks[0]), 60)


def test_it_works_in_float32_and_on_equal_samples() -> None:
    rows = np.zeros((6, 3), np.float32)
    assert sorted(k_center(rows, 6).tolist()) == [*range(6)]
    picks = k_center(np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32), 50)
    assert sorted(picks.tolist()) == [*range(50)]


def test_the_seed_decides_where_it_starts() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    assert k_center(rows, 5, seed=1).tolist() == k_center(rows, 5, seed=1).tolist()
    assert len({int(k_center(rows, 1, seed=seed)[0]) for seed in range(10)}) > 3


def test_contextual_diversity_is_k_center_on_symmetric_divergence() -> None:
    logits = np.random.default_rng(2).normal(size=(60, 5)) * 3
    p = probabilities(logits)
    divergence = ((p[:, None] - p) * (np.log(p)[:, None] - np.log(p))).sum(2)
    picks = contextual_diversity(logits, 20, seed=4)
    assert picks.tolist() == naive(divergence, int(picks[0]), 20)


def test_contextual_diversity_bears_probabilities_of_zero() -> None:
    logits = np.array([[0.0, -2000.0], [-2000.0, 0.0], [0.0, 0.0], [0.0, -1000.0]])
    picks = contextual_diversity(logits, 3)
    assert {0, 3} - set(picks.tolist())  # the two that say the same are not both among the first three

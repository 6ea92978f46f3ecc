"""Herding: the mean of the picks stays close to the mean of all."""

from __future__ import annotations

import numpy as np
import pytest

from infobatch.static import herding, k_center

ROWS = np.random.default_rng(0).gamma(1.0, size=(300, 8))


def error(picks: np.ndarray) -> float:
    return float(np.linalg.norm(ROWS[picks].mean(0) - ROWS.mean(0)))


def test_each_pick_is_the_one_that_brings_the_mean_closest() -> None:
    picks: list[int] = []
    for _ in range(40):
        means = [np.inf if i in picks else error(np.array([*picks, i])) for i in range(len(ROWS))]
        picks.append(int(np.argmin(means)))
    assert herding(ROWS, 40).tolist() == picks


@pytest.mark.parametrize("candidates", [None, 32])
def test_the_error_falls_with_the_size_and_beats_random(candidates: int | None) -> None:
    errors = [error(herding(ROWS, count, candidates=candidates)) for count in (2, 8, 32, 128)]
    assert errors == sorted(errors, reverse=True)
    rng = np.random.default_rng(1)
    for count, ours in zip((2, 8, 32, 128), errors, strict=True):
        assert ours < np.mean([error(rng.choice(300, count, replace=False)) for _ in range(50)])
    assert errors[-1] < error(k_center(ROWS, 128)) / 10  # the farthest samples are not a mean's


@pytest.mark.parametrize("candidates", [None, 7, 299, 300])
def test_every_sample_is_picked_once(candidates: int | None) -> None:
    rows = np.concatenate([ROWS, ROWS[:200]]).astype(np.float32)
    assert sorted(herding(rows, 500, candidates=candidates).tolist()) == [*range(500)]


def test_candidates_are_drawn_by_the_seed() -> None:
    draws = [herding(ROWS, 20, candidates=50, seed=seed).tolist() for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]

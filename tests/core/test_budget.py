"""The noise budget: the fewest samples at a noise factor, by brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobatch.core.budget import leaving_out, noise_factor, within_noise

SIZES = st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 100)), min_size=1, max_size=5).map(np.array)


@given(SIZES, st.floats(0.01, 2), st.floats(0.05, 0.5), st.integers(0, 1000))
def test_the_budget_is_met_and_used_up(size: np.ndarray, noise: float, floor: float, seed: int) -> None:
    count = np.random.default_rng(seed).integers(1, 50, len(size))
    keep = within_noise(size, count, noise, floor)
    assert np.all((keep >= floor) & (keep <= 1))
    factor = noise_factor(size, count, keep)
    assert factor <= 1 + noise + 1e-9
    if np.any(keep > floor):  # less would be too noisy
        less = np.where(keep > floor, np.maximum(keep * 0.98, floor), keep)
        assert noise_factor(size, count, less) > 1 + noise - 1e-9 or not size.any()


def test_no_other_probabilities_keep_fewer_samples_at_the_same_noise() -> None:
    size, count = np.array([0.1, 1.0, 4.0]), np.array([5, 3, 2])
    keep = within_noise(size, count, 0.3, 0.1)
    grid = np.linspace(0.1, 1, 46)
    fewest = min(
        float(count @ np.array(other))
        for other in itertools.product(grid, repeat=3)
        if noise_factor(size, count, np.array(other)) <= 1.3
    )
    assert float(count @ keep) <= fewest + 1e-9


def test_a_wanted_number_is_left_out() -> None:
    size, count = np.array([0.1, 1.0, 4.0]), np.array([50, 30, 20])
    keep = leaving_out(size, count, 40.0, 0.1)
    assert count @ (1 - keep) == pytest.approx(40)
    assert keep[0] < keep[1] < keep[2]

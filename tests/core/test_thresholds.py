"""Means and quantiles that do not depend on the order of summing."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from infobatch.core.thresholds import as_float32_bound, exact_mean, quantiles

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
scores_of = npst.arrays(np.float32, st.integers(1, 200), elements=finite)
checked = settings(deadline=None, derandomize=True)


@checked
@given(scores_of)
def test_mean_of_few_scores_is_correctly_rounded(scores):
    assert exact_mean(scores) == math.fsum(scores.tolist()) / len(scores)


@checked
@given(size=st.integers(4_000, 30_000), seed=st.integers(0, 10**6), spread=st.floats(0.1, 8))
def test_mean_of_many_scores(size, seed, spread):
    scores = np.random.default_rng(seed).lognormal(0, spread, size).astype(np.float32)
    assert exact_mean(scores) == pytest.approx(math.fsum(scores.tolist()) / size, rel=1e-14)


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 8192, 40_961])
def test_mean_has_one_order_of_adding(size):
    """Bit for bit what plain Python gives: no vector unit has a say."""
    scores = np.random.default_rng(size).exponential(size=size).astype(np.float32)
    lanes = [0.0] * 4096
    for i, score in enumerate(scores.tolist()):
        lanes[i % 4096] += score
    assert exact_mean(scores) == math.fsum(lanes) / size


def test_mean_does_not_depend_on_the_memory_layout():
    scores = np.random.default_rng(0).exponential(size=20_000).astype(np.float32)
    strided = np.repeat(scores, 3)[::3]
    assert not strided.flags.c_contiguous
    assert exact_mean(strided) == exact_mean(scores)


# Where the official code's float32 mean exceeds equal scores (defect 4).
@pytest.mark.parametrize("size", [5_592_409, 14_197_122])
def test_equal_scores_are_never_below_their_mean(size):
    for value in np.array([1.0, 0.1, 2.3025851, 1e-30], np.float32):
        assert exact_mean(np.full(size, value)) == value


@pytest.mark.parametrize("value", np.array([1, 0.1, 6.9077554, 3e38, 1e-45, -0.3], np.float32))
def test_equal_scores_of_any_count(value):
    for size in (1, 2, 3, 7, 4095, 4097, 50_001, 1_281_167):
        assert exact_mean(np.full(size, value)) == value


def test_neither_threshold_depends_on_the_number_of_threads():
    scores = np.random.default_rng(1).exponential(size=1_281_167).astype(np.float32)
    before = torch.get_num_threads()
    try:
        found = set()
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.add((exact_mean(scores), *quantiles(scores, [0.2, 0.85])))
        assert len(found) == 1
    finally:
        torch.set_num_threads(before)


@checked
@given(
    scores=scores_of, shares=st.lists(st.integers(0, 100).map(lambda n: n / 100), min_size=1, max_size=4).map(sorted)
)
def test_quantiles_are_those_of_numpy(scores, shares):
    np.testing.assert_allclose(
        quantiles(scores, shares),
        np.quantile(scores.astype(np.float64), shares),
        rtol=1e-12,
        atol=1e-15 * float(np.abs(scores).max()),
    )


@checked
@given(scores=npst.arrays(np.float32, st.integers(1, 50), elements=finite), share=st.floats(0, 1))
def test_equal_scores_are_never_below_their_quantile(scores, share):
    scores[:] = scores[0]
    assert quantiles(scores, [share]) == [scores[0]]


def test_quantiles_leave_the_scores_in_place():
    scores = np.array([3, 1, 2, 5, 4], np.float32)
    assert quantiles(scores, [0.0, 0.5, 1.0]) == [1, 3, 5]
    assert scores.tolist() == [3, 1, 2, 5, 4]


@checked
@given(score=finite, threshold=st.floats(-(2.0**127), 2.0**127))
def test_float32_bound_decides_as_the_threshold_does(score, threshold):
    assert (np.float32(score) < as_float32_bound(threshold)) == (score < threshold)
    assert (np.float32(score) > -as_float32_bound(-threshold)) == (score > threshold)


@checked
@given(finite)
def test_float32_bound_of_a_float32_is_itself(score):
    assert as_float32_bound(score) == score
    just_above = math.nextafter(score, math.inf)
    assert as_float32_bound(just_above) == np.nextafter(np.float32(score), np.float32(np.inf))

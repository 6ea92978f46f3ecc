"""Draws with exact inclusion probabilities: shown over all outcomes, and by chi-square with the real generator."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from chance import expected_weights, is_unbiased, outcomes
from infobatch.core import draw, threads
from infobatch.core.draw import fixed_size, systematic
from infobatch.core.plan import generator
from infobatch.core.weights import MAX_LEVELS, Weights

EVERYDAY = (1e-3, 1 - 1e-3)  # where the p-value of a fair source nearly always lies

# (sizes of the groups from group 0 on, how many of each to prune)
GROUPS = [
    ((0, 3), (0, 1)),
    ((2, 3), (0, 2)),
    ((1, 4, 5), (0, 3, 1)),
    ((0, 1, 7), (0, 0, 6)),
    ((2, 2, 2, 2, 2, 2), (0, 1, 1, 1, 1, 1)),  # more than a few groups: found by one sort
    ((3, 0, 4, 0), (0, 0, 2, 0)),
]


def grouped(sizes, mixed_by=None):
    group = np.repeat(np.arange(len(sizes)), sizes)
    if mixed_by is not None:
        np.random.default_rng(mixed_by).shuffle(group)
    return group


@pytest.mark.parametrize(("sizes", "prune"), GROUPS)
def test_fixed_size_is_unbiased_over_all_outcomes(sizes, prune):
    group = grouped(sizes, mixed_by=1)
    assert is_unbiased(lambda rng: fixed_size(group, np.array(prune), rng))


@pytest.mark.parametrize(("sizes", "prune"), GROUPS)
def test_fixed_size_leaves_out_exactly_as_many_and_weighs_the_rest_by_size_over_kept(sizes, prune):
    group = grouped(sizes, mixed_by=2)
    for _, weights in outcomes(lambda rng: fixed_size(group, np.array(prune), rng)):
        for g, (size, pruned) in enumerate(zip(sizes, prune, strict=True)):
            of_group = [weights[i] for i in np.flatnonzero(group == g)]
            assert of_group.count(0) == pruned
            assert set(of_group) - {0.0} == ({size / (size - pruned)} if size else set())


def test_without_rescaling_survivors_weigh_one_and_the_expectation_is_the_share_kept():
    group = np.array([0, 1, 1, 1, 1, 2, 2])
    expected = expected_weights(lambda rng: fixed_size(group, np.array([0, 1, 1]), rng, rescale=False))
    assert expected == [1, *[Fraction(3, 4)] * 4, *[Fraction(1, 2)] * 2]


def test_nothing_to_prune_gives_ones_and_asks_for_no_chance():
    weights = fixed_size(np.array([0, 1, 1]), np.array([0, 0]), rng=None)
    assert weights.uniform
    assert weights.kept().tolist() == [0, 1, 2]


def test_more_different_weights_than_codes_can_name():
    sizes = [0, *range(3, MAX_LEVELS + 30)]
    prune = np.array([0] + [1] * (len(sizes) - 1))
    group = grouped(sizes, mixed_by=3)
    weights = fixed_size(group, prune, generator(0, 1))
    assert weights.values is not None
    values = weights.of(np.arange(len(group)))
    for g, size in enumerate(sizes[1:], start=1):
        of_group = values[group == g]
        assert (of_group == 0).sum() == 1
        assert set(of_group[of_group > 0]) == {size / (size - 1)}


@pytest.mark.parametrize("bits", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_large_groups_are_drawn_by_keys_and_every_set_is_equally_likely(monkeypatch, bits, count):
    """Over all outcomes: all keys, and all ways to decide among equal ones."""
    monkeypatch.setattr(draw, "_SMALL", 0)
    monkeypatch.setattr(draw, "random_bytes", lambda rng, count: np.frombuffer(rng.bytes(count), np.uint8))
    members = np.array([True, True, False, True, True])

    def left_out(rng):
        values = np.ones(5)
        draw.leave_out(values, members, count, rng, bits)
        return Weights.dense(values)

    probability = Counter()
    for chance, weights in outcomes(left_out):
        probability[tuple(np.flatnonzero(np.array(weights) == 0))] += chance
    sets = list(itertools.combinations([0, 1, 3, 4], count))
    assert probability == dict.fromkeys(sets, Fraction(1, len(sets)))


@pytest.mark.parametrize("prune", [(0, 1, 1), (0, 2, 0), (0, 2, 1)])
def test_many_groups_are_drawn_from_at_once_and_every_set_is_equally_likely(monkeypatch, prune):
    """Over all outcomes, as above."""
    monkeypatch.setattr(draw, "_FEW", 0)
    monkeypatch.setattr(draw, "_SMALL", 0)
    monkeypatch.setattr(draw, "random_bytes", lambda rng, count: np.frombuffer(rng.bytes(count), np.uint8))
    group = np.array([1, 2, 0, 1, 2, 1], np.uint8)
    probability = Counter()
    for chance, weights in outcomes(lambda rng: fixed_size(group, np.array(prune), rng)):
        probability[tuple(weights)] += chance
    expected = []
    for first in itertools.combinations([0, 3, 5], prune[1]):
        for second in itertools.combinations([1, 4], prune[2]):
            weights = np.array([1, 3 / (3 - prune[1]), 2 / (2 - prune[2])])[group]
            weights[[*first, *second]] = 0
            expected.append(tuple(weights))
    assert probability == dict.fromkeys(expected, Fraction(1, len(expected)))


def test_many_large_groups_lose_exactly_as_many_as_they_should():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 40, 100_000).astype(np.uint8)
    size = np.bincount(group)
    prune = rng.integers(0, size)
    prune[[0, 7]] = 0
    weights = fixed_size(group, prune, rng).of(np.arange(len(group)))
    assert np.bincount(group, weights == 0).tolist() == prune.tolist()
    np.testing.assert_allclose(weights[weights > 0], (size / (size - prune))[group][weights > 0])
    thirds = np.bincount(np.arange(len(group)) * 3 // len(group), weights == 0)  # nowhere more than elsewhere
    assert stats.chisquare(thirds).pvalue > 1e-3


@pytest.mark.parametrize("chunk", [10, 3])
@pytest.mark.parametrize("small", [4096, 0], ids=["one by one", "by keys"])
def test_every_set_is_equally_likely_with_the_real_generator(monkeypatch, small, chunk):
    """In one chunk and in several, of which each gets its part of the whole."""
    monkeypatch.setattr(draw, "_SMALL", small)
    monkeypatch.setattr(draw, "_CHUNK", chunk)
    group, rng = np.array([1, 1, 0, 1, 1, 1]), generator(7, 1)
    drawn = Counter(tuple(fixed_size(group, np.array([0, 2]), rng).kept().tolist()) for _ in range(2_000))
    assert len(drawn) == 10  # 5 over 2
    p = stats.chisquare(list(drawn.values())).pvalue
    assert EVERYDAY[0] < p < EVERYDAY[1]


def test_random_bytes_are_independent_and_uniform():
    drawn = draw.random_bytes(generator(5, 1), 200_003)
    assert len(drawn) == 200_003
    assert EVERYDAY[0] < stats.chisquare(np.bincount(drawn, minlength=256)).pvalue < EVERYDAY[1]
    pairs = np.histogram2d(drawn[:-1] >> 4, drawn[1:] >> 4, bins=16)[0]
    assert EVERYDAY[0] < stats.chi2_contingency(pairs).pvalue < EVERYDAY[1]


def test_threads_do_not_change_the_outcome(monkeypatch):
    monkeypatch.setattr(draw, "_CHUNK", 5_000)
    monkeypatch.setattr(threads, "_LARGE", 0)
    group = grouped((10_000, 30_000, 20_000), mixed_by=1)
    before, outcome = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            outcome.append(fixed_size(group, np.array([0, 9_000, 5]), generator(1, 1)).of(np.arange(len(group))))
    finally:
        torch.set_num_threads(before)
    assert [(outcome[0][group == g] == 0).sum() for g in range(3)] == [0, 9_000, 5]
    assert np.array_equal(outcome[0], outcome[1])
    assert np.array_equal(outcome[0], outcome[2])


@pytest.mark.parametrize("chunk", [1 << 18, 1_000])
@pytest.mark.parametrize(("size", "pruned"), [(20_000, 10_000), (20_000, 199), (5_001, 3_750)])
def test_inclusion_counts_are_uniform_on_large_data(monkeypatch, size, pruned, chunk):
    monkeypatch.setattr(draw, "_CHUNK", chunk)
    epochs, group, prune = 300, np.ones(size, np.uint8), np.array([0, pruned])
    count = np.zeros(size)
    for epoch in range(epochs):
        count[fixed_size(group, prune, generator(11, epoch)).kept()] += 1
    share = 1 - pruned / size
    # draws of fixed size: the counts have covariance epochs · π(1-π) · (n I - J) / (n - 1)
    statistic = np.sum((count - epochs * share) ** 2) / (epochs * share * (1 - share)) * (size - 1) / size
    p = stats.chi2.sf(statistic, size - 1)
    assert EVERYDAY[0] < p < EVERYDAY[1]


def test_successive_epochs_are_drawn_independently():
    size, group, prune = 50_000, np.ones(50_000, np.uint8), np.array([0, 25_000])
    first, second = (fixed_size(group, prune, generator(3, epoch)).of(np.arange(size)) > 0 for epoch in (1, 2))
    table = [[np.sum(first & second), np.sum(first & ~second)], [np.sum(~first & second), np.sum(~first & ~second)]]
    assert stats.chi2_contingency(table).pvalue > EVERYDAY[0]


@settings(deadline=None, derandomize=True, max_examples=40)
@given(keep=st.lists(st.floats(1e-3, 1), min_size=1, max_size=4), bits=st.integers(1, 4))
def test_systematic_is_unbiased_over_all_outcomes(keep, bits):
    assert is_unbiased(lambda rng: systematic(np.array(keep), rng, bits))
    for _, weights in outcomes(lambda rng: systematic(np.array(keep), rng, bits)):
        assert all(w <= 1 / k for w, k in zip(weights, keep, strict=True))  # probabilities are rounded up


@settings(deadline=None, derandomize=True, max_examples=30)
@given(ticks=st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_systematic_includes_with_exactly_the_given_probability(ticks):
    included = [Fraction(0)] * len(ticks)
    for probability, weights in outcomes(lambda rng: systematic(np.array(ticks) / 8, rng, bits=3)):
        included = [p + probability * (w > 0) for p, w in zip(included, weights, strict=True)]
        assert abs(sum(w > 0 for w in weights) - sum(ticks) / 8) < 1
        assert all(w in (0, 8 / t) for w, t in zip(weights, ticks, strict=True))
    assert included == [Fraction(t, 8) for t in ticks]


def test_systematic_inclusion_counts_on_large_data():
    size, epochs = 4_000, 400
    keep = np.random.default_rng(5).uniform(0.02, 0.98, size)
    count = np.zeros(size)
    for epoch in range(epochs):
        weights = systematic(keep, generator(13, epoch))
        kept = weights.kept()
        assert abs(len(kept) - keep.sum()) < 1
        np.testing.assert_allclose(weights.of(kept), 1 / keep[kept], rtol=1e-7)
        count[kept] += 1
    statistic = np.sum((count - epochs * keep) ** 2 / (epochs * keep * (1 - keep)))
    assert EVERYDAY[0] < stats.chi2.sf(statistic, size - 1) < EVERYDAY[1]


def test_systematic_keeps_what_is_certain():
    keep = np.array([1.0, 0.25, 1.0, 0.5])
    for _, weights in outcomes(lambda rng: systematic(keep, rng, bits=2)):
        assert weights[0] == weights[2] == 1


@pytest.mark.parametrize("wrong", [0.0, -0.1, 1.1, np.nan])
def test_systematic_refuses_what_is_no_probability(wrong):
    with pytest.raises(ValueError, match=r"keep: probabilities must lie in \(0, 1\]"):
        systematic(np.array([0.5, wrong]), generator(0, 0))
